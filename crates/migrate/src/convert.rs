//! A state from one tree into another, in a store of its own.
//!
//! Invariants:
//! - the source is only read; the target is whoever calls to make visible, once it was checked;
//! - a run that was cut off goes on: leaves are sorted and ranges built as in any rebuild, and what
//!   lies beside the tree is written before the leaves count as sorted;
//! - what was taken of the source is noted beside the tree, in `meta`: the row `"convert"` has the
//!   numbers of accounts, slots, codes and leaves (8 each, BE);
//! - the dual check reads nothing but the target: its leaves have the root of its tree, and the
//!   accounts, slots and code that they are have the root and the numbers of the source.

use alloy_primitives::{Address, B256, Bytes, U256};
use spinney_pipeline::{Checkpoint, Gather, Report, RunName, SortedLeaves, State};
use spinney_state::embed::{Embedding, PBT, Whole, Word};
use spinney_state::{EMPTY_CODE_HASH, MPT, Preimages};
use spinney_tree::bulk::RootBuilder;
use spinney_tree::mpt::{MptState, account_value, slot_value};
use spinney_tree::{BlockId, PageStore, Scheme, Snapshot, Table, Tree, WriteSet};

use crate::back::{Back, Finder, word};
use crate::error::MigrateError;
use crate::file::Digested;
use crate::forward::{Behind, Codes, Forward, Item, Taker, Trie, put_name};
use crate::names::NameSource;
use crate::snapshot::Writer;
use crate::work::{Counts, Stage, Work};

/// Rows beside the tree are committed whenever they take so many bytes.
const NOTED_BYTES: usize = 16 << 20;
/// What a row takes in a write set beside its bytes.
const ROW_BYTES: usize = 96;
/// Where a run notes what it took of the source.
const TAKEN: &[u8] = b"convert";

/// What a run made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Converted {
    /// The block whose state it is.
    pub block: Option<BlockId>,
    /// The root of the source.
    pub source_root: B256,
    /// The root of the target.
    pub root: B256,
    /// What the state has.
    pub counts: Counts,
    /// The PBT snapshot that its leaves are, where the target is one.
    pub snapshot: Option<Digested>,
    /// What building took.
    pub report: Report,
    /// The share of the source that was taken, by the hash of its last account: 1 without a limit.
    pub share: f64,
}

/// Makes another tree of the Merkle Patricia trie of `source`, alone in `target`, and checks it.
/// Half the memory of the options is for leaves.
///
/// # Errors
/// [`MigrateError`]: what is missing, too much or wrong is named. The target is not to be used
/// then; but after [`MigrateError::Stopped`], or where the process was killed, the same call goes
/// on.
pub fn from_mpt<S: Embedding, P: PageStore, Q: PageStore>(
    source: &P,
    target: &Q,
    scheme: S,
    names: NameSource<'_>,
    work: &mut Work<'_>,
) -> Result<Converted, MigrateError> {
    let from = source.snapshot()?;
    let mut trie = Tree::open(MptState, MPT, &from, work.cache)?;
    trie.verify_reads(work.verify);
    if trie.commit_number() == 0 {
        return Err(MigrateError::NoTree { tree: trie.scheme_id().to_string() });
    }
    let whole = Whole::new(scheme.clone());
    let mut tree = Tree::open(scheme, S::TREE, &target.snapshot()?, work.cache)?;
    let name = RunName::of(&tree, &[b"from mpt", &trie.root()[..]].concat(), &work.options);
    let mut gather = Gather::open(work.spill, name, work.options)?;
    let mut share = 1.0;
    if !is_taken(target, &gather, name, &tree)? {
        let behind = match names {
            NameSource::Store => Behind::Table(&from),
            NameSource::File(_) => Behind::List(names.open(&from)?),
        };
        let mut forward = Forward::new(&whole, &from);
        let notes = Notes::of(target);
        let mut taker = IntoTree { gather: &mut gather, notes, whole: &whole };
        let mut read = Trie::new(&trie, &from, behind);
        (read.limit, read.verify) = (work.limit, work.verify);
        let mut goes_on = |done| work.tell(Stage::Gather, done, None);
        forward.run(&mut read, &mut taker, &mut goes_on)?;
        share = share_before(read.cut);
        let mut notes = taker.notes;
        note_uses(&whole, &forward.codes, &mut notes.set);
        forward.counts.put(&mut notes.set);
        copy_genesis(&from, &mut notes.set)?;
        notes.flush()?;
    }
    let report = work.build(gather, &mut tree, target, trie.block())?;
    let taken = Counts::read(&target.snapshot()?)?;
    let (leaves, snapshot) = check_root(whole.scheme(), &tree, target, work)?;
    let checked = CheckedTree { tree: &tree, whole: &whole, store: target, leaves };
    let (root, counts) = checked.read_back(NameSource::Store, work)?;
    taken.compare(&counts)?;
    if work.limit.is_none() {
        expect("mpt", trie.root().into(), root)?;
    }
    Ok(Converted {
        block: trie.block(),
        source_root: trie.root().into(),
        root: tree.root().into(),
        counts,
        snapshot,
        report,
        share,
    })
}

