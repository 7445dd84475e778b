//! Slicing: of an archive what some accounts need becomes one of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use alloy_primitives::{Address, B256, KECCAK256_EMPTY};
use spinney_state::embed::pbt::STORAGE_ZONE;
use spinney_state::{State, StateRead as _};
use spinney_tree::mpt::MptState;
use spinney_tree::pbt::Pbt;
use spinney_tree::{SharedStore, Snapshot, StoreError, Table, Tree, TreeId};

use crate::archive::{Archive, AtBlock, Contents};
use crate::error::ArchiveError;
use crate::forms::TreeInfo;
use crate::hex::hex;
use crate::manifest::{FORMAT_SLICED, Manifest, SEGMENT, archive_bytes, random_id};
use crate::merge::Merge;
use crate::objects::Objects;
use crate::segment::{SegmentInfo, SegmentWriter};
use crate::slice::{Slice, SliceInfo, SlicedCode, pbt_hash, prefixes};
use crate::window::archive_key;
use crate::writer::Options;

/// Memory for the pages of the tree that accounts are read from.
const TREE_CACHE_BYTES: usize = 1 << 20;
/// Keys of a PBT, and those of slots outside of an account's header.
const KEY_BYTES: usize = 34;
const STORAGE_KEY_BYTES: usize = 66;

/// What is to be sliced.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Wanted {
    /// The addresses of the accounts.
    pub addresses: Vec<[u8; 20]>,
    /// The first block. Without it, that of the archive.
    pub first: Option<u64>,
    /// The last block. Without it, that of the archive.
    pub last: Option<u64>,
}

impl Archive {
    /// Whether an account can be asked for.
    ///
    /// # Errors
    /// [`ArchiveError::Sliced`] if this is a slice of others.
    pub fn check_account(&self, address: &[u8; 20]) -> Result<(), ArchiveError> {
        let contents = self.contents();
        match &contents.slice {
            Some(slice) => slice.check_account(self.objects().place(), address),
            None => Ok(()),
        }
    }

