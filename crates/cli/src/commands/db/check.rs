//! `db check`: every row of a store, and what the rows say together.

use std::collections::BTreeSet;

use alloy_primitives::{B256, hex, keccak256};
use serde_json::json;
use spinney_state::MPT;
use spinney_state::embed::{PBT, UBT, VERKLE};
use spinney_state::sum::{SumError, namespaces};
use spinney_store::Frozen;
use spinney_tree::mpt::{Mpt, MptState};
use spinney_tree::pbt::Pbt;
use spinney_tree::sum::Sum;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{
    BlockId, PageStore, RootRecord, Scheme, Snapshot, StoreError, Table, Tree, TreeId, names,
};

use crate::commands::sums;
use crate::failure::{Exit, Failure};
use crate::stores::{Mode, Place};
use crate::trees::{self, Name, TreeSet};
use crate::ui::progress::{Progress, Unit};
use crate::ui::{Answer, Grid, Output, counted};

/// Rows of [`Table::Meta`] that name a tree that is being built begin with this; its id follows.
const REBUILD: &[u8] = b"rebuild";
/// Findings of one kind beyond which they are only counted.
const FINDINGS_MAX: usize = 1_000;

pub(super) fn run(place: &Place, output: &Output) -> anyhow::Result<Answer> {
    let mut check = Check { output, findings: Vec::new(), trees: 0, entries: 0, left_over: 0 };
    if let Err(error) = check.store(place) {
        if !super::is_damage(&error) {
            return Err(error);
        }
        check.found(format!("{error:#}"));
    }
    check.answer()
}

struct Check<'o> {
    output: &'o Output,
    findings: Vec<String>,
    trees: usize,
    entries: u64,
    /// Rows of pages that a rebuild left and the next one removes.
    left_over: u64,
}