/// Makes the Merkle Patricia trie of another tree of `source`, alone in `target`, and checks it:
/// the other tree has to come out of it again.
///
/// # Errors
/// As [`from_mpt`].
pub fn to_mpt<S: Embedding, P: PageStore, Q: PageStore>(
    source: &P,
    target: &Q,
    scheme: S,
    names: NameSource<'_>,
    work: &mut Work<'_>,
) -> Result<Converted, MigrateError> {
    let from = source.snapshot()?;
    let mut tree = Tree::open(scheme.clone(), S::TREE, &from, work.cache)?;
    tree.verify_reads(work.verify);
    if tree.commit_number() == 0 {
        return Err(MigrateError::NoTree { tree: tree.scheme_id().to_string() });
    }
    let whole = Whole::new(scheme);
    let mut trie = Tree::open(MptState, MPT, &target.snapshot()?, work.cache)?;
    let name = RunName::of(&trie, &[b"to mpt", &tree.root()[..]].concat(), &work.options);
    let mut gather = Gather::open(work.spill, name, work.options)?;
    let mut share = 1.0;
    if !is_taken(target, &gather, name, &trie)? {
        let (leaves, _) = check_root(whole.scheme(), &tree, source, work)?;
        let mut back = Back::new(&whole, &tree, &from, work.options.memory / 4);
        back.limit = work.limit;
        let preimages = Preimages::open(&work.beside("preimages"), name, work.options.memory / 4)?;
        let notes = Notes::of(target);
        let mut finder = IntoTrie { gather: &mut gather, notes, preimages };
        let mut list = names.open(&from)?;
        let mut goes_on = |done| work.tell(Stage::Gather, done, None);
        back.run(&mut *list, &mut finder, &mut goes_on)?;
        let counts = back.counts;
        let IntoTrie { mut notes, preimages, .. } = finder;
        let mut sorted = preimages.sort()?;
        while let Some(set) = sorted.next_set()? {
            target.commit_owned(set)?;
            work.tell(Stage::Gather, counts.leaves, None)?;
        }
        sorted.remove()?;
        share = share_before(back.cut);
        if work.limit.is_none() {
            let checked = CheckedTree { tree: &tree, whole: &whole, store: source, leaves };
            checked.find_stray(&from, names, counts.leaves, work)?;
        }
        counts.put(&mut notes.set);
        copy_genesis(&from, &mut notes.set)?;
        notes.flush()?;
    }
    let report = work.build(gather, &mut trie, target, tree.block())?;
    let taken = Counts::read(&target.snapshot()?)?;
    check_root(&MptState, &trie, target, work)?;
    let (root, counts) = forward_root(&whole, &trie, target, work)?;
    taken.compare(&counts)?;
    if work.limit.is_none() {
        expect(&whole.name(), tree.root().into(), root)?;
    }
    Ok(Converted {
        block: tree.block(),
        source_root: tree.root().into(),
        root: trie.root().into(),
        counts,
        snapshot: None,
        report,
        share,
    })
}

/// Which share of all accounts has hashes below the first one that was left out.
fn share_before(cut: Option<B256>) -> f64 {
    let first = |hash: B256| u64::from_be_bytes(*hash.first_chunk().expect("32 bytes"));
    cut.map_or(1.0, |hash| first(hash) as f64 / u64::MAX as f64)
}

