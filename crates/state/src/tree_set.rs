//! The trees that a store keeps together.

use std::fmt;

use alloy_primitives::hex;
use spinney_tree::mpt::{Mpt, MptState};
use spinney_tree::pbt::Pbt;
use spinney_tree::sum::Sum;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{
    BlockId, PageStore, RootRecord, Scheme, SchemeId, SharedStore, Snapshot, StoreError, Table,
    Tree, TreeError, TreeId,
};

use crate::embed::{PBT, UBT, VERKLE};
use crate::error::StateError;
use crate::mpt_entries::MPT;
use crate::mpt_state::State;
use crate::tree_name::{TreeName, UnknownTree};

/// A root record, or what is wrong with it.
pub type HeldRecord = (TreeId, Result<RootRecord, TreeError>);

/// The root records of a store, in order of their trees. One that is damaged is an error in its
/// place.
///
/// # Errors
/// If the store fails.
pub fn root_records(snapshot: &impl Snapshot) -> Result<Vec<HeldRecord>, StoreError> {
    let mut records = Vec::new();
    snapshot.scan(Table::Roots, &[], None, &mut |key, row| {
        let tree = key.try_into().map(u32::from_be_bytes).map(TreeId);
        records.push(match tree {
            Ok(tree) => (tree, RootRecord::decode(tree, row)),
            Err(_) => (TreeId(u32::MAX), Err(odd_key(key))),
        });
        true
    })?;
    Ok(records)
}

fn odd_key(key: &[u8]) -> TreeError {
    let page = format!("the root record of key 0x{}", hex::encode(key));
    TreeError::Corrupt { page, what: "its key is not that of a tree".into() }
}

/// The root records of the trees that hold a state, or raw keys under the same ids.
///
/// # Errors
/// If the store fails, or one of these records is damaged.
pub fn state_records(snapshot: &impl Snapshot) -> Result<Vec<(TreeId, RootRecord)>, TreeError> {
    let records = root_records(snapshot)?.into_iter();
    let of_states = records.filter(|(id, _)| [MPT, UBT, PBT, VERKLE].contains(id));
    of_states.map(|(id, record)| Ok((id, record?))).collect()
}

/// The block that the state of a store is of, if it holds one.
///
/// # Errors
/// As [`state_records`].
pub fn newest_block(snapshot: &impl Snapshot) -> Result<Option<BlockId>, TreeError> {
    Ok(state_records(snapshot)?.first().and_then(|(_, record)| record.block))
}

/// Computes the root of a tree from all of its entries, and compares it with its record's. Answers
/// how many entries there are; `None` of a tree that this version does not know.
///
/// # Errors
/// If the root is another one, or a page cannot be read.
pub fn verify_entries(
    snapshot: &impl Snapshot,
    id: TreeId,
    record: &RootRecord,
) -> Result<Option<u64>, TreeError> {
    fn of<S: Scheme + Clone>(
        scheme: S,
        id: TreeId,
        from: &impl Snapshot,
    ) -> Result<Option<u64>, TreeError> {
        let mut entries = 0;
        // Each page is read once: no need to keep it.
        let tree = Tree::open(scheme, id, from, 1 << 20)?;
        tree.verify_entries(from, |read| entries = read)?;
        Ok(Some(entries))
    }
    match TreeName::of(record.scheme) {
        Some(TreeName::Mpt) if record.scheme == MptState.id() => of(MptState, id, snapshot),
        Some(TreeName::Mpt) => of(Mpt, id, snapshot),
        Some(TreeName::Ubt(hash)) => of(Ubt { hash }, id, snapshot),
        Some(TreeName::Pbt(hash)) => of(Pbt { hash }, id, snapshot),
        Some(TreeName::Verkle) => of(Verkle::shared(), id, snapshot),
        Some(TreeName::Sum(profile)) => of(Sum { profile }, id, snapshot),
        None => Ok(None),
    }
}

/// The trees of one state in one store, in order of their ids; at least one. They are named with
/// commas between them.
///
/// ```
/// use spinney_state::TreeSet;
///
/// let trees: TreeSet = "pbt:blake3,mpt".parse()?;
/// assert_eq!(trees.to_string(), "mpt,pbt:blake3");
/// assert!("mpt,sum".parse::<TreeSet>().is_err());
/// # Ok::<_, spinney_state::TreeSetError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeSet(Vec<TreeName>);

