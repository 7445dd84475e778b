//! A chain by its access lists alone: nothing is executed; the root of each header is checked, and
//! all that a header says without an execution.
//!
//! A thread reads blocks and lists ahead, and the pages that each block changes, while those before
//! are applied.

use std::io::{self, BufRead};
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use alloy_primitives::{B256, Bytes};
use serde::Deserialize;
use serde_json::value::RawValue;
use spinney_migrate::{AccessList, ListError};
use spinney_state::{Reader, StateRead as _};
use spinney_tree::PageStore;

use crate::error::{ReplayError, SourceError};
use crate::replay::Replay;
use crate::report::{BlockReport, Event, RunOptions, Summary};
use crate::source::ChainBlock;
use crate::world::WorldState;

/// So many blocks are read, with the pages that they change, before it is their turn.
const BLOCKS_AHEAD: usize = 2;

/// Lines are one block each, and no block's list takes more.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// Why there is no list of a block.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListsError {
    /// The blocks could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The lists could not be read.
    #[error("line {line}: {error}")]
    Io {
        /// The line, from 1.
        line: u64,
        /// What went wrong.
        #[source]
        error: io::Error,
    },
    /// A line is no access list.
    #[error("line {line}: {error}")]
    Line {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        #[source]
        error: serde_json::Error,
    },
    /// The list of a block is refused.
    #[error("block {number}: its access list is refused")]
    List {
        /// The block.
        number: u64,
        /// Why.
        #[source]
        error: ListError,
    },
    /// A list is that of another block.
    #[error("line {line} is of block {found} ({found_hash}), and the chain has {number} ({hash})")]
    Other {
        /// The line, from 1.
        line: u64,
        /// The number of the line's block.
        found: u64,
        /// Its hash.
        found_hash: B256,
        /// The number of the chain's block.
        number: u64,
        /// Its hash.
        hash: B256,
    },
    /// There are no more lists.
    #[error("the lists end before block {0}")]
    Ended(u64),
}