/// Whether an earlier process took all of the source.
fn is_taken<S: Scheme, Q: PageStore>(
    target: &Q,
    gather: &Gather,
    name: RunName,
    tree: &Tree<S>,
) -> Result<bool, MigrateError> {
    let found = Checkpoint::read(&target.snapshot()?, tree.id())?;
    let finished = found.is_some_and(|at| at.is_of(name) && at.state == State::Finished);
    Ok(gather.is_sorted() || finished)
}

/// Reads the leaves of a tree's last commit again: they have its root. Answers how many there are,
/// and of a tree that was just built the snapshot that they are.
pub(crate) fn check_root<S: Scheme + Clone, Q: PageStore>(
    scheme: &S,
    tree: &Tree<S>,
    store: &Q,
    work: &mut Work<'_>,
) -> Result<(u64, Option<Digested>), MigrateError>
where
    S::Root: Into<B256>,
{
    let snapshot = store.snapshot()?;
    let total = Checkpoint::read(&snapshot, tree.id())?
        .filter(|at| at.state == State::Finished && at.root == tree.root().as_ref())
        .map(|at| at.leaves);
    let root: B256 = tree.root().into();
    let mut writer = match (tree.id() == PBT, total) {
        (true, Some(total)) => Some(Writer::new(std::io::sink(), root.0, total)?),
        _ => None,
    };
    let mut builder = RootBuilder::new(scheme.clone());
    let mut leaves = 0;
    for entry in tree.entries(&snapshot, None, b"") {
        let entry = entry?;
        leaves += 1;
        builder.push(&entry.key, &entry.value)?;
        if let Some(writer) = &mut writer {
            writer.leaf(&entry.key, &word(&entry.key, &entry.value)?)?;
        }
        work.tick(Stage::CheckRoot, leaves, total)?;
    }
    expect(&tree.scheme_id().to_string(), root, builder.finish()?.into())?;
    let file = writer.map(Writer::finish).transpose()?.map(|(file, _)| file);
    Ok((leaves, file))
}

pub(crate) fn expect(tree: &str, expected: B256, found: B256) -> Result<(), MigrateError> {
    if expected == found {
        return Ok(());
    }
    Err(MigrateError::Root { tree: tree.into(), expected, found })
}

/// The root that another tree would have of a trie, and what the state has. Nothing is built.
fn forward_root<S: Embedding, Q: PageStore>(
    whole: &Whole<S>,
    trie: &Tree<MptState>,
    store: &Q,
    work: &mut Work<'_>,
) -> Result<(B256, Counts), MigrateError> {
    struct Leaves<'g>(&'g mut Gather);
    impl Taker for Leaves<'_> {
        fn leaf(&mut self, key: &[u8], value: &Word) -> Result<(), MigrateError> {
            Ok(self.0.push(key, value)?)
        }
    }
    let snapshot = store.snapshot()?;
    let name = RunName::of(trie, b"check", &work.options);
    let mut gather = Gather::open(&work.beside("check"), name, work.options)?;
    let mut forward = Forward::new(whole, &snapshot);
    let mut goes_on = |done| work.tell(Stage::CheckBack, done, None);
    let mut read = Trie::new(trie, &snapshot, Behind::Table(&snapshot));
    forward.run(&mut read, &mut Leaves(&mut gather), &mut goes_on)?;
    let mut leaves = gather.into_sorted()?;
    let mut builder = RootBuilder::new(whole.scheme().clone());
    while let Some((key, value)) = leaves.leaf() {
        builder.push(key, value)?;
        leaves.advance()?;
    }
    leaves.remove()?;
    Ok((builder.finish()?.into(), forward.counts))
}

/// A tree that is not the Merkle Patricia trie, and its store.
pub(crate) struct CheckedTree<'a, S: Embedding, Q> {
    pub(crate) tree: &'a Tree<S>,
    pub(crate) whole: &'a Whole<S>,
    pub(crate) store: &'a Q,
    /// How many leaves it has.
    pub(crate) leaves: u64,
}

