use std::time::{Duration, Instant};

use alloy_primitives::{Address, B256, Bytes, U256};
use spinney_tree::verkle::Verkle;
use spinney_tree::{
    BlockId, CommitStats, Finding, Operation, PageStore, Pending, Scheme, StoreError, Table, Tree,
    TreeError, TreeId, WriteSet,
};

use super::Word;
use super::layers::{Plan, View, Write};
use super::tree::EmbeddedTree;
use crate::history::AFTER_ALL;
use crate::{Account, Change, Changes, StateRead};

/// The id of the unified binary tree in a store of Ethereum state.
pub const UBT: TreeId = TreeId(2);
/// The id of the partitioned binary tree in a store of Ethereum state.
pub const PBT: TreeId = TreeId(3);
/// The id of the Verkle tree in a store of Ethereum state.
pub const VERKLE: TreeId = TreeId(4);

/// Why a state refused or failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// A balance has more than the 128 bits that the tree has for it.
    #[error("account {address}: a balance of {balance}, where the tree holds less than 2^128")]
    Balance {
        /// The account.
        address: Address,
        /// The balance in wei.
        balance: U256,
    },
    /// Code is longer than the tree can say.
    #[error("account {address}: {len} bytes of code, where the tree holds less than 2^32")]
    CodeSize {
        /// The account.
        address: Address,
        /// Its length in bytes.
        len: usize,
    },
    /// Code was given that is not behind its hash.
    #[error("account {address}: code of hash {found} where {expected} is named")]
    CodeHash {
        /// The account.
        address: Address,
        /// The hash named.
        expected: B256,
        /// The hash of the bytes.
        found: B256,
    },
    /// The tree holds code, and only its hash is known.
    #[error("account {address}: the code behind {hash} is not known, and this tree holds code")]
    CodeUnknown {
        /// The account.
        address: Address,
        /// The code hash.
        hash: B256,
    },
    /// What a tree holds under a key is no value of a state.
    #[error("the store holds no value of a state under 0x{key}: it is damaged")]
    Malformed {
        /// The key.
        key: String,
    },
    /// A tree refused or failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl EmbedError {
    pub(super) fn malformed(key: &[u8]) -> Self {
        Self::Malformed { key: alloy_primitives::hex::encode(key) }
    }
}

impl From<StoreError> for EmbedError {
    fn from(error: StoreError) -> Self {
        Self::Tree(error.into())
    }
}

/// A tree with an embedding of Ethereum's state: [`Ubt`](spinney_tree::ubt::Ubt),
/// [`Pbt`](spinney_tree::pbt::Pbt) and [`Verkle`].
///
/// ```
/// use alloy_primitives::{Address, B256};
/// use spinney_state::embed::Embedding;
/// use spinney_tree::{HashFunction::Blake3, pbt::Pbt};
///
/// let pbt = Pbt { hash: Blake3 };
/// let nobody = pbt.account_keys(&Address::ZERO);
/// assert_eq!(nobody.len(), 3);
/// assert_eq!(pbt.read_account(&Address::ZERO, &[None; 3])?, None);
/// assert_eq!(pbt.slot_key(&Address::ZERO, &B256::ZERO)[..33], nobody[0][..33]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub trait Embedding: Scheme<Root = [u8; 32]> + Clone + 'static + sealed::Rules {
    /// The tree's id in a store of Ethereum state.
    const TREE: TreeId;

    /// The keys that say whether there is an account, and its fields.
    fn account_keys(&self, address: &Address) -> Vec<Vec<u8>> {
        self.account_keys_by(&Self::Memo::default(), address)
    }

    /// Reads the leaves under [`account_keys`](Self::account_keys), in their order: the account,
    /// and bytes of its code. `None` where there is no account.
    ///
    /// # Errors
    /// If they are no leaves of an account.
    fn read_account(
        &self,
        address: &Address,
        leaves: &[Option<Word>],
    ) -> Result<Option<(Account, u32)>, EmbedError>;

    /// The key of a slot.
    fn slot_key(&self, address: &Address, slot: &B256) -> Vec<u8> {
        self.slot_key_by(&Self::Memo::default(), address, slot)
    }

    /// The key of a chunk of an account's code.
    fn chunk_key(&self, address: &Address, code_hash: &B256, chunk: u32) -> Vec<u8> {
        self.chunk_key_by(&Self::Memo::default(), address, code_hash, chunk)
    }
}

pub(super) mod sealed {
    use super::{Account, Address, B256, Bytes, Change, EmbedError, PageStore, Plan, View, Word};
    use crate::embed::whole::Leaves;

    /// What differs between the embeddings.
    pub trait Rules: Sized {
        /// What is worth remembering of keys that were computed.
        type Memo: Default + std::fmt::Debug + Send + Sync;

