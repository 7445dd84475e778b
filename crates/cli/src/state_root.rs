//! `state-root`: the root of a genesis allocation.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use spinney_replay::parse_alloc;
use spinney_state::State;
use spinney_tree::{CACHE_BYTES_DEFAULT, MemoryStore};

use crate::args::FormatArgs;
use crate::failure::{Exit, Failure};
use crate::output::{Format, Grid, Output};
use crate::{stores, trees};

/// Print the root of a genesis allocation.
///
/// The file is `{"alloc": {...}}` as geth writes it; a whole genesis.json will do.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  spinney state-root genesis.json")]
pub(crate) struct StateRootArgs {
    /// The allocation; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The tree: `mpt` in this version.
    #[arg(long, value_name = "TREE", default_value = "mpt", env = "SPINNEY_TREE")]
    tree: String,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

pub(crate) fn run(args: &StateRootArgs, output: &Output) -> anyhow::Result<Exit> {
    trees::check_name(&args.tree)?;
    let bytes = stores::read_file(&args.file)?;
    let alloc = parse_alloc(&bytes).map_err(|error| {
        Failure::new(format!("{error} ({})", args.file.display())).hint(
            "the file is {\"alloc\": {\"0xaddress\": {\"balance\": \"..\"}}}, as geth writes it",
        )
    })?;
    let mut state = State::open(MemoryStore::new(), CACHE_BYTES_DEFAULT)?;
    // The root is all that is wanted: what is behind the keys need not be noted.
    state.keep_preimages(false);
    let root = state.apply(&alloc)?;
    match args.format.asked() {
        Some(Format::Json) => {
            let accounts = alloc.accounts.len();
            let data = json!({ "tree": args.tree, "accounts": accounts, "root": root });
            output.envelope(&data, &[])?;
        }
        Some(Format::Csv) => {
            let mut grid = Grid::new(&["tree", "accounts", "root"]);
            grid.row(vec![args.tree.clone(), alloc.accounts.len().to_string(), root.to_string()]);
            output.grid(&grid)?;
        }
        Some(Format::Table) | None => output.line(&root.to_string())?,
    }
    Ok(Exit::Ok)
}