    /// Makes an archive of what some accounts need, of the trees in which an account's keys lie
    /// together: the Merkle Patricia trie and the PBT. Each block is looked through twice, for code
    /// and for absent keys: `progress` is told how often that was done, and how often it will be.
    ///
    /// # Errors
    /// [`ArchiveError::Exists`] if there is an archive already; [`ArchiveError::Outside`] for
    /// blocks that are not held; [`ArchiveError::Slice`] if there is nothing to slice by or of; if
    /// an object is damaged, or a place fails. Then nothing is left.
    pub fn slice(
        &self,
        objects: Arc<dyn Objects>,
        wanted: &Wanted,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Manifest, ArchiveError> {
        let contents = self.contents();
        let place = || self.objects().place();
        let no = |what: String| Err(ArchiveError::Slice { place: place(), what });
        if wanted.addresses.is_empty() {
            return no("no account is named".into());
        }
        for address in &wanted.addresses {
            self.check_account(address)?;
        }
        let (begins, ends) = (contents.manifest.first, contents.manifest.last);
        let first = wanted.first.unwrap_or(begins);
        let last = wanted.last.unwrap_or(ends);
        for block in [first, last] {
            self.at(block)?;
        }
        if first > last {
            return no(format!("block {first} comes after block {last}"));
        }
        let (none, no_codes) = (BTreeSet::new(), BTreeMap::new());
        let (trees, mut without): (Vec<_>, Vec<_>) = (contents.manifest.trees.iter().copied())
            .partition(|tree| prefixes(tree, &none, &no_codes).is_some());
        let Some(&tree) = trees.first() else {
            return no(
                "it has neither an MPT nor a PBT of a state, and in other trees the slots of \
                       an account lie anywhere"
                    .into(),
            );
        };
        if Manifest::newest(&*objects)?.is_some() {
            return Err(ArchiveError::Exists { place: objects.place() });
        }
        without.extend(contents.manifest.slice.iter().flat_map(|slice| slice.without.clone()));
        let mut addresses: Vec<String> = wanted.addresses.iter().map(|it| hex(it)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let (mut done, all) = (0, 2 * (last - first + 1));
        let mut progress = || {
            done += 1;
            progress(done, all);
        };
        let codes = self.codes_of(tree, wanted, (first, last), &mut progress)?;
        let mut slice = SliceInfo { addresses, codes, beside: Vec::new(), without };
        slice.beside = self.beside(&trees, &slice, (first, last), &mut progress)?;
        self.write_slice(&*objects, &contents, (trees, slice), (first, last))
    }

    /// The code that accounts had at some blocks.
    fn codes_of(
        &self,
        tree: TreeInfo,
        wanted: &Wanted,
        (first, last): (u64, u64),
        progress: &mut dyn FnMut(),
    ) -> Result<Vec<SlicedCode>, ArchiveError> {
        let mut codes: BTreeMap<B256, u64> = BTreeMap::new();
        for block in first..=last {
            let view = self.at(block)?;
            let state = open(tree, view.clone())?;
            for address in &wanted.addresses {
                let account = state.account(Address::from(*address))?;
                let Some(hash) = account.map(|account| account.code_hash) else { continue };
                if hash == KECCAK256_EMPTY || codes.contains_key(&hash) {
                    continue;
                }
                let code = view.read(Table::Codes, hash.as_slice())?;
                codes.insert(hash, code.map_or(0, |code| code.len() as u64));
            }
            progress();
        }
        let code = |(hash, bytes): (B256, u64)| SlicedCode { hash: hex(hash.as_slice()), bytes };
        Ok(codes.into_iter().map(code).collect())
    }

    /// The pages beside the accounts' paths that proofs at some blocks are made of.
    fn beside(
        &self,
        trees: &[TreeInfo],
        info: &SliceInfo,
        (first, last): (u64, u64),
        progress: &mut dyn FnMut(),
    ) -> Result<Vec<String>, ArchiveError> {
        let mut beside = BTreeSet::new();
        let Some(slice) = Slice::of(info, trees) else { return Ok(Vec::new()) };
        for block in first..=last {
            let noting = Noting { view: self.at(block)?, slice: &slice, noted: Mutex::default() };
            for tree in trees {
                noting.prove_absent(tree)?;
            }
            beside.append(&mut noting.noted.into_inner().unwrap_or_else(PoisonError::into_inner));
            progress();
        }
        Ok(beside.iter().map(|row| hex(row)).collect())
    }

    fn write_slice(
        &self,
        objects: &dyn Objects,
        contents: &Contents,
        (trees, info): (Vec<TreeInfo>, SliceInfo),
        (first, last): (u64, u64),
    ) -> Result<Manifest, ArchiveError> {
        let no = |what: String| ArchiveError::Slice { place: self.objects().place(), what };
        let slice = Slice::of(&info, &trees).ok_or_else(|| no("its code has no end".into()))?;
        let block = self.block(last)?.ok_or_else(|| no(format!("block {last} has no hash")))?;
        let mut target = Target { objects, archive: random_id(), names: Vec::new() };
        let segments = self.slice_segments(contents, &slice, (first, last), &mut target);
        let Target { archive, names, .. } = target;
        let published = segments.and_then(|segments| {
            let manifest = Manifest {
                format: FORMAT_SLICED,
                writer: archive.clone(),
                archive,
                number: 1,
                trees,
                first,
                last,
                last_hash: hex(&block.hash),
                segments,
                replaced: Vec::new(),
                slice: Some(info),
            };
            match manifest.publish(objects)? {
                true => Ok(manifest),
                false => Err(ArchiveError::Exists { place: objects.place() }),
            }
        });
        if published.is_err() {
            // The first error says more.
            names.iter().for_each(|name| drop(objects.remove(name)));
        }
        published
    }

    /// Those up to the first block become one; of each one behind them what the slice has stays.
    fn slice_segments(
        &self,
        contents: &Contents,
        slice: &Slice,
        (first, last): (u64, u64),
        target: &mut Target<'_>,
    ) -> Result<Vec<SegmentInfo>, ArchiveError> {
        let segments = &contents.segments[..];
        let holds = segments.partition_point(|segment| segment.info.last < first);
        let end = segments.partition_point(|segment| segment.info.first <= last);
        let mut written = Vec::with_capacity(end - holds);
        for at in holds..end {
            let info = &segments[at].info;
            let is_first = at == holds;
            let (from, begins) = if is_first { (0, first) } else { (at, info.first) };
            let level = if is_first { Options::default().last_level() } else { info.level };
            let blocks = (begins, info.last.min(last));
            let out = target.begin(blocks, level)?;
            let merge = Merge {
                shared: self.shared(),
                segments: &segments[..=at],
                from,
                stands_alone: is_first,
                blocks,
                slice: Some(slice),
            };
            written.push(merge.run(out)?);
        }
        Ok(written)
    }
}

/// A store as it was after a block, which notes what pages are read of it that are not in a slice.
struct Noting<'a> {
    view: AtBlock,
    slice: &'a Slice,
    noted: Mutex<BTreeSet<Vec<u8>>>,
}

impl Noting<'_> {
    /// Proves, of each prefix of a tree's keys, one that begins so. Where there is no such key, a
    /// proof of any other one reads the same pages: all of them leave the tree at the same place.
    fn prove_absent(&self, tree: &TreeInfo) -> Result<(), ArchiveError> {
        let id = TreeId(tree.id);
        let Some(hash) = pbt_hash(tree) else {
            let mpt = Tree::open(MptState, id, self, TREE_CACHE_BYTES)?;
            for address in self.slice.addresses() {
                mpt.prove_accounts(self, None, &[(*address, Vec::new())])?;
            }
            return Ok(());
        };
        let pbt = Tree::open(Pbt { hash }, id, self, TREE_CACHE_BYTES)?;
        for prefix in self.slice.prefixes(tree.id) {
            let mut key = prefix.clone();
            let is_storage = key.first() == Some(&STORAGE_ZONE);
            key.resize(if is_storage { STORAGE_KEY_BYTES } else { KEY_BYTES }, 0);
            pbt.prove(self, None, &[key])?;
        }
        Ok(())
    }
}

