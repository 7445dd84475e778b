//! What a store holds at one commit, opened to be asked.
//!
//! Invariants:
//! - a view is of one commit, whoever writes meanwhile: it is opened in one snapshot, and reads no
//!   other;
//! - whether the store has gone on is seen by the root records, of which every commit writes one.

use alloy_primitives::{Address, B256, Bytes};
use spinney_state::embed::{BinaryState, Embedding, KeptTree, PBT, UBT, VERKLE, Word};
use spinney_state::{Account, KeptState, MPT, State, StateError};
use spinney_tree::binary::proof::KeysProof;
use spinney_tree::mpt::MptState;
use spinney_tree::names::{self, NamedTree};
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{
    BlockId, HashFunction, KeyProofs, PageStore, RootRecord, Scheme as _, SharedStore, Snapshot,
    StoreError, Table, TreeError, TreeId,
};

use crate::error::Fault;

/// The hash functions of binary trees.
const HASHES: [HashFunction; 3] =
    [HashFunction::Blake3, HashFunction::Sha256, HashFunction::Keccak256];

/// How many states of earlier blocks stay opened.
pub(crate) const EARLIER_MAX: usize = 4;

/// The trees of a state.
pub(crate) const OF_STATES: [TreeId; 4] = [MPT, UBT, PBT, VERKLE];

/// Rows that say which commit a store is at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    roots: Vec<(Vec<u8>, Vec<u8>)>,
    names: Vec<NamedTree>,
}

impl Mark {
    /// Of the trees of a state; with `all`, also of those that have names.
    pub(crate) fn of(snapshot: &impl Snapshot, all: bool) -> Result<Self, Fault> {
        let mut roots = Vec::new();
        let named = names::FIRST_ID.to_be_bytes();
        let high = if all { None } else { Some(&named[..]) };
        snapshot.scan(Table::Roots, &[], high, &mut |key, row| {
            roots.push((key.to_vec(), row.to_vec()));
            true
        })?;
        let list = |_| names::list(snapshot).map_err(|error| Fault::Internal(error.to_string()));
        let names = all.then_some(()).map(list).transpose()?.unwrap_or_default();
        Ok(Self { roots, names })
    }

    /// Of some trees.
    pub(crate) fn of_trees(snapshot: &impl Snapshot, trees: &[TreeId]) -> Result<Self, Fault> {
        let keys: Vec<_> = trees.iter().map(|tree| tree.0.to_be_bytes()).collect();
        let asked: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let rows = snapshot.read_many(Table::Roots, &asked)?;
        let roots = asked.iter().zip(rows);
        let roots = roots.filter_map(|(key, row)| Some((key.to_vec(), row?.to_vec())));
        Ok(Self { roots: roots.collect(), names: Vec::new() })
    }

    /// The root records, in order of their trees.
    pub(crate) fn records(&self) -> impl Iterator<Item = Result<(TreeId, RootRecord), TreeError>> {
        self.roots.iter().map(|(key, row)| {
            let id = key[..].try_into().map(u32::from_be_bytes).map_or(TreeId(u32::MAX), TreeId);
            Ok((id, RootRecord::decode(id, row)?))
        })
    }

    pub(crate) fn names(&self) -> &[NamedTree] {
        &self.names
    }
}

/// A store at one commit.
pub(crate) struct View<'v> {
    /// A handle of it.
    pub(crate) store: SharedStore<'v>,
    pub(crate) cache_bytes: usize,
    pub(crate) mark: Mark,
    pub(crate) head: Option<BlockId>,
    pub(crate) mpt: Option<State<SharedStore<'v>>>,
    /// The other trees of the state.
    pub(crate) others: Vec<Other<'v>>,
}

/// A tree of the state that is no Merkle Patricia trie.
pub(crate) struct Other<'v> {
    pub(crate) id: TreeId,
    /// As it is asked for.
    pub(crate) name: String,
    pub(crate) tree: Box<dyn Words + 'v>,
}

impl<'v> View<'v> {
    /// Opens what a store holds that shows one snapshot alone.
    pub(crate) fn open(store: impl PageStore + 'v, cache_bytes: usize) -> Result<Self, Fault> {
        let store = SharedStore::new(store);
        let mark = Mark::of(&store.snapshot()?, false)?;
        Self::of(store, mark, cache_bytes)
    }

