//! The names of trees, and those that a store keeps together.

use std::fmt;

use alloy_primitives::B256;
use spinney_state::embed::{PBT, UBT, VERKLE};
use spinney_state::{MPT, State, StateError};
use spinney_tree::mpt::{Mpt, MptState};
use spinney_tree::names::FIRST_ID;
use spinney_tree::pbt::Pbt;
use spinney_tree::sum::{Profile, Sum};
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{
    HashFunction, PageStore, RootRecord, Scheme, SchemeId, SharedStore, Snapshot, StoreError,
    Table, Tree, TreeError, TreeId,
};

use crate::failure::Failure;
use crate::place_name::without_password;

/// A root record, or what is wrong with it.
pub(crate) type Record = (TreeId, Result<RootRecord, TreeError>);

/// The root records of a store, in order of their trees. One that is damaged is an error in its
/// place.
pub(crate) fn records(snapshot: &impl Snapshot) -> Result<Vec<Record>, StoreError> {
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
    let page = format!("the root record of key 0x{}", alloy_primitives::hex::encode(key));
    TreeError::Corrupt { page, what: "its key is not that of a tree".into() }
}

/// A tree of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Mpt,
    Ubt(HashFunction),
    Pbt(HashFunction),
    Verkle,
    Sum(Profile),
}

impl Name {
    const ALL: [Self; 10] = {
        use HashFunction::{Blake3, Keccak256, Sha256};
        [
            Self::Mpt,
            Self::Ubt(Sha256),
            Self::Ubt(Blake3),
            Self::Ubt(Keccak256),
            Self::Pbt(Blake3),
            Self::Pbt(Sha256),
            Self::Pbt(Keccak256),
            Self::Verkle,
            Self::Sum(Profile::Compatible),
            Self::Sum(Profile::Bound),
        ]
    };

    /// All names.
    pub(crate) fn all() -> Vec<String> {
        Self::ALL.iter().map(ToString::to_string).collect()
    }

    /// Its id in a store that holds a state; sum trees have names of their own.
    pub(crate) const fn id(self) -> Option<TreeId> {
        match self {
            Self::Mpt => Some(MPT),
            Self::Ubt(_) => Some(UBT),
            Self::Pbt(_) => Some(PBT),
            Self::Verkle => Some(VERKLE),
            Self::Sum(_) => None,
        }
    }

    /// Refuses a tree that cannot hold a state.
    pub(crate) fn check_holds_accounts(self) -> Result<(), Failure> {
        match self {
            Self::Sum(_) => {
                let what = format!("a tree {self} holds leaves, and no accounts (--tree)");
                Err(Failure::new(what).hint("spinney root takes leaves"))
            }
            _ => Ok(()),
        }
    }

    /// Reads the name of a tree, for a verb that takes all that there are.
    pub(crate) fn parse(name: &str) -> Result<Self, Failure> {
        Self::parse_of(name, "--tree")
    }

    /// The same, of another option.
    pub(crate) fn parse_of(name: &str, option: &str) -> Result<Self, Failure> {
        let all = Self::ALL.map(|name| name.to_string());
        if let Some(index) = all.iter().position(|known| known == name) {
            return Ok(Self::ALL[index]);
        }
        let of_hash: Vec<_> = all
            .iter()
            .filter(|known| known.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')))
            .cloned()
            .collect();
        let hint = match of_hash.is_empty() {
            true => format!("this version has: {}", all.join(", ")),
            false => format!("its hash is part of its name: {}", of_hash.join(", ")),
        };
        Err(Failure::new(format!("there is no tree {} ({option})", without_password(name)))
            .hint(hint))
    }

    /// The root by its other name, where the tree has two: the field element of a Verkle tree's.
    pub(crate) fn other_root(self, root: &B256) -> Option<B256> {
        match self {
            Self::Verkle => Verkle::root_hash(root).map(B256::from),
            _ => None,
        }
    }

    /// The tree of a scheme that a store holds.
    pub(crate) fn of(scheme: SchemeId) -> Option<Self> {
        let profiles = [Profile::Compatible, Profile::Bound];
        let sum = |profile: &Profile| Sum { profile: *profile }.id() == scheme;
        if let Some(profile) = profiles.into_iter().find(sum) {
            return Some(Self::Sum(profile));
        }
        let hash = match scheme.hash {
            0 if scheme.tree == 6 => return Some(Self::Verkle),
            0 => return matches!(scheme.tree, 1 | 2).then_some(Self::Mpt),
            1 => HashFunction::Keccak256,
            2 => HashFunction::Sha256,
            3 => HashFunction::Blake3,
            _ => return None,
        };
        match scheme.tree {
            3 => Some(Self::Ubt(hash)),
            4 => Some(Self::Pbt(hash)),
            _ => None,
        }
    }
}

/// The tree that is meant where none is named: of those of a state, mpt before others.
pub(crate) fn first_of(snapshot: &impl Snapshot) -> anyhow::Result<Option<Name>> {
    let records = of_states(snapshot)?;
    Ok(records.first().and_then(|(_, record)| Name::of(record.scheme)))
}

/// The trees of one state in one store, in order of their ids; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeSet(Vec<Name>);

impl TreeSet {
    /// Reads names with commas between them.
    pub(crate) fn parse(names: &str) -> Result<Self, Failure> {
        let mut trees = names.split(',').map(Name::parse).collect::<Result<Vec<_>, _>>()?;
        trees.iter().try_for_each(|name| name.check_holds_accounts())?;
        trees.sort_by_key(|name| name.id());
        if let Some(pair) = trees.windows(2).find(|pair| pair[0].id() == pair[1].id()) {
            let what = format!("{} and {} in one store (--tree)", pair[0], pair[1]);
            return Err(Failure::new(what).hint("a store has one tree of a kind"));
        }
        Ok(Self(trees))
    }

