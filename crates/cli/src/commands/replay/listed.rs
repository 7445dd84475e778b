//! A chain by its access lists alone: nothing is executed; the root of each header is checked, and
//! all that a header says without an execution.
//!
//! A thread reads blocks and lists ahead, and the pages that each block changes, while those before
//! are applied.

use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use alloy_primitives::{B256, Bytes};
use anyhow::Context as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use spinney_migrate::{AccessList, ListError};
use spinney_replay::{
    BlockReport, ChainBlock, ChainReader, Check, Genesis, Replay, ReplayError, RunOptions, Summary,
};
use spinney_state::{Reader, StateRead as _};
use spinney_tree::PageStore;

use super::driven::{Driven, check_genesis};
use super::watch::Watch;
use crate::failure::{Exit, Failure};
use crate::stores;

/// So many blocks are read, with the pages that they change, before it is their turn.
const BLOCKS_AHEAD: usize = 2;

/// Lines are one block each, and no block's list takes more.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// Access lists, a block a line.
pub(crate) struct ListLines {
    input: BufReader<Box<dyn Read + Send>>,
    line: u64,
    name: String,
}

/// A line: as `replay --bal-out` writes it, or as geth's are told of. RLP goes before JSON.
#[derive(Deserialize)]
pub(crate) struct ListLine {
    pub(crate) number: u64,
    pub(crate) hash: B256,
    #[serde(alias = "balHash")]
    bal_hash: B256,
    #[serde(alias = "rlp")]
    bal: Option<Bytes>,
    #[serde(rename = "accessList")]
    access_list: Option<Box<RawValue>>,
}

impl ListLine {
    /// The list, whose hash has to be this one.
    fn list(&self, hash: B256) -> Result<AccessList, ListError> {
        match (&self.bal, &self.access_list) {
            (Some(rlp), _) => AccessList::read(rlp, hash),
            (None, Some(json)) => AccessList::read_json(json.get(), hash),
            (None, None) => Err(ListError::Json("there is neither bal nor accessList".to_owned())),
        }
    }

    /// The list, as that of a block.
    fn list_of(&self, block: &ChainBlock) -> Result<AccessList, Failure> {
        let header = &block.block.header;
        // Before Amsterdam no header names a list, and the root alone says whether it is right.
        let hash = header.block_access_list_hash.unwrap_or(self.bal_hash);
        self.list(hash).map_err(|error| {
            Failure::new(format!("block {}: its access list is refused (--bals)", header.number))
                .because(error)
                .hint("all blocks before it are committed; fetch or make the list again")
                .exit(Exit::No)
        })
    }
}

impl ListLines {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let input = BufReader::with_capacity(1 << 18, stores::open_file(path)?);
        Ok(Self { input, line: 0, name: path.display().to_string() })
    }

    fn read(&mut self) -> anyhow::Result<Option<ListLine>> {
        let mut line = String::new();
        loop {
            line.clear();
            self.line += 1;
            let read = self.input.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
            let place = || format!("line {} of {}", self.line, self.name);
            if read.with_context(|| format!("reading {}", place()))? == 0 {
                return Ok(None);
            }
            if line.trim().is_empty() {
                continue;
            }
            let parsed = serde_json::from_str(&line).map_err(|error| {
                Failure::new(format!("{}: {error}", place())).hint(concat!(
                    r#"a line is {"number": 7, "hash": "0x..", "bal_hash": "0x..", "#,
                    r#""bal": "0x.."}, or has accessList in place of bal"#
                ))
            });
            return Ok(Some(parsed?));
        }
    }

    /// The list of a block. Lines come in the order of blocks; those of earlier blocks are passed
    /// over.
    fn of(&mut self, block: &ChainBlock) -> anyhow::Result<AccessList> {
        let number = block.block.header.number;
        while let Some(line) = self.read()? {
            if line.number < number {
                continue;
            }
            if (line.number, line.hash) == (number, block.hash) {
                return Ok(line.list_of(block)?);
            }
            let what = format!(
                "line {} of {} is of block {} ({}), and the chain has {number} ({}) there",
                self.line, self.name, line.number, line.hash, block.hash
            );
            return Err(Failure::new(what)
                .hint("give the lists of the same chain, of every block, in their order")
                .exit(Exit::No)
                .into());
        }
        let what = format!("{} ends before block {number}", self.name);
        Err(Failure::new(what)
            .hint("all blocks before it are committed; give the other lists, or --to")
            .into())
    }
}

