//! `catch-up`: a converted store follows its chain by block-level access lists, without execution.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;

use alloy_primitives::{B256, Bytes};
use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use spinney_migrate::{AccessList, CatchUp, CatchUpError, ListedBlock};
use spinney_state::embed::PBT;
use spinney_store::AnyStore;
use spinney_tree::pbt::Pbt;
use spinney_tree::{BlockId, PageStore as _, SharedStore};

use crate::args::{AtArgs, FormatArgs};
use crate::commands::Command;
use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::out_file::OutFile;
use crate::stores::{Mode, open_file};
use crate::trees::{Name, check_alone, of_states};
use crate::ui::progress::{Progress, Unit};
use crate::ui::{Answer, Output};

/// Lines are one block each, and no block's list takes more.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// Take a converted pbt further by block-level access lists (EIP-7928), without executing anything.
///
/// Lists come as `spinney replay --bal-out` writes them, a block a line. The last blocks stay in
/// memory, a layer each: a block that follows an earlier one drops the layers above that. What is
/// deeper is final, and made durable. In the end all of it is.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    spinney catch-up --db pbt.db lists.ndjson\n  \
    spinney catch-up --db pbt.db --depth 64 --to 600 --roots roots.ndjson lists.ndjson")]
pub(crate) struct CatchUpArgs {
    #[command(flatten)]
    at: AtArgs,
    /// The access lists; - is standard input.
    #[arg(value_name = "FILE")]
    lists: PathBuf,
    /// How many blocks may still be dropped.
    #[arg(long, value_name = "N", default_value_t = 64)]
    depth: usize,
    /// The last block to take.
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Write the root after each block to a file: `{"number", "hash", "root"}` a line.
    #[arg(long, value_name = "FILE")]
    roots: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// A line of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockLine {
    number: u64,
    hash: B256,
    /// Without it, the block of the line before is meant.
    parent: Option<B256>,
    #[serde(alias = "balHash")]
    bal_hash: B256,
    #[serde(alias = "rlp")]
    bal: Option<Bytes>,
    /// The list as JSON, which is read where there is no RLP.
    #[serde(rename = "accessList")]
    access_list: Option<Box<RawValue>>,
}

impl BlockLine {
    /// The RLP of the list.
    fn rlp(&self) -> anyhow::Result<Bytes> {
        if let Some(rlp) = &self.bal {
            return Ok(rlp.clone());
        }
        let text = self.access_list.as_ref().map_or("null", |list| list.get());
        let list = AccessList::read_json(text, self.bal_hash);
        let number = self.number;
        let list = list.map_err(|source| CatchUpError::List { number, source })?;
        Ok(list.to_rlp())
    }
}

#[derive(Debug, Default, Serialize)]
struct CatchUpReport {
    tree: String,
    block: u64,
    block_hash: B256,
    root: B256,
    /// Blocks applied, those that were dropped included.
    blocks: u64,
    /// Blocks that the store had already.
    known: u64,
    reorganisations: u64,
    dropped: u64,
}

