//! From the Merkle Patricia trie to the leaves of another tree.
#![deny(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::HashMap;

use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
use rayon::prelude::*;
use spinney_state::Account;
use spinney_state::embed::{Embedding, Leaves, Whole, Word};
use spinney_tree::mpt::{MptState, decode_account_value, decode_slot_value};
use spinney_tree::{Entries, Snapshot, Table, Tree, WriteSet};

use crate::error::MigrateError;
use crate::names::{Names, put_account, put_slot};
use crate::work::Counts;

/// Accounts and slots whose leaves are made at once, and the bytes of code among them.
const BATCH_ITEMS: usize = 8_192;
const BATCH_CODE_BYTES: usize = 4 << 20;

/// An account of the trie, or a slot of it.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Account { hash: B256, address: Address, account: Account },
    Slot { account: B256, address: Address, hash: B256, slot: B256, value: Word },
}

/// Whoever takes what is made of a trie.
pub(crate) trait Taker {
    /// An account or a slot.
    fn item(&mut self, _: &Item) -> Result<(), MigrateError> {
        Ok(())
    }

    /// Code that comes for the first time.
    fn code(&mut self, _: B256, _: &Bytes) -> Result<(), MigrateError> {
        Ok(())
    }

    /// A leaf, in no order of keys, but always in the same one.
    fn leaf(&mut self, key: &[u8], value: &Word) -> Result<(), MigrateError>;
}

/// Where the preimages of the accounts and slots of a trie come from.
pub(crate) enum Behind<'n, N> {
    /// A table of rows under the hashes.
    Table(&'n N),
    /// A list in the order of the trie.
    List(Box<dyn Names + 'n>),
}

/// What is known of all code that was met: its size, and how many accounts use it.
pub(crate) type Codes = HashMap<B256, (u32, u64)>;

/// The accounts and slots of a trie, in its order, with what is behind their hashes.
pub(crate) struct Trie<'n, N: Snapshot> {
    entries: Entries<'n, MptState>,
    behind: Behind<'n, N>,
    at: Option<(B256, Address)>,
    /// Ends before the first account behind so many accounts and slots.
    pub(crate) limit: Option<u64>,
    /// Whether preimages are compared with their hashes.
    pub(crate) verify: bool,
    passed: u64,
    /// The account that it ended before.
    pub(crate) cut: Option<B256>,
}

impl<'n, N: Snapshot> Trie<'n, N> {
    pub(crate) fn new(tree: &'n Tree<MptState>, snapshot: &'n N, behind: Behind<'n, N>) -> Self {
        let entries = tree.entries(snapshot, None, b"");
        Self { entries, behind, at: None, limit: None, verify: false, passed: 0, cut: None }
    }

    /// The next account or slot.
    pub(crate) fn advance(&mut self) -> Result<Option<Item>, MigrateError> {
        let Some(entry) = self.entries.next() else {
            self.end_of_slots()?;
            if let Behind::List(names) = &mut self.behind
                && names.is_exact()
                && let Some((_, address)) = names.account()?
            {
                return Err(MigrateError::SurplusPreimage { address, slot: None });
            }
            return Ok(None);
        };
        let entry = entry?;
        self.passed += 1;
        let malformed = |what| MigrateError::Malformed { what, key: entry.key.clone() };
        let (account, slot) = entry.key.split_at_checked(32).unwrap_or((&entry.key, &[]));
        if slot.is_empty() {
            let value = decode_account_value(&entry.value);
            let (nonce, balance, code_hash) = value.ok_or_else(|| malformed("no account"))?;
            let hash = B256::try_from(account).map_err(|_| malformed("no account"))?;
            if self.limit.is_some_and(|limit| self.passed >= limit) {
                self.cut = Some(hash);
                return Ok(None);
            }
            let address = self.address(hash)?;
            self.at = Some((hash, address));
            let balance = U256::from_be_bytes(balance);
            let account = Account { nonce, balance, code_hash: code_hash.into() };
            return Ok(Some(Item::Account { hash, address, account }));
        }
        let (account, address) = self.at.ok_or_else(|| malformed("a slot of no account"))?;
        let hash = B256::try_from(slot).map_err(|_| malformed("no slot"))?;
        let value = decode_slot_value(&entry.value).ok_or_else(|| malformed("no slot"))?;
        let slot = self.slot(account, hash)?;
        Ok(Some(Item::Slot { account, address, hash, slot, value }))
    }

