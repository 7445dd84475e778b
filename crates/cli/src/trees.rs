//! The names of trees as options give them, and what is said where a store does not hold them.

use std::fmt;

use alloy_primitives::B256;
use spinney_state::{HeldError, State, TreeSetError, UnknownTree, verify_entries};
use spinney_tree::names::FIRST_ID;
use spinney_tree::{BlockId, PageStore, RootRecord, SchemeId, SharedStore, Snapshot, TreeId};

pub(crate) use spinney_state::{
    TreeName as Name, TreeSet, newest_block, root_records as records, state_records as of_states,
};

use crate::failure::Failure;
use crate::place_name::without_password;

/// What to do about a tree of a newer version.
const NEWER_HINT: &str = "use the spinney that wrote it, or a newer one";

/// The names of all trees.
pub(crate) fn all() -> Vec<String> {
    Name::ALL.iter().map(ToString::to_string).collect()
}

/// Reads the name of a tree, for a verb that takes all that there are.
pub(crate) fn parse(name: &str) -> Result<Name, Failure> {
    parse_of(name, "--tree")
}

/// The same, of another option.
pub(crate) fn parse_of(name: &str, option: &str) -> Result<Name, Failure> {
    name.parse().map_err(|error| unknown(&error, option))
}

fn unknown(UnknownTree { name, like, .. }: &UnknownTree, option: &str) -> Failure {
    let like: Vec<_> = like.iter().map(ToString::to_string).collect();
    let hint = match like.is_empty() {
        true => format!("this version has: {}", all().join(", ")),
        false => format!("its hash is part of its name: {}", like.join(", ")),
    };
    Failure::new(format!("there is no tree {} ({option})", without_password(name))).hint(hint)
}

/// Reads the names of the trees of a state.
pub(crate) fn parse_set(names: &str) -> Result<TreeSet, Failure> {
    names.parse().map_err(|error: TreeSetError| match error {
        TreeSetError::Unknown(error) => unknown(&error, "--tree"),
        TreeSetError::OneKind(..) => {
            Failure::new(format!("{error} (--tree)")).hint("a store has one tree of a kind")
        }
        _ => Failure::new(format!("{error} (--tree)")).hint("spinney root takes leaves"),
    })
}

/// Refuses a tree that cannot hold a state.
pub(crate) fn check_holds_accounts(name: Name) -> Result<(), Failure> {
    if name.holds_accounts() {
        return Ok(());
    }
    let what = format!("{} (--tree)", TreeSetError::Leaves(name));
    Err(Failure::new(what).hint("spinney root takes leaves"))
}

/// The tree that is meant where none is named: of those of a state, mpt before others.
pub(crate) fn first_of(snapshot: &impl Snapshot) -> anyhow::Result<Option<Name>> {
    let records = of_states(snapshot)?;
    Ok(records.first().and_then(|(_, record)| Name::of(record.scheme)))
}

/// An error of trees that a store holds, as what it is.
pub(crate) fn plain(error: HeldError) -> anyhow::Error {
    match error {
        HeldError::Tree(error) => error.into(),
        HeldError::State(error) => error.into(),
        other => Failure::new(other.to_string()).hint(NEWER_HINT).into(),
    }
}

/// The trees that a store holds; of an empty one the Merkle Patricia trie.
pub(crate) fn held(snapshot: &impl Snapshot) -> anyhow::Result<TreeSet> {
    TreeSet::of(snapshot).map_err(plain)
}

/// Opens a store's state with the trees that it holds.
pub(crate) fn open_all<'s>(
    store: impl PageStore + 's,
    cache_bytes: usize,
) -> anyhow::Result<State<SharedStore<'s>>> {
    TreeSet::open_all(store, cache_bytes).map_err(plain)
}

