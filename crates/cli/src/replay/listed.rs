//! A chain by its access lists alone: nothing is executed, and the root of each header is checked.
//!
//! A thread reads blocks and lists ahead, and the pages that each block changes, while those before are applied.

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
use spinney_replay::{ChainBlock, ChainReader, Genesis, Replay, RunOptions, SealedBlock, Summary};
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
                .hint("all blocks before it are in; fetch or make the list again")
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
                Failure::new(format!("{}: {error}", place())).hint(
                    r#"a line is {"number": 7, "hash": "0x..", "bal_hash": "0x..", "bal": "0x.."}, or has accessList in place of bal"#,
                )
            });
            return Ok(Some(parsed?));
        }
    }

    /// The list of a block. Lines come in the order of blocks; those of earlier blocks are passed over.
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
            .hint("all blocks before it are in; give the other lists, or --to")
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
    let store_head = match state.kept().block() {
        None => {
            state.kept_mut().set_genesis(genesis.hash);
            state = Replay::start(genesis, state)?.into_state();
            None
        }
        Some(head) => {
            watch.resumed(head.number);
            Some((head.number, B256::from(head.hash)))
        }
    };
    let first = (0, genesis.hash);
    let feed = Feed { blocks, lists, head: first, store_head, last: options.last, ended: false };
    let reader = state.reader().filter(|_| options.read_ahead > 0);
    let mut run = ListRun { state, summary: Summary::default(), uncommitted: 0 };
    let Some(reader) = reader else {
        run.all(feed, first, options, watch)?;
        return Ok((run.summary, run.state));
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
        run.all(fed, first, options, watch)
    })?;
    Ok((run.summary, run.state))
}

/// Has the pages read that a block's changes lie in, so that they are in memory when it is its turn. What cannot
/// be read is met again by whoever needs it, and told there.
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

/// Blocks with their lists, in order, up to the first that is not good.
struct Feed {
    blocks: ChainReader<'static>,
    lists: ListLines,
    /// The block before.
    head: (u64, B256),
    store_head: Option<(u64, B256)>,
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
        if number == 0 && (number, block.hash) == self.head {
            return self.read();
        }
        if self.last.is_some_and(|last| number > last) {
            return Ok(None);
        }
        check_link(self.head, &block)?;
        self.head = (number, block.hash);
        match self.store_head {
            Some(head) if number <= head.0 => check_head(head, &block)?,
            _ => {
                let list = Some(self.lists.of(&block)?);
                return Ok(Some(Fed { block, list }));
            }
        }
        Ok(Some(Fed { block, list: None }))
    }
}

/// Refuses a block that does not follow the one before it.
fn check_link(head: (u64, B256), block: &ChainBlock) -> Result<(), Failure> {
    let header = &block.block.header;
    if (header.number, header.parent_hash) == (head.0 + 1, head.1) {
        return Ok(());
    }
    let what = format!(
        "block {} ({}) does not follow block {} ({})",
        header.number, block.hash, head.0, head.1
    );
    Err(Failure::new(what)
        .hint("give the blocks from the first one on; is the genesis that of this chain?")
        .exit(Exit::No))
}

/// Refuses a chain that is not the store's where the store stands.
fn check_head((last, hash): (u64, B256), block: &ChainBlock) -> Result<(), Failure> {
    if block.block.header.number != last || hash == block.hash {
        return Ok(());
    }
    let what = format!("the store stands at block {last} ({hash}), the chain has {}", block.hash);
    Err(Failure::new(what).hint("these are the blocks of another chain"))
}

struct ListRun<S> {
    state: S,
    summary: Summary,
    uncommitted: u64,
}

impl<S: Driven> ListRun<S> {
    /// Applies blocks up to the first that is not good, and commits those before it.
    fn all(
        &mut self,
        blocks: impl IntoIterator<Item = anyhow::Result<Fed>>,
        mut head: (u64, B256),
        options: &RunOptions<'_>,
        watch: &mut Watch<'_>,
    ) -> anyhow::Result<()> {
        let outcome = self.each(blocks, options, &mut head, watch);
        // What was good stays.
        let committed = self.commit(head, watch).and_then(|()| Ok(self.state.settle()?));
        outcome.and(committed)
    }

    fn each(
        &mut self,
        blocks: impl IntoIterator<Item = anyhow::Result<Fed>>,
        options: &RunOptions<'_>,
        head: &mut (u64, B256),
        watch: &mut Watch<'_>,
    ) -> anyhow::Result<()> {
        for fed in blocks {
            let Fed { block, list } = fed?;
            let number = block.block.header.number;
            if options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                self.summary.stopped = true;
                break;
            }
            match list {
                None => watch.followed(number),
                Some(list) => {
                    let root = self.block(&block, &list)?;
                    watch.block(number, root, (0, 0));
                }
            }
            *head = (number, block.hash);
            if self.uncommitted >= options.commit_every || self.state.is_full() {
                self.commit(*head, watch)?;
            }
        }
        Ok(())
    }

    fn block(&mut self, block: &ChainBlock, list: &AccessList) -> anyhow::Result<B256> {
        let header = &block.block.header;
        let number = header.number;
        let changes = list.changes(|address| self.state.kept().account(address))?;
        let layers = self.state.layer_count();
        let started = Instant::now();
        let got = self.state.apply_last(&changes, Some(header.state_root))?;
        self.summary.times.apply += started.elapsed();
        if got != header.state_root {
            self.state.undo_to(layers)?;
            let expected = header.state_root;
            let what =
                format!("block {number}: state root: expected {expected}, got {got} by its list");
            return Err(Failure::new(what)
                .hint("all blocks before it are in; the list is not that of the block")
                .exit(Exit::No)
                .into());
        }
        self.state.seal(&SealedBlock::new(number, Some(block.hash), got, &changes))?;
        self.summary.block_count += 1;
        self.summary.root_count += 1;
        self.uncommitted += 1;
        Ok(got)
    }

    fn commit(&mut self, head: (u64, B256), watch: &mut Watch<'_>) -> anyhow::Result<()> {
        if self.state.layer_count() == 0 {
            return Ok(());
        }
        let started = Instant::now();
        self.state.commit()?;
        let time = started.elapsed();
        self.uncommitted = 0;
        self.summary.commit += time;
        watch.committed(head.0, Some(head.1), time);
        Ok(())
    }
}