impl<S: Embedding, Q: PageStore> CheckedTree<'_, S, Q> {
    /// The root of the Merkle Patricia trie that the leaves of the last commit are, and what the
    /// state has. Every leaf has to belong to it, and the store has to have all code.
    pub(crate) fn read_back(
        &self,
        names: NameSource<'_>,
        work: &mut Work<'_>,
    ) -> Result<(B256, Counts), MigrateError> {
        let snapshot = self.store.snapshot()?;
        let mut back = Back::new(self.whole, self.tree, &snapshot, work.options.memory / 2);
        let mut finder = Root { builder: RootBuilder::new(MptState), snapshot: &snapshot };
        let mut list = names.open(&snapshot)?;
        let mut goes_on = |done| work.tell(Stage::CheckBack, done, None);
        back.run(&mut *list, &mut finder, &mut goes_on)?;
        let counts = back.counts;
        self.find_stray(&snapshot, names, counts.leaves, work)?;
        Ok((finder.builder.finish()?.into(), counts))
    }

    /// Names a leaf that nobody found, if there are more than `found`.
    pub(crate) fn find_stray<N: Snapshot>(
        &self,
        snapshot: &N,
        names: NameSource<'_>,
        found: u64,
        work: &mut Work<'_>,
    ) -> Result<(), MigrateError> {
        if self.leaves == found {
            return Ok(());
        }
        let name = RunName::of(self.tree, b"stray", &work.options);
        let gather = Gather::open(&work.beside("check"), name, work.options)?;
        let mut keys = Keys(gather);
        let mut back = Back::new(self.whole, self.tree, snapshot, work.options.memory / 4);
        let mut goes_on = |done| work.tell(Stage::CheckBack, done, None);
        back.run(&mut *names.open(snapshot)?, &mut keys, &mut goes_on)?;
        let mut known: SortedLeaves = keys.0.into_sorted()?;
        let mut stray = None;
        for entry in self.tree.entries(snapshot, None, b"") {
            let entry = entry?;
            if known.leaf().is_none_or(|(key, _)| key != entry.key) {
                stray = Some(entry.key);
                break;
            }
            known.advance()?;
        }
        known.remove()?;
        match stray {
            Some(key) => Err(MigrateError::Stray { tree: self.whole.name(), key }),
            None => Err(MigrateError::Count {
                what: "leaves",
                source_has: found,
                target_has: self.leaves,
            }),
        }
    }
}

/// Takes keys that were found.
struct Keys(Gather);

impl Finder for Keys {
    fn key(&mut self, key: &[u8]) -> Result<(), MigrateError> {
        Ok(self.0.push(key, b"")?)
    }
}

/// Takes what was found for its root.
struct Root<'n, N> {
    builder: RootBuilder<MptState>,
    snapshot: &'n N,
}

impl<N: Snapshot> Finder for Root<'_, N> {
    fn item(&mut self, item: &Item) -> Result<(), MigrateError> {
        let (key, value) = trie_leaf(item);
        Ok(self.builder.push(&key, &value)?)
    }

    fn code(&mut self, hash: B256, code: &Bytes) -> Result<(), MigrateError> {
        let row = self.snapshot.read(Table::Codes, hash.as_slice())?;
        match row.is_some_and(|row| row[..] == code[..]) {
            true => Ok(()),
            false => Err(MigrateError::NoCode { address: Address::ZERO, hash }),
        }
    }
}

/// A leaf of the Merkle Patricia trie.
pub(crate) fn trie_leaf(item: &Item) -> (Vec<u8>, Vec<u8>) {
    match item {
        Item::Account { hash, account, .. } => {
            let balance: Word = U256::to_be_bytes(&account.balance);
            (hash.to_vec(), account_value(account.nonce, &balance, &account.code_hash.0))
        }
        Item::Slot { account, hash, value, .. } => ([*account, *hash].concat(), slot_value(value)),
    }
}

/// Rows beside a tree, on their way to its store.
pub(crate) struct Notes<'q, Q> {
    store: &'q Q,
    pub(crate) set: WriteSet,
    bytes: usize,
}

impl<'q, Q: PageStore> Notes<'q, Q> {
    pub(crate) fn of(store: &'q Q) -> Self {
        Self { store, set: WriteSet::new(), bytes: 0 }
    }

    /// So many bytes more.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), MigrateError> {
        self.bytes += bytes + ROW_BYTES;
        if self.bytes >= NOTED_BYTES { self.flush() } else { Ok(()) }
    }

    pub(crate) fn flush(&mut self) -> Result<(), MigrateError> {
        let mut set = std::mem::take(&mut self.set);
        self.bytes = 0;
        set.sort();
        Ok(self.store.commit(&set)?)
    }

    pub(crate) fn code(&mut self, hash: B256, code: &Bytes) -> Result<(), MigrateError> {
        self.set.put(Table::Codes, hash.as_slice(), code.to_vec());
        self.grow(32 + code.len())
    }
}

