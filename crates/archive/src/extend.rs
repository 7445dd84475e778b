//! An archive of a store's blocks: what the store's history knows is added to it.
//!
//! The store is read, at one commit, and never written. A state over it goes back block by block in
//! memory, which makes of each changed row the one before; the archive takes the pairs the other
//! way round. So whatever tree a store holds is archived by what every tree can do, and a writer
//! that was killed at any moment goes on where its last manifest ends, as long as the store's
//! history reaches there.
//!
//! Code and preimages stay in a store that goes back. The first extension of a writer compares them
//! with those of the archive, all of them: some may have been imported. The next ones take those
//! that the history names, where it does.

use std::sync::Arc;

use spinney_state::{State, StateError, kept_blocks};
use spinney_tree::{BlockId, PageStore, SharedStore, Snapshot};

use crate::error::ArchiveError;
use crate::objects::Objects;
use crate::overlay::Overlay;
use crate::writer::{Options, Writer};

/// How many blocks a segment has at first.
const WINDOW_BLOCKS: u64 = 256;

/// What was added to an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extended {
    /// How many blocks.
    pub blocks: u64,
    /// How many rows these changed.
    pub rows: u64,
}

/// What an archive's blocks are taken from: a view of a store, and what opens the state in it.
#[derive(Debug)]
pub struct Source<N, O> {
    /// The view: of one commit.
    pub snapshot: N,
    /// Opens the state with all of its trees.
    pub open: O,
}

impl Writer {
    /// Makes an archive that begins with a block that a store's history keeps.
    ///
    /// # Errors
    /// As [`Writer::create`]; if that block is not kept, or the state cannot be taken back to it.
    pub fn begin<'s, N, E>(
        objects: Arc<dyn Objects>,
        options: Options,
        source: Source<N, impl FnOnce(SharedStore<'s>) -> Result<State<SharedStore<'s>>, E>>,
        first: u64,
    ) -> Result<Self, E>
    where
        N: Snapshot + Send + Sync + 's,
        E: From<ArchiveError> + From<StateError>,
    {
        let mut state = (source.open)(SharedStore::new(Overlay::new(source.snapshot)))?;
        let block = state.unwind_to(first)?;
        let snapshot = state.store().snapshot().map_err(ArchiveError::from)?;
        Ok(Self::create(objects, options, block, &snapshot)?)
    }

    /// Adds the blocks of a store behind those that are held, up to `behind` blocks before its last
    /// one. `progress` is told how many blocks are done, and of how many.
    ///
    /// # Errors
    /// [`ArchiveError::Order`] if the store does not keep the history back to the archive's last
    /// block, or has another block there; if the store or the place fails. Then nothing was added.
    pub fn extend<'s, N, E>(
        &mut self,
        source: Source<N, impl FnOnce(SharedStore<'s>) -> Result<State<SharedStore<'s>>, E>>,
        behind: u64,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Extended, E>
    where
        N: Snapshot + Send + Sync + 's,
        E: From<ArchiveError> + From<StateError>,
    {
        let overlay = Overlay::new(source.snapshot);
        let mut state = (source.open)(SharedStore::new(overlay.clone()))?;
        let snapshot = state.store().snapshot().map_err(ArchiveError::from)?;
        let blocks = match state.block() {
            Some(newest) => kept_blocks(&snapshot, newest)?,
            None => Vec::new(),
        };
        drop(snapshot);
        let blocks = self.new_blocks(&blocks, behind)?;
        let Some(&last) = blocks.last() else { return Ok(Extended::default()) };
        state.unwind_to(last.number)?;
        overlay.take_noted();
        let named = match self.has_compared {
            true => state.named_behind(self.manifest().last)?,
            false => None,
        };
        let (mut windows, mut extended) = (Vec::new(), Extended::default());
        for part in blocks.rchunks(WINDOW_BLOCKS as usize) {
            let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
            let mut window = self.window(first.number, last.number)?;
            for &block in part.iter().rev() {
                state.unwind_to(block.number.saturating_sub(1))?;
                let noted = overlay.take_noted();
                extended.rows += noted.len() as u64;
                extended.blocks += 1;
                // Back made the later row the earlier one.
                let rows = noted.iter().map(|(table, key, later, earlier)| {
                    (*table, &key[..], earlier.as_deref(), later.as_deref())
                });
                self.add(&mut window, block, rows)?;
                progress(extended.blocks, blocks.len() as u64);
            }
            if window.first == blocks[0].number {
                let snapshot = state.store().snapshot().map_err(ArchiveError::from)?;
                self.add_by_digest(&mut window, &snapshot, named.as_ref())?;
            }
            windows.push(window);
        }
        windows.reverse();
        self.publish(windows, last)?;
        self.has_compared = true;
        Ok(extended)
    }

    /// Of the blocks that a store keeps those behind the ones that are held.
    fn new_blocks<'b>(
        &self,
        kept: &'b [BlockId],
        behind: u64,
    ) -> Result<&'b [BlockId], ArchiveError> {
        let manifest = self.manifest();
        self.check_whole(manifest.last.saturating_add(1))?;
        let Some(newest) = kept.last() else {
            return Err(self.order(manifest.last, "the store has no block".into()));
        };
        let to = newest.number.saturating_sub(behind);
        if to <= manifest.last && newest.number >= manifest.last {
            return self.same_block(kept, manifest.last).map(|_| &kept[..0]);
        }
        let held = self.same_block(kept, manifest.last)?;
        let end = kept.partition_point(|block| block.number <= to);
        Ok(&kept[held + 1..end.max(held + 1)])
    }

    /// Where among the blocks that a store keeps the last one is that is held.
    fn same_block(&self, kept: &[BlockId], last: u64) -> Result<usize, ArchiveError> {
        let (oldest, newest) = (kept.first(), kept.last());
        let range = oldest.zip(newest).map(|(a, b)| format!("{} to {}", a.number, b.number));
        let Some(place) = kept.iter().position(|block| block.number == last) else {
            let range = range.unwrap_or_else(|| "none".into());
            let what = format!(
                "the archive ends with block {last}, and the store keeps the states of blocks \
                 {range}"
            );
            return Err(self.order(last.saturating_add(1), what));
        };
        if self.manifest().last_block() != Some(kept[place]) {
            let what = format!(
                "the archive's block {last} is another one than the store's: the chain was \
                 reorganised behind it"
            );
            return Err(self.order(last.saturating_add(1), what));
        }
        Ok(place)
    }
}
