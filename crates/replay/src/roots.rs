//! The roots of blocks, and their commits, on a thread of their own.
//!
//! ```text
//! executes block N+1                        owns the state
//!   Executed ── blocks, questions ──────────▶ Roots
//!            ◀───────────── what became of them ──
//! ```
//! Invariants (`tests/it/pipeline.rs`):
//! - blocks are applied, checked, sealed and committed in the order in which they were executed;
//! - a block whose root is not that of its header leaves nothing in the state, and nothing after it
//!   is taken;
//! - at most [`BLOCKS_AHEAD`] blocks are executed whose roots are not known.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use alloy_primitives::{Address, B256, Bytes, U256};
use spinney_state::{Account, Changes, StateRead};

use crate::values::Values;
use crate::witness::BlockReads;
use crate::world::{CommittedState, SealedBlock, WorldState};

/// Blocks that wait for their roots, the one at hand apart.
const BLOCKS_AHEAD: usize = 4;

/// A block that was executed.
struct Job {
    number: u64,
    hash: B256,
    changes: Changes,
    /// The root in its header; none where what it did is applied already.
    root: Option<B256>,
    reads: Option<Arc<BlockReads>>,
}

enum Message<S> {
    Block(Job),
    /// Something that only the state itself can answer, after all blocks before.
    Ask(Box<dyn FnOnce(&mut S) + Send>),
}

/// What became of blocks.
#[derive(Debug)]
pub(crate) enum Told<E> {
    /// Its root is right, and it is sealed.
    Sealed { began: Instant, time: Duration },
    /// All up to it is durable.
    Committed { number: u64, hash: B256, began: Instant, time: Duration },
    /// It has another root than its header gives. It is the last block that is told of.
    Root { expected: B256, got: B256 },
    /// The state failed at a block, which is the last one that is told of.
    Failed { number: u64, error: E },
}

/// The side that owns the state.
pub(crate) struct Roots<'a, S: WorldState> {
    state: &'a mut S,
    messages: Receiver<Message<S>>,
    told: Sender<Told<S::Error>>,
    commit_every: u64,
    /// Sealed and not committed.
    uncommitted: u64,
    last: (u64, B256),
    /// Committed, and perhaps not durable.
    unsettled: VecDeque<Commit>,
}

struct Commit {
    number: u64,
    hash: B256,
    began: Instant,
}

/// Both sides, over a state that has no layers.
pub(crate) fn sides<S: WorldState, R: CommittedState<Error = S::Error>>(
    state: &mut S,
    reader: R,
    commit_every: u64,
) -> (Executed<S, R>, Roots<'_, S>) {
    let (sender, messages) = sync_channel(BLOCKS_AHEAD);
    let (told, answers) = channel();
    let executed =
        Executed { values: Values::new(reader), sender, answers, open: None, applied: 0 };
    let (last, unsettled) = ((0, B256::ZERO), VecDeque::new());
    let roots = Roots { state, messages, told, commit_every, uncommitted: 0, last, unsettled };
    (executed, roots)
}

impl<S: WorldState> Roots<'_, S> {
    /// Works until the other side ends, or a block fails; commits what is good then.
    pub(crate) fn run(mut self) {
        let failed = self.all_blocks();
        let committed = self.commit().and_then(|()| self.settle());
        // The state says best why it failed.
        match (failed, committed) {
            (Err(told @ Told::Failed { .. }), _) | (Err(told), Ok(())) => self.tell(told),
            (_, Err(error)) => self.tell(Told::Failed { number: self.last.0, error }),
            (Ok(()), Ok(())) => {}
        }
    }

    fn tell(&self, told: Told<S::Error>) {
        // Nobody listens any more where the other side has panicked.
        let _ = self.told.send(told);
    }

    fn all_blocks(&mut self) -> Result<(), Told<S::Error>> {
        while let Ok(message) = self.messages.recv() {
            match message {
                Message::Ask(ask) => ask(self.state),
                Message::Block(job) => {
                    let number = job.number;
                    self.block(job)?;
                    let full = self.uncommitted >= self.commit_every || self.state.is_full();
                    let committed = if full { self.commit() } else { Ok(()) };
                    committed.map_err(|error| Told::Failed { number, error })?;
                }
            }
            self.note_durable();
        }
        Ok(())
    }

    fn block(&mut self, job: Job) -> Result<(), Told<S::Error>> {
        let (number, hash) = (job.number, job.hash);
        let (began, layer_count) = (Instant::now(), self.state.layer_count());
        let sealed = self.seal(&job);
        if sealed.is_err() {
            // What is left is only of blocks that are good.
            let undone = self.state.undo_to(layer_count);
            undone.map_err(|error| Told::Failed { number, error })?;
        }
        sealed?;
        self.uncommitted += 1;
        self.last = (number, hash);
        self.tell(Told::Sealed { began, time: began.elapsed() });
        Ok(())
    }

    fn seal(&mut self, job: &Job) -> Result<(), Told<S::Error>> {
        let Job { number, hash, ref changes, root, ref reads } = *job;
        let failed = |error| Told::Failed { number, error };
        let mut state_root = root.unwrap_or_default();
        if let Some(expected) = root {
            state_root = self.state.apply_last(changes, root).map_err(failed)?;
            if state_root != expected {
                return Err(Told::Root { expected: state_root, got: expected });
            }
        }
        let mut block = SealedBlock::new(number, Some(hash), state_root, changes);
        block.reads = reads.as_ref();
        self.state.seal(&block).map_err(failed)
    }

    fn commit(&mut self) -> Result<(), S::Error> {
        if self.uncommitted == 0 {
            return Ok(());
        }
        let (number, hash) = self.last;
        let began = Instant::now();
        self.state.commit()?;
        self.uncommitted = 0;
        self.unsettled.push_back(Commit { number, hash, began });
        self.note_durable();
        Ok(())
    }

    fn settle(&mut self) -> Result<(), S::Error> {
        self.state.settle()?;
        self.note_durable();
        Ok(())
    }

    /// Tells of commits that are durable by now.
    fn note_durable(&mut self) {
        if self.unsettled.is_empty() {
            return;
        }
        let waiting = self.state.unsettled();
        while self.unsettled.len() > waiting
            && let Some(Commit { number, hash, began }) = self.unsettled.pop_front()
        {
            self.tell(Told::Committed { number, hash, began, time: began.elapsed() });
        }
    }
}