        /// Whether accounts of the same code share its leaves.
        const SHARES_CODE: bool;

        /// Whether slots stay when their account goes.
        const KEEPS_SLOTS: bool;

        /// Whether there is any slot under an address that is not zero, be the account there or
        /// not.
        fn holds_slots<P: PageStore>(
            &self,
            view: &View<'_, Self, P>,
            address: &Address,
        ) -> Result<bool, EmbedError>
        where
            Self: super::Embedding;

        /// Whether a value is a leaf: zeros are none where leaves go.
        fn has_leaf(value: &Word) -> bool;

        /// The leaves of an account's fields.
        fn header_by(
            &self,
            memo: &Self::Memo,
            address: &Address,
            account: &Account,
            code_size: u32,
            delegation: Option<&[u8]>,
        ) -> Result<Leaves, EmbedError>;

        /// Whether code lies among an account's fields.
        fn delegates(&self, _code: &[u8]) -> bool {
            false
        }

        /// The code that lies among an account's fields, as they have it.
        fn delegation_of(&self, _leaves: &[Option<Word>]) -> Option<Bytes> {
            None
        }

        /// What `meta` has to know of a slot.
        fn slot_note(_address: &Address, _slot: &B256) -> Option<Vec<u8>> {
            None
        }

        fn account_keys_by(&self, memo: &Self::Memo, address: &Address) -> Vec<Vec<u8>>;

        fn slot_key_by(&self, memo: &Self::Memo, address: &Address, slot: &B256) -> Vec<u8>;

        fn chunk_key_by(
            &self,
            memo: &Self::Memo,
            address: &Address,
            code_hash: &B256,
            chunk: u32,
        ) -> Vec<u8>;

        /// Adds what an account's change does to the batch.
        fn plan<P: PageStore>(
            plan: &mut Plan<'_, Self, P>,
            address: Address,
            change: &Change,
        ) -> Result<(), EmbedError>
        where
            Self: super::Embedding;

        /// Adds what all changes do together.
        fn finish<P: PageStore>(_: &mut Plan<'_, Self, P>) -> Result<(), EmbedError>
        where
            Self: super::Embedding,
        {
            Ok(())
        }
    }
}

/// Where the time of a [`BinaryState`] goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmbedTimes {
    /// Deriving keys, and reading the leaves that say what changes do.
    pub keys: Duration,
    /// Applying batches and computing roots.
    pub tree: Duration,
    /// Cutting pages.
    pub encode: Duration,
    /// The store's commits.
    pub store: Duration,
}

/// Ethereum's state in a binary tree or a Verkle tree: the last commit of a store, and what was
/// applied on top of it.
///
/// What an event does is the same in all of them but for this. In a PBT an account or a slot that
/// goes is removed, and code goes with the last account that uses it. In a UBT and in a Verkle tree
/// nothing goes: an account deleted is zeros in its basic data and its code hash, and its storage
/// stays; a slot cleared is zeros, if it was ever there; of an account destroyed and made again
/// every slot is zeroed first, where geth leaves them.
///
/// ```
/// use alloy_primitives::{Address, U256};
/// use spinney_state::embed::BinaryState;
/// use spinney_state::{AccountChange, Change, Changes, StateRead};
/// use spinney_tree::{HashFunction, MemoryStore, pbt::Pbt};
///
/// let pbt = Pbt { hash: HashFunction::Blake3 };
/// let mut state = BinaryState::open(pbt, MemoryStore::new(), 1 << 20)?;
/// let rich = AccountChange { balance: Some(U256::from(5)), ..AccountChange::default() };
/// let mut changes = Changes::default();
/// changes.accounts.insert(Address::ZERO, Change::Written(rich));
/// let root = state.apply(&changes)?;
/// state.commit(None)?;
/// assert_eq!(state.root(), root);
/// assert_eq!(state.account(Address::ZERO)?.unwrap().balance, U256::from(5));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BinaryState<S: Embedding, P> {
    pub(crate) store: P,
    pub(crate) inner: EmbeddedTree<S>,
    times: EmbedTimes,
}

/// Ethereum's state in a Verkle tree.
///
/// ```
/// use spinney_state::embed::VerkleState;
/// use spinney_tree::{MemoryStore, verkle::Verkle};
///
/// let state = VerkleState::open(Verkle::shared(), MemoryStore::new(), 1 << 20)?;
/// assert_eq!(state.root(), [0; 32]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub type VerkleState<P> = BinaryState<Verkle, P>;

impl<S: Embedding, P: PageStore> BinaryState<S, P> {
    /// Opens the state in a store; an empty store holds the empty state. `cache_bytes` bounds the
    /// pages kept in memory.
    ///
    /// # Errors
    /// If the store holds something else, or is damaged.
    pub fn open(scheme: S, store: P, cache_bytes: usize) -> Result<Self, EmbedError> {
        let inner = EmbeddedTree::open(scheme, &store.snapshot()?, cache_bytes)?;
        Ok(Self { store, inner, times: EmbedTimes::default() })
    }