    /// How many they are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the Merkle Patricia trie is among them, whose roots headers give.
    pub(crate) fn has_mpt(&self) -> bool {
        self.0.contains(&Name::Mpt)
    }

    /// Whether it is the only one.
    pub(crate) fn is_mpt_alone(&self) -> bool {
        self.0 == [Name::Mpt]
    }

    /// Those that a store holds; of an empty one the Merkle Patricia trie.
    pub(crate) fn of(snapshot: &impl Snapshot) -> anyhow::Result<Self> {
        let held = of_states(snapshot)?;
        if held.is_empty() {
            return Ok(Self(vec![Name::Mpt]));
        }
        let name = |(_, record): (TreeId, RootRecord)| Name::of(record.scheme).ok_or(record.scheme);
        let names: Result<_, SchemeId> = held.into_iter().map(name).collect();
        let newer = "use the spinney that wrote it, or a newer one";
        Ok(Self(names.map_err(|scheme| {
            Failure::new(format!("the store holds a tree of {scheme}")).hint(newer)
        })?))
    }

    /// Opens a store's state with all of its trees, which share the memory for pages.
    pub(crate) fn open<'s>(
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
                Name::Mpt => {}
                Name::Sum(_) => unreachable!("it holds no accounts, and is refused"),
                Name::Verkle => state.add_tree(Verkle::shared(), cache_bytes)?,
                Name::Ubt(hash) => state.add_tree(Ubt { hash }, cache_bytes)?,
                Name::Pbt(hash) => state.add_tree(Pbt { hash }, cache_bytes)?,
            }
        }
        Ok(state)
    }

    /// Opens a store's state with the trees that it holds.
    pub(crate) fn open_all<'s>(
        store: impl PageStore + 's,
        cache_bytes: usize,
    ) -> anyhow::Result<State<SharedStore<'s>>> {
        let store = SharedStore::new(store);
        let trees = Self::of(&store.snapshot()?)?;
        Ok(trees.open(store, cache_bytes)?)
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

/// The trees of a store that hold states, or raw keys under the same ids.
pub(crate) fn of_states(snapshot: &impl Snapshot) -> anyhow::Result<Vec<(TreeId, RootRecord)>> {
    let mut found = Vec::new();
    for (id, record) in records(snapshot)? {
        if [MPT, UBT, PBT, VERKLE].contains(&id) {
            found.push((id, record?));
        }
    }
    Ok(found)
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

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tree, hash) = match self {
            Self::Mpt => return f.write_str("mpt"),
            Self::Ubt(hash) => ("ubt", hash),
            Self::Pbt(hash) => ("pbt", hash),
            Self::Verkle => return f.write_str("verkle"),
            Self::Sum(profile) => return f.write_str(profile_name(*profile)),
        };
        let hash = match hash {
            HashFunction::Keccak256 => "keccak",
            HashFunction::Sha256 => "sha256",
            HashFunction::Blake3 => "blake3",
        };
        write!(f, "{tree}:{hash}")
    }
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

/// A sum tree's profile, as `--tree` takes it.
pub(crate) const fn profile_name(profile: Profile) -> &'static str {
    match profile {
        Profile::Bound => "sum:bound",
        _ => "sum",
    }
}

/// The name of a scheme that a store holds.
pub(crate) fn name_of(scheme: SchemeId) -> String {
    Name::of(scheme).map_or_else(|| "unknown".to_owned(), |name| name.to_string())
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
pub(crate) fn verify_entries(
    snapshot: &impl Snapshot,
    id: TreeId,
    record: &RootRecord,
) -> anyhow::Result<u64> {
    fn of<S: Scheme + Clone>(scheme: S, id: TreeId, from: &impl Snapshot) -> anyhow::Result<u64> {
        let mut entries = 0;
        // Each page is read once: no need to keep it.
        let tree = Tree::open(scheme, id, from, 1 << 20)?;
        tree.verify_entries(from, |read| entries = read)?;
        Ok(entries)
    }
    match Name::of(record.scheme) {
        Some(Name::Mpt) if record.scheme == MptState.id() => of(MptState, id, snapshot),
        Some(Name::Mpt) => of(Mpt, id, snapshot),
        Some(Name::Ubt(hash)) => of(Ubt { hash }, id, snapshot),
        Some(Name::Pbt(hash)) => of(Pbt { hash }, id, snapshot),
        Some(Name::Verkle) => of(Verkle::shared(), id, snapshot),
        Some(Name::Sum(profile)) => of(Sum { profile }, id, snapshot),
        None => {
            let what = format!("{id} of the store is {}", record.scheme);
            Err(Failure::new(what).hint("use the spinney that wrote it, or a newer one").into())
        }
    }
}
