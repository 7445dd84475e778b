//! `demo`: a folder of small inputs of every kind, and what to try on them.

mod assets;

use std::fs::{self, File};
use std::io::{BufWriter, Cursor, Write as _};
use std::path::{Path, PathBuf};

use alloy_primitives::{Address, B256};
use anyhow::Context as _;
use clap::Args;
use serde_json::json;
use spinney_replay::{
    ChainReader, Event, Genesis, Replay, RunOptions, SampleChain, SampleOptions, TraceWriter,
};
use spinney_state::{Change, KeepHistory, State};
use spinney_tree::{CACHE_BYTES_DEFAULT, MemoryStore, SharedStore};

use crate::args::FormatArgs;
use crate::commands::Command;
use crate::commands::replay::Lists;
use crate::failure::Failure;
use crate::ui::{Answer, Output, Speech};

/// Write small inputs of every kind into a new folder, and print what to try on them.
///
/// A genesis and a chain of 60 blocks, as geth exports them; the chain's traces, as geth's
/// prestateTracer tells them in diff mode; its block-level access lists; and a database with the
/// sum trees of a Taproot Assets daemon. The same at every run.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  spinney demo try-it")]
pub(crate) struct DemoArgs {
    /// The folder that is made.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// What was made.
struct Made {
    blocks: u64,
    transactions: u64,
    root: B256,
    /// The account of the genesis whose balance changed last.
    busy: Address,
}

impl Command for DemoArgs {
    const NAME: &'static str = "demo";

    fn speech(&self) -> Speech {
        Speech::Lines
    }

    fn run(&self, _: &Output) -> anyhow::Result<Answer> {
        let folder = &self.folder;
        if fs::symlink_metadata(folder).is_ok() {
            return Err(Failure::new(format!("{} is there already", folder.display()))
                .hint("name a folder that is not there")
                .into());
        }
        let above = match folder.parent() {
            Some(above) if above != Path::new("") => above,
            _ => Path::new("."),
        };
        let unwritten = |error: std::io::Error| {
            Failure::new(format!("cannot write {}", folder.display()))
                .because(error)
                .hint("name a folder in one that is there, and that can be written")
        };
        // Whole under its name, or not there at all.
        let scratch =
            tempfile::Builder::new().prefix(".demo").tempdir_in(above).map_err(unwritten)?;
        let made = make(scratch.path())?;
        fs::rename(scratch.path(), folder).map_err(unwritten)?;
        // It has another name now, and stays.
        let _ = scratch.keep();
        answer(&made, folder)
    }
}

fn make(folder: &Path) -> anyhow::Result<Made> {
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.join(name), bytes).with_context(|| format!("writing {name}"))
    };
    let (genesis, chain) = chain()?;
    write("genesis.json", genesis.to_json().as_bytes())?;
    write("chain.rlp", &chain)?;
    assets::write(&folder.join("assets.db")).context("writing assets.db")?;
    derived(folder, &genesis, chain)
}

fn empty_state() -> anyhow::Result<State<SharedStore<'static>>> {
    let mut state = State::open(SharedStore::new(MemoryStore::new()), CACHE_BYTES_DEFAULT)?;
    state.keep_history(KeepHistory::Blocks(0));
    Ok(state)
}

fn chain() -> anyhow::Result<(Genesis, Vec<u8>)> {
    let mut options = SampleOptions::default();
    (options.block_count, options.transactions_per_block) = (60, 8);
    (options.sender_count, options.crowd_count) = (40, 400);
    let mut chain = SampleChain::new(options, empty_state()?)?;
    let genesis = chain.genesis().clone();
    let mut bytes = Vec::new();
    for block in chain.by_ref() {
        bytes.extend(block?.to_rlp());
    }
    Ok((genesis, bytes))
}

/// What follows from executing the chain: traces and access lists.
fn derived(folder: &Path, genesis: &Genesis, chain: Vec<u8>) -> anyhow::Result<Made> {
    let mut replay = Replay::start(genesis, empty_state()?)?;
    replay.keep_steps(true);
    let mut lists = Lists::begin(&folder.join("lists.ndjson"), false, None)?;
    let mut lines = BufWriter::new(File::create(folder.join("traces.ndjson"))?);
    let mut traces = TraceWriter::new(&genesis.alloc);
    let (mut busy, mut root, mut written) = (Address::ZERO, genesis.header.state_root, Ok(()));
    let summary = replay.run(
        ChainReader::new(Cursor::new(chain))?,
        &RunOptions::default(),
        |event: Event<'_>| {
            if let Event::Block(block) = event {
                let moved = |(address, change): &(&Address, &Change)| {
                    matches!(change, Change::Written(change) if change.balance.is_some())
                        && genesis.alloc.accounts.contains_key(*address)
                };
                if let Some((address, _)) = block.changes.accounts.iter().find(moved) {
                    busy = *address;
                }
                root = block.state_root;
                lists.block(block);
                let line = traces.block(block);
                if written.is_ok() {
                    written = writeln!(lines, "{line}");
                }
            }
        },
    )?;
    written.and_then(|()| lines.flush()).context("writing traces.ndjson")?;
    lists.finish()?;
    Ok(Made { blocks: summary.block_count, transactions: summary.transaction_count, root, busy })
}

fn answer(made: &Made, folder: &Path) -> anyhow::Result<Answer> {
    let dir = folder.display();
    let Made { blocks, transactions, root, busy } = made;
    let next = [
        format!(
            "spinney replay --tree mpt,pbt:blake3 --genesis {dir}/genesis.json --blocks \
             {dir}/chain.rlp --db {dir}/state"
        ),
        format!("spinney prove --db {dir}/state --address {busy} > {dir}/proof.json"),
        format!("spinney verify --tree mpt --root {root} {dir}/proof.json"),
        format!("spinney convert --tree ubt:sha256 {dir}/state {dir}/ubt"),
        format!("spinney import tapd --db {dir}/assets {dir}/assets.db"),
    ];
    let files = ["genesis.json", "chain.rlp", "traces.ndjson", "lists.ndjson", "assets.db"];
    let data = json!({
        "folder": dir.to_string(), "files": files, "blocks": blocks,
        "transactions": transactions, "root": root, "next": next,
    });
    let lines = [
        format!(
            "{dir}/genesis.json and {dir}/chain.rlp: {blocks} blocks, {transactions} transactions"
        ),
        format!(
            "{dir}/traces.ndjson and {dir}/lists.ndjson: the same blocks as traces, and as access \
             lists"
        ),
        format!("{dir}/assets.db: two sum trees, as a Taproot Assets daemon keeps them"),
        "Next:".into(),
    ];
    let next = next.iter().map(|command| format!("  {command}"));
    Ok(Answer::of(&data)?.lines(lines.into_iter().chain(next)))
}
