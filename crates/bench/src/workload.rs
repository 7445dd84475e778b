//! Made-up states and blocks, each a pure function of a seed.
//!
//! A state has so many keys: accounts with a balance, and slots of a contract. A block has so many
//! operations. What is drawn *by a power law* is drawn with a probability in proportion to 1/rank,
//! as transfers of well-used tokens are.

use std::collections::BTreeMap;
use std::time::Duration;

use alloy_primitives::{Address, B256, U256, keccak256};
use spinney_state::{AccountChange, Change, Changes};

use crate::error::BenchError;
use crate::input::{Block, Input, Ledger, Touched, touch};

/// How many entries of the first state are made at once.
const PART: u64 = 50_000;

/// What is done to the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Half of the keys are accounts, half their balances of one token. An operation moves some of
    /// it from one account to another, both drawn by a power law: two slots, and the sender's nonce
    /// and balance.
    Transfers,
    /// All keys are slots of one contract. Of five operations four change a slot drawn evenly, one
    /// adds one.
    Giant,
    /// All keys are accounts. An operation makes a new one.
    Accounts,
    /// Half of the keys are accounts, half slots of one contract, drawn evenly. Of four operations
    /// one deletes an account, one clears a slot, one makes an account, one sets a slot.
    Deletes,
}

impl Workload {
    const fn name(self) -> &'static str {
        match self {
            Self::Transfers => "transfers",
            Self::Giant => "giant",
            Self::Accounts => "accounts",
            Self::Deletes => "deletes",
        }
    }
}

/// A workload and its size.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadSize {
    /// What is done.
    pub workload: Workload,
    /// Accounts and slots of the first state.
    pub keys: u64,
    /// How many blocks.
    pub blocks: u64,
    /// Operations of a block.
    pub operations: u64,
    /// Where the chance comes from.
    pub seed: u64,
}

const TOKEN: Address = Address::repeat_byte(0x70);

fn account(number: u64) -> Address {
    Address::from_slice(&keccak256(number.to_be_bytes())[..20])
}

/// Slots of a mapping lie anywhere.
fn slot(number: u64) -> B256 {
    keccak256([number.to_be_bytes(), *b"slot/map"].concat())
}

fn balance(value: u64) -> Change {
    let balance = Some(U256::from(value) + U256::from(10).pow(U256::from(15)));
    Change::Written(AccountChange { balance, nonce: Some(value & 0xffff), ..Default::default() })
}

/// Numbers drawn for one operation of one block.
struct Draw(B256);

impl Draw {
    fn of(seed: u64, block: u64, operation: u64) -> Self {
        Self(keccak256([seed, block, operation].map(u64::to_be_bytes).concat()))
    }

    /// One of four numbers.
    fn word(&self, index: usize) -> u64 {
        let bytes = &self.0[8 * index..8 * index + 8];
        u64::from_be_bytes(bytes.try_into().expect("8 bytes"))
    }

    fn evenly(&self, index: usize, below: u64) -> u64 {
        self.word(index) % below.max(1)
    }

    /// `below` to the power of a number drawn evenly from 0 to 1: rank r comes with probability
    /// 1/r.
    fn by_power_law(&self, index: usize, below: u64) -> u64 {
        let even = (self.word(index) >> 11) as f64 / (1_u64 << 53) as f64;
        ((below.max(1) as f64).powf(even) as u64 - 1).min(below.max(1) - 1)
    }
}

impl WorkloadSize {
    /// How many of the keys are accounts; the rest are slots.
    fn accounts(&self) -> u64 {
        match self.workload {
            Workload::Transfers | Workload::Deletes => self.keys / 2,
            Workload::Giant => 0,
            Workload::Accounts => self.keys,
        }
    }

    fn slots(&self) -> u64 {
        self.keys - self.accounts()
    }

    /// A part of the first state.
    fn part(&self, part: u64) -> Option<Changes> {
        let (from, to) = (part * PART, ((part + 1) * PART).min(self.keys));
        if from >= to && part > 0 {
            return None;
        }
        let mut changes = Changes::default();
        for number in from..to.min(self.accounts()) {
            changes.accounts.insert(account(number), balance(number));
        }
        let slots = from.max(self.accounts())..to;
        if !slots.is_empty() || part == 0 {
            let slots = slots.map(|number| number - self.accounts());
            let storage = slots.map(|number| (slot(number), U256::from(number + 1))).collect();
            set_slots(&mut changes, storage);
        }
        Some(changes)
    }

