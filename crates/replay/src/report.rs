//! What a run is asked for, and what it tells.

use std::{collections::BTreeMap, sync::atomic::AtomicBool, time::Duration};

use alloy_eip7928::BlockAccessList;
use alloy_primitives::{Address, B256, Bytes};
use spinney_state::Changes;

use crate::{config::Fork, error::Check, rules::checks};

/// What executing a block took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockTimes {
    /// Reading and decoding it.
    pub read: Duration,
    /// Recovering the senders.
    pub recover: Duration,
    /// Executing and checking, without the time in the state's `apply`.
    pub execute: Duration,
    /// Reading the state meanwhile, where it is counted apart; `execute` has it in it.
    pub state_read: Duration,
    /// Applying to the state, roots included.
    pub apply: Duration,
    /// When each of these began.
    pub began: BlockStarts,
}

/// When the parts of a block began, since the run began. Zero where nobody asked for a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockStarts {
    /// Reading and decoding it.
    pub read: Duration,
    /// Recovering the senders.
    pub recover: Duration,
    /// Executing it.
    pub execute: Duration,
    /// Its root.
    pub apply: Duration,
}

/// What a part of a block did: values afterwards of what changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// 0 before the first transaction, the number of a transaction from 1 on, one more behind the
    /// last: the index of EIP-7928.
    pub index: u64,
    /// What it did.
    pub changes: Changes,
}

impl Step {
    /// Names what a part of a block did.
    pub const fn new(index: u64, changes: Changes) -> Self {
        Self { index, changes }
    }
}

/// What is known of a block that was executed and found good.
// Fields: one for each figure that a user is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockReport {
    /// Its number.
    pub number: u64,
    /// Its hash.
    pub hash: B256,
    /// The hash of its parent.
    pub parent_hash: B256,
    /// The rules it follows.
    pub fork: Fork,
    /// Seconds since 1970.
    pub timestamp: u64,
    /// How many transactions it has.
    pub transaction_count: usize,
    /// Whether what they did was taken from a trace, or from an access list.
    pub is_traced: bool,
    /// Gas that they used.
    pub gas_used: u64,
    /// Bytes of its RLP.
    pub len: u64,
    /// The root of the state afterwards.
    pub state_root: B256,
    /// Whether it was compared with the one in the header: the state is in a
    /// [Merkle Patricia trie](crate::WorldState::own_root).
    pub is_root_checked: bool,
    /// State roots after transactions that were checked by way of the receipts, before Byzantium.
    pub receipt_root_count: usize,
    /// What it did to the state.
    pub changes: Changes,
    /// What each of its parts did, where that was [asked for](crate::Replay::keep_steps).
    pub steps: Vec<Step>,
    /// Accounts that it changed and left there with nothing in them, as was possible before
    /// Spurious Dragon; where steps were asked for.
    pub left_empty: Vec<Address>,
    /// Accounts that it destroyed and made again, with the slots that went, as far as the
    /// [state knows them](crate::WorldState::slots); where steps were asked for.
    pub replaced: BTreeMap<Address, Vec<B256>>,
    /// What it asks of the consensus layer (EIP-7685), by type, from Prague on: types without data
    /// are empty. Nothing where its transactions were traced.
    pub requests: Vec<Bytes>,
    /// What it looked at and changed, part by part, as its header names it: from Amsterdam on,
    /// where its transactions were executed.
    pub access_list: Option<BlockAccessList>,
    /// Where the time went.
    pub times: BlockTimes,
}

impl BlockReport {
    /// What was checked of the block, beside each of its transactions.
    pub fn checks(&self) -> Vec<Check> {
        let by_execution = [
            Check::GasUsed,
            Check::LogsBloom,
            Check::ReceiptsRoot,
            Check::RequestsHash,
            Check::AccessList,
        ];
        let mut checks = checks(self.fork);
        checks.retain(|check| !self.is_traced || !by_execution.contains(check));
        if !self.is_root_checked {
            let has_roots = self.fork < Fork::Byzantium;
            checks.retain(|check| match check {
                Check::StateRoot => false,
                Check::ReceiptsRoot => !has_roots,
                _ => true,
            });
        }
        checks
    }
}

/// How a run goes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunOptions<'a> {
    /// Blocks a commit; at least one. A state that [gathers](spinney_state::Chunks) may want one
    /// earlier.
    pub commit_every: u64,
    /// The last block to execute.
    pub last: Option<u64>,
    /// Blocks read, and their senders recovered, ahead on other threads; none with zero. With it,
    /// a run that stops early ends only once the source has given the block it is reading. At least
    /// two for each thread that recovers are read ahead.
    pub read_ahead: usize,
    /// Threads that recover senders, each those of a block, or, where nothing is read ahead, all
    /// those of one; at least one.
    pub recover_threads: usize,
    /// Looked at between blocks: once it is set, the run commits and ends.
    pub stop: Option<&'a AtomicBool>,
}

impl Default for RunOptions<'_> {
    fn default() -> Self {
        Self { commit_every: 128, last: None, read_ahead: 8, recover_threads: 1, stop: None }
    }
}

/// What a run tells on its way.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A block is good, and sealed.
    Block(&'a BlockReport),
    /// Everything up to a block is durable.
    Committed {
        /// The block.
        number: u64,
        /// Its hash.
        hash: B256,
        /// When the commit began, since the run began.
        began: Duration,
        /// How long it took, until it was durable.
        time: Duration,
    },
    /// A block is in the state already.
    Followed {
        /// The block.
        number: u64,
    },
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Blocks executed.
    pub block_count: u64,
    /// Their transactions.
    pub transaction_count: u64,
    /// Their gas.
    pub gas_used: u64,
    /// State roots of blocks checked.
    pub root_count: u64,
    /// State roots of transactions checked, by way of receipts from before Byzantium.
    pub receipt_root_count: u64,
    /// Where the time went, over all blocks.
    pub times: BlockTimes,
    /// Time in the state's `commit`.
    pub commit: Duration,
    /// Whether the run was told to stop before the source ended.
    pub stopped: bool,
}

impl Summary {
    /// Counts a block that is good.
    pub fn count(&mut self, report: &BlockReport) {
        self.block_count += 1;
        self.transaction_count += report.transaction_count as u64;
        self.gas_used = self.gas_used.saturating_add(report.gas_used);
        self.root_count += u64::from(report.is_root_checked);
        self.receipt_root_count += report.receipt_root_count as u64;
        self.times.read += report.times.read;
        self.times.recover += report.times.recover;
        self.times.execute += report.times.execute;
        self.times.state_read += report.times.state_read;
        self.times.apply += report.times.apply;
    }
}