    fn address(&mut self, hash: B256) -> Result<Address, MigrateError> {
        self.end_of_slots()?;
        let missing = || MigrateError::NoPreimage { account: hash, slot: None };
        let names = match &mut self.behind {
            Behind::Table(snapshot) => {
                let row = snapshot.read(Table::Preimages, hash.as_slice())?;
                let row = row.ok_or_else(missing)?;
                if self.verify && keccak256(&*row) != hash {
                    return Err(other_preimage(hash));
                }
                return Address::try_from(&row[..]).map_err(|_| missing());
            }
            Behind::List(names) => names,
        };
        while let Some((found, address)) = names.account()? {
            if found == hash {
                return Ok(address);
            }
            if found > hash {
                break;
            }
            if names.is_exact() {
                return Err(MigrateError::SurplusPreimage { address, slot: None });
            }
        }
        Err(missing())
    }

    fn slot(&mut self, account: B256, hash: B256) -> Result<B256, MigrateError> {
        let missing = || MigrateError::NoPreimage { account, slot: Some(hash) };
        let names = match &mut self.behind {
            Behind::Table(snapshot) => {
                let row = snapshot.read(Table::Preimages, hash.as_slice())?;
                let row = row.ok_or_else(missing)?;
                if self.verify && keccak256(&*row) != hash {
                    return Err(other_preimage(hash));
                }
                return B256::try_from(&row[..]).map_err(|_| missing());
            }
            Behind::List(names) => names,
        };
        while let Some((found, slot)) = names.slot()? {
            if found == hash {
                return Ok(slot);
            }
            if found > hash {
                break;
            }
            if names.is_exact() {
                let address = self.at.map(|at| at.1).unwrap_or_default();
                return Err(MigrateError::SurplusPreimage { address, slot: Some(slot) });
            }
        }
        Err(missing())
    }

    /// An account has no slots but those that were asked for.
    fn end_of_slots(&mut self) -> Result<(), MigrateError> {
        if let (Behind::List(names), Some((_, address))) = (&mut self.behind, self.at)
            && names.is_exact()
            && let Some((_, slot)) = names.slot()?
        {
            return Err(MigrateError::SurplusPreimage { address, slot: Some(slot) });
        }
        Ok(())
    }
}

/// A row of preimages holds something else.
fn other_preimage(hash: B256) -> MigrateError {
    MigrateError::Malformed { what: "a preimage of another hash", key: hash.to_vec() }
}

/// What is to become leaves.
enum Job {
    /// An account, the size of its code, and its code where that is needed.
    Account(Address, Account, u32, Option<Bytes>),
    Slot(Address, B256, Word),
}

/// Makes the leaves of all accounts of a trie.
pub(crate) struct Forward<'a, S: Embedding, N> {
    pub(crate) whole: &'a Whole<S>,
    /// Where the code is.
    pub(crate) snapshot: &'a N,
    pub(crate) codes: Codes,
    pub(crate) counts: Counts,
    jobs: Vec<Job>,
    code_bytes: usize,
}

impl<'a, S: Embedding, N: Snapshot> Forward<'a, S, N> {
    pub(crate) fn new(whole: &'a Whole<S>, snapshot: &'a N) -> Self {
        let (codes, counts) = Default::default();
        Self { whole, snapshot, codes, counts, jobs: Vec::new(), code_bytes: 0 }
    }