    fn operate(&self, block: u64, operation: u64, changes: &mut Changes) {
        let draw = Draw::of(self.seed, block, operation);
        let (accounts, slots) = (self.accounts(), self.slots());
        let made = block * self.operations + operation;
        let value = draw.word(3) >> 8 | 1;
        let mut set = |number, value| {
            set_slots(changes, BTreeMap::from([(slot(number), U256::from(value))]));
        };
        match (self.workload, operation % 5) {
            (Workload::Transfers, _) => {
                let [from, to] = [0, 1].map(|index| draw.by_power_law(index, slots));
                set(from, value);
                set(to, value + 1);
                changes.accounts.insert(account(from.min(accounts - 1)), balance(value));
            }
            (Workload::Giant, 4) => set(slots + made, value),
            (Workload::Giant, _) => set(draw.evenly(0, slots), value),
            (Workload::Accounts, _) => {
                changes.accounts.insert(account(accounts + made), balance(value));
            }
            (Workload::Deletes, _) => match operation % 4 {
                0 => {
                    // Only what is there can be deleted: each number once.
                    let gone = block * self.operations.div_ceil(4) + operation / 4;
                    if gone < accounts {
                        changes.accounts.insert(account(gone), Change::Deleted);
                    }
                }
                1 => set(draw.evenly(0, slots), 0),
                2 => drop(changes.accounts.insert(account(accounts + made), balance(value))),
                _ => set(draw.evenly(0, slots), value),
            },
        }
    }

    /// The first state and the blocks.
    ///
    /// # Errors
    /// Without keys, or operations, there is no workload.
    pub fn input(self) -> Result<Input, BenchError> {
        if self.keys == 0 || self.operations == 0 {
            return Err(BenchError::Nothing);
        }
        let mut ledger = Ledger::default();
        (0..).map_while(|part| self.part(part)).for_each(|changes| ledger.apply(&changes));
        let block = |number: u64| {
            let mut changes = Changes::default();
            (0..self.operations).for_each(|op| self.operate(number, op, &mut changes));
            let mut touched = Touched::new();
            touch(&mut touched, &changes);
            ledger.apply(&changes);
            Block {
                number: number + 1,
                transactions: self.operations,
                execution: Duration::ZERO,
                touched,
                code_bytes: None,
                changes,
                root: None,
                entries: ledger.entries(),
            }
        };
        let blocks = (0..self.blocks).map(block).collect();
        let Self { workload, keys, blocks: count, operations, seed } = self;
        let name = format!(
            "workload {}: {keys} keys, {count} blocks of {operations} operations, seed {seed}",
            workload.name()
        );
        Ok(Input { name, start: Box::new(move |part| self.part(part)), blocks, checked: false })
    }
}

/// Adds slots of the contract, which is there.
fn set_slots(changes: &mut Changes, storage: BTreeMap<B256, U256>) {
    let nothing = || Change::Written(AccountChange { nonce: Some(1), ..Default::default() });
    if let Change::Written(change) = changes.accounts.entry(TOKEN).or_insert_with(nothing) {
        change.storage.extend(storage);
    }
}

#[cfg(test)]
mod tests {
    use super::{Draw, Workload, WorkloadSize};
    use crate::input::Ledger;

    fn size(workload: Workload) -> WorkloadSize {
        WorkloadSize { workload, keys: 1_000, blocks: 7, operations: 20, seed: 3 }
    }

    #[test]
    fn a_state_has_the_keys_that_were_asked_for() {
        for workload in
            [Workload::Transfers, Workload::Giant, Workload::Accounts, Workload::Deletes]
        {
            let input = size(workload).input().unwrap();
            let mut ledger = Ledger::default();
            for changes in (0..).map_while(|part| (input.start)(part)) {
                ledger.apply(&changes);
            }
            // And the contract.
            assert_eq!(ledger.entries(), 1_001, "{workload:?}");
            assert_eq!(input.blocks.len(), 7);
            assert!(input.blocks.iter().all(|block| !block.touched.is_empty()));
            let again = size(workload).input().unwrap();
            let same = |(a, b): (&super::Block, &super::Block)| a.changes == b.changes;
            assert!(input.blocks.iter().zip(&again.blocks).all(same), "{workload:?}");
        }
    }

    #[test]
    fn the_power_law_prefers_the_first() {
        let ranks: Vec<_> = (0..10_000).map(|n| Draw::of(1, 0, n).by_power_law(0, 1_000)).collect();
        let below = |rank| ranks.iter().filter(|&&found| found < rank).count();
        // The logarithm of the rank is drawn evenly.
        for (rank, share) in [(9, 3_333), (99, 6_667), (1_000, 10_000)] {
            assert!(below(rank).abs_diff(share) < 300, "{rank}: {}", below(rank));
        }
    }
}
