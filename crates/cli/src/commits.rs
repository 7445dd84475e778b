//! The commits of a store that answer for a block: its last one, and those that a log keeps.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use spinney_state::{StateError, keeps_block, kept_range};
use spinney_store::{AnySnapshot, AnyStore, Frozen};
use spinney_tree::{BlockId, KeptCommits, PageStore, Snapshot};

use crate::failure::Failure;
use crate::trees;

/// A commit, as a store that takes no others.
pub(crate) type Commit<'s> = Frozen<AnySnapshot<'s>>;

/// What a store keeps, as of one moment: so blocks that are asked for one after another are of one
/// chain, also where another process takes blocks back meanwhile.
pub(crate) struct Commits<'s> {
    store: &'s AnyStore,
    pub(crate) last: Commit<'s>,
    /// Blocks whose commits a log keeps, oldest first, and the numbers of those in the log.
    kept: Vec<(u64, u64)>,
}

impl<'s> Commits<'s> {
    pub(crate) fn of(store: &'s AnyStore) -> anyhow::Result<Self> {
        let mut kept = Vec::new();
        if let AnyStore::Log(log) = store {
            log.kept_blocks(&mut |block, commit| {
                kept.push((block, commit));
                true
            })?;
            kept.reverse();
        }
        Ok(Self { store, last: Frozen::of(store)?, kept })
    }

    /// A commit that shows the state of a block, or whose history leads back to it: of those that
    /// are kept the one that is nearest, else the last one, which says itself that a block is not
    /// there yet.
    pub(crate) fn at(&self, number: u64) -> anyhow::Result<Commit<'s>> {
        let place = self.kept.partition_point(|(block, _)| *block < number);
        if let Some((_, commit)) = self.kept.get(place)
            && let AnyStore::Log(log) = self.store
        {
            let commit = AnySnapshot::Log(log.at(*commit)?);
            if shows(&commit, number)? {
                return Ok(Frozen::new(commit));
            }
        }
        let last = self.last.snapshot()?;
        let newest = newest_block(&last)?.filter(|newest| number < newest.number);
        match newest {
            Some(newest) if !self.kept.is_empty() && !keeps_block(&last, newest, number)? => {
                let range = kept_range(&last, newest)?;
                let kept = Some((range.oldest.number, range.newest.number));
                Err(self.not_kept(StateError::NotKept { block: number, kept }, place).into())
            }
            _ => Ok(self.last.clone()),
        }
    }

    /// The same, with what `open` makes of it, which is kept as long as it answers.
    pub(crate) fn open_at<'o, T>(
        &self,
        number: u64,
        open: &'o mut Option<(Commit<'s>, T)>,
        make: impl FnOnce(Commit<'s>) -> anyhow::Result<T>,
    ) -> anyhow::Result<&'o T> {
        let stays = match &open {
            Some((commit, _)) => shows(&commit.snapshot()?, number)?,
            None => false,
        };
        let (_, made) = match open.take().filter(|_| stays) {
            Some(opened) => open.insert(opened),
            None => {
                let commit = self.at(number)?;
                open.insert((commit.clone(), make(commit)?))
            }
        };
        Ok(made)
    }

    fn not_kept(&self, error: StateError, place: usize) -> Failure {
        let block = |place: usize| self.kept.get(place).map(|(block, _)| *block);
        let before = place.checked_sub(1).and_then(block);
        let kept = block(0).zip(self.kept.last());
        let kept = kept.map(|(first, (last, _))| KeptCommits {
            count: self.kept.len() as u64,
            first,
            last: *last,
        });
        let kept = kept.map_or_else(String::new, |kept| format!("; it keeps {}", described(&kept)));
        let more = "--commit-every 1 keeps a commit of each block, --keep-undo what leads back to \
                    those between";
        let hint = match (before, block(place)) {
            (Some(before), Some(after)) => {
                format!("the nearest commits are of blocks {before} and {after}: {more}")
            }
            (None, Some(after)) => format!(
                "the nearest commit is of block {after}; earlier states come from a replay into a \
                 new --db"
            ),
            _ => format!("in a replay into a new --db, {more}"),
        };
        Failure::new(format!("{error}{kept}")).hint(hint)
    }
}

/// What is kept, in words.
pub(crate) fn described(kept: &KeptCommits) -> String {
    let KeptCommits { count, first, last } = kept;
    match count {
        1 => format!("1 commit, of block {first}"),
        _ => format!("{count} commits, of blocks {first} to {last}"),
    }
}

/// The block that the state of a commit is of.
fn newest_block(commit: &impl Snapshot) -> anyhow::Result<Option<BlockId>> {
    Ok(trees::of_states(commit)?.first().and_then(|(_, record)| record.block))
}

/// Whether a commit shows the state of a block, or leads back to it.
fn shows(commit: &impl Snapshot, number: u64) -> anyhow::Result<bool> {
    let newest = newest_block(commit)?;
    Ok(newest.map(|newest| keeps_block(commit, newest, number)).transpose()?.unwrap_or(false))
}