impl Snapshot for Noting<'_> {
    type Row<'s>
        = Vec<u8>
    where
        Self: 's;

    fn read(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if table == Table::Pages && !self.slice.holds(&archive_key(table, key)) {
            let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
            noted.insert(key.to_vec());
        }
        self.view.read(table, key)
    }

    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.view.scan(table, low, high, visit)
    }
}

/// The state of a block, in one tree.
fn open(tree: TreeInfo, view: AtBlock) -> Result<State<SharedStore<'static>>, ArchiveError> {
    let view = SharedStore::new(view);
    let Some(hash) = pbt_hash(&tree) else { return Ok(State::open(view, TREE_CACHE_BYTES)?) };
    let mut state = State::open_without_mpt(view)?;
    state.add_tree(Pbt { hash }, TREE_CACHE_BYTES)?;
    Ok(state)
}

/// Where a slice is written.
struct Target<'a> {
    objects: &'a dyn Objects,
    archive: String,
    /// The segments that were begun.
    names: Vec<String>,
}

impl Target<'_> {
    fn begin(&mut self, blocks: (u64, u64), level: u32) -> Result<SegmentWriter, ArchiveError> {
        let name = format!("{SEGMENT}{:010}-{}-{}", 1, &self.archive[..8], self.names.len());
        self.names.push(name.clone());
        SegmentWriter::new(self.objects, archive_bytes(&self.archive), name, blocks, level)
    }
}
