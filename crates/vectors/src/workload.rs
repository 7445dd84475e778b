//! `bench_roots.json`: large states from a generator, and rounds of updates.

use std::collections::HashSet;

use alloy_primitives::{Address, B256, U256};
use serde::Deserialize;
use spinney_state::{AccountChange, Change, Changes};

use super::hex::Hash;
use super::splitmix::SplitMix;
use super::subject::Accounts;
use super::{Options, Outcome, VectorError};

/// Where the states are drawn from, and the first of the rounds.
const BUILD_SEED: u64 = 42;
const ROUND_SEED: u64 = 1_000;
/// Accounts beside the large one of `whale2`.
const WHALE_CROWD: u64 = 1_000;

#[derive(Deserialize)]
struct WorkloadFile {
    cases: Vec<WorkloadCase>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkloadCase {
    shape: String,
    n: u64,
    u: usize,
    build_root: Hash,
    #[serde(default)]
    round_roots: Vec<Hash>,
}

pub(super) fn run(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    let file: WorkloadFile = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    for case in &file.cases {
        let roots = 1 + case.round_roots.len() as u64;
        match Keys::build(&case.shape, case.n) {
            Some((keys, changes)) if case.n <= options.keys_max => {
                run_case(case, keys, &changes, options, &mut outcome)?;
            }
            _ => outcome.skipped += roots,
        }
    }
    Ok(outcome)
}

fn run_case(
    case: &WorkloadCase,
    mut keys: Keys,
    changes: &Changes,
    options: &Options,
    outcome: &mut Outcome,
) -> Result<(), VectorError> {
    let name = format!("{} of {} keys", case.shape, case.n);
    // Pages of as many keys take too long to compare after every round.
    let mut state = Accounts::new(options, false)?;
    let root = state.commit(changes)?;
    outcome.root(|| name.clone(), root, &case.build_root);
    for (round, expected) in case.round_roots.iter().enumerate() {
        let root = state.commit(&keys.round(round as u64, case.u))?;
        outcome.root(|| format!("{name}, {} a round, round {round}", case.u), root, expected);
    }
    Ok(())
}

impl SplitMix {
    fn word(&mut self) -> B256 {
        let parts = [self.next(), self.next(), self.next(), self.next()];
        B256::from_slice(&parts.map(u64::to_le_bytes).concat())
    }

    fn address(&mut self) -> Address {
        let parts = [self.next(), self.next(), self.next()];
        Address::from_slice(&parts.map(u64::to_le_bytes).concat()[..20])
    }

    fn value(&mut self) -> U256 {
        U256::from(self.next() | 1)
    }
}

/// The keys of a state in the order in which they were drawn.
#[derive(Default)]
struct Keys(Vec<Key>);

enum Key {
    Account { address: Address, nonce: u64 },
    Slot { address: Address, slot: B256 },
}

impl Keys {
    fn build(shape: &str, n: u64) -> Option<(Self, Changes)> {
        let mut keys = Self(Vec::new());
        let mut changes = Changes::default();
        let mut draw = SplitMix(BUILD_SEED);
        let rest = |keys: &Self| n.saturating_sub(keys.0.len() as u64);
        match shape {
            "acc" => (0..n).for_each(|_| keys.account(0, &mut draw, &mut changes)),
            "mixed" => {
                while rest(&keys) > 0 {
                    keys.account(4, &mut draw, &mut changes);
                }
            }
            "whale" => keys.account(n.saturating_sub(1), &mut draw, &mut changes),
            "whale2" => {
                (0..WHALE_CROWD).for_each(|_| keys.account(0, &mut draw, &mut changes));
                let slots = rest(&keys).saturating_sub(1);
                keys.account(slots, &mut draw, &mut changes);
            }
            _ => return None,
        }
        Some((keys, changes))
    }

    fn account(&mut self, slots: u64, draw: &mut SplitMix, changes: &mut Changes) {
        let address = draw.address();
        let balance = Some(U256::from(draw.next()));
        let nonce = draw.next() % 1_000;
        self.0.push(Key::Account { address, nonce });
        let mut change = AccountChange { nonce: Some(nonce), balance, ..AccountChange::default() };
        for _ in 0..slots {
            let slot = draw.word();
            change.storage.insert(slot, draw.value());
            self.0.push(Key::Slot { address, slot });
        }
        changes.accounts.insert(address, Change::Written(change));
    }

    fn round(&mut self, round: u64, count: usize) -> Changes {
        let mut draw = SplitMix(ROUND_SEED + round);
        let mut changes = Changes::default();
        let mut picked = HashSet::new();
        while picked.len() < count.min(self.0.len()) {
            let index = (draw.next() % self.0.len() as u64) as usize;
            if !picked.insert(index) {
                continue;
            }
            let key = &mut self.0[index];
            let (Key::Account { address, .. } | Key::Slot { address, .. }) = key;
            let written = || Change::Written(AccountChange::default());
            let change = changes.accounts.entry(*address).or_insert_with(written);
            let Change::Written(change) = change else { continue };
            match key {
                Key::Account { nonce, .. } => {
                    *nonce += 1;
                    change.balance = Some(U256::from(draw.next()));
                    change.nonce = Some(*nonce);
                }
                Key::Slot { slot, .. } => {
                    change.storage.insert(*slot, draw.value());
                }
            }
        }
        changes
    }
}
