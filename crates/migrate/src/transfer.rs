//! States that come and go as the files of EIP-8347.
#![deny(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::fs::File;
use std::io::Write;
use std::path::Path;

use alloy_primitives::{Address, B256, Bytes, keccak256};
use spinney_pipeline::{Checkpoint, Gather, RunName};
use spinney_state::MPT;
use spinney_state::embed::{BasicData, PBT, Whole, pbt};
use spinney_tree::bulk::RootBuilder;
use spinney_tree::mpt::MptState;
use spinney_tree::pbt::Pbt;
use spinney_tree::{BlockId, PageStore, Snapshot, Table, Tree};

use crate::back::{Back, Finder, word};
use crate::convert::{CheckedTree, Notes, check_root, expect, note_uses, trie_leaf};
use crate::error::MigrateError;
use crate::file::{Digested, FileError};
use crate::forward::{Behind, Codes, Item, Trie, put_name};
use crate::names::NameSource;
use crate::preimages::{self, Reader};
use crate::snapshot;
use crate::work::{Counts, Stage, Work};

/// What came of a snapshot file.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Imported {
    /// The file.
    pub file: Digested,
    /// Its root.
    pub root: B256,
    /// Its leaves.
    pub leaves: u64,
    /// Code put together from them.
    pub codes: u64,
}

/// What a state has that a snapshot and its preimages are.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Named {
    /// The preimage file.
    pub file: Digested,
    /// The root of the Merkle Patricia trie.
    pub state_root: B256,
    /// What the state has.
    pub counts: Counts,
}

/// Writes the snapshot of a store's partitioned binary tree, after its leaves were found to have
/// its root. What it went into is not synced.
///
/// # Errors
/// If the store holds no such tree, is damaged, or nothing can be written.
pub fn export_snapshot<P: PageStore, W: Write>(
    store: &P,
    scheme: Pbt,
    out: W,
    work: &mut Work<'_>,
) -> Result<(Digested, W), MigrateError> {
    let snapshot = store.snapshot()?;
    let tree = open(&snapshot, scheme, work)?;
    let (leaves, _) = check_root(&scheme, &tree, store, work)?;
    let mut writer = snapshot::Writer::new(out, tree.root(), leaves)?;
    for (done, entry) in (1..).zip(tree.entries(&snapshot, None, b"")) {
        let entry = entry?;
        writer.leaf(&entry.key, &word(&entry.key, &entry.value)?)?;
        work.tick(Stage::Write, done, Some(leaves))?;
    }
    Ok(writer.finish()?)
}

/// Writes the preimages of a store's state: of its Merkle Patricia trie, or of its partitioned
/// binary tree where it has none. The slots of one account are in memory at a time. What it went
/// into is not synced.
///
/// # Errors
/// If a preimage is missing, the store holds no state or is damaged, or nothing can be written.
pub fn export_preimages<P: PageStore, W: Write>(
    store: &P,
    scheme: Pbt,
    out: W,
    work: &mut Work<'_>,
) -> Result<(Digested, W), MigrateError> {
    let snapshot = store.snapshot()?;
    let mut file = PreimageFile { writer: preimages::Writer::new(out), account: None };
    let has_trie = snapshot.read(Table::Roots, &MPT.0.to_be_bytes())?.is_some();
    if has_trie {
        let mut trie = Tree::open(MptState, MPT, &snapshot, work.cache)?;
        trie.verify_reads(work.verify);
        let mut read = Trie::new(&trie, &snapshot, Behind::Table(&snapshot));
        read.verify = work.verify;
        let mut done = 0;
        while let Some(item) = read.advance()? {
            file.item(&item)?;
            done += 1;
            work.tick(Stage::Write, done, None)?;
        }
    } else {
        let tree = open(&snapshot, scheme, work)?;
        let (leaves, _) = check_root(&scheme, &tree, store, work)?;
        let whole = Whole::new(scheme);
        let mut back = Back::new(&whole, &tree, &snapshot, work.options.memory / 2);
        let mut names = NameSource::Store.open(&snapshot)?;
        let mut goes_on = |done| work.tell(Stage::Write, done, None);
        back.run(&mut *names, &mut file, &mut goes_on)?;
        let found = back.counts.leaves;
        let checked = CheckedTree { tree: &tree, whole: &whole, store, leaves };
        checked.find_stray(&snapshot, NameSource::Store, found, work)?;
    }
    file.close()?;
    Ok(file.writer.finish()?)
}

