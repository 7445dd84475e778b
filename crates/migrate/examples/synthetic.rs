//! A state of any size, made up, in a store of its own: to measure what is done with it.
//!
//! ```text
//! cargo run --release -p spinney-migrate -F measure --example synthetic -- DIR [ACCOUNTS] [SLOTS]
//! ```
//! Addresses, slot keys and values are Keccak-256 of a counter. Of a hundred accounts five are
//! contracts, of one of a thousand codes; slots are spread over the contracts, half of them in the
//! first one.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use spinney_pipeline::{Gather, Options, PipelineError, Progress, RunName};
use spinney_state::{AccountChange, MPT, leaves_of};
use spinney_store::RedbStore;
use spinney_tree::mpt::MptState;
use spinney_tree::{BlockId, PageStore, Table, Tree, WriteSet};

const CODES: u64 = 1_000;
const CONTRACT_EVERY: u64 = 20;
const NOTED: usize = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("give a directory for the store")?;
    let mut number = |or: u64| args.next().map_or(Ok(or), |text| text.parse());
    let (accounts, slots) = (number(1_000_000)?, number(3_000_000)?);
    let started = Instant::now();
    let store = RedbStore::create(Path::new(&dir), 64 << 20)?;
    let mut tree = Tree::open(MptState, MPT, &store.snapshot()?, 64 << 20)?;
    let options = Options::default();
    let name = RunName::of(&tree, format!("{accounts} {slots}").as_bytes(), &options);
    let mut gather = Gather::open(Path::new(&format!("{dir}.leaves")), name, options)?;
    let mut notes = Notes { store: &store, set: WriteSet::new() };
    for index in 0..accounts {
        let address = Address::from_slice(&word("account", index)[12..]);
        let mut change = account(index);
        let mut left = 0..slots_of(index, accounts, slots);
        // A large contract's slots come by and by, with its fields each time.
        loop {
            change.storage = left.by_ref().take(10_000).map(|slot| entry(index, slot)).collect();
            let is_first = left.start <= 10_000;
            let mut leaves = Vec::new();
            let preimage = |hash: B256, bytes: &[u8]| {
                notes.set.put(Table::Preimages, hash.as_slice(), bytes.to_vec());
                Ok(())
            };
            leaves_of(address, &change, preimage, |key, value| {
                leaves.push((key.to_vec(), value.to_vec()));
                Ok::<_, PipelineError>(())
            })?;
            for (key, value) in leaves.iter().skip(usize::from(!is_first)) {
                gather.push(key, value)?;
            }
            if let Some(code) = &change.code {
                notes.set.put(Table::Codes, keccak256(code).as_slice(), code.to_vec());
            }
            notes.keep(false)?;
            if left.is_empty() {
                break;
            }
        }
    }
    notes.keep(true)?;
    let block = BlockId { number: 1, hash: word("block", 1).0 };
    let mut watch = |_: &Progress<'_>| ControlFlow::Continue(());
    let report = gather.rebuild(&mut tree, &store, Some(block), None, &mut watch)?;
    println!(
        "{accounts} accounts, {slots} slots: {} leaves, root {}, {:.1} s",
        report.leaves,
        B256::from(tree.root()),
        started.elapsed().as_secs_f64()
    );
    drop(tree);
    store.close()?;
    Ok(())
}

fn word(what: &str, index: u64) -> B256 {
    keccak256([what.as_bytes(), &index.to_be_bytes()].concat())
}

fn account(index: u64) -> AccountChange {
    let code = index.is_multiple_of(CONTRACT_EVERY).then(|| {
        let seed = word("code", index / CONTRACT_EVERY % CODES);
        let length = 200 + u64::from(seed[0]) * 40;
        let words =
            (0..length / 32).map(|at| keccak256([seed, B256::from(U256::from(at))].concat()));
        Bytes::from(words.flat_map(|word| word.0).collect::<Vec<_>>())
    });
    AccountChange {
        nonce: Some(index % 50),
        balance: Some(U256::from(u128::from_be_bytes(
            word("balance", index)[16..].try_into().expect("16 bytes"),
        ))),
        code_hash: code.as_ref().map(keccak256),
        code,
        ..AccountChange::default()
    }
}

fn slots_of(index: u64, accounts: u64, slots: u64) -> u64 {
    let contracts = accounts.div_ceil(CONTRACT_EVERY);
    match index {
        0 if contracts == 1 => slots,
        0 => slots - slots / 2 / (contracts - 1) * (contracts - 1),
        _ if index.is_multiple_of(CONTRACT_EVERY) => slots / 2 / (contracts - 1),
        _ => 0,
    }
}

fn entry(index: u64, slot: u64) -> (B256, U256) {
    let key = match slot % 4 {
        0 => B256::from(U256::from(slot)),
        _ => word("slot", index << 32 | slot),
    };
    (key, U256::from_be_bytes(word("value", index << 32 | slot).0) >> (8 * (slot % 32)))
}

/// Code and preimages on their way to the store.
struct Notes<'s> {
    store: &'s RedbStore,
    set: WriteSet,
}

impl Notes<'_> {
    fn keep(&mut self, all: bool) -> Result<(), Box<dyn Error>> {
        if all || self.set.rows().len() >= NOTED {
            let mut set = std::mem::take(&mut self.set);
            set.sort();
            self.store.commit(&set)?;
        }
        Ok(())
    }
}
