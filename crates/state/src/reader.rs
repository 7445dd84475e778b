//! The last commit of a state, read beside it.
//!
//! Invariants (`tests/it/reader.rs`):
//! - every answer is that of one commit, the last one or one before; a later answer is never of an
//!   earlier commit than the one before it;
//! - a reader waits for nobody but a commit that is being taken up.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
use spinney_tree::mpt::MptState;
use spinney_tree::{BlockId, PageStore, Snapshot as _, Table, TreeError, TreeView, Value};

use crate::error::StateError;
use crate::lazy::LazySnapshot;
use crate::mpt_entries::{decode_account, decode_slot, slot_key};
use crate::{Account, StateRead};

/// How many contracts' code stays in memory.
pub(crate) const RECENT_CODES_MAX: usize = 1_024;

/// A commit that is not shown for so long was made by somebody else.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a state shows its last commit.
#[derive(Clone, Debug)]
pub(crate) struct Published(Arc<Mutex<TreeView<MptState>>>);

impl Published {
    pub(crate) fn new(view: TreeView<MptState>) -> Self {
        Self(Arc::new(Mutex::new(view)))
    }

    pub(crate) fn set(&self, view: TreeView<MptState>) {
        *self.view() = view;
    }

    fn view(&self) -> MutexGuard<'_, TreeView<MptState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the last commit of a [`State`](crate::State) while that goes on: see [`State::reader`].
///
/// ```
/// use alloy_primitives::{Address, U256};
/// use spinney_state::{AccountChange, Change, Changes, State, StateRead};
/// use spinney_tree::MemoryStore;
///
/// let store = MemoryStore::new();
/// let mut state = State::open(&store, 1 << 20)?;
/// let reader = state.reader().expect("mpt is there");
/// let rich = AccountChange { balance: Some(U256::from(5)), ..AccountChange::default() };
/// state.apply(&Changes { accounts: [(Address::ZERO, Change::Written(rich))].into() })?;
/// assert!(reader.account(Address::ZERO)?.is_none());
/// state.commit()?;
/// reader.refresh();
/// assert_eq!(reader.account(Address::ZERO)?.unwrap().balance, U256::from(5));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// [`State::reader`]: crate::State::reader
#[derive(Clone, Debug)]
pub struct Reader<P> {
    store: P,
    published: Published,
    view: RefCell<TreeView<MptState>>,
    /// It never changes under its hash.
    codes: RefCell<HashMap<B256, Bytes>>,
}

impl<P: PageStore> Reader<P> {
    pub(crate) fn new(store: P, published: Published) -> Self {
        let view = published.view().clone();
        Self { store, published, view: RefCell::new(view), codes: RefCell::default() }
    }

    /// Goes on to the last commit, and answers its block, if the state was told. Readers also go on
    /// by themselves, where an earlier commit can no longer be read.
    pub fn refresh(&self) -> Option<BlockId> {
        let view = self.published.view().clone();
        let block = view.block();
        self.view.replace(view);
        block
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>, StateError> {
        let mut waiting: Option<Instant> = None;
        loop {
            let answer = self.view.borrow().get(&LazySnapshot::new(&self.store), key);
            let has_moved =
                matches!(answer, Err(TreeError::Stale { .. } | TreeError::OtherSnapshot { .. }));
            // Whoever makes a commit shows it at once.
            if !has_moved || waiting.is_some_and(|since| since.elapsed() > PATIENCE) {
                return Ok(answer?);
            }
            waiting.get_or_insert_with(Instant::now);
            std::thread::yield_now();
            self.refresh();
        }
    }
}

impl<P: PageStore> StateRead for Reader<P> {
    type Error = StateError;

    fn account(&self, address: Address) -> Result<Option<Account>, StateError> {
        let value = self.get(keccak256(address).as_slice())?;
        value.map(|value| decode_account(&value)).transpose()
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, StateError> {
        let value = self.get(&slot_key(keccak256(address), keccak256(slot)))?;
        Ok(value.map(|value| decode_slot(&value)).transpose()?.unwrap_or_default())
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, StateError> {
        if hash == KECCAK256_EMPTY {
            return Ok(Some(Bytes::new()));
        }
        if let Some(code) = self.codes.borrow().get(&hash) {
            return Ok(Some(code.clone()));
        }
        let snapshot = self.store.snapshot()?;
        let code = snapshot.read(Table::Codes, hash.as_slice())?;
        let code = code.map(|code| Bytes::copy_from_slice(&code));
        if let Some(code) = &code {
            let mut codes = self.codes.borrow_mut();
            if codes.len() == RECENT_CODES_MAX {
                codes.clear();
            }
            codes.insert(hash, code.clone());
        }
        Ok(code)
    }
}
