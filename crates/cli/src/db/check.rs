//! `db check`: every row of a store, and what the rows say together.

use alloy_primitives::{hex, keccak256};
use serde_json::json;
use spinney_store::AnyStore;
use spinney_tree::mpt::{Mpt, MptState};
use spinney_tree::{PageStore as _, RootRecord, Scheme, Snapshot, StoreError, Table, Tree, TreeId};

use crate::failure::{Exit, Failure};
use crate::output::{Format, Grid, Output};
use crate::progress::{Progress, Unit};
use crate::stores::{Mode, Place};

/// Findings of one kind beyond which they are only counted.
const FINDINGS_MAX: usize = 1_000;

pub(super) fn run(place: &Place, output: &Output) -> anyhow::Result<Exit> {
    let mut check = Check { output, findings: Vec::new(), trees: 0, entries: 0 };
    if let Err(error) = check.store(place) {
        if !super::is_damage(&error) {
            return Err(error);
        }
        check.found(format!("{error:#}"));
    }
    check.print()?;
    Ok(if check.findings.is_empty() { Exit::Ok } else { Exit::No })
}

struct Check<'o> {
    output: &'o Output,
    findings: Vec<String>,
    trees: usize,
    entries: u64,
}

impl Check<'_> {
    fn found(&mut self, what: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(what);
        }
    }

    fn store(&mut self, place: &Place) -> anyhow::Result<()> {
        let mut store = place.open(Mode::Inspect)?;
        if let AnyStore::Redb(store) = &mut store
            && let Err(error) = store.check()
        {
            match error {
                // The rows that can be read may say more.
                StoreError::Corrupt { .. } => self.found(error.to_string()),
                error => return Err(error.into()),
            }
        }
        let snapshot = store.snapshot()?;
        let mut ranges = Vec::new();
        for (id, record) in super::records(&snapshot)? {
            match record {
                Ok(record) => {
                    let looked = self.tree(&snapshot, id, &record, &mut ranges);
                    self.damage_or(looked)?;
                }
                Err(error) => self.found(error.to_string()),
            }
        }
        self.strays(&snapshot, &ranges)?;
        for table in [Table::Codes, Table::Preimages] {
            self.digests(&snapshot, table)?;
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
        match (record.scheme.tree, record.scheme.hash) {
            (1, 0) => self.tree_of(Mpt, snapshot, id, ranges),
            (2, 0) => self.tree_of(MptState, snapshot, id, ranges),
            _ => {
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

    /// Pages that no root record leads to.
    fn strays(
        &mut self,
        snapshot: &impl Snapshot,
        ranges: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<(), StoreError> {
        let known =
            |key: &[u8]| ranges.iter().any(|(low, high)| &low[..] <= key && key < &high[..]);
        let mut strays = 0_u64;
        snapshot.scan(Table::Pages, &[], None, &mut |key, _| {
            strays += u64::from(!known(key));
            true
        })?;
        if strays > 0 {
            self.found(format!("{strays} rows of {} belong to no tree", Table::Pages));
        }
        Ok(())
    }

    /// Rows that are kept under their own digest.
    fn digests(&mut self, snapshot: &impl Snapshot, table: Table) -> Result<(), StoreError> {
        let mut wrong = Vec::new();
        snapshot.scan(table, &[], None, &mut |key, row| {
            if keccak256(row).as_slice() != key {
                wrong.push(hex::encode_prefixed(key));
            }
            true
        })?;
        for key in wrong {
            self.found(format!("{table}: what is kept under {key} has another digest"));
        }
        Ok(())
    }

    fn print(&self) -> std::io::Result<()> {
        let sound = self.findings.is_empty();
        match self.output.format() {
            Format::Json => {
                let data = json!({
                    "sound": sound, "trees": self.trees, "entries": self.entries,
                    "findings": self.findings,
                });
                self.output.envelope(&data, &[])
            }
            Format::Csv => {
                let mut grid = Grid::new(&["finding"]);
                self.findings.iter().for_each(|finding| grid.row(vec![finding.clone()]));
                self.output.grid(&grid)
            }
            Format::Table => {
                for finding in &self.findings {
                    self.output.line(finding)?;
                }
                let verdict = match self.findings.len() {
                    0 => "sound".to_owned(),
                    FINDINGS_MAX => format!("{FINDINGS_MAX} findings and perhaps more"),
                    count => format!("{count} findings"),
                };
                let (trees, entries) = (self.trees, self.entries);
                self.output.line(&format!("{verdict} (trees: {trees}, entries: {entries})"))
            }
        }
    }
}
