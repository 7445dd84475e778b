//! `import state`, and `db load`: a store made from a document that holds a whole state; and what
//! others have in databases of theirs.
#![deny(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

mod fill;
mod raw;
mod tapd;
mod wanted;

use std::io::{BufReader, Cursor, Read as _};
use std::path::{Path, PathBuf};

use alloy_primitives::B256;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::args::{AtArgs, FormatArgs, ModeArgs, digest};
use crate::commands::Command;
use crate::failure::Failure;
use crate::stores::{self, Place};
use crate::trees::{self, TreeSet};
use crate::ui::{Answer, Output};

use self::fill::{Filled, fill};
use self::tapd::TapdArgs;
use self::wanted::Wanted;

/// Make a store from what others have.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(subcommand)]
    pub(crate) verb: ImportVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportVerb {
    /// Make a store that stands at a block, from a dump of its state or a genesis allocation.
    ///
    /// A replay then goes on with the blocks after it. The root is checked where it is known: from
    /// --root, or from the dump. Refused or cut off, it leaves no store behind.
    #[command(after_help = "Examples:\n  \
        spinney import state --db new.db --number 213 --hash 0x.. headstate.json\n  \
        spinney replay --genesis genesis.json --blocks later.rlp --db new.db")]
    State(StateArgs),
    /// Make a store of the sum trees of a Taproot Assets daemon's database, each under its
    /// namespace.
    ///
    /// Every hash and every sum is verified, and the roots are compared. A damaged tree is refused,
    /// with the places and the rows; then no store is left behind.
    #[command(after_help = "Examples:\n  \
        spinney import tapd --store sqlite --db new.sqlite ~/.tapd/data/mainnet/tapd.db\n  \
        spinney import tapd --db DIR --namespace multiverse-issuance \
        postgres://tapd@localhost/tapd")]
    Tapd(TapdArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    #[command(flatten)]
    at: AtArgs,
    /// The block whose state it is.
    #[arg(long, value_name = "N")]
    number: u64,
    /// The block's hash; without it, only state differences can follow.
    #[arg(long, value_name = "0x", value_parser = digest)]
    hash: Option<B256>,
    /// The state root that the block's header gives.
    #[arg(long, value_name = "0x", value_parser = digest)]
    root: Option<B256>,
    /// The trees: mpt, or several with commas between them, mpt among them.
    #[arg(long, value_name = "TREES", default_value = "mpt", env = "SPINNEY_TREE")]
    tree: String,
    /// `{"accounts": ..}` as `db dump` and geth write it, or `{"alloc": ..}`; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    format: FormatArgs,
}

impl Command for ImportArgs {
    const NAME: &'static str = "import";

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        match &self.verb {
            ImportVerb::State(args) => {
                args.mode.heed();
                let trees = trees::parse_set(&args.tree)?;
                let wanted = Wanted { number: Some(args.number), hash: args.hash, root: args.root };
                make(&args.at.place()?, &args.file, Some(&wanted), &trees, output)
            }
            ImportVerb::Tapd(args) => tapd::run(args, output),
        }
    }
}

/// `db load`: all that is wanted stands in the dump.
pub(crate) fn load(place: &Place, file: &Path, output: &Output) -> anyhow::Result<Answer> {
    make(place, file, None, &trees::parse_set("mpt")?, output)
}

/// Makes a store; with nothing wanted, of a dump of ours, which may be that of a raw tree.
fn make(
    place: &Place,
    file: &Path,
    wanted: Option<&Wanted>,
    trees: &TreeSet,
    output: &Output,
) -> anyhow::Result<Answer> {
    place.must_be_new("a state is imported into a new --db")?;
    let mut input = stores::open_file(file)?;
    let mut start = Vec::new();
    let unread = |error| Failure::new(format!("cannot read {}", file.display())).because(error);
    input.by_ref().take(raw::BEGINS.len() as u64).read_to_end(&mut start).map_err(unread)?;
    let raw = wanted.is_none() && start == raw::BEGINS;
    let input = BufReader::with_capacity(1 << 18, Cursor::new(start).chain(input));
    let (cache, quiet) = (place.tree_cache(), output.quiet());
    let mut filled = Filled::default();
    let store = place.create(output, |store| {
        filled = match raw {
            true => raw::fill(store, cache, quiet, input, file)?,
            // State differences may name code by its hash alone, and so may a dump of what they
            // made.
            false => {
                let (needs_code, unsaid) = (wanted.is_some(), Wanted::default());
                let wanted = wanted.unwrap_or(&unsaid);
                fill((store, cache), trees, (needs_code, quiet), (input, file), wanted)?
            }
        };
        Ok(())
    })?;
    store.close()?;
    answer(&filled)
}

fn answer(filled: &Filled) -> anyhow::Result<Answer> {
    let Filled { block, root, entries, commits, checked } = filled;
    let number = block.map(|block| block.number);
    let hash = block.and_then(trees::hash_of);
    let data = json!({
        "block": number, "block_hash": hash, "root": root, "root_checked": checked,
        "entries": entries, "commits": commits,
    });
    let what = match number {
        Some(number) => format!("block {number}, {entries} accounts"),
        None => format!("{entries} entries"),
    };
    let how = if *checked { "as it should be" } else { "not checked: nobody said it" };
    let answer = Answer::of(&data)?.row(&["block", "root", "root_checked", "entries"]);
    Ok(answer.line(format!("{what}, root {root} ({how})")))
}