fn open<N: Snapshot>(
    snapshot: &N,
    scheme: Pbt,
    work: &Work<'_>,
) -> Result<Tree<Pbt>, MigrateError> {
    let mut tree = Tree::open(scheme, PBT, snapshot, work.cache)?;
    tree.verify_reads(work.verify);
    match tree.commit_number() {
        0 => Err(MigrateError::NoTree { tree: tree.scheme_id().to_string() }),
        _ => Ok(tree),
    }
}

/// Writes preimages account by account.
struct PreimageFile<W: Write> {
    writer: preimages::Writer<W>,
    account: Option<(Address, Vec<B256>)>,
}

impl<W: Write> PreimageFile<W> {
    fn close(&mut self) -> Result<(), MigrateError> {
        let Some((address, slots)) = self.account.take() else { return Ok(()) };
        let many =
            |_| MigrateError::Leaves { address, slot: None, what: "it has 2^32 slots or more" };
        self.writer.account(address, slots.len().try_into().map_err(many)?)?;
        for slot in slots {
            self.writer.slot(slot)?;
        }
        Ok(())
    }
}

impl<W: Write> Finder for PreimageFile<W> {
    fn item(&mut self, item: &Item) -> Result<(), MigrateError> {
        match item {
            Item::Account { address, .. } => {
                self.close()?;
                self.account = Some((*address, Vec::new()));
            }
            Item::Slot { slot, .. } => {
                if let Some((_, slots)) = &mut self.account {
                    slots.push(*slot);
                }
            }
        }
        Ok(())
    }
}

/// Checks a snapshot file, and makes the tree of its leaves, alone in `target`, with the code that
/// they are. `block` is the one whose state it is.
///
/// # Errors
/// If the file is not valid, its leaves have another root, or code is not what its hash says; if
/// the store fails. The target is not to be used then; after [`MigrateError::Stopped`], or where
/// the process was killed, the same call goes on.
pub fn import_snapshot<Q: PageStore>(
    path: &Path,
    target: &Q,
    scheme: Pbt,
    block: Option<BlockId>,
    work: &mut Work<'_>,
) -> Result<Imported, MigrateError> {
    let read = || -> Result<_, FileError> {
        let file = File::open(path).map_err(|error| FileError::Io { at: 0, error })?;
        snapshot::Reader::new(file)
    };
    let checked = read()?.check(scheme)?;
    let mut tree = Tree::open(scheme, PBT, &target.snapshot()?, work.cache)?;
    let source = [&b"snapshot"[..], &checked.file.digest[..]].concat();
    let name = RunName::of(&tree, &source, &work.options);
    let mut gather = Gather::open(work.spill, name, work.options)?;
    let is_built = Checkpoint::read(&target.snapshot()?, PBT)?
        .is_some_and(|at| at.is_of(name) && at.state == spinney_pipeline::State::Finished);
    if !is_built && !gather.is_sorted() {
        let mut reader = read()?;
        let mut done = 0;
        while let Some(leaf) = reader.leaf()? {
            gather.push(&leaf.key, &leaf.value)?;
            done += 1;
            work.tick(Stage::Gather, done, Some(checked.leaves))?;
        }
    }
    work.build(gather, &mut tree, target, block)?;
    expect(&tree.scheme_id().to_string(), checked.root, tree.root().into())?;
    let codes = put_codes(&tree, scheme, target, work)?;
    Ok(Imported { file: checked.file, root: checked.root, leaves: checked.leaves, codes })
}

/// Takes nothing.
struct Nobody;

impl Finder for Nobody {}