    /// Hands all leaves of a trie to `taker`; `goes_on` is asked now and then.
    pub(crate) fn run(
        &mut self,
        trie: &mut Trie<'_, N>,
        taker: &mut impl Taker,
        goes_on: &mut dyn FnMut(u64) -> Result<(), MigrateError>,
    ) -> Result<(), MigrateError> {
        while let Some(item) = trie.advance()? {
            taker.item(&item)?;
            match item {
                Item::Account { address, account, .. } => {
                    self.counts.accounts += 1;
                    let job = self.account(address, account, taker)?;
                    self.jobs.push(job);
                }
                Item::Slot { address, slot, value, .. } => {
                    self.counts.slots += 1;
                    self.jobs.push(Job::Slot(address, slot, value));
                }
            }
            if self.jobs.len() >= BATCH_ITEMS || self.code_bytes >= BATCH_CODE_BYTES {
                self.make(taker)?;
                goes_on(self.counts.accounts + self.counts.slots)?;
            }
        }
        self.make(taker)
    }

    fn account(
        &mut self,
        address: Address,
        account: Account,
        taker: &mut impl Taker,
    ) -> Result<Job, MigrateError> {
        let hash = account.code_hash;
        if hash == KECCAK256_EMPTY {
            return Ok(Job::Account(address, account, 0, None));
        }
        if let Some((size, uses)) = self.codes.get_mut(&hash) {
            *uses += 1;
            if Whole::<S>::SHARES_CODE {
                return Ok(Job::Account(address, account, *size, None));
            }
        }
        let row = self.snapshot.read(Table::Codes, hash.as_slice())?;
        let code = Bytes::copy_from_slice(&row.ok_or(MigrateError::NoCode { address, hash })?);
        let bad = |what| MigrateError::Code { address, hash, what };
        let size = u32::try_from(code.len()).map_err(|_| bad("it is too long".into()))?;
        if !self.codes.contains_key(&hash) {
            let found = keccak256(&code);
            if found != hash {
                return Err(bad(format!("its bytes have the hash {found}")));
            }
            taker.code(hash, &code)?;
            self.counts.codes += 1;
            // What lies in the account's own leaves is shared with nobody.
            if self.whole.delegation(&code).is_none() {
                self.codes.insert(hash, (size, 1));
            }
        }
        self.code_bytes += code.len();
        Ok(Job::Account(address, account, size, Some(code)))
    }

    /// Makes the leaves of a batch, on all cores.
    fn make(&mut self, taker: &mut impl Taker) -> Result<(), MigrateError> {
        let whole = self.whole;
        let leaves: Vec<Leaves> =
            self.jobs.par_iter().map(|job| leaves_of(whole, job)).collect::<Result<_, _>>()?;
        for (key, value) in leaves.iter().flatten() {
            taker.leaf(key, value)?;
            self.counts.leaves += 1;
        }
        self.jobs.clear();
        self.code_bytes = 0;
        Ok(())
    }
}

fn leaves_of<S: Embedding>(whole: &Whole<S>, job: &Job) -> Result<Leaves, MigrateError> {
    match job {
        Job::Slot(address, slot, value) => Ok(vec![(whole.slot_key(address, slot), *value)]),
        Job::Account(address, account, size, code) => {
            let delegation = code.as_ref().and_then(|code| whole.delegation(code));
            let mut leaves = whole.header(address, account, *size, delegation)?;
            if let Some(code) = code.as_ref().filter(|_| delegation.is_none()) {
                leaves.extend(whole.code(address, &account.code_hash, code));
            }
            Ok(leaves)
        }
    }
}

/// Keeps the preimage of an account or a slot in the order of the trie.
pub(crate) fn put_name(item: &Item, set: &mut WriteSet) {
    match item {
        Item::Account { hash, address, .. } => put_account(hash, address, set),
        Item::Slot { account, hash, slot, .. } => put_slot(account, hash, slot, set),
    }
}