pub(crate) fn run<S: Driven>(
    mut state: S,
    genesis: &Genesis,
    (blocks, lists): (ChainReader<'static>, ListLines),
    options: &RunOptions<'_>,
    watch: &mut Watch<'_>,
) -> anyhow::Result<(Summary, S)> {
    check_genesis(state.kept(), genesis)?;
    let head = state.kept().block();
    let reader = state.reader().filter(|_| options.read_ahead > 0);
    let replay = match head {
        None => {
            state.kept_mut().set_genesis(genesis.hash);
            Replay::start(genesis, state)?
        }
        Some(head) => {
            watch.resumed(head.number);
            Replay::resume(genesis, state, head.number, head.hash.into())?
        }
    };
    let store_head = head.map_or(0, |head| head.number);
    let feed = Feed { blocks, lists, store_head, last: options.last, ended: false };
    let mut run = ListRun { replay, summary: Summary::default(), uncommitted: 0 };
    let Some(reader) = reader else {
        run.all(feed, options, watch)?;
        return Ok((run.summary, run.replay.into_state()));
    };
    std::thread::scope(|scope| {
        let (sender, fed) = sync_channel(BLOCKS_AHEAD);
        let ahead = std::thread::Builder::new().name("lists".into());
        ahead.spawn_scoped(scope, move || {
            for fed in feed {
                if let Ok(Fed { list: Some(list), .. }) = &fed {
                    read_ahead(&reader, list);
                }
                if sender.send(fed).is_err() {
                    break;
                }
            }
        })?;
        run.all(fed, options, watch)
    })?;
    Ok((run.summary, run.replay.into_state()))
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
    /// None where the store holds the block.
    list: Option<AccessList>,
}

/// Blocks with their lists, up to the first that is not good.
struct Feed {
    blocks: ChainReader<'static>,
    lists: ListLines,
    /// The last block that the store holds.
    store_head: u64,
    last: Option<u64>,
    ended: bool,
}

impl Iterator for Feed {
    type Item = anyhow::Result<Fed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let fed = self.read().transpose();
        self.ended = !matches!(fed, Some(Ok(_)));
        fed
    }
}

impl Feed {
    fn read(&mut self) -> anyhow::Result<Option<Fed>> {
        let Some(block) = self.blocks.next().transpose()? else { return Ok(None) };
        let number = block.block.header.number;
        if self.last.is_some_and(|last| number > last) {
            return Ok(None);
        }
        // The genesis has none.
        let is_new = number > self.store_head;
        let list = is_new.then(|| self.lists.of(&block)).transpose()?;
        Ok(Some(Fed { block, list }))
    }
}

struct ListRun<S> {
    replay: Replay<S>,
    summary: Summary,
    uncommitted: u64,
}

impl<S: Driven> ListRun<S> {
    /// Applies blocks up to the first that is not good, and commits those before it.
    fn all(
        &mut self,
        blocks: impl IntoIterator<Item = anyhow::Result<Fed>>,
        options: &RunOptions<'_>,
        watch: &mut Watch<'_>,
    ) -> anyhow::Result<()> {
        let outcome = self.each(blocks, options, watch);
        // What was good stays.
        let committed = self.commit(watch).and_then(|()| Ok(self.replay.state_mut().settle()?));
        outcome.and(committed)
    }

    fn each(
        &mut self,
        blocks: impl IntoIterator<Item = anyhow::Result<Fed>>,
        options: &RunOptions<'_>,
        watch: &mut Watch<'_>,
    ) -> anyhow::Result<()> {
        for fed in blocks {
            let Fed { block, list } = fed?;
            if options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                self.summary.stopped = true;
                break;
            }
            match self.block(&block, list)? {
                None => watch.followed(block.block.header.number),
                Some(report) => {
                    self.summary.count(&report);
                    self.uncommitted += 1;
                    let amount = (report.transaction_count as u64, report.gas_used);
                    watch.block(report.number, report.state_root, amount);
                }
            }
            if self.uncommitted >= options.commit_every || self.replay.state().is_full() {
                self.commit(watch)?;
            }
        }
        Ok(())
    }

    fn block(
        &mut self,
        block: &ChainBlock,
        list: Option<AccessList>,
    ) -> anyhow::Result<Option<BlockReport>> {
        // One that the store holds.
        let Some(list) = list else { return Ok(self.replay.block(block)?) };
        let state = self.replay.state().kept();
        let changes = list.changes(|address| state.account(address))?;
        self.replay.changed(block, changes).map_err(|error| match &error {
            ReplayError::BadBlock(bad) if bad.what == Check::StateRoot => {
                Failure::new(format!("{bad}, by its access list (--bals)"))
                    .hint("all blocks before it are committed; the list is not that of the block")
                    .exit(Exit::No)
                    .into()
            }
            _ => error.into(),
        })
    }

    fn commit(&mut self, watch: &mut Watch<'_>) -> anyhow::Result<()> {
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
        watch.committed(number, Some(hash), time);
        Ok(())
    }
}