/// Puts the code together that the accounts of a tree have, and notes how many have it. Answers how
/// many there are.
fn put_codes<Q: PageStore>(
    tree: &Tree<Pbt>,
    scheme: Pbt,
    target: &Q,
    work: &mut Work<'_>,
) -> Result<u64, MigrateError> {
    let snapshot = target.snapshot()?;
    let whole = Whole::new(scheme);
    let mut codes = Codes::new();
    let mut notes = Notes::of(target);
    let (mut size, mut account, mut done) = (0, Vec::new(), 0);
    for entry in tree.range(&snapshot, None, &[pbt::ACCOUNT_ZONE], Some(&[pbt::CODE_ZONE])) {
        let entry = entry?;
        let leaf = word(&entry.key, &entry.value)?;
        let malformed = || MigrateError::Malformed { what: "no account", key: entry.key.clone() };
        let owner = entry.key.get(..33).ok_or_else(malformed)?;
        if owner != account {
            // Basic data of zeros is no leaf.
            (size, account) = (0, owner.to_vec());
        }
        match entry.key.last().copied() {
            Some(pbt::BASIC_DATA) => {
                size = BasicData::decode(&leaf).ok_or_else(malformed)?.code_size;
            }
            Some(pbt::CODE_HASH) if leaf != spinney_state::EMPTY_CODE_HASH.0 => {
                let code = codes.entry(leaf.into()).or_insert((size, 0));
                code.1 += 1;
                if code.0 != size {
                    let (address, hash) = (Address::ZERO, leaf.into());
                    let what = format!("one account says {} bytes, another one {size}", code.0);
                    return Err(MigrateError::Code { address, hash, what });
                }
            }
            Some(pbt::DELEGATION) => {
                let code = Bytes::copy_from_slice(leaf.first_chunk::<23>().ok_or_else(malformed)?);
                notes.code(keccak256(&code), &code)?;
            }
            _ => {}
        }
        done += 1;
        work.tick(Stage::CheckBack, done, None)?;
    }
    let mut back = Back::new(&whole, tree, &snapshot, 0);
    for (hash, (size, _)) in &codes {
        let code = back.code(Address::ZERO, *hash, *size, &mut Nobody)?;
        notes.code(*hash, &code)?;
        work.tick(Stage::CheckBack, back.counts.leaves, None)?;
    }
    let all = tree.range(&snapshot, None, &[pbt::CODE_ZONE], Some(&[pbt::CODE_ZONE + 1])).count();
    if all as u64 != back.counts.leaves {
        let (source_has, target_has) = (back.counts.leaves, all as u64);
        return Err(MigrateError::Count {
            what: "leaves of accounts' code",
            source_has,
            target_has,
        });
    }
    note_uses(&whole, &codes, &mut notes.set);
    notes.flush()?;
    Ok(codes.len() as u64)
}

/// Makes sure that a preimage file and the partitioned binary tree of a store are of one state, and
/// with `keep` keeps the preimages in the store. `state_root` is the root that the Merkle Patricia
/// trie of that state has to have.
///
/// # Errors
/// If the file is not valid, a preimage is missing or too many, a leaf or code is not what it has
/// to be, or the root is another.
pub fn match_preimages<Q: PageStore>(
    path: &Path,
    store: &Q,
    scheme: Pbt,
    state_root: Option<B256>,
    keep: bool,
    work: &mut Work<'_>,
) -> Result<Named, MigrateError> {
    let opened = File::open(path).map_err(|error| FileError::Io { at: 0, error })?;
    let file = Reader::new(opened).finish()?;
    let snapshot = store.snapshot()?;
    let tree = open(&snapshot, scheme, work)?;
    let (leaves, _) = check_root(&scheme, &tree, store, work)?;
    let whole = Whole::new(scheme);
    let mut back = Back::new(&whole, &tree, &snapshot, work.options.memory / 2);
    let notes = keep.then(|| Notes::of(store));
    let mut taker = Namer { builder: RootBuilder::new(MptState), notes };
    let names = NameSource::File(path);
    let mut goes_on = |done| work.tell(Stage::CheckBack, done, None);
    back.run(&mut *names.open(&snapshot)?, &mut taker, &mut goes_on)?;
    let counts = back.counts;
    let checked = CheckedTree { tree: &tree, whole: &whole, store, leaves };
    checked.find_stray(&snapshot, names, counts.leaves, work)?;
    let found: B256 = taker.builder.finish()?.into();
    if let Some(expected) = state_root {
        expect("mpt", expected, found)?;
    }
    if let Some(mut notes) = taker.notes {
        notes.flush()?;
    }
    Ok(Named { file, state_root: found, counts })
}

/// Takes what was found for the root of the trie, and its preimages for the store.
struct Namer<'q, Q> {
    builder: RootBuilder<MptState>,
    notes: Option<Notes<'q, Q>>,
}

impl<Q: PageStore> Finder for Namer<'_, Q> {
    fn item(&mut self, item: &Item) -> Result<(), MigrateError> {
        let (key, value) = trie_leaf(item);
        self.builder.push(&key, &value)?;
        let Some(notes) = &mut self.notes else { return Ok(()) };
        put_name(item, &mut notes.set);
        notes.grow(96)
    }
}
