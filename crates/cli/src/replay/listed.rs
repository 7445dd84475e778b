//! A chain by its access lists alone: nothing is executed, and the root of each header is checked.

use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use alloy_primitives::{B256, Bytes};
use anyhow::Context as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use spinney_migrate::{AccessList, ListError};
use spinney_replay::{ChainBlock, ChainReader, Genesis, Replay, RunOptions, SealedBlock, Summary};
use spinney_state::StateRead as _;

use super::driven::{Driven, check_genesis};
use super::watch::Watch;
use crate::failure::{Exit, Failure};
use crate::stores;

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

    /// The line of a block. Lines come in the order of blocks; those of earlier blocks are passed
    /// over.
    fn of(&mut self, block: &ChainBlock) -> anyhow::Result<ListLine> {
        let number = block.block.header.number;
        while let Some(line) = self.read()? {
            if line.number < number {
                continue;
            }
            if (line.number, line.hash) == (number, block.hash) {
                return Ok(line);
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
    (blocks, mut lists): (ChainReader<'static>, ListLines),
    options: &RunOptions<'_>,
    watch: &mut Watch<'_>,
) -> anyhow::Result<(Summary, S)> {
    check_genesis(state.kept(), genesis)?;
    let (mut head, follow) = match state.kept().block() {
        None => {
            state.kept_mut().set_genesis(genesis.hash);
            state = Replay::start(genesis, state)?.into_state();
            ((0, genesis.hash), None)
        }
        Some(head) => {
            watch.resumed(head.number);
            ((0, genesis.hash), Some((head.number, B256::from(head.hash))))
        }
    };
    let mut run = ListRun { state, summary: Summary::default(), uncommitted: 0 };
    for block in blocks {
        let block = block?;
        let number = block.block.header.number;
        if number == 0 && block.hash == genesis.hash {
            continue;
        }
        if options.last.is_some_and(|last| number > last) {
            break;
        }
        if options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            run.summary.stopped = true;
            break;
        }
        check_link(head, &block)?;
        let before = std::mem::replace(&mut head, (number, block.hash));
        if let Some((last, hash)) = follow.filter(|(last, _)| number <= *last) {
            if number == last && hash != block.hash {
                let what = format!(
                    "the store stands at block {number} ({hash}), the chain has {}",
                    block.hash
                );
                return Err(Failure::new(what)
                    .hint("these are the blocks of another chain")
                    .into());
            }
            watch.followed(number);
            continue;
        }
        let outcome = lists.of(&block).and_then(|line| run.block(&block, &line));
        let root = match outcome {
            Ok(root) => root,
            Err(error) => {
                // What was good stays.
                run.commit(before, watch)?;
                run.state.settle()?;
                return Err(error);
            }
        };
        watch.block(number, root, (0, 0));
        if run.uncommitted >= options.commit_every || run.state.is_full() {
            run.commit(head, watch)?;
        }
    }
    run.commit(head, watch)?;
    run.state.settle()?;
    Ok((run.summary, run.state))
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

struct ListRun<S> {
    state: S,
    summary: Summary,
    uncommitted: u64,
}

impl<S: Driven> ListRun<S> {
    fn block(&mut self, block: &ChainBlock, line: &ListLine) -> anyhow::Result<B256> {
        let header = &block.block.header;
        let number = header.number;
        // Before Amsterdam no header names a list, and the root alone says whether it is right.
        let hash = header.block_access_list_hash.unwrap_or(line.bal_hash);
        let list = line.list(hash).map_err(|error| {
            Failure::new(format!("block {number}: its access list is refused (--bals)"))
                .because(error)
                .hint("all blocks before it are in; fetch or make the list again")
                .exit(Exit::No)
        })?;
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