    /// The state root, of all that was applied.
    pub fn root(&self) -> B256 {
        self.inner.root()
    }

    /// The tree at its last commit.
    pub const fn tree(&self) -> &Tree<S> {
        self.inner.tree()
    }

    /// The tree's kind and hash.
    pub const fn scheme(&self) -> &S {
        self.inner.scheme()
    }

    /// The store.
    pub const fn store(&self) -> &P {
        &self.store
    }

    /// Gives the store back; what was applied and not committed is gone.
    pub fn into_store(self) -> P {
        self.store
    }

    /// How many layers lie above the last commit.
    pub const fn layer_count(&self) -> usize {
        self.inner.layer_count()
    }

    /// Takes back the newest layers until `layer_count` are left.
    pub fn undo_to(&mut self, layer_count: usize) {
        self.inner.undo_to(layer_count);
    }

    /// What a layer of changes would do to the leaves, in no particular order. Nothing is applied.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn writes(&self, changes: &Changes) -> Result<Vec<Write>, EmbedError> {
        Ok(self.inner.plan(&self.store, changes)?.0)
    }

    /// What was done to the tree since the last commit: see [`Pending::operations`].
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        self.inner.top().into_iter().flat_map(Pending::operations)
    }

    /// Puts a layer of changes on top of all applied so far, and computes the state root. Nothing
    /// is written.
    ///
    /// # Errors
    /// If a value does not fit the tree, code is not known, or the store fails. Then nothing of the
    /// changes is applied.
    pub fn apply(&mut self, changes: &Changes) -> Result<B256, EmbedError> {
        let (start, planned) = (Instant::now(), self.inner.planning);
        self.inner.apply(&self.store, changes, false)?;
        let keys = self.inner.planning - planned;
        self.times.keys += keys;
        self.times.tree += start.elapsed().saturating_sub(keys);
        Ok(self.root())
    }

    /// Makes all that was applied durable in one commit of the store, as the state of `block`. A
    /// history that the store keeps of earlier blocks goes: this keeps none.
    ///
    /// # Errors
    /// If the store fails. Then nothing is committed, and what was applied still is.
    pub fn commit(&mut self, block: Option<BlockId>) -> Result<CommitStats, EmbedError> {
        self.commit_first(self.layer_count(), block, WriteSet::new())
    }

    /// Makes the oldest layers durable in one commit, as the state of `block`, with rows that
    /// belong to it. The layers above them stay, and can be taken back as before.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    ///
    /// # Panics
    /// If there are fewer layers.
    pub fn commit_first(
        &mut self,
        layers: usize,
        block: Option<BlockId>,
        along: WriteSet,
    ) -> Result<CommitStats, EmbedError> {
        let start = Instant::now();
        let mut set = along;
        let prepared = self.inner.prepare_first(&self.store, layers, block, &mut set)?;
        if !set.is_empty() {
            // A history that a `State` kept does not lead to this commit.
            set.drop_range(Table::History, Vec::new(), AFTER_ALL.to_vec());
        }
        let stats = prepared.stats();
        self.times.encode += start.elapsed();
        let start = Instant::now();
        if !set.is_empty() {
            set.sort();
            self.store.commit(&set)?;
        }
        self.times.store += start.elapsed();
        self.inner.finalize_first(prepared, layers);
        Ok(stats)
    }

    /// Where the time went since it was opened.
    pub const fn times(&self) -> EmbedTimes {
        self.times
    }

    /// How many accounts use the code of this hash: counted where the tree shares code, else 0.
    ///
    /// # Errors
    /// If the store fails.
    pub fn code_uses(&self, hash: B256) -> Result<u64, EmbedError> {
        self.view().uses(&hash)
    }

    /// Checks the last commit, entry by entry and row by row: see [`Tree::check`].
    ///
    /// # Errors
    /// If the store fails. Damage is no error but a finding.
    pub fn check(&self, progress: impl FnMut(u64)) -> Result<Vec<Finding>, EmbedError> {
        Ok(self.tree().check(&self.store.snapshot()?, progress)?)
    }

    fn view(&self) -> View<'_, S, P> {
        self.inner.view(&self.store)
    }
}

impl<S: Embedding, P: PageStore> StateRead for BinaryState<S, P> {
    type Error = EmbedError;

    fn account(&self, address: Address) -> Result<Option<Account>, EmbedError> {
        self.view().account_at(self.scheme(), &address)
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, EmbedError> {
        self.view().slot(self.scheme(), &address, &slot)
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, EmbedError> {
        self.view().code(&hash)
    }
}