    /// Opens the trees whose root records these are.
    pub(crate) fn of(
        store: SharedStore<'v>,
        mark: Mark,
        cache_bytes: usize,
    ) -> Result<Self, Fault> {
        let mut records = Vec::new();
        for record in mark.records() {
            let (id, record) = record?;
            if OF_STATES.contains(&id) {
                records.push((id, record));
            }
        }
        let each = cache_bytes / records.len().max(1);
        let (mut mpt, mut others, mut head) = (None, Vec::new(), None);
        for (id, record) in records {
            if id == MPT {
                if record.scheme != MptState.id() {
                    // Raw keys: no state of any block.
                    continue;
                }
                mpt = Some(State::open(store.clone(), each)?);
            } else if let Some(tree) = open_other(&record, store.clone(), each)? {
                others.push(Other { id, name: record.scheme.to_string(), tree });
            }
            head = head.or(record.block);
        }
        Ok(Self { store, cache_bytes, mark, head, mpt, others })
    }

    /// The tree that accounts are read from where there is no Merkle Patricia trie: a PBT before
    /// others, since slots go with their account there.
    pub(crate) fn main(&self) -> Option<&Other<'v>> {
        self.others.iter().find(|other| other.id == PBT).or_else(|| self.others.first())
    }
}

fn open_other<'v>(
    record: &RootRecord,
    store: SharedStore<'v>,
    cache_bytes: usize,
) -> Result<Option<Box<dyn Words + 'v>>, Fault> {
    let opened = |error: spinney_state::embed::EmbedError| Fault::Internal(error.to_string());
    if record.scheme.tree == 6 {
        let state = BinaryState::open(Verkle::shared(), store, cache_bytes).map_err(opened)?;
        return Ok(Some(Box::new(state)));
    }
    for hash in HASHES {
        if (Ubt { hash }).id() == record.scheme {
            let state = BinaryState::open(Ubt { hash }, store, cache_bytes).map_err(opened)?;
            return Ok(Some(Box::new(state)));
        }
        if (Pbt { hash }).id() == record.scheme {
            let state = BinaryState::open(Pbt { hash }, store, cache_bytes).map_err(opened)?;
            return Ok(Some(Box::new(state)));
        }
    }
    Ok(None)
}

/// A tree whose values are words: what is asked of each, whichever it is.
pub(crate) trait Words {
    /// At a block; `None` is the last commit.
    fn at<'a>(&'a self, block: Option<u64>) -> Result<Box<dyn WordsAt + 'a>, StateError>;
}

/// The same at one block.
pub(crate) trait WordsAt {
    fn root(&self) -> B256;
    fn block(&self) -> Option<BlockId>;
    fn leaf(&self, key: &[u8]) -> Result<Option<Word>, StateError>;
    fn account(&self, address: &Address) -> Result<Option<Account>, Fault>;
    fn account_keys(&self, address: &Address) -> Vec<Vec<u8>>;
    fn slot_key(&self, address: &Address, slot: &B256) -> Vec<u8>;
    fn chunk_key(&self, address: &Address, code: &B256, chunk: u32) -> Vec<u8>;
    fn prove(&self, keys: &[Vec<u8>]) -> Result<KeysProof, StateError>;
    /// Bytes of memory beside those of pages.
    fn memory(&self) -> usize;
}

struct TreeAt<'a, S: Embedding, P: PageStore> {
    scheme: &'a S,
    kept: KeptTree<'a, S, P>,
}

impl<S: Embedding + KeyProofs, P: PageStore> Words for BinaryState<S, P> {
    fn at<'a>(&'a self, block: Option<u64>) -> Result<Box<dyn WordsAt + 'a>, StateError> {
        let kept = block.map_or_else(|| self.last(), |number| self.at(number))?;
        Ok(Box::new(TreeAt { scheme: self.scheme(), kept }))
    }
}