/// Leaves and rows of a tree that is not the Merkle Patricia trie.
struct IntoTree<'a, S: Embedding, Q> {
    gather: &'a mut Gather,
    notes: Notes<'a, Q>,
    whole: &'a Whole<S>,
}

impl<S: Embedding, Q: PageStore> Taker for IntoTree<'_, S, Q> {
    fn item(&mut self, item: &Item) -> Result<(), MigrateError> {
        put_name(item, &mut self.notes.set);
        if let Item::Slot { address, slot, .. } = item {
            self.whole.note_slot(address, slot, &mut self.notes.set);
        }
        self.notes.grow(96)
    }

    fn code(&mut self, hash: B256, code: &Bytes) -> Result<(), MigrateError> {
        self.notes.code(hash, code)
    }

    fn leaf(&mut self, key: &[u8], value: &Word) -> Result<(), MigrateError> {
        Ok(self.gather.push(key, value)?)
    }
}

/// Leaves and rows of the Merkle Patricia trie.
struct IntoTrie<'a, Q> {
    gather: &'a mut Gather,
    notes: Notes<'a, Q>,
    preimages: Preimages,
}

impl<Q: PageStore> Finder for IntoTrie<'_, Q> {
    fn item(&mut self, item: &Item) -> Result<(), MigrateError> {
        let (key, value) = trie_leaf(item);
        self.gather.push(&key, &value)?;
        match item {
            Item::Account { hash, address, .. } => self.preimages.push(hash, address.as_slice())?,
            Item::Slot { hash, slot, .. } => self.preimages.push(hash, slot.as_slice())?,
        }
        Ok(())
    }

    fn code(&mut self, hash: B256, code: &Bytes) -> Result<(), MigrateError> {
        self.notes.code(hash, code)
    }
}

pub(crate) fn note_uses<S: Embedding>(whole: &Whole<S>, codes: &Codes, set: &mut WriteSet) {
    let uses = codes.iter().filter(|(hash, _)| **hash != EMPTY_CODE_HASH);
    let uses: std::collections::HashMap<_, _> =
        uses.map(|(hash, (_, uses))| (*hash, *uses)).collect();
    whole.note_uses(&uses, set);
}

/// The genesis that a chain began with is that of any of its states.
fn copy_genesis<N: Snapshot>(from: &N, set: &mut WriteSet) -> Result<(), MigrateError> {
    if let Some(row) = from.read(Table::Meta, b"genesis")? {
        set.put(Table::Meta, b"genesis", row.to_vec());
    }
    Ok(())
}

impl Counts {
    const fn all(&self) -> [(&'static str, u64); 4] {
        [
            ("accounts", self.accounts),
            ("slots", self.slots),
            ("codes", self.codes),
            ("leaves", self.leaves),
        ]
    }

    /// Notes what was taken of the source.
    fn put(&self, set: &mut WriteSet) {
        let counts = self.all().map(|(_, count)| count.to_be_bytes());
        set.put(Table::Meta, TAKEN, counts.concat());
    }

    fn read<N: Snapshot>(snapshot: &N) -> Result<Self, MigrateError> {
        let row = snapshot.read(Table::Meta, TAKEN)?;
        let row: Option<[u8; 32]> = row.and_then(|row| row[..].try_into().ok());
        let malformed = || MigrateError::Malformed { what: "no counts", key: TAKEN.to_vec() };
        let row = row.ok_or_else(malformed)?;
        let [accounts, slots, codes, leaves] = [0, 8, 16, 24]
            .map(|at| u64::from_be_bytes(row[at..at + 8].try_into().expect("eight bytes")));
        Ok(Self { accounts, slots, codes, leaves })
    }

    /// The target has to have what the source has.
    fn compare(&self, target: &Self) -> Result<(), MigrateError> {
        for ((what, source_has), (_, target_has)) in self.all().into_iter().zip(target.all()) {
            if source_has != target_has {
                return Err(MigrateError::Count { what, source_has, target_has });
            }
        }
        Ok(())
    }
}
