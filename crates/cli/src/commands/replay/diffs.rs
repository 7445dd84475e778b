//! State differences, applied.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::cell::Cell;
use std::io;

use alloy_primitives::B256;
use spinney_replay::{
    BlockDiff, DiffError, DiffEvent, ReplayError, RunOptions, SealedBlock, Summary, replay_diffs,
};
use spinney_state::StateError;

use super::driven::{Driven, check_genesis};
use super::input::{DiffLines, Start};
use super::watch::Watch;
use crate::failure::{Exit, Failure};
use crate::trees::name_of;

pub(crate) fn run<S: Driven>(
    mut state: S,
    start: Option<Start>,
    lines: DiffLines,
    options: &RunOptions<'_>,
    watch: &mut Watch<'_>,
) -> anyhow::Result<(Summary, S)> {
    let head = match state.kept().block() {
        Some(head) => {
            if let Some(Start::Genesis(genesis)) = &start {
                check_genesis(state.kept(), genesis)?;
            }
            watch.resumed(head.number);
            head.number
        }
        None => {
            begin(&mut state, start)?;
            0
        }
    };
    let trees = state.kept().trees().into_iter().map(|tree| (name_of(tree.scheme), tree.root));
    let check = HeadCheck { head, trees: trees.collect(), refusal: Cell::new(None) };
    let mut last = None;
    let lines = lines.map(|line| check.pass(line, &mut last));
    let outcome = replay_diffs(&mut state, Some(head), lines, options, |event| match event {
        DiffEvent::Block { diff, state_root, .. } => watch.block(diff.number, state_root, (0, 0)),
        DiffEvent::Committed { number, time } => watch.committed(number, None, time),
        _ => {}
    });
    if let Some(failure) = check.refusal.take() {
        return Err(failure.into());
    }
    let summary = outcome?;
    if last.is_some_and(|last| last < head) {
        watch.warn(format!("the differences end before block {head}, where the store stands"));
    }
    Ok((summary, state))
}

/// Puts the first state into an empty store. It is committed with the first blocks.
fn begin(state: &mut impl Driven, start: Option<Start>) -> anyhow::Result<()> {
    let (alloc, expected, hash) = match start {
        None => {
            return Err(Failure::new(
                "the differences have nothing to start from (--diffs, --traces)",
            )
            .hint("give --genesis or --alloc along")
            .into());
        }
        Some(Start::Genesis(genesis)) => {
            state.kept_mut().set_genesis(genesis.hash);
            (genesis.alloc, Some(genesis.header.state_root), Some(genesis.hash))
        }
        // An allocation has no header, and so no hash.
        Some(Start::Alloc(alloc)) => (alloc, None, None),
    };
    let got = state.apply(&alloc)?;
    if let Some(expected) = expected.filter(|expected| *expected != got)
        && state.own_root().is_none()
    {
        return Err(ReplayError::<StateError>::Genesis { expected, got }.into());
    }
    state.seal(&SealedBlock::new(0, hash, got, &alloc))?;
    Ok(())
}

/// Looks at each line before it is applied.
struct HeadCheck {
    head: u64,
    /// The roots of the trees, by name.
    trees: Vec<(String, B256)>,
    refusal: Cell<Option<Failure>>,
}

impl HeadCheck {
    /// The line, with the one root to check; or an error, with the reason in `refusal`.
    fn pass(
        &self,
        line: Result<BlockDiff, DiffError>,
        last: &mut Option<u64>,
    ) -> Result<BlockDiff, DiffError> {
        let mut diff = line?;
        *last = Some(diff.number);
        match (diff.state_root, diff.roots.get("mpt")) {
            (None, Some(root)) => diff.state_root = Some(*root),
            (Some(one), Some(other)) if one != *other => {
                let what = format!(
                    "block {}: stateRoot is {one}, and roots has {other} for mpt (--diffs)",
                    diff.number
                );
                return self.refuse(Failure::new(what).hint("they name the same tree"));
            }
            _ => {}
        }
        let given = |name: &str| match name {
            "mpt" => diff.state_root,
            name => diff.roots.get(name).copied(),
        };
        let both = self.trees.iter().filter_map(|(name, root)| Some((name, given(name)?, *root)));
        if diff.number == self.head
            && let Some((name, expected, got)) =
                both.into_iter().find(|(_, expected, got)| expected != got)
        {
            let tree = if name == "mpt" { String::new() } else { format!(" of {name}") };
            let what = format!(
                "the store stands at block {} with root {got}{tree}, the differences have \
                 {expected} there",
                self.head
            );
            let hint = "these are differences of another chain: give those that the store was \
                        filled from, or a new --db";
            return self.refuse(Failure::new(what).hint(hint).exit(Exit::Error));
        }
        Ok(diff)
    }

    /// Fails the run.
    fn refuse(&self, failure: Failure) -> Result<BlockDiff, DiffError> {
        let error = io::Error::other(failure.to_string());
        self.refusal.set(Some(failure));
        Err(DiffError::Io { line: 0, error })
    }
}
