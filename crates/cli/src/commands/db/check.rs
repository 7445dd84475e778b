//! `db check`: every row of a store, and what the rows say together.

use serde_json::json;
use spinney_state::{CheckError, CheckPart, StoreCheck, check_store};
use spinney_store::Frozen;
use spinney_tree::StoreError;

use crate::commands::sums;
use crate::failure::Exit;
use crate::stores::{Mode, Place};
use crate::trees;
use crate::ui::progress::Phases;
use crate::ui::{Answer, Grid, Output, counted};

pub(super) fn run(place: &Place, output: &Output) -> anyhow::Result<Answer> {
    let mut check = StoreCheck::default();
    if let Err(error) = look(place, &mut check, output) {
        if !super::is_damage(&error) {
            return Err(error);
        }
        check.found(format!("{error:#}"));
    }
    answer(&check)
}

fn look(place: &Place, check: &mut StoreCheck, output: &Output) -> anyhow::Result<()> {
    let mut store = place.open(Mode::Inspect)?;
    if let Err(error) = store.check() {
        match error {
            // The rows that can be read may say more.
            StoreError::Corrupt { .. } => check.found(error.to_string()),
            error => return Err(error.into()),
        }
    }
    // What the rows say together holds of one commit, whoever writes meanwhile.
    let store = Frozen::of(&store)?;
    let mut phases = Phases::new(output.quiet());
    let looked = check_store(&store, check, &mut |part, read| {
        phases.update((part, "check", None), read, || match part {
            CheckPart::Tree(id) => id.to_string(),
            _ => "codes and preimages".to_owned(),
        });
    });
    drop(phases);
    looked.map_err(|error| match error {
        CheckError::Newer(id, scheme) => trees::newer(id, scheme).into(),
        CheckError::Store(error) => error.into(),
        CheckError::Tree(error) => error.into(),
        CheckError::State(error) => error.into(),
        CheckError::Names(error) => sums::plain(error),
        other => other.into(),
    })
}

fn answer(check: &StoreCheck) -> anyhow::Result<Answer> {
    let StoreCheck { trees, entries, left_over, findings, .. } = check;
    let is_sound = findings.is_empty();
    let mut grid = Grid::new(&["finding"]);
    findings.iter().for_each(|finding| grid.row(vec![finding.clone()]));
    let verdict = match findings.len() {
        0 => "sound".to_owned(),
        StoreCheck::FINDINGS_MAX => format!("{} findings and perhaps more", findings.len()),
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
