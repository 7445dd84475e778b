//! Are the blocks of an archive those of a chain?
//!
//! Invariants:
//! - what a block's root records say is compared with what is trusted of the block: its hash, and
//!   the root of its Merkle Patricia trie;
//! - at each block each tree is read on the ways to some keys, each node computed again and
//!   compared with what its parent commits to. So the root page is the one that the record stands
//!   for, and so is every page on these ways;
//! - blocks are looked at in parallel, and the first one of those that are wrong is told.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;
use spinney_state::MPT;
use spinney_state::embed::{PBT, UBT, VERKLE};
use spinney_tree::mpt::MptState;
use spinney_tree::{BlockId, RootRecord, Scheme as _, StoreError, TreeError, TreeId};

use crate::archive::{Archive, AtBlock, Contents};
use crate::error::ArchiveError;
use crate::hex::hex;
use crate::sample::read_some;
use crate::window::hash_key;

/// So many blocks that follow each other are looked at by one thread.
const RUN_BLOCKS: u64 = 16;

/// What is trusted of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "these two are what an archive is compared with")]
pub struct Header {
    /// Its hash.
    pub hash: [u8; 32],
    /// The root of the Merkle Patricia trie of its state.
    pub state_root: [u8; 32],
}

/// What a check of all blocks looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckedBlocks {
    /// Blocks.
    pub blocks: u64,
    /// How many of them have the hash that is trusted.
    pub hashes: u64,
    /// How many have the state root that is trusted: none of an archive without a Merkle Patricia
    /// trie.
    pub state_roots: u64,
    /// Entries of trees that were read under their roots: none of a slice, whose other accounts
    /// nobody reads.
    pub entries: u64,
}

impl CheckedBlocks {
    const fn add(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.hashes += other.hashes;
        self.state_roots += other.state_roots;
        self.entries += other.entries;
    }
}

impl Archive {
    /// Checks every block by all cores. Its hash and its state root are those that are trusted,
    /// where these are given; its hash leads to it; and of each tree some entries, which the
    /// block's hash chooses, lie under its root. `progress` is told how many blocks are done.
    ///
    /// Pages on no way to these entries are not looked at: `Tree::verify_entries` reads all of one
    /// block.
    ///
    /// # Errors
    /// [`ArchiveError::Block`] for the first block that is wrong; if an object is damaged or
    /// missing, or the place fails.
    pub fn check_blocks(
        &self,
        headers: &BTreeMap<u64, Header>,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<CheckedBlocks, ArchiveError> {
        let contents = self.contents();
        let (first, last) = (contents.manifest.first, contents.manifest.last);
        let check = BlockCheck { archive: self, contents, headers };
        let (done, sum) = (AtomicU64::new(0), Mutex::new(CheckedBlocks::default()));
        let runs = (last - first) / RUN_BLOCKS + 1;
        let wrong = (0..runs as usize).into_par_iter().find_map_first(|run| {
            let begins = first + run as u64 * RUN_BLOCKS;
            match check.run(begins..=last.min(begins + (RUN_BLOCKS - 1))) {
                Err(error) => Some(error),
                Ok(checked) => {
                    let before = done.fetch_add(checked.blocks, Ordering::Relaxed);
                    progress(before + checked.blocks);
                    sum.lock().unwrap_or_else(PoisonError::into_inner).add(checked);
                    None
                }
            }
        });
        match wrong {
            Some(wrong) => Err(wrong),
            None => Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// A check of all blocks, which threads share.
struct BlockCheck<'a> {
    archive: &'a Archive,
    contents: Arc<Contents>,
    headers: &'a BTreeMap<u64, Header>,
}

impl BlockCheck<'_> {
    fn run(&self, blocks: RangeInclusive<u64>) -> Result<CheckedBlocks, ArchiveError> {
        let mut checked = CheckedBlocks::default();
        for block in blocks {
            checked.add(self.block(block).map_err(|error| wrong(block, error))?);
        }
        Ok(checked)
    }

    fn block(&self, number: u64) -> Result<CheckedBlocks, ArchiveError> {
        let view = self.archive.view(&self.contents, number);
        let mut records = Vec::new();
        for info in view.trees() {
            let id = TreeId(info.id);
            records.extend(view.record(id)?.map(|record| (id, record)));
        }
        let mut checked = CheckedBlocks { blocks: 1, ..CheckedBlocks::default() };
        self.compare(&view, &records, &mut checked)?;
        if self.contents.slice.is_none() {
            for (id, record) in &records {
                let seed = record.block.unwrap_or_default().hash;
                checked.entries += read_some(&view, (*id, record), &seed)?;
            }
        }
        Ok(checked)
    }

    /// Compares what root records say with what is trusted of their block.
    fn compare(
        &self,
        view: &AtBlock,
        records: &[(TreeId, RootRecord)],
        checked: &mut CheckedBlocks,
    ) -> Result<(), ArchiveError> {
        let number = view.block();
        let trusted = self.headers.get(&number);
        let no = |what: String| Err(ArchiveError::Block { block: number, what });
        let mut said = None;
        // Trees by name are those of the block with which the archive began.
        let of_state = |id: &TreeId| [MPT, UBT, PBT, VERKLE].contains(id);
        for (id, record) in records.iter().filter(|(id, _)| of_state(id)) {
            let Some(BlockId { number: found, hash }) = record.block else {
                return no(format!("{id} is of no block"));
            };
            if found != number {
                return no(format!("{id} is that of block {found}"));
            }
            if said.is_some_and(|other| other != hash) {
                return no(format!("{id} is of another hash than the trees before it"));
            }
            said = Some(hash);
            let trusted = trusted.filter(|_| *id == MPT && record.scheme == MptState.id());
            let Some(Header { state_root, .. }) = trusted else { continue };
            if record.root != state_root {
                let (ours, theirs) = (hex(&record.root), hex(state_root));
                return no(format!("its state root is 0x{ours}, and in its header 0x{theirs}"));
            }
            checked.state_roots += 1;
        }
        if let Some((hash, trusted)) = said.zip(trusted).filter(|(hash, it)| *hash != it.hash) {
            let (ours, theirs) = (hex(&hash), hex(&trusted.hash));
            return no(format!("its hash is 0x{ours}, and that of its header 0x{theirs}"));
        }
        checked.hashes += u64::from(trusted.is_some());
        let Some(hash) = said.or(trusted.map(|it| it.hash)) else { return Ok(()) };
        let segments = &self.contents.segments;
        let row = self.archive.shared().bare_at(segments, &hash_key(&hash), u64::MAX)?;
        if row.as_deref() != Some(&number.to_be_bytes()[..]) {
            return no(format!("its hash 0x{} does not lead to it", hex(&hash)));
        }
        Ok(())
    }
}

/// Says at which block something is wrong, unless the place failed.
fn wrong(block: u64, error: ArchiveError) -> ArchiveError {
    let what = match error {
        ArchiveError::Tree(TreeError::Store(error @ StoreError::Backend { .. })) => {
            return error.into();
        }
        ArchiveError::Tree(error) => error.to_string(),
        ArchiveError::Store(StoreError::Corrupt { place, what })
        | ArchiveError::Corrupt { place, what } => format!("{place}: {what}"),
        error => return error,
    };
    ArchiveError::Block { block, what }
}
