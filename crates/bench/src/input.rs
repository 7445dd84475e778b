//! What is measured: the same blocks for every tree and store.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::BufRead;
use std::time::Duration;

use alloy_primitives::{Address, B256, Bytes, U256};
use spinney_replay::{
    BlockDiff, ChainReader, Check, DiffError, Genesis, Replay, ReplayError, SealedBlock,
    TraceReader, WorldState,
};
use spinney_state::{Account, Change, Changes, KeepHistory, State, StateError, StateRead};
use spinney_tree::{CACHE_BYTES_DEFAULT, MemoryStore, SharedStore};

use crate::error::BenchError;

/// Accounts, and slots of them.
pub(crate) type Touched = BTreeMap<Address, BTreeSet<B256>>;

/// What a block asks of a state and does to it.
pub(crate) struct Block {
    pub(crate) number: u64,
    pub(crate) transactions: u64,
    /// Executing it, without reading and applying; zero where nothing is executed.
    pub(crate) execution: Duration,
    /// What it read or wrote.
    pub(crate) touched: Touched,
    /// Bytes of the codes that it read, each once; nothing where nothing was executed.
    pub(crate) code_bytes: Option<u64>,
    pub(crate) changes: Changes,
    /// The root of the Merkle Patricia trie afterwards, where a header gives it.
    pub(crate) root: Option<B256>,
    /// Accounts and slots that there are afterwards.
    pub(crate) entries: u64,
}

/// A state to begin with, in parts that fit into memory, and the blocks.
pub struct Input {
    /// What it is, for people.
    pub name: String,
    /// Makes part after part of the first state.
    pub(crate) start: Box<dyn Fn(u64) -> Option<Changes>>,
    pub(crate) blocks: Vec<Block>,
    /// Whether roots of headers are compared.
    pub(crate) checked: bool,
}