impl<S: Embedding + KeyProofs, P: PageStore> WordsAt for TreeAt<'_, S, P> {
    fn root(&self) -> B256 {
        self.kept.root()
    }

    fn block(&self) -> Option<BlockId> {
        self.kept.block()
    }

    fn leaf(&self, key: &[u8]) -> Result<Option<Word>, StateError> {
        self.kept.leaf(key)
    }

    fn account(&self, address: &Address) -> Result<Option<Account>, Fault> {
        let keys = self.scheme.account_keys(address);
        let leaves = keys.iter().map(|key| self.leaf(key)).collect::<Result<Vec<_>, _>>()?;
        let account = self.scheme.read_account(address, &leaves);
        let account = account.map_err(|error| Fault::Internal(error.to_string()))?;
        Ok(account.map(|(account, _)| account))
    }

    fn account_keys(&self, address: &Address) -> Vec<Vec<u8>> {
        self.scheme.account_keys(address)
    }

    fn slot_key(&self, address: &Address, slot: &B256) -> Vec<u8> {
        self.scheme.slot_key(address, slot)
    }

    fn chunk_key(&self, address: &Address, code: &B256, chunk: u32) -> Vec<u8> {
        self.scheme.chunk_key(address, code, chunk)
    }

    fn prove(&self, keys: &[Vec<u8>]) -> Result<KeysProof, StateError> {
        self.kept.prove(keys)
    }

    fn memory(&self) -> usize {
        self.kept.memory()
    }
}

/// States of earlier blocks that were asked for lately: the one asked for last is the last one. The
/// memory that they may have is shared by all but this one, which may need more alone.
pub(crate) struct Earlier<K, V> {
    states: Vec<(K, V)>,
    bytes_max: usize,
    bytes_of: fn(&V) -> usize,
}

impl<K: PartialEq, V> Earlier<K, V> {
    pub(crate) const fn new(bytes_max: usize, bytes_of: fn(&V) -> usize) -> Self {
        Self { states: Vec::new(), bytes_max, bytes_of }
    }

    pub(crate) fn get<E>(&mut self, key: K, open: impl FnOnce() -> Result<V, E>) -> Result<&V, E> {
        let entry = match self.states.iter().position(|(known, _)| *known == key) {
            Some(place) => self.states.remove(place),
            None => {
                // Before another one is opened: it may be large.
                if self.states.len() == EARLIER_MAX {
                    self.states.remove(0);
                }
                (key, open()?)
            }
        };
        self.states.push(entry);
        let bytes =
            |states: &[(K, V)]| -> usize { states.iter().map(|(_, v)| (self.bytes_of)(v)).sum() };
        let is_much = |states: &[(K, V)]| self.bytes_max < bytes(states);
        let last = self.states.len() - 1;
        let gone = (0..last).find(|gone| !is_much(&self.states[*gone..])).unwrap_or(last);
        self.states.drain(..gone);
        Ok(&self.states[last - gone].1)
    }
}

/// States of the Merkle Patricia trie, by their blocks.
pub(crate) type EarlierStates<'a, 'v> = Earlier<u64, KeptState<'a, SharedStore<'v>>>;

/// States of other trees.
pub(crate) type EarlierWords<'a> = Earlier<(TreeId, Option<u64>), Box<dyn WordsAt + 'a>>;

/// A row of code.
pub(crate) fn code_of<P: PageStore>(store: &P, hash: &B256) -> Result<Option<Bytes>, StoreError> {
    let snapshot = store.snapshot()?;
    let row = snapshot.read(Table::Codes, hash.as_slice())?;
    Ok(row.map(|row| Bytes::copy_from_slice(&row)))
}

#[cfg(test)]
mod tests {
    use super::{EARLIER_MAX, Earlier, StateError};

    #[test]
    fn the_states_asked_for_last_stay() {
        let mut earlier = Earlier::new(0, |_| 0);
        let mut opened = Vec::new();
        for number in [0, 1, 2, 3, 0, 4, 0, 1] {
            let open = || {
                opened.push(number);
                Ok::<_, StateError>(number)
            };
            assert_eq!(earlier.get(number, open).unwrap(), &number);
            assert!(earlier.states.len() <= EARLIER_MAX);
        }
        assert_eq!(opened, [0, 1, 2, 3, 4, 1]);
    }

    /// Each takes as many bytes as its number says.
    #[test]
    fn the_states_have_a_bound_of_bytes_but_for_the_last() {
        let mut earlier = Earlier::new(10, |bytes: &usize| *bytes);
        let mut there = |number: usize| {
            assert_eq!(earlier.get(number, || Ok::<_, StateError>(number)).unwrap(), &number);
            earlier.states.iter().map(|(number, _)| *number).collect::<Vec<_>>()
        };
        assert_eq!(there(3), [3]);
        assert_eq!(there(4), [3, 4]);
        assert_eq!(there(2), [3, 4, 2]);
        assert_eq!(there(5), [2, 5]);
        assert_eq!(there(2), [5, 2]);
        assert_eq!(there(99), [99]);
        assert_eq!(there(1), [1]);
    }
}