/// The root record of a tree of a state, which the store at `place` has to hold: of a tree that was
/// never there nothing can be said, not even that it is empty.
pub(crate) fn record_of(
    snapshot: &impl Snapshot,
    name: Name,
    place: &impl fmt::Display,
) -> anyhow::Result<RootRecord> {
    let is_it = |id: TreeId, record: &RootRecord| {
        // Raw keys and accounts are two schemes of one name.
        Some(id) == name.id() && Name::of(record.scheme) == Some(name)
    };
    let is_sum = |record: &RootRecord| matches!(Name::of(record.scheme), Some(Name::Sum(_)));
    let mut held: Vec<_> = Vec::new();
    for (id, record) in records(snapshot)? {
        match record {
            Ok(record) if is_it(id, &record) => return Ok(record),
            // What the library gave a name is none of these, whatever its scheme.
            Ok(record) if id.0 >= FIRST_ID && !is_sum(&record) => {
                held.push(format!("{} by name", name_of(record.scheme)));
            }
            Ok(record) => held.push(name_of(record.scheme)),
            Err(error) if Some(id) == name.id() => return Err(error.into()),
            Err(_) => held.push(format!("tree {}, which is damaged", id.0)),
        }
    }
    held.dedup();
    let (others, hint) = match held.is_empty() {
        true => (", nor any other".into(), "fill it first; or does --db name another store?"),
        false => {
            let hint = match held.iter().all(|name| name.ends_with(" by name")) {
                true => "the library reads trees by name; spinney db info shows what they are",
                false => "name one of these instead; spinney db info shows what the store holds",
            };
            (format!(": it holds {}", held.join(", ")), hint)
        }
    };
    let what = format!("the store holds no {name} tree{others} ({place})");
    Err(Failure::new(what).hint(hint).into())
}

/// Refuses to change one tree of a store that keeps several together.
pub(crate) fn check_alone(snapshot: &impl Snapshot, id: TreeId) -> anyhow::Result<()> {
    let others = of_states(snapshot)?.into_iter().filter(|(other, _)| *other != id);
    let names: Vec<_> = others.map(|(_, record)| name_of(record.scheme)).collect();
    if names.is_empty() {
        return Ok(());
    }
    let what = format!("the store holds {}, which would stay behind (--db)", names.join(", "));
    Err(Failure::new(what)
        .hint("give a new --db; spinney replay --diffs takes state differences into several trees")
        .into())
}

/// Refuses a tree that a verb does not take, and says which it does.
pub(crate) fn check_name(name: Name, takes: impl Fn(Name) -> bool) -> Result<(), Failure> {
    if takes(name) {
        return Ok(());
    }
    let have: Vec<_> =
        Name::ALL.into_iter().filter(|name| takes(*name)).map(|name| name.to_string()).collect();
    let what = format!("tree {name} is not in this version of this verb (--tree)");
    Err(Failure::new(what).hint(format!("this verb has: {}", have.join(", "))))
}

/// The name of a scheme that a store holds.
pub(crate) fn name_of(scheme: SchemeId) -> String {
    Name::of(scheme).map_or_else(|| "unknown".to_owned(), |name| name.to_string())
}

/// State differences name no hash; zeros stand for it.
pub(crate) fn hash_of(block: BlockId) -> Option<B256> {
    Some(B256::from(block.hash)).filter(|hash| !hash.is_zero())
}

/// What keys a scheme's tree has.
pub(crate) fn keys_of(scheme: SchemeId) -> &'static str {
    match (scheme.tree, scheme.hash) {
        (1, 0) => "raw",
        (2, 0) => "state",
        // The keys of a state are keys like any others.
        (3 | 4 | 6, _) => "raw or state",
        (5, _) => "leaves",
        _ => "unknown",
    }
}

/// Computes the root of a tree from all of its entries, and compares it with its record's. Answers
/// how many entries there are.
pub(crate) fn count_entries(
    snapshot: &impl Snapshot,
    id: TreeId,
    record: &RootRecord,
) -> anyhow::Result<u64> {
    match verify_entries(snapshot, id, record)? {
        Some(entries) => Ok(entries),
        None => Err(newer(id, record.scheme).into()),
    }
}

/// A tree that this version does not know.
pub(crate) fn newer(id: TreeId, scheme: SchemeId) -> Failure {
    Failure::new(format!("{id} of the store is {scheme}")).hint(NEWER_HINT)
}