impl Check<'_> {
    fn found(&mut self, what: String) {
        // Each part of the check meets a damaged row, that of a tree with the tree's name in front.
        let is_told = self.findings.iter().any(|told| what.ends_with(told));
        if self.findings.len() < FINDINGS_MAX && !is_told {
            self.findings.push(what);
        }
    }

    fn store(&mut self, place: &Place) -> anyhow::Result<()> {
        let mut store = place.open(Mode::Inspect)?;
        if let Err(error) = store.check() {
            match error {
                // The rows that can be read may say more.
                StoreError::Corrupt { .. } => self.found(error.to_string()),
                error => return Err(error.into()),
            }
        }
        // What the rows say together holds of one commit, whoever writes meanwhile.
        let store = Frozen::of(&store)?;
        let snapshot = store.snapshot()?;
        let mut ranges = Vec::new();
        for (id, record) in trees::records(&snapshot)? {
            match record {
                Ok(record) => {
                    let looked = self.tree(&snapshot, id, &record, &mut ranges);
                    self.damage_or(looked)?;
                }
                Err(error) => self.found(error.to_string()),
            }
        }
        self.together(&snapshot)?;
        self.strays(&snapshot, &ranges)?;
        for table in [Table::Codes, Table::Preimages] {
            self.digests(&snapshot, table)?;
        }
        let looked = self.names(&snapshot);
        self.damage_or(looked)?;
        let looked = self.state(&store);
        self.damage_or(looked)
    }

    /// The names of trees: each root record of a tree that has no fixed id has one.
    fn names(&mut self, snapshot: &impl Snapshot) -> anyhow::Result<()> {
        // A sum tree's profile is known, too.
        let listed = names::list(snapshot).map_err(SumError::from);
        let names = match listed.and_then(|names| namespaces(snapshot).map(|_| names)) {
            Ok(names) => names,
            Err(error @ SumError::Damaged { .. }) => {
                self.found(error.to_string());
                return Ok(());
            }
            Err(error) => return Err(sums::plain(error)),
        };
        for (id, record) in trees::records(snapshot)? {
            let Ok(record) = record else { continue };
            let is_sum = matches!(Name::of(record.scheme), Some(Name::Sum(_)));
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
    fn together(&mut self, snapshot: &impl Snapshot) -> anyhow::Result<()> {
        let records = trees::records(snapshot)?.into_iter();
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
    fn state(&mut self, store: &impl PageStore) -> anyhow::Result<()> {
        let records = trees::records(&store.snapshot()?)?;
        let sound = || records.iter().filter_map(|(id, record)| Some((id, record.as_ref().ok()?)));
        let is_of_state = |id: &TreeId, record: &RootRecord| match *id {
            MPT => record.scheme == MptState.id(),
            id => [UBT, PBT, VERKLE].contains(&id),
        };
        if !sound().any(|(id, record)| is_of_state(id, record)) {
            return Ok(());
        }
        let state = TreeSet::open_all(store, 1 << 20)?;
        for fault in state.check_history()? {
            self.found(fault.to_string());
        }
        if !state.has_mpt() {
            // Of the other trees a state refers to nothing outside: their leaves have the code.
            return Ok(());
        }
        let mut progress = Progress::new(self.output.quiet(), "check", Unit::Keys, None);
        let faults = state.check_references(|read| {
            progress.update(read, || "codes and preimages".to_owned());
        })?;
        progress.finish();
        for fault in faults {
            self.found(fault.to_string());
        }
        Ok(())
    }

    /// Damage is a finding, any other error ends the check.
    fn damage_or(&mut self, looked: anyhow::Result<()>) -> anyhow::Result<()> {
        match looked {
            Err(error) if super::is_damage(&error) => {
                self.found(error.to_string());
                Ok(())
            }
            other => other,
        }
    }

    fn tree(
        &mut self,
        snapshot: &impl Snapshot,
        id: TreeId,
        record: &RootRecord,
        ranges: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> anyhow::Result<()> {
        match Name::of(record.scheme) {
            Some(Name::Mpt) if record.scheme == MptState.id() => {
                self.tree_of(MptState, snapshot, id, ranges)
            }
            Some(Name::Mpt) => self.tree_of(Mpt, snapshot, id, ranges),
            Some(Name::Ubt(hash)) => self.tree_of(Ubt { hash }, snapshot, id, ranges),
            Some(Name::Pbt(hash)) => self.tree_of(Pbt { hash }, snapshot, id, ranges),
            Some(Name::Verkle) => self.tree_of(Verkle::shared(), snapshot, id, ranges),
            Some(Name::Sum(profile)) => self.tree_of(Sum { profile }, snapshot, id, ranges),
            None => {
                let what = format!("{id} of the store is {}", record.scheme);
                Err(Failure::new(what).hint("use the spinney that wrote it, or a newer one").into())
            }
        }
    }

    fn tree_of<S: Scheme + Clone>(
        &mut self,
        scheme: S,
        snapshot: &impl Snapshot,
        id: TreeId,
        ranges: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> anyhow::Result<()> {
        // Each page is read once: no need to keep it.
        let tree = Tree::open(scheme, id, snapshot, 1 << 20)?;
        ranges.push(tree.page_range());
        self.trees += 1;
        let before = self.entries;
        let mut progress = Progress::new(self.output.quiet(), "check", Unit::Keys, None);
        let findings = tree.check(snapshot, |read| {
            self.entries = before + read;
            progress.update(read, || id.to_string());
        })?;
        progress.finish();
        for finding in findings {
            self.found(format!("{id}: {finding}"));
        }
        Ok(())
    }

    /// Pages that no root record leads to. Those of another generation of a tree that is there, or
    /// is being built, are no damage: a rebuild that was stopped has not removed them yet.
    fn strays(
        &mut self,
        snapshot: &impl Snapshot,
        ranges: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<(), StoreError> {
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

    fn answer(&self) -> anyhow::Result<Answer> {
        let Self { trees, entries, left_over, findings, .. } = self;
        let is_sound = findings.is_empty();
        let mut grid = Grid::new(&["finding"]);
        findings.iter().for_each(|finding| grid.row(vec![finding.clone()]));
        let verdict = match findings.len() {
            0 => "sound".to_owned(),
            FINDINGS_MAX => format!("{FINDINGS_MAX} findings and perhaps more"),
            count => counted(count as u64, "finding", "findings"),
        };
        let next = "a rebuild was stopped, and the next one removes them";
        let left = format!("{left_over} rows of pages are left over: {next}");
        let answer = Answer::of(&json!({
            "sound": is_sound, "trees": trees, "entries": entries,
            "left_over_rows": left_over, "findings": findings,
        }))?;
        Ok(answer
            .csv(grid)
            .lines(findings.iter().cloned())
            .lines((*left_over > 0).then_some(left))
            .line(format!("{verdict} (trees: {trees}, entries: {entries})"))
            .exit(if is_sound { Exit::Ok } else { Exit::No }))
    }
}