impl Input {
    /// How many blocks there are.
    #[must_use]
    pub const fn block_count(&self) -> u64 {
        self.blocks.len() as u64
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Which accounts and slots there are.
#[derive(Debug, Default)]
pub(crate) struct Ledger(BTreeSet<(Address, Option<B256>)>);

impl Ledger {
    pub(crate) fn apply(&mut self, changes: &Changes) {
        for (address, change) in &changes.accounts {
            let fresh = matches!(change, Change::Deleted)
                || matches!(change, Change::Written(change) if change.fresh);
            if fresh {
                let all = (*address, None)..=(*address, Some(B256::repeat_byte(0xff)));
                let gone: Vec<_> = self.0.range(all).copied().collect();
                for entry in gone {
                    self.0.remove(&entry);
                }
            }
            let Change::Written(change) = change else { continue };
            self.0.insert((*address, None));
            for (slot, value) in &change.storage {
                let entry = (*address, Some(*slot));
                let _ = if value.is_zero() { self.0.remove(&entry) } else { self.0.insert(entry) };
            }
        }
    }

    pub(crate) fn entries(&self) -> u64 {
        self.0.len() as u64
    }
}

/// Adds what changes write to what is touched.
pub(crate) fn touch(touched: &mut Touched, changes: &Changes) {
    for (address, change) in &changes.accounts {
        let slots = touched.entry(*address).or_default();
        if let Change::Written(change) = change {
            slots.extend(change.storage.keys());
        }
    }
}

/// A state in memory that notes what is asked of it.
struct Recorder {
    state: State<SharedStore<'static>>,
    touched: RefCell<Touched>,
    /// Codes, and how long they are.
    codes: RefCell<BTreeMap<B256, u64>>,
}

impl StateRead for Recorder {
    type Error = StateError;

    fn account(&self, address: Address) -> Result<Option<Account>, StateError> {
        self.touched.borrow_mut().entry(address).or_default();
        self.state.account(address)
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, StateError> {
        self.touched.borrow_mut().entry(address).or_default().insert(slot);
        self.state.storage(address, slot)
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, StateError> {
        let code = self.state.code(hash)?;
        let length = code.as_ref().map_or(0, |code| code.len() as u64);
        self.codes.borrow_mut().insert(hash, length);
        Ok(code)
    }
}

impl WorldState for Recorder {
    fn apply(&mut self, changes: &Changes) -> Result<B256, StateError> {
        self.state.apply(changes)
    }

    fn layer_count(&self) -> usize {
        self.state.layer_count()
    }

    fn undo_to(&mut self, layer_count: usize) -> Result<(), StateError> {
        self.state.undo_to(layer_count);
        Ok(())
    }

    fn seal(&mut self, block: &SealedBlock<'_>) -> Result<(), StateError> {
        WorldState::seal(&mut self.state, block)
    }

    fn has_storage(&self, address: Address) -> Result<bool, StateError> {
        self.state.has_storage(address)
    }

    fn commit(&mut self) -> Result<(), StateError> {
        self.state.commit().map(drop)
    }
}

/// Executes a chain once, or follows its traces, in memory, and notes what each block reads and
/// does. All of it is held.
///
/// # Errors
/// Of blocks that are bad or cannot be read, and [`BenchError::TracesEnd`].
pub fn record<T: BufRead>(
    mut name: String,
    genesis: Genesis,
    (blocks, mut traces): (ChainReader<'static>, Option<TraceReader<T>>),
    last: Option<u64>,
) -> anyhow::Result<Input> {
    let mut state = State::open(SharedStore::new(MemoryStore::new()), CACHE_BYTES_DEFAULT)?;
    state.keep_preimages(false);
    state.keep_history(KeepHistory::Blocks(0));
    let recorder = Recorder { state, touched: RefCell::default(), codes: RefCell::default() };
    let mut replay = Replay::start(&genesis, recorder)?;
    let mut ledger = Ledger::default();
    ledger.apply(&genesis.alloc);
    let mut recorded: Vec<Block> = Vec::new();
    let mut executed = Vec::new();
    for block in blocks {
        let block = block?;
        let number = block.block.header.number;
        if last.is_some_and(|last| number > last) {
            break;
        }
        replay.state_mut().touched.take();
        replay.state_mut().codes.take();
        let report = match &mut traces {
            // The genesis has no trace.
            Some(traces) if number > 0 => {
                let trace = traces.of_block(number).map_err(ReplayError::<StateError>::from)?;
                let trace = trace.ok_or(BenchError::TracesEnd { block: number })?;
                match replay.traced(&block, trace) {
                    // Of some blocks traces do not tell all: these are executed.
                    Err(ReplayError::BadBlock(bad)) if bad.what == Check::StateRoot => {
                        executed.push(number);
                        replay.block(&block)?
                    }
                    traced => traced?,
                }
            }
            _ => replay.block(&block)?,
        };
        let Some(report) = report else { continue };
        let mut touched = replay.state_mut().touched.take();
        let codes = replay.state_mut().codes.take();
        // One layer a block is enough to go on from.
        replay.state_mut().commit()?;
        touch(&mut touched, &report.changes);
        ledger.apply(&report.changes);
        recorded.push(Block {
            number: report.number,
            transactions: report.transaction_count as u64,
            execution: report.times.execute,
            touched,
            code_bytes: (!report.is_traced).then(|| codes.values().sum()),
            changes: report.changes,
            root: Some(report.state_root),
            entries: ledger.entries(),
        });
    }
    if let Some(first) = executed.first() {
        let count = executed.len();
        name += &format!(
            "; {count} blocks, {first} the first of them, executed: their traces do not lead to \
             their roots"
        );
    }
    let alloc = genesis.alloc;
    let start = Box::new(move |part| (part == 0).then(|| alloc.clone()));
    Ok(Input { name, start, blocks: recorded, checked: true })
}

/// Reads state differences; all of them are held.
///
/// # Errors
/// Of lines that cannot be read.
pub fn differences(
    name: String,
    alloc: Changes,
    lines: impl Iterator<Item = Result<BlockDiff, DiffError>>,
    last: Option<u64>,
) -> anyhow::Result<Input> {
    let mut ledger = Ledger::default();
    ledger.apply(&alloc);
    let mut blocks: Vec<Block> = Vec::new();
    for diff in lines {
        let diff = diff?;
        if last.is_some_and(|last| diff.number > last) {
            break;
        }
        let mut touched = Touched::new();
        touch(&mut touched, &diff.changes);
        ledger.apply(&diff.changes);
        blocks.push(Block {
            number: diff.number,
            transactions: 0,
            execution: Duration::ZERO,
            touched,
            code_bytes: None,
            root: diff.state_root.or_else(|| diff.roots.get("mpt").copied()),
            changes: diff.changes,
            entries: ledger.entries(),
        });
    }
    let checked = blocks.iter().any(|block| block.root.is_some());
    let start = Box::new(move |part| (part == 0).then(|| alloc.clone()));
    Ok(Input { name, start, blocks, checked })
}
