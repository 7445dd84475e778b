//! Values of a state: those that blocks left, over those of its last commit.
//!
//! Invariants:
//! - what a block wrote stays until the commit below holds that block;
//! - what was only read, or is in the commit by now, is forgotten once there is too much of it;
//! - of an account that was destroyed or made anew since, nothing of its earlier storage shows
//!   through.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use alloy_primitives::{
    Address, B256, Bytes, U256,
    map::{AddressMap, B256Map},
};
use spinney_state::{Account, Change, Changes, EMPTY_CODE_HASH, StateRead};

use crate::world::CommittedState;

/// So many accounts and slots are remembered. Each takes about a hundred bytes.
const REMEMBERED_MAX: usize = 300_000;

/// The state as the last block left it.
#[derive(Debug)]
pub(crate) struct Values<R> {
    below: R,
    /// The block of the commit below, or an earlier one.
    committed: Cell<u64>,
    accounts: RefCell<AddressMap<CachedAccount>>,
    codes: RefCell<B256Map<Written<Bytes>>>,
    /// Accounts and slots that are remembered.
    count: Cell<usize>,
    /// Time spent on reads below.
    read_time: Cell<Duration>,
}

/// A value, and the block that wrote it; 0 where it was read.
#[derive(Clone, Debug)]
struct Written<T> {
    value: T,
    block: u64,
}

#[derive(Debug)]
struct CachedAccount {
    account: Written<Option<Account>>,
    /// The last block that destroyed the account or made it anew.
    wiped: u64,
    slots: B256Map<Written<U256>>,
}

impl<R: CommittedState> Values<R> {
    pub(crate) fn new(below: R) -> Self {
        let committed = Cell::new(below.refresh().unwrap_or(0));
        Self {
            below,
            committed,
            accounts: RefCell::default(),
            codes: RefCell::default(),
            count: Cell::default(),
            read_time: Cell::default(),
        }
    }

    pub(crate) const fn read_time(&self) -> Duration {
        self.read_time.get()
    }

    fn timed<T>(&self, read: impl FnOnce(&R) -> T) -> T {
        let began = Instant::now();
        let answer = read(&self.below);
        self.read_time.update(|time| time + began.elapsed());
        answer
    }

    /// Takes up what a block did.
    pub(crate) fn take(&self, block: u64, changes: &Changes) -> Result<(), R::Error> {
        for (address, change) in &changes.accounts {
            let before = self.account(*address)?;
            let mut accounts = self.accounts.borrow_mut();
            let known = accounts.get_mut(address).expect("it was just read");
            let Change::Written(change) = change else {
                known.wipe(block, &self.count);
                known.account = Written { value: None, block };
                continue;
            };
            if change.fresh {
                known.wipe(block, &self.count);
            }
            let base = before.filter(|_| !change.fresh).unwrap_or_default();
            let value = Some(Account {
                nonce: change.nonce.unwrap_or(base.nonce),
                balance: change.balance.unwrap_or(base.balance),
                code_hash: change.code_hash.unwrap_or(base.code_hash),
            });
            known.account = Written { value, block };
            for (slot, value) in &change.storage {
                let old = known.slots.insert(*slot, Written { value: *value, block });
                self.count.update(|count| count + usize::from(old.is_none()));
            }
            if let (Some(hash), Some(code)) = (change.code_hash, &change.code) {
                let code = Written { value: code.clone(), block };
                self.codes.borrow_mut().insert(hash, code);
            }
        }
        self.forget();
        Ok(())
    }

    /// Forgets what can be read again, if there is too much.
    fn forget(&self) {
        self.committed.set(self.below.refresh().unwrap_or(0));
        let is_kept = |block: u64| block > self.committed.get();
        self.codes.borrow_mut().retain(|_, code| is_kept(code.block));
        if self.count.get() <= REMEMBERED_MAX {
            return;
        }
        let (mut accounts, mut count) = (self.accounts.borrow_mut(), 0);
        accounts.retain(|_, known| {
            known.slots.retain(|_, slot| is_kept(slot.block));
            count += known.slots.len();
            // A slot that is kept needs its account, which says what shows through.
            let keeps = is_kept(known.account.block.max(known.wiped)) || !known.slots.is_empty();
            count += usize::from(keeps);
            keeps
        });
        self.count.set(count);
    }
}

impl CachedAccount {
    fn wipe(&mut self, block: u64, count: &Cell<usize>) {
        count.update(|count| count - self.slots.len());
        self.slots.clear();
        self.wiped = block;
    }
}

impl<R: CommittedState> StateRead for Values<R> {
    type Error = R::Error;

    fn account(&self, address: Address) -> Result<Option<Account>, R::Error> {
        if let Some(known) = self.accounts.borrow().get(&address) {
            return Ok(known.account.value);
        }
        let value = self.timed(|below| below.account(address))?;
        let account = Written { value, block: 0 };
        let known = CachedAccount { account, wiped: 0, slots: B256Map::default() };
        self.accounts.borrow_mut().insert(address, known);
        self.count.update(|count| count + 1);
        Ok(value)
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, R::Error> {
        self.account(address)?;
        let mut accounts = self.accounts.borrow_mut();
        let known = accounts.get_mut(&address).expect("it was just read");
        if let Some(slot) = known.slots.get(&slot) {
            return Ok(slot.value);
        }
        let hides = known.account.value.is_none() || known.wiped > self.committed.get();
        let value = match hides {
            true => U256::ZERO,
            false => self.timed(|below| below.storage(address, slot))?,
        };
        known.slots.insert(slot, Written { value, block: 0 });
        self.count.update(|count| count + 1);
        Ok(value)
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, R::Error> {
        if hash == EMPTY_CODE_HASH {
            return Ok(Some(Bytes::new()));
        }
        if let Some(code) = self.codes.borrow().get(&hash) {
            return Ok(Some(code.value.clone()));
        }
        self.timed(|below| below.code(hash))
    }
}
