//! What verbs do with Merkle-sum trees: in any store, by their namespaces.

mod dump;
mod load;
mod prove;
mod remove;
mod root;
mod verify;

use clap::Args;
use spinney_state::sum::{SumError, SumTree};
use spinney_tree::PageStore;
use spinney_tree::sum::Profile;

use crate::failure::Failure;

pub(crate) use dump::dump;
pub(crate) use load::load;
pub(crate) use prove::{prove, prove_all};
pub(crate) use remove::{RemoveArgs, remove};
pub(crate) use root::SumSink;
pub(crate) use spinney_cli::sum_trace::SumLine;
pub(crate) use verify::{is_sum, verify};

/// Which of the sum trees of a store.
#[derive(Clone, Debug, Args)]
pub(crate) struct NamespaceArgs {
    /// The namespace of a sum tree: a store holds any number of them.
    #[arg(long, value_name = "NAME", default_value = "default", env = "SPINNEY_NAMESPACE")]
    pub(crate) namespace: String,
}

/// An error as other trees have it, where it is the tree's own.
pub(crate) fn plain(error: SumError) -> anyhow::Error {
    match error {
        SumError::Tree(error) => error.into(),
        SumError::Output(error) => error.into(),
        SumError::OtherProfile { name, is, asked } => other_profile(&name, is, asked).into(),
        other => other.into(),
    }
}

/// The tree of a namespace, which is to be there and of that profile.
fn open<'s, P: PageStore>(
    store: &'s P,
    namespace: &str,
    profile: Profile,
    cache: usize,
) -> anyhow::Result<SumTree<'s, P>> {
    let tree = SumTree::open(store, namespace, cache).map_err(plain)?.ok_or_else(|| {
        Failure::new(format!("the store holds no sum tree of namespace {namespace} (--namespace)"))
            .hint("spinney db info shows the namespaces that it holds")
    })?;
    if tree.profile() != profile {
        return Err(other_profile(namespace, tree.profile(), profile).into());
    }
    Ok(tree)
}

fn other_profile(namespace: &str, is: Profile, asked: Profile) -> Failure {
    let (is, asked) = (name(is), name(asked));
    let what = format!("namespace {namespace} holds a tree {is}, not {asked} (--tree)");
    Failure::new(what).hint(format!("say --tree {is}, or give another --namespace"))
}

/// As `--tree` takes it.
pub(crate) const fn name(profile: Profile) -> &'static str {
    match profile {
        Profile::Bound => "sum:bound",
        _ => "sum",
    }
}

/// The profile of a tree's name.
fn profile(name: &str) -> Option<Profile> {
    [Profile::Compatible, Profile::Bound].into_iter().find(|profile| self::name(*profile) == name)
}
