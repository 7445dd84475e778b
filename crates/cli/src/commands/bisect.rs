//! `bisect`: the first block, account and slot in which a node and a store, or two nodes, differ.

use std::num::NonZeroUsize;

use clap::Args;
use serde_json::json;
use spinney_follow::{
    BisectError, BisectOptions, Bisected, Divergence, Node, Url, bisect_nodes, bisect_store,
};
use spinney_state::State;
use spinney_store::Frozen;
use spinney_tree::{PageStore as _, SharedStore};

use crate::args::{AtOrNoneArgs, FormatArgs};
use crate::commands::Command;
use crate::failure::{Exit, Failure};
use crate::stores::Mode;
use crate::trees::{self, Name};
use crate::ui::{Answer, Grid, Output};
use spinney_bench::Clock;

/// Name the first block, account and slot in which a node and a store, or two nodes, differ.
///
/// The first block whose state roots differ is found by halving the range that both keep: roots
/// that are the same at a block are taken to be the same before it. Then both tries are followed
/// from these roots, by proofs of the node, each of which has to hold under the root of its header.
/// Accounts and slots come in order of their hashes. Exit code 1 says that they differ.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    spinney bisect http://127.0.0.1:8545 --db state.db\n  \
    spinney bisect http://127.0.0.1:8545 http://127.0.0.1:8546 --from 100 --to 200 --all 50")]
pub(crate) struct BisectArgs {
    /// The node, http://HOST:PORT. It needs eth_getBlockByNumber, eth_getProof and eth_getCode, and
    /// the state of the block that is found; debug_accountRange and debug_storageRangeAt are asked
    /// where they are there.
    #[arg(value_name = "URL", env = "SPINNEY_NODE", hide_env_values = true)]
    node: Url,
    /// Another node, to compare it with that instead of a store.
    #[arg(value_name = "URL2")]
    other: Option<Url>,
    #[command(flatten)]
    at: AtOrNoneArgs,
    /// The first block to compare. Without it, the first one that both have; of two nodes the
    /// genesis.
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// The last block to compare. Without it, the last one that both have.
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Name up to so many accounts, and so many slots of each, instead of the first.
    #[arg(long, value_name = "N", default_value = "1")]
    all: NonZeroUsize,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

impl Command for BisectArgs {
    const NAME: &'static str = "bisect";

    fn run(&self, _: &Output) -> anyhow::Result<Answer> {
        let clock = Clock::start();
        let node = Node::new(self.node.clone());
        let mut options = BisectOptions::default();
        (options.from, options.to, options.limit) = (self.from, self.to, self.all.get());
        let (right, found) = match (&self.other, self.at.place(self.other.is_some())?) {
            (Some(other), None) => {
                let other = Node::new(other.clone());
                let found = bisect_nodes(&node, &other, &options).map_err(failure)?;
                (other.url().to_string(), found)
            }
            (None, Some(place)) => {
                let store = place.open(Mode::Look)?;
                // Who writes meanwhile does not change what is compared.
                let store = SharedStore::new(Frozen::of(&store)?);
                let record = trees::record_of(&store.snapshot()?, Name::Mpt, &place.name())?;
                if trees::keys_of(record.scheme) != "state" {
                    let what = format!("the store holds raw keys, and no state ({})", place.name());
                    return Err(Failure::new(what).hint("give the store of a state").into());
                }
                let state = State::open(store, place.tree_cache())?;
                (place.name(), bisect_store(&node, &state, &options).map_err(failure)?)
            }
            _ => {
                return Err(Failure::new("a node is compared with one other side")
                    .hint("give the URL of a second node, or the store as --db")
                    .into());
            }
        };
        let sides = [node.url().to_string(), right];
        answer(&found, &sides, &clock)
    }
}

fn failure(error: BisectError) -> anyhow::Error {
    let (hint, exit) = match &error {
        BisectError::State(_) => {
            return match error {
                BisectError::State(error) => (*error).into(),
                other => other.into(),
            };
        }
        BisectError::Node { .. } => (
            "does it listen there, and keep the state of that block? --from N --to N compares \
             block N alone",
            Exit::Error,
        ),
        BisectError::Proof { .. } | BisectError::Code { .. } | BisectError::Leaf { .. } => {
            ("the node contradicts itself: it is damaged, or it lies", Exit::No)
        }
        BisectError::Trie { .. } => ("spinney db check reads all of a store", Exit::No),
        BisectError::NoCommonBlock { .. } => {
            ("a larger --keep-undo keeps more blocks of a store", Exit::Error)
        }
        BisectError::Unfinished { .. } => ("give a smaller --all", Exit::Error),
        BisectError::NoState => ("fill it first: spinney replay, or spinney follow", Exit::Error),
        _ => ("spinney bisect --help shows what is needed", Exit::Error),
    };
    Failure::new(error.to_string()).hint(hint).exit(exit).into()
}

fn answer(found: &Bisected, sides: &[String; 2], clock: &Clock) -> anyhow::Result<Answer> {
    let [left, right] = sides;
    let answer = Answer::of(&json!({
        "left": left, "right": right, "first": found.first, "last": found.last,
        "differs": found.divergence.is_some(), "asks": found.asks,
        "seconds": clock.seconds(),
        "divergence": found.divergence,
    }))?;
    let answer = answer.csv(grid(found.divergence.as_ref()));
    let Some(divergence) = &found.divergence else {
        let Bisected { first, last, .. } = found;
        return Ok(answer.line(format!(
            "the same state after block {last} (blocks {first} to {last} are in both)"
        )));
    };
    let answer = answer.lines(lines(divergence, sides)).exit(Exit::No);
    Ok(match divergence.accounts.is_empty() {
        true => answer,
        false => answer.table(grid(Some(divergence))),
    })
}

fn lines(found: &Divergence, [left, right]: &[String; 2]) -> Vec<String> {
    let block = found.block;
    let which = match block.checked_sub(1) {
        Some(before) if found.is_first => {
            format!("first: block {before} is the same on both sides")
        }
        Some(_) => "or an earlier block: none before it was compared".into(),
        None => "the genesis".into(),
    };
    let mut lines = vec![
        format!("the states differ after block {block} ({which})"),
        format!("left: {left}, root {}", found.left.root),
        format!("right: {right}, root {}", found.right.root),
    ];
    if found.left.hash.is_some()
        && found.right.hash.is_some()
        && found.left.hash != found.right.hash
    {
        lines.push("they have different blocks of that number".into());
    }
    let hidden = |below: &[String], what: &str| {
        let below = below.join(", ");
        format!("below {below} {what} differs that nobody can name, and a node is asked by names")
    };
    if !found.hidden.is_empty() {
        lines.push(hidden(&found.hidden, "an account"));
    }
    for account in found.accounts.iter().filter(|account| !account.hidden_slots.is_empty()) {
        lines.push(hidden(&account.hidden_slots, &format!("a slot of account {}", account.key)));
    }
    lines
}

/// What differs, a line each.
fn grid(found: Option<&Divergence>) -> Grid {
    let mut grid = Grid::new(&["block", "account", "slot", "what", "left", "right"]);
    if let Some(divergence) = found {
        for row in divergence.rows() {
            let slot = row.slot.unwrap_or_default();
            let block = divergence.block.to_string();
            grid.row(vec![block, row.account, slot, row.what.into(), row.left, row.right]);
        }
    }
    grid
}
