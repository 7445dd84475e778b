//! The commits of a store that answer for a block: its last one, and those that a log keeps.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use serde::{Serialize as _, Serializer};
use serde_json::{Value, json};
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
    /// The last commit, and with `earlier` also those that are kept: to find these, the headers of
    /// all records are read.
    pub(crate) fn of(store: &'s AnyStore, earlier: bool) -> anyhow::Result<Self> {
        let mut kept = Vec::new();
        if let AnyStore::Log(log) = store
            && earlier
        {
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
        match self.nearest(number)? {
            Some((_, commit)) => Ok(commit),
            None if self.is_beyond(number)? => Err(self.not_kept(number)?.into()),
            None => Ok(self.last.clone()),
        }
    }

    /// A commit that is kept, and its number in the log, if a block is to be shown or gone back to
    /// that the history of the last commit does not lead to.
    pub(crate) fn beyond_history(&self, number: u64) -> anyhow::Result<Option<(u64, Commit<'s>)>> {
        if !self.is_beyond(number)? {
            return Ok(None);
        }
        match self.nearest(number)? {
            None => Err(self.not_kept(number)?.into()),
            found => Ok(found),
        }
    }

    /// The nearest commit that is kept, if it shows the state of a block, or leads back to it.
    fn nearest(&self, number: u64) -> anyhow::Result<Option<(u64, Commit<'s>)>> {
        let kept = self.kept.get(self.place_of(number));
        let (Some((_, commit)), AnyStore::Log(log)) = (kept, self.store) else { return Ok(None) };
        let found = AnySnapshot::Log(log.at(*commit)?);
        Ok(shows(&found, number)?.then(|| (*commit, Frozen::new(found))))
    }

    /// Of the blocks whose commits are kept, the first one that is not before a block.
    fn place_of(&self, number: u64) -> usize {
        self.kept.partition_point(|(block, _)| *block < number)
    }

    /// Whether a block is behind the last one, the history of the last commit does not lead to it,
    /// and there are commits that might.
    fn is_beyond(&self, number: u64) -> anyhow::Result<bool> {
        let last = self.last.snapshot()?;
        match newest_block(&last)?.filter(|newest| number < newest.number) {
            Some(newest) if !self.kept.is_empty() => Ok(!keeps_block(&last, newest, number)?),
            _ => Ok(false),
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

    fn not_kept(&self, number: u64) -> anyhow::Result<Failure> {
        let last = self.last.snapshot()?;
        let range = newest_block(&last)?.map(|newest| kept_range(&last, newest)).transpose()?;
        let range = range.map(|range| (range.oldest.number, range.newest.number));
        let error = StateError::NotKept { block: number, kept: range };
        let block = |place: usize| self.kept.get(place).map(|(block, _)| *block);
        let place = self.place_of(number);
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
        Ok(Failure::new(format!("{error}{kept}")).hint(hint))
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

/// The same, for other programs.
pub(crate) fn told(kept: &KeptCommits) -> Value {
    json!({ "count": kept.count, "first_block": kept.first, "last_block": kept.last })
}

/// The same, as a field of a report.
pub(crate) fn tell<S: Serializer>(
    kept: &Option<KeptCommits>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    kept.as_ref().map(told).serialize(serializer)
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