/// Why a chain could not be taken from its lists. `E` is the error of the state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListedError<E: std::error::Error + 'static> {
    /// There is no list of a block.
    #[error(transparent)]
    Lists(#[from] ListsError),
    /// A block is bad, or its list is not its own.
    #[error(transparent)]
    Replay(#[from] ReplayError<E>),
    /// The state failed.
    #[error("the state failed: {0}")]
    State(#[source] E),
    /// A thread could not be made.
    #[error("a thread cannot be made: {0}")]
    Thread(#[source] io::Error),
}

/// Access lists, a block a line, in the order of blocks: as `spinney replay --bal-out` writes them,
/// or as geth's are told of. RLP goes before JSON.
#[derive(Debug)]
pub struct ListLines<R> {
    input: R,
    line: u64,
}

#[derive(Deserialize)]
struct ListLine {
    number: u64,
    hash: B256,
    #[serde(alias = "balHash")]
    bal_hash: B256,
    #[serde(alias = "rlp")]
    bal: Option<Bytes>,
    #[serde(rename = "accessList")]
    access_list: Option<Box<RawValue>>,
}

impl ListLine {
    /// The list, as that of a block.
    fn list_of(&self, block: &ChainBlock) -> Result<AccessList, ListError> {
        // Before Amsterdam no header names a list, and the root alone says whether it is right.
        let hash = block.block.header.block_access_list_hash.unwrap_or(self.bal_hash);
        match (&self.bal, &self.access_list) {
            (Some(rlp), _) => AccessList::read(rlp, hash),
            (None, Some(json)) => AccessList::read_json(json.get(), hash),
            (None, None) => Err(ListError::Json("there is neither bal nor accessList".to_owned())),
        }
    }
}

impl<R: BufRead> ListLines<R> {
    /// Reads from the start of `input`.
    pub const fn new(input: R) -> Self {
        Self { input, line: 0 }
    }

    fn read(&mut self) -> Result<Option<ListLine>, ListsError> {
        let mut text = String::new();
        loop {
            text.clear();
            self.line += 1;
            let line = self.line;
            let read = io::Read::take(&mut self.input, LINE_BYTES_MAX).read_line(&mut text);
            if read.map_err(|error| ListsError::Io { line, error })? == 0 {
                return Ok(None);
            }
            if !text.trim().is_empty() {
                let parsed = serde_json::from_str(&text).map(Some);
                return parsed.map_err(|error| ListsError::Line { line, error });
            }
        }
    }

    /// The list of a block. Those of earlier blocks are passed over.
    fn of(&mut self, block: &ChainBlock) -> Result<AccessList, ListsError> {
        let (number, hash) = (block.block.header.number, block.hash);
        while let Some(line) = self.read()? {
            if line.number < number {
                continue;
            }
            if (line.number, line.hash) == (number, hash) {
                let list = line.list_of(block);
                return list.map_err(|error| ListsError::List { number, error });
            }
            let (found, found_hash) = (line.number, line.hash);
            return Err(ListsError::Other { line: self.line, found, found_hash, number, hash });
        }
        Err(ListsError::Ended(number))
    }
}

impl<S: WorldState> Replay<S> {
    /// Takes blocks from their access lists, up to the first that is not good, and commits those
    /// before it; nothing is executed. `head` is the last block that the state holds, which needs
    /// no list. With a reader the pages that blocks change are read ahead of them.
    ///
    /// # Errors
    /// If a block or its list is not good, or cannot be read, or the state fails.
    pub fn run_listed<R, P>(
        &mut self,
        blocks: impl Iterator<Item = Result<ChainBlock, SourceError>> + Send,
        lists: ListLines<R>,
        (head, reader): (u64, Option<Reader<P>>),
        options: &RunOptions<'_>,
        on_event: impl FnMut(Event<'_>),
    ) -> Result<Summary, ListedError<S::Error>>
    where
        R: BufRead + Send,
        P: PageStore,
        Reader<P>: Send,
    {
        let feed = Feed { blocks, lists, head, last: options.last, ended: false };
        let mut run =
            ListRun { replay: self, on_event, summary: Summary::default(), uncommitted: 0 };
        let Some(reader) = reader else {
            run.all(feed, options)?;
            return Ok(run.summary);
        };
        thread::scope(|scope| {
            let (sender, fed) = sync_channel(BLOCKS_AHEAD);
            let ahead = thread::Builder::new().name("lists".into());
            let read_all = move || {
                for fed in feed {
                    if let Ok(Fed { list: Some(list), .. }) = &fed {
                        read_ahead(&reader, list);
                    }
                    if sender.send(fed).is_err() {
                        break;
                    }
                }
            };
            ahead.spawn_scoped(scope, read_all).map_err(ListedError::Thread)?;
            run.all(fed, options)
        })?;
        Ok(run.summary)
    }
}

/// Has the pages read that a block's changes lie in, so that they are in memory when it is its
/// turn. What cannot be read is met again by whoever needs it, and told there.
fn read_ahead<P: PageStore>(reader: &Reader<P>, list: &AccessList) {
    reader.refresh();
    for (address, slots) in list.written() {
        let _ = reader.account(address);
        for slot in slots {
            let _ = reader.storage(address, slot);
        }
    }
}

/// A block, and what its list says.
struct Fed {
    block: ChainBlock,
    /// None where the state holds the block.
    list: Option<AccessList>,
}

/// Blocks with their lists, up to the first that is not good.
struct Feed<B, R> {
    blocks: B,
    lists: ListLines<R>,
    /// The last block that the state holds.
    head: u64,
    last: Option<u64>,
    ended: bool,
}

impl<B, R> Feed<B, R>
where
    B: Iterator<Item = Result<ChainBlock, SourceError>>,
    R: BufRead,
{
    fn read(&mut self) -> Result<Option<Fed>, ListsError> {
        let Some(block) = self.blocks.next().transpose()? else { return Ok(None) };
        let number = block.block.header.number;
        if self.last.is_some_and(|last| number > last) {
            return Ok(None);
        }
        // The genesis has none.
        let list = (number > self.head).then(|| self.lists.of(&block)).transpose()?;
        Ok(Some(Fed { block, list }))
    }
}

impl<B, R> Iterator for Feed<B, R>
where
    B: Iterator<Item = Result<ChainBlock, SourceError>>,
    R: BufRead,
{
    type Item = Result<Fed, ListsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let fed = self.read().transpose();
        self.ended = !matches!(fed, Some(Ok(_)));
        fed
    }
}

struct ListRun<'r, S, F> {
    replay: &'r mut Replay<S>,
    on_event: F,
    summary: Summary,
    uncommitted: u64,
}

impl<S: WorldState, F: FnMut(Event<'_>)> ListRun<'_, S, F> {
    /// Applies blocks up to the first that is not good, and commits those before it.
    fn all(
        &mut self,
        blocks: impl IntoIterator<Item = Result<Fed, ListsError>>,
        options: &RunOptions<'_>,
    ) -> Result<(), ListedError<S::Error>> {
        let outcome = self.each(blocks, options);
        // What was good stays.
        let committed = self.commit().and_then(|()| self.replay.state_mut().settle());
        outcome.and(committed.map_err(ListedError::State))
    }

    fn each(
        &mut self,
        blocks: impl IntoIterator<Item = Result<Fed, ListsError>>,
        options: &RunOptions<'_>,
    ) -> Result<(), ListedError<S::Error>> {
        for fed in blocks {
            let Fed { block, list } = fed?;
            if options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                self.summary.stopped = true;
                break;
            }
            match self.block(&block, list)? {
                None => (self.on_event)(Event::Followed { number: block.block.header.number }),
                Some(report) => {
                    self.summary.count(&report);
                    self.uncommitted += 1;
                    (self.on_event)(Event::Block(&report));
                }
            }
            if self.uncommitted >= options.commit_every || self.replay.state().is_full() {
                self.commit().map_err(ListedError::State)?;
            }
        }
        Ok(())
    }

    fn block(
        &mut self,
        block: &ChainBlock,
        list: Option<AccessList>,
    ) -> Result<Option<BlockReport>, ListedError<S::Error>> {
        // One that the state holds.
        let Some(list) = list else { return Ok(self.replay.block(block)?) };
        let state = self.replay.state();
        let changes = list.changes(|address| state.account(address));
        let changes = changes.map_err(ListedError::State)?;
        Ok(self.replay.changed(block, changes)?)
    }

    fn commit(&mut self) -> Result<(), S::Error> {
        let (number, hash) = (self.replay.head().header.number, self.replay.head().hash);
        let state = self.replay.state_mut();
        if state.layer_count() == 0 {
            return Ok(());
        }
        let started = Instant::now();
        state.commit()?;
        let time = started.elapsed();
        self.uncommitted = 0;
        self.summary.commit += time;
        (self.on_event)(Event::Committed { number, hash, began: Duration::ZERO, time });
        Ok(())
    }
}