impl Command for CatchUpArgs {
    const NAME: &'static str = "catch-up";

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        let place = self.at.place()?;
        let input = BufReader::with_capacity(1 << 18, open_file(&self.lists)?);
        let interrupt = Interrupt::listen()?;
        let store = place.open(Mode::Change)?;
        let scheme = pbt_of(&store)?;
        let mut roots = self.roots.as_deref().map(|path| OutFile::begin(Some(path))).transpose()?;
        let mut tree = CatchUp::open(scheme, SharedStore::new(&store), place.tree_cache())?;
        let tree_name = Name::Pbt(scheme.hash).to_string();
        let mut report = CatchUpReport { tree: tree_name, ..CatchUpReport::default() };
        let mut progress = Progress::new(output.quiet(), "catch up", Unit::Blocks, self.to);
        let mut stopped = false;
        // What the lists say of the block where the store stands: they may have forks of it.
        let (start, mut at_start) = (tree.base(), Vec::new());
        let mut before = None;
        for (number, line) in (1_u64..).zip(BoundedLines(input)) {
            let line =
                line.with_context(|| format!("reading line {number} of {}", self.lists.display()))?;
            let line: BlockLine = parse(&line, number)?;
            let parent = line.parent.or(before).unwrap_or_else(|| B256::from(tree.head().hash));
            before = Some(line.hash);
            if self.to.is_some_and(|to| line.number > to) {
                continue;
            }
            if line.number == start.number {
                at_start.push(line.hash);
            }
            if line.number <= tree.base().number {
                report.known += 1;
                continue;
            }
            if interrupt.is_asked() {
                stopped = true;
                break;
            }
            let root = apply(&mut tree, &line, parent, &mut report)?;
            if let Some(roots) = &mut roots {
                let line = json!({ "number": line.number, "hash": line.hash, "root": root });
                writeln!(roots, "{line}")?;
            }
            if let Some(is_final) = tree.at_depth(self.depth) {
                tree.finalise(is_final)?;
            }
            progress.update(line.number, || format!("block {}", line.number));
        }
        progress.finish();
        if let Some(other) = at_start.first()
            && report.blocks == 0
            && !at_start.contains(&start.hash.into())
        {
            return Err(other_chain(start, *other).into());
        }
        let head = tree.head();
        tree.finalise(head.hash.into())?;
        (report.block, report.block_hash) = (head.number, head.hash.into());
        report.root = tree.root();
        drop(tree);
        store.close()?;
        roots.map(OutFile::finish).transpose()?;
        let block = report.block;
        if stopped {
            output.warn(format!("interrupted after block {block}"));
        } else if report.blocks == 0 {
            let what = format!("no list follows block {block}, where the store stands");
            output.warn(format!("{what}: nothing was done"));
        }
        let answer = report.answer()?;
        Ok(if stopped { answer.goes_on() } else { answer })
    }
}

fn other_chain(start: BlockId, theirs: B256) -> Failure {
    let ours = B256::from(start.hash);
    let number = start.number;
    Failure::new(format!("block {number} of the lists is {theirs}, and the store's is {ours}"))
        .hint(
            "the lists are of another chain, or of a fork that left this one before: look for the \
             right ones",
        )
        .exit(Exit::No)
}

fn apply(
    tree: &mut CatchUp<SharedStore<'_>>,
    line: &BlockLine,
    parent: B256,
    report: &mut CatchUpReport,
) -> anyhow::Result<B256> {
    let layers = tree.layers();
    let rlp = line.rlp()?;
    let root = tree.apply(&ListedBlock {
        id: BlockId { number: line.number, hash: line.hash.0 },
        parent,
        list: &rlp,
        list_hash: line.bal_hash,
    })?;
    report.blocks += 1;
    let dropped = (layers + 1 - tree.layers()) as u64;
    report.dropped += dropped;
    report.reorganisations += u64::from(dropped > 0);
    Ok(root)
}

fn parse(line: &str, number: u64) -> Result<BlockLine, Failure> {
    serde_json::from_str(line).map_err(|error| {
        Failure::new(format!("line {number} of the access lists: {error}")).hint(concat!(
            r#"a line is {"number": 7, "hash": "0x..", "parent": "0x..", "#,
            r#""bal_hash": "0x..", "bal": "0x.."}"#
        ))
    })
}

/// The lines of a file, each of them bounded.
struct BoundedLines<R>(R);

impl<R: std::io::BufRead> Iterator for BoundedLines<R> {
    type Item = std::io::Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = String::new();
        loop {
            line.clear();
            match std::io::Read::take(&mut self.0, LINE_BYTES_MAX).read_line(&mut line) {
                Ok(0) => return None,
                Ok(_) if line.trim().is_empty() => {}
                Ok(_) => return Some(Ok(line)),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The tree that is to follow: others would stay behind.
fn pbt_of(store: &AnyStore) -> anyhow::Result<Pbt> {
    let snapshot = store.snapshot()?;
    check_alone(&snapshot, PBT)?;
    let record = of_states(&snapshot)?.into_iter().find(|(id, _)| *id == PBT);
    match record.and_then(|(_, record)| Name::of(record.scheme)) {
        Some(Name::Pbt(hash)) => Ok(Pbt { hash }),
        _ => Err(Failure::new("the store holds no pbt (--db)")
            .hint("spinney convert --tree pbt:blake3 makes one")
            .into()),
    }
}

impl CatchUpReport {
    fn answer(&self) -> anyhow::Result<Answer> {
        let columns = ["block", "root", "blocks", "reorganisations", "dropped"];
        Ok(Answer::of(self)?.row(&columns).line(format!(
            "block {}, root {} ({} blocks, {} of them dropped)",
            self.block, self.root, self.blocks, self.dropped
        )))
    }
}
