//! What verbs do with Merkle-sum trees: in any store, by their namespaces.

mod dump;
mod load;
mod prove;
mod remove;
mod root;
mod verify;

use std::env;

use clap::Args;
use spinney_state::sum::{SumError, SumTree};
use spinney_tree::sum::Profile;
use spinney_tree::{PageStore, SchemeId, Snapshot, names};

use crate::failure::Failure;
use crate::stores::{Mode, Place};
use crate::trees::{self, Name};

pub(crate) use dump::dump;
pub(crate) use load::load;
pub(crate) use prove::{prove, prove_all};
pub(crate) use remove::{RemoveArgs, remove};
pub(crate) use root::SumSink;
pub(crate) use verify::{is_sum, verify};

/// Which of the sum trees of a store.
#[derive(Clone, Debug, Args)]
pub(crate) struct NamespaceArgs {
    /// The namespace of a sum tree: a store holds any number of them.
    #[arg(long, value_name = "NAME", default_value = "default", env = "SPINNEY_NAMESPACE")]
    pub(crate) namespace: String,
}

impl NamespaceArgs {
    /// Whether the command itself names one, and not the environment or nobody.
    pub(crate) fn is_said() -> bool {
        env::args_os().any(|word| {
            let word = word.to_string_lossy();
            word == "--namespace" || word.starts_with("--namespace=")
        })
    }

    /// Refuses a namespace that the command names for a tree that has none.
    pub(crate) fn check(name: Name) -> Result<(), Failure> {
        if Self::is_said() && !matches!(name, Name::Sum(_)) {
            return Err(Failure::new(format!("a tree {name} has no namespaces (--namespace)"))
                .hint("sum trees have them: --tree sum, or leave out --namespace"));
        }
        Ok(())
    }
}

/// The tree of a verb that takes one: the one that was asked for, else what the store holds, mpt
/// before others and sum trees last; in a new one, mpt.
pub(crate) fn asked(
    name: Option<&str>,
    namespace: &NamespaceArgs,
    place: &Place,
) -> anyhow::Result<Name> {
    if let Some(name) = name {
        return Ok(trees::parse(name)?);
    }
    if place.location.is_none() || !place.exists()? {
        return Ok(Name::Mpt);
    }
    let store = place.open(Mode::Look)?;
    let snapshot = store.snapshot()?;
    match trees::first_of(&snapshot)?.filter(|_| !NamespaceArgs::is_said()) {
        Some(first) => Ok(first),
        None if NamespaceArgs::is_said() || has_any(&snapshot)? => {
            Ok(Name::Sum(profile_of(&snapshot, &namespace.namespace)?))
        }
        None => Ok(Name::Mpt),
    }
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
    let Some(tree) = SumTree::open(store, namespace, cache).map_err(plain)? else {
        let what = format!("the store holds no sum tree of namespace {namespace} (--namespace)");
        return Err(Failure::new(what).hint(namespaces(&store.snapshot()?)?).into());
    };
    if tree.profile() != profile {
        return Err(other_profile(namespace, tree.profile(), profile).into());
    }
    Ok(tree)
}

/// So many namespaces are named.
const NAMED_MAX: usize = 8;

/// The namespaces that a store holds, in words.
fn namespaces(snapshot: &impl Snapshot) -> anyhow::Result<String> {
    let named = names::list(snapshot).map_err(SumError::from).map_err(plain)?;
    let sums: Vec<_> = named
        .iter()
        .filter(|named| of_scheme(named.scheme).is_some())
        .map(|named| &named.name[..])
        .collect();
    let more = sums.len().saturating_sub(NAMED_MAX);
    let first = sums.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    Ok(match (sums.len(), more) {
        (0, _) => "it holds none; does --db name another store?".to_owned(),
        (_, 0) => format!("those that it holds: {first}"),
        _ => format!("those that it holds: {first}, and {more} more; spinney db info shows all"),
    })
}

/// The profile of a sum tree's scheme.
fn of_scheme(scheme: SchemeId) -> Option<Profile> {
    match Name::of(scheme) {
        Some(Name::Sum(profile)) => Some(profile),
        _ => None,
    }
}

/// The profile of the tree of a namespace; where there is none, the usual one.
fn profile_of(snapshot: &impl Snapshot, namespace: &str) -> anyhow::Result<Profile> {
    let named = names::find(snapshot, namespace).map_err(SumError::from).map_err(plain)?;
    let found = named.and_then(|named| of_scheme(named.scheme));
    Ok(found.unwrap_or(Profile::Compatible))
}

/// Whether a store has sum trees.
fn has_any(snapshot: &impl Snapshot) -> anyhow::Result<bool> {
    let named = names::list(snapshot).map_err(SumError::from).map_err(plain)?;
    Ok(named.iter().any(|named| of_scheme(named.scheme).is_some()))
}

fn other_profile(namespace: &str, is: Profile, asked: Profile) -> Failure {
    let (is, asked) = (Name::Sum(is), Name::Sum(asked));
    let what = format!("namespace {namespace} holds a tree {is}, not {asked} (--tree)");
    Failure::new(what).hint(format!("say --tree {is}, or give another --namespace"))
}
