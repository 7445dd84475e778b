//! `db remove`: a namespace, with all its leaves.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_primitives::B256;
use clap::Args;
use serde_json::json;

use super::{open, plain};
use crate::args::{AtArgs, FormatArgs};
use crate::failure::Failure;
use crate::stores::Mode;
use crate::trees::{self, Name};
use crate::ui::Answer;

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    at: AtArgs,
    /// The tree: `sum` or `sum:bound`.
    #[arg(long, value_name = "TREE", default_value = "sum", env = "SPINNEY_TREE")]
    tree: String,
    /// The namespace that is to go. It has to be said: there is no way back.
    #[arg(long, value_name = "NAME")]
    namespace: String,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

/// Removes a tree in one commit: leaves, root and name.
pub(crate) fn remove(args: &RemoveArgs) -> anyhow::Result<Answer> {
    let Name::Sum(profile) = trees::parse(&args.tree)? else {
        let what = format!("{} has no namespaces that could be removed (--tree)", args.tree);
        let hint = "a state goes with its store; --tree sum --namespace NAME removes a sum tree";
        return Err(Failure::new(what).hint(hint).into());
    };
    let (place, namespace) = (args.at.place()?, &args.namespace);
    let store = place.open(Mode::Change)?;
    let tree = open(&store, namespace, profile, place.tree_cache())?;
    let (root, sum) = (B256::from(tree.root().hash), tree.root().sum.to_string());
    tree.remove().map_err(plain)?;
    store.close()?;
    let data = json!({ "namespace": namespace, "root": root, "root_sum": sum });
    let line = format!("removed {namespace}: root {root}, sum {sum}");
    Ok(Answer::of(&data)?.row(&["namespace", "root", "root_sum"]).line(line))
}