/// Why the executing side cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Halt<E: Error + 'static> {
    #[error(transparent)]
    State(#[from] E),
    /// The other side has ended, and has told why.
    #[error("the blocks before are not all good")]
    Ended,
}

/// The side that executes: a state that has its roots computed behind it. It answers with those
/// that headers give.
pub(crate) struct Executed<S: WorldState, R> {
    values: Values<R>,
    sender: SyncSender<Message<S>>,
    answers: Receiver<Told<S::Error>>,
    /// What the block at hand did, and its root.
    open: Option<(Changes, B256)>,
    /// Layers that the block at hand has in the state itself.
    applied: usize,
}

impl<S: WorldState, R: CommittedState<Error = S::Error>> Executed<S, R> {
    /// What became of blocks, as far as nobody was told.
    pub(crate) fn told(&self) -> Option<Told<S::Error>> {
        self.answers.try_recv().ok()
    }

    /// Ends the other side once it is done with all blocks, and hands on what it still tells.
    pub(crate) fn end(self) -> Receiver<Told<S::Error>> {
        self.answers
    }

    /// Has the state itself answer, after all blocks before.
    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut S) -> Result<T, S::Error> + Send + 'static,
    ) -> Result<T, Halt<S::Error>> {
        let (sender, answer) = sync_channel(1);
        let ask = Box::new(move |state: &mut S| drop(sender.send(question(state))));
        self.sender.send(Message::Ask(ask)).map_err(|_| Halt::Ended)?;
        Ok(answer.recv().map_err(|_| Halt::Ended)??)
    }
}

impl<S: WorldState, R: CommittedState<Error = S::Error>> StateRead for Executed<S, R> {
    type Error = Halt<S::Error>;

    fn account(&self, address: Address) -> Result<Option<Account>, Self::Error> {
        Ok(self.values.account(address)?)
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, Self::Error> {
        Ok(self.values.storage(address, slot)?)
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, Self::Error> {
        Ok(self.values.code(hash)?)
    }
}

impl<S: WorldState, R: CommittedState<Error = S::Error>> WorldState for Executed<S, R> {
    fn apply(&mut self, changes: &Changes) -> Result<B256, Self::Error> {
        let changes = changes.clone();
        let root = self.ask(move |state| state.apply(&changes))?;
        self.applied += 1;
        Ok(root)
    }

    fn apply_last(&mut self, changes: &Changes, root: Option<B256>) -> Result<B256, Self::Error> {
        let Some(root) = root else { return self.apply(changes) };
        self.open = Some((changes.clone(), root));
        Ok(root)
    }

    fn layer_count(&self) -> usize {
        self.applied + usize::from(self.open.is_some())
    }

    fn undo_to(&mut self, layer_count: usize) -> Result<(), Self::Error> {
        if layer_count < self.layer_count() {
            self.open = None;
        }
        if let Some(gone) = self.applied.checked_sub(layer_count).filter(|gone| *gone > 0) {
            self.ask(move |state| state.undo_to(state.layer_count() - gone))?;
            self.applied = layer_count;
        }
        Ok(())
    }

    fn seal(&mut self, block: &SealedBlock<'_>) -> Result<(), Self::Error> {
        self.values.take(block.number, block.changes)?;
        let (changes, root) = match self.open.take() {
            Some((changes, root)) => (changes, Some(root)),
            None => (block.changes.clone(), None),
        };
        self.applied = 0;
        let hash = block.hash.unwrap_or_default();
        let job = Job { number: block.number, hash, changes, root, reads: block.reads.cloned() };
        self.sender.send(Message::Block(job)).map_err(|_| Halt::Ended)
    }

    fn read_time(&self) -> Duration {
        self.values.read_time()
    }

    fn has_storage(&self, address: Address) -> Result<bool, Self::Error> {
        self.ask(move |state| state.has_storage(address))
    }

    /// The other side commits when it is time.
    fn commit(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}
