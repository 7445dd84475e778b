//! `state-root`: the root of a genesis allocation.

use std::path::PathBuf;

use alloy_primitives::B256;
use clap::Args;
use serde_json::json;
use spinney_replay::parse_alloc;
use spinney_state::embed::{BinaryState, EmbedError, Embedding};
use spinney_state::{Changes, State};
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{CACHE_BYTES_DEFAULT, MemoryStore, SharedStore};

use crate::args::FormatArgs;
use crate::commands::Command;
use crate::failure::Failure;
use crate::stores;
use crate::trees::{self, Name};
use crate::ui::{Answer, Output, Speech};

/// Print the root of a genesis allocation.
///
/// The file is `{"alloc": {...}}` as geth writes it; a whole genesis.json will do.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  spinney state-root genesis.json")]
pub(crate) struct StateRootArgs {
    /// The allocation; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The tree: mpt, ubt:sha256, ubt:blake3, ubt:keccak, pbt with one of these hashes, or verkle.
    #[arg(long, value_name = "TREE", default_value = "mpt", env = "SPINNEY_TREE")]
    tree: String,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

impl Command for StateRootArgs {
    const NAME: &'static str = "state-root";

    fn speech(&self) -> Speech {
        Speech::Lines
    }

    fn run(&self, _: &Output) -> anyhow::Result<Answer> {
        let tree = trees::parse(&self.tree)?;
        trees::check_holds_accounts(tree)?;
        let bytes = stores::read_file(&self.file)?;
        let alloc = parse_alloc(&bytes).map_err(|error| {
            Failure::new(format!("{error} ({})", self.file.display())).hint(
                "the file is {\"alloc\": {\"0xaddress\": {\"balance\": \"..\"}}}, as geth writes \
                 it",
            )
        })?;
        let root = match tree {
            Name::Mpt => {
                let mut state =
                    State::open(SharedStore::new(MemoryStore::new()), CACHE_BYTES_DEFAULT)?;
                // The root is all that is wanted: what is behind the keys need not be noted.
                state.keep_preimages(false);
                state.apply(&alloc)?
            }
            Name::Ubt(hash) => binary(Ubt { hash }, &alloc)?,
            Name::Pbt(hash) => binary(Pbt { hash }, &alloc)?,
            Name::Verkle => binary(Verkle::shared(), &alloc)?,
            Name::Sum(_) => unreachable!("it is refused"),
        };
        let accounts = alloc.accounts.len();
        let mut data = json!({ "tree": self.tree, "accounts": accounts, "root": root });
        if let Some(other) = tree.other_root(&root) {
            data["root_hash"] = json!(other);
        }
        Ok(Answer::of(&data)?.row(&["tree", "accounts", "root"]).line(root.to_string()))
    }
}

fn binary<S: Embedding>(scheme: S, alloc: &Changes) -> Result<B256, EmbedError> {
    BinaryState::open(scheme, SharedStore::new(MemoryStore::new()), CACHE_BYTES_DEFAULT)?
        .apply(alloc)
}