/// Why names are not those of the trees of a state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeSetError {
    /// There is no such tree.
    #[error(transparent)]
    Unknown(#[from] UnknownTree),
    /// A tree cannot hold a state.
    #[error("a tree {0} holds leaves, and no accounts")]
    Leaves(TreeName),
    /// Two trees would have one place.
    #[error("{0} and {1} in one store")]
    OneKind(TreeName, TreeName),
}

/// Why the trees of a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeldError {
    /// One of them is of a newer version.
    #[error("the store holds a tree of {0}")]
    Newer(SchemeId),
    /// A root record could not be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The state could not be opened.
    #[error(transparent)]
    State(#[from] StateError),
}

impl From<StoreError> for HeldError {
    fn from(error: StoreError) -> Self {
        Self::Tree(error.into())
    }
}

impl TreeSet {
    /// How many they are.
    #[expect(clippy::len_without_is_empty, reason = "there is one at least")]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the Merkle Patricia trie is among them, whose roots headers give.
    pub fn has_mpt(&self) -> bool {
        self.0.contains(&TreeName::Mpt)
    }

    /// Whether it is the only one.
    pub fn is_mpt_alone(&self) -> bool {
        self.0 == [TreeName::Mpt]
    }

    /// Those that a store holds; of an empty one the Merkle Patricia trie.
    ///
    /// # Errors
    /// If the store fails, a root record is damaged, or a tree is of a newer version.
    pub fn of(snapshot: &impl Snapshot) -> Result<Self, HeldError> {
        let held = state_records(snapshot)?;
        if held.is_empty() {
            return Ok(Self(vec![TreeName::Mpt]));
        }
        let name = |(_, record): (TreeId, RootRecord)| {
            TreeName::of(record.scheme).ok_or(HeldError::Newer(record.scheme))
        };
        held.into_iter().map(name).collect::<Result<_, _>>().map(Self)
    }

    /// Opens a store's state with all of these trees, which share the memory for pages.
    ///
    /// # Errors
    /// If the store fails, or holds other trees.
    pub fn open<'s>(
        &self,
        store: SharedStore<'s>,
        cache_bytes: usize,
    ) -> Result<State<SharedStore<'s>>, StateError> {
        let cache_bytes = cache_bytes / self.0.len().max(1);
        let mut state = match self.has_mpt() {
            true => State::open(store, cache_bytes)?,
            false => State::open_without_mpt(store)?,
        };
        for name in &self.0 {
            match *name {
                TreeName::Mpt => {}
                TreeName::Sum(_) => unreachable!("it holds no accounts, and is refused"),
                TreeName::Verkle => state.add_tree(Verkle::shared(), cache_bytes)?,
                TreeName::Ubt(hash) => state.add_tree(Ubt { hash }, cache_bytes)?,
                TreeName::Pbt(hash) => state.add_tree(Pbt { hash }, cache_bytes)?,
            }
        }
        Ok(state)
    }

    /// Opens a store's state with the trees that it holds.
    ///
    /// # Errors
    /// As [`of`](Self::of) and [`open`](Self::open).
    pub fn open_all<'s>(
        store: impl PageStore + 's,
        cache_bytes: usize,
    ) -> Result<State<SharedStore<'s>>, HeldError> {
        let store = SharedStore::new(store);
        let trees = Self::of(&store.snapshot()?)?;
        Ok(trees.open(store, cache_bytes)?)
    }
}

impl std::str::FromStr for TreeSet {
    type Err = TreeSetError;

    fn from_str(names: &str) -> Result<Self, TreeSetError> {
        let mut trees = names.split(',').map(str::parse).collect::<Result<Vec<TreeName>, _>>()?;
        if let Some(leaves) = trees.iter().find(|name| !name.holds_accounts()) {
            return Err(TreeSetError::Leaves(*leaves));
        }
        trees.sort_by_key(|name| name.id());
        match trees.windows(2).find(|pair| pair[0].id() == pair[1].id()) {
            Some(pair) => Err(TreeSetError::OneKind(pair[0], pair[1])),
            None => Ok(Self(trees)),
        }
    }
}

impl fmt::Display for TreeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, name) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}
