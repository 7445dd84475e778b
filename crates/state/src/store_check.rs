//! Every row of a store, and what the rows say together.

use std::collections::BTreeSet;
use std::error::Error;

use alloy_primitives::{B256, hex, keccak256};
use spinney_tree::mpt::{Mpt, MptState};
use spinney_tree::names::{self, NameError};
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
use crate::sum::{SumError, namespaces};
use crate::tree_name::TreeName;
use crate::tree_set::{HeldError, TreeSet, root_records};

/// Rows of [`Table::Meta`] that name a tree that is being built begin with this; its id follows.
const REBUILD: &[u8] = b"rebuild";
/// Memory for pages: each is read once, so there is no need to keep it.
const CACHE_BYTES: usize = 1 << 20;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckPart {
    /// The pages of a tree.
    Tree(TreeId),
    /// Codes and preimages.
    References,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreCheck {
    /// What is wrong, one thing after another: as many as were asked for at the most.
    pub findings: Vec<String>,
    /// How many trees could be looked at.
    pub trees: usize,
    /// How many entries they have.
    pub entries: u64,
    /// Rows of pages that a rebuild left which was stopped: no damage, and the next one removes
    /// them.
    pub left_over: u64,
}

/// Why a check could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// A tree is of a newer version.
    #[error("{0} of the store is {1}")]
    Newer(TreeId, SchemeId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A tree could not be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A state could not be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// The names of trees could not be read.
    #[error(transparent)]
    Names(#[from] SumError),
}

impl From<NameError> for CheckError {
    fn from(error: NameError) -> Self {
        Self::Names(error.into())
    }
}

impl From<HeldError> for CheckError {
    fn from(error: HeldError) -> Self {
        match error {
            HeldError::Newer(scheme) => Self::Newer(TreeId(u32::from(scheme.tree)), scheme),
            HeldError::Tree(error) => error.into(),
            HeldError::State(error) => error.into(),
        }
    }
}

impl CheckError {
    /// Whether it says that the store is damaged, rather than out of reach.
    pub fn is_damage(&self) -> bool {
        let mut error: Option<&(dyn Error + 'static)> = Some(match self {
            Self::Newer(..) => return false,
            Self::Store(error) => error,
            Self::Tree(error) => error,
            Self::State(error) => error,
            Self::Names(error) => error,
        });
        while let Some(cause) = error {
            let is_corrupt = |error: &StoreError| matches!(error, StoreError::Corrupt { .. });
            let is_damaged = match cause.downcast_ref() {
                Some(TreeError::Corrupt { .. } | TreeError::OtherRoot { .. }) => true,
                Some(TreeError::Store(error)) => is_corrupt(error),
                _ => cause.downcast_ref().is_some_and(is_corrupt),
            };
            if is_damaged {
                return true;
            }
            error = cause.source();
        }
        false
    }
}

/// Looks at every row of a store, of one commit, and notes what is wrong: trees that are not what
/// their entries make of them, rows that belong to none, names without trees, what a state refers
/// to and is not there. `progress` is told what is looked at, and how many entries were read.
///
/// # Errors
/// If the store fails, or a tree is of a newer version. Damage is a finding, as far as more can be
/// read behind it; else it is an error, too.
pub fn check_store(
    store: &impl PageStore,
    check: &mut StoreCheck,
    progress: &mut dyn FnMut(CheckPart, u64),
) -> Result<(), CheckError> {
    let snapshot = store.snapshot()?;
    let mut ranges = Vec::new();
    for (id, record) in root_records(&snapshot)? {
        match record {
            Ok(record) => {
                let looked = check.tree(&snapshot, (id, &record), &mut ranges, progress);
                check.damage_or(looked)?;
            }
            Err(error) => check.found(error.to_string()),
        }
    }
    check.together(&snapshot)?;
    check.strays(&snapshot, &ranges)?;
    for table in [Table::Codes, Table::Preimages] {
        check.digests(&snapshot, table)?;
    }
    let looked = check.names(&snapshot);
    check.damage_or(looked)?;
    let looked = check.state(store, progress);
    check.damage_or(looked)
}

/// The keys of a tree's pages.
type PageRange = (Vec<u8>, Vec<u8>);

impl StoreCheck {
    /// So many findings are noted at the most.
    pub const FINDINGS_MAX: usize = 1_000;

    /// Notes what is wrong, unless that was noted already.
    pub fn found(&mut self, what: String) {
        // Each part of the check meets a damaged row, that of a tree with the tree's name in front.
        let is_told = self.findings.iter().any(|told| what.ends_with(told));
        if self.findings.len() < Self::FINDINGS_MAX && !is_told {
            self.findings.push(what);
        }
    }

    /// The names of trees: each root record of a tree that has no fixed id has one.
    fn names(&mut self, snapshot: &impl Snapshot) -> Result<(), CheckError> {
        // A sum tree's profile is known, too.
        let listed = names::list(snapshot).map_err(SumError::from);
        let names = match listed.and_then(|names| namespaces(snapshot).map(|_| names)) {
            Ok(names) => names,
            Err(error @ SumError::Damaged { .. }) => {
                self.found(error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        for (id, record) in root_records(snapshot)? {
            let Ok(record) = record else { continue };
            let is_sum = matches!(TreeName::of(record.scheme), Some(TreeName::Sum(_)));
            match names.iter().find(|name| name.id == id) {
                Some(named) if named.scheme == record.scheme => {}
                Some(named) => self.found(format!(
                    "{id} is {}, and its name {:?} is of a tree {}",
                    record.scheme, named.name, named.scheme
                )),
                None if is_sum => {
                    self.found(format!("{id} is a sum tree that no namespace names"));
                }
                None if id.0 >= names::FIRST_ID => {
                    self.found(format!("{id} is a tree that no name names"));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// The trees of a state are all of one block.
    fn together(&mut self, snapshot: &impl Snapshot) -> Result<(), CheckError> {
        let records = root_records(snapshot)?.into_iter();
        let sound = records.filter_map(|(id, record)| Some((id, record.ok()?)));
        let mut states = sound.filter(|(id, _)| [MPT, UBT, PBT, VERKLE].contains(id));
        let Some((first_id, first)) = states.next() else { return Ok(()) };
        for (id, other) in states {
            if other.block != first.block {
                let block = |block: Option<BlockId>| match block {
                    Some(block) => format!("block {} ({})", block.number, B256::from(block.hash)),
                    None => "no block".to_owned(),
                };
                self.found(format!(
                    "{id} is of {}, and {first_id} of {}",
                    block(other.block),
                    block(first.block)
                ));
            }
        }
        Ok(())
    }

    /// The blocks that the state can be taken back to, and what the state refers to outside of its
    /// tree, where the store holds a state.
    fn state(
        &mut self,
        store: &impl PageStore,
        progress: &mut dyn FnMut(CheckPart, u64),
    ) -> Result<(), CheckError> {
        let records = root_records(&store.snapshot()?)?;
        let sound = || records.iter().filter_map(|(id, record)| Some((id, record.as_ref().ok()?)));
        let is_of_state = |id: &TreeId, record: &RootRecord| match *id {
            MPT => record.scheme == MptState.id(),
            id => [UBT, PBT, VERKLE].contains(&id),
        };
        if !sound().any(|(id, record)| is_of_state(id, record)) {
            return Ok(());
        }
        let state = TreeSet::open_all(SharedStore::new(store), CACHE_BYTES)?;
        for fault in state.check_history()? {
            self.found(fault.to_string());
        }
        if !state.has_mpt() {
            // Of the other trees a state refers to nothing outside: their leaves have the code.
            return Ok(());
        }
        for fault in state.check_references(|read| progress(CheckPart::References, read))? {
            self.found(fault.to_string());
        }
        Ok(())
    }

    /// Damage is a finding, any other error ends the check.
    fn damage_or(&mut self, looked: Result<(), CheckError>) -> Result<(), CheckError> {
        match looked {
            Err(error) if error.is_damage() => {
                self.found(error.to_string());
                Ok(())
            }
            other => other,
        }
    }

    fn tree(
        &mut self,
        snapshot: &impl Snapshot,
        (id, record): (TreeId, &RootRecord),
        ranges: &mut Vec<PageRange>,
        progress: &mut dyn FnMut(CheckPart, u64),
    ) -> Result<(), CheckError> {
        let at = (snapshot, id);
        match TreeName::of(record.scheme) {
            Some(TreeName::Mpt) if record.scheme == MptState.id() => {
                self.tree_of(MptState, at, ranges, progress)
            }
            Some(TreeName::Mpt) => self.tree_of(Mpt, at, ranges, progress),
            Some(TreeName::Ubt(hash)) => self.tree_of(Ubt { hash }, at, ranges, progress),
            Some(TreeName::Pbt(hash)) => self.tree_of(Pbt { hash }, at, ranges, progress),
            Some(TreeName::Verkle) => self.tree_of(Verkle::shared(), at, ranges, progress),
            Some(TreeName::Sum(profile)) => self.tree_of(Sum { profile }, at, ranges, progress),
            None => Err(CheckError::Newer(id, record.scheme)),
        }
    }

    fn tree_of<S: Scheme + Clone>(
        &mut self,
        scheme: S,
        (snapshot, id): (&impl Snapshot, TreeId),
        ranges: &mut Vec<PageRange>,
        progress: &mut dyn FnMut(CheckPart, u64),
    ) -> Result<(), CheckError> {
        let tree = Tree::open(scheme, id, snapshot, CACHE_BYTES)?;
        ranges.push(tree.page_range());
        self.trees += 1;
        let before = self.entries;
        let findings = tree.check(snapshot, |read| {
            self.entries = before + read;
            progress(CheckPart::Tree(id), read);
        })?;
        for finding in findings {
            self.found(format!("{id}: {finding}"));
        }
        Ok(())
    }

    /// Pages that no root record leads to. Those of another generation of a tree that is there, or
    /// is being built, are no damage: a rebuild that was stopped has not removed them yet.
    fn strays(&mut self, snapshot: &impl Snapshot, ranges: &[PageRange]) -> Result<(), StoreError> {
        let known =
            |key: &[u8]| ranges.iter().any(|(low, high)| &low[..] <= key && key < &high[..]);
        let mut built: BTreeSet<Vec<u8>> =
            ranges.iter().filter_map(|(low, _)| Some(low.get(..4)?.to_vec())).collect();
        snapshot.scan(Table::Meta, REBUILD, None, &mut |key, _| {
            let id = key.strip_prefix(REBUILD);
            built.extend(id.map(<[u8]>::to_vec));
            id.is_some()
        })?;
        let (mut strays, mut left_over) = (0_u64, 0);
        snapshot.scan(Table::Pages, &[], None, &mut |key, _| {
            if !known(key) {
                let of_rebuild = key.get(..4).is_some_and(|id| built.contains(id));
                *(if of_rebuild { &mut left_over } else { &mut strays }) += 1;
            }
            true
        })?;
        self.left_over = left_over;
        if strays > 0 {
            self.found(format!("{strays} rows of {} belong to no tree", Table::Pages));
        }
        Ok(())
    }

    /// Rows that are kept under their own digest.
    fn digests(&mut self, snapshot: &impl Snapshot, table: Table) -> Result<(), StoreError> {
        let mut wrong = Vec::new();
        snapshot.scan(table, &[], None, &mut |key, row| {
            // A slot's preimage may stand under its account's hash and its own.
            let digest = key.get(32..).filter(|slot| slot.len() == 32).unwrap_or(key);
            if keccak256(row).as_slice() != digest {
                wrong.push(hex::encode_prefixed(key));
            }
            true
        })?;
        for key in wrong {
            self.found(format!("{table}: what is kept under {key} has another digest"));
        }
        Ok(())
    }
}
