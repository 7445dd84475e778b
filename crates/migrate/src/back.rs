//! From the leaves of a tree back to accounts and slots, by their preimages.
//!
//! Preimages come in the order of the trie and leaves lie in another one. So as many of them as
//! memory holds are taken at once, their keys sorted, and looked up in the order of the tree.

use std::collections::HashMap;

use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, keccak256};
use rayon::prelude::*;
use spinney_state::Account;
use spinney_state::embed::{Embedding, Leaves, Whole, Word};
use spinney_tree::{Snapshot, Tree};

use crate::error::MigrateError;
use crate::forward::Item;
use crate::names::Names;
use crate::work::Counts;

/// Longer code is none: a foreign size is not to fill the memory.
const CODE_BYTES_MAX: u32 = 1 << 24;

/// What a preimage takes while it is looked up: its keys, their place in the order, its leaves.
const ITEM_BYTES: usize = 512;

/// Whoever takes what is read back.
pub(crate) trait Finder {
    /// An account or a slot, in the order of the trie.
    fn item(&mut self, _: &Item) -> Result<(), MigrateError> {
        Ok(())
    }

    /// Code that comes for the first time.
    fn code(&mut self, _: B256, _: &Bytes) -> Result<(), MigrateError> {
        Ok(())
    }

    /// The key of a leaf that was found.
    fn key(&mut self, _: &[u8]) -> Result<(), MigrateError> {
        Ok(())
    }
}

/// A preimage, with what is found.
struct Wanted {
    account: (B256, Address),
    /// Hash and key.
    slot: Option<(B256, B256)>,
    keys: Vec<Vec<u8>>,
    leaves: Vec<Option<Word>>,
}

/// Reads accounts back, and makes sure that each is as the tree has it.
pub(crate) struct Back<'a, S: Embedding, N> {
    pub(crate) whole: &'a Whole<S>,
    pub(crate) tree: &'a Tree<S>,
    pub(crate) snapshot: &'a N,
    /// Bytes of memory for preimages.
    pub(crate) memory: usize,
    pub(crate) counts: Counts,
    /// The size of code that was read, where accounts share it.
    sizes: HashMap<B256, u32>,
    /// The account that was found last.
    found: Option<Address>,
    /// Ends before the first account behind so many preimages.
    pub(crate) limit: Option<u64>,
    /// The account that it ended before.
    pub(crate) cut: Option<B256>,
}

impl<'a, S: Embedding, N: Snapshot> Back<'a, S, N> {
    pub(crate) fn new(
        whole: &'a Whole<S>,
        tree: &'a Tree<S>,
        snapshot: &'a N,
        memory: usize,
    ) -> Self {
        let (counts, sizes, found) = Default::default();
        let (limit, cut) = (None, None);
        Self { whole, tree, snapshot, memory, counts, sizes, found, limit, cut }
    }

    /// Hands all that is found to `finder`; `goes_on` is asked now and then.
    pub(crate) fn run(
        &mut self,
        names: &mut dyn Names,
        finder: &mut impl Finder,
        goes_on: &mut dyn FnMut(u64) -> Result<(), MigrateError>,
    ) -> Result<(), MigrateError> {
        let most = (self.memory / ITEM_BYTES).max(1);
        let mut wanted = Vec::new();
        let want = |account, slot| Wanted { account, slot, keys: Vec::new(), leaves: Vec::new() };
        let mut passed = 0;
        while let Some(account) = names.account()? {
            if self.limit.is_some_and(|limit| passed >= limit) {
                self.cut = Some(account.0);
                break;
            }
            passed += 1;
            wanted.push(want(account, None));
            loop {
                if wanted.len() >= most {
                    self.look_up(&mut wanted, goes_on)?;
                    self.hand_on(&mut wanted, names.is_exact(), finder)?;
                }
                let Some(slot) = names.slot()? else { break };
                passed += 1;
                wanted.push(want(account, Some(slot)));
            }
        }
        self.look_up(&mut wanted, goes_on)?;
        self.hand_on(&mut wanted, names.is_exact(), finder)
    }

    /// Finds the leaves of a batch, in the order of their keys.
    fn look_up(
        &self,
        wanted: &mut [Wanted],
        goes_on: &mut dyn FnMut(u64) -> Result<(), MigrateError>,
    ) -> Result<(), MigrateError> {
        let whole = self.whole;
        wanted.par_iter_mut().for_each(|wanted| {
            let address = &wanted.account.1;
            wanted.keys = match &wanted.slot {
                None => whole.account_keys(address),
                Some((_, slot)) => vec![whole.slot_key(address, slot)],
            };
            wanted.leaves = vec![None; wanted.keys.len()];
        });
        let places = (0_u32..)
            .zip(&*wanted)
            .flat_map(|(item, wanted)| (0..wanted.keys.len() as u8).map(move |part| (item, part)));
        let mut places: Vec<(u32, u8)> = places.collect();
        let key = |(item, part): (u32, u8)| &wanted[item as usize].keys[usize::from(part)];
        places.par_sort_unstable_by(|a, b| key(*a).cmp(key(*b)));
        let done = self.counts.accounts + self.counts.slots;
        for (at, place) in (0_u64..).zip(places) {
            let (item, part) = (place.0 as usize, usize::from(place.1));
            let leaf = self.get(&wanted[item].keys[part])?;
            wanted[item].leaves[part] = leaf;
            if at.is_multiple_of(8_192) {
                goes_on(done + at / 2)?;
            }
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Word>, MigrateError> {
        let Some(value) = self.tree.get(self.snapshot, None, key)? else { return Ok(None) };
        word(key, &value).map(Some)
    }

    fn hand_on(
        &mut self,
        wanted: &mut Vec<Wanted>,
        is_exact: bool,
        finder: &mut impl Finder,
    ) -> Result<(), MigrateError> {
        for wanted in wanted.drain(..) {
            let (account, address) = wanted.account;
            for (key, _) in wanted.keys.iter().zip(&wanted.leaves).filter(|(_, l)| l.is_some()) {
                self.counts.leaves += 1;
                finder.key(key)?;
            }
            let item = match wanted.slot {
                None => {
                    self.found = None;
                    let read = self.account(address, &wanted, finder)?;
                    self.found = read.map(|_| address);
                    read.map(|read| Item::Account { hash: account, address, account: read })
                }
                Some((hash, slot)) => {
                    let value = wanted.leaves.first().copied().flatten();
                    let odd = |what| MigrateError::Leaves { address, slot: Some(slot), what };
                    match value {
                        Some(_) if self.found.is_none() => {
                            return Err(odd("its account is not there"));
                        }
                        Some(value) if value == [0; 32] => return Err(odd("its leaf is zero")),
                        value => {
                            value.map(|value| Item::Slot { account, address, hash, slot, value })
                        }
                    }
                }
            };
            match &item {
                Some(Item::Account { .. }) => self.counts.accounts += 1,
                Some(Item::Slot { .. }) => self.counts.slots += 1,
                None if is_exact => {
                    let slot = wanted.slot.map(|slot| slot.1);
                    return Err(MigrateError::SurplusPreimage { address, slot });
                }
                None => {}
            }
            if let Some(item) = item {
                finder.item(&item)?;
            }
        }
        Ok(())
    }

    /// The account that leaves are, if they are one; its leaves and its code's have to be just what
    /// they would be made to.
    fn account(
        &mut self,
        address: Address,
        wanted: &Wanted,
        finder: &mut impl Finder,
    ) -> Result<Option<Account>, MigrateError> {
        let scheme = self.whole.scheme();
        let Some((account, size)) = scheme.read_account(&address, &wanted.leaves)? else {
            return Ok(None);
        };
        let delegation = self.whole.delegation_of(&wanted.leaves);
        let code = delegation.as_ref().map(|code| &code[..]);
        let made = self.whole.header(&address, &account, size, code)?;
        let found = wanted.keys.iter().zip(&wanted.leaves);
        let found: Leaves = found.filter_map(|(key, leaf)| Some((key.clone(), (*leaf)?))).collect();
        if made != found {
            let what = "its leaves are not those of such an account";
            return Err(MigrateError::Leaves { address, slot: None, what });
        }
        let hash = account.code_hash;
        if hash == KECCAK256_EMPTY {
            return if size == 0 { Ok(Some(account)) } else { Err(bad_size(address, hash, size)) };
        }
        match (delegation, self.sizes.get(&hash)) {
            (Some(code), _) => {
                if code.len() != size as usize {
                    return Err(bad_size(address, hash, size));
                }
                self.counts.codes += 1;
                finder.code(hash, &code)?;
            }
            (None, Some(known)) if Whole::<S>::SHARES_CODE => {
                if *known != size {
                    return Err(bad_size(address, hash, size));
                }
            }
            (None, known) => {
                let is_new = known.is_none();
                let code = self.code(address, hash, size, finder)?;
                if is_new {
                    self.sizes.insert(hash, size);
                    self.counts.codes += 1;
                    finder.code(hash, &code)?;
                }
            }
        }
        Ok(Some(account))
    }

    /// Code put together from its chunks, which have to be those of the code.
    pub(crate) fn code(
        &mut self,
        address: Address,
        hash: B256,
        size: u32,
        finder: &mut impl Finder,
    ) -> Result<Bytes, MigrateError> {
        if size > CODE_BYTES_MAX {
            return Err(bad_size(address, hash, size));
        }
        let chunks = size.div_ceil(31) as usize;
        let (mut code, mut found) = (Vec::new(), Leaves::new());
        for key in self.whole.chunk_keys(&address, &hash).take(chunks) {
            let leaf = self.get(&key)?;
            code.extend_from_slice(&leaf.unwrap_or_default()[1..]);
            if let Some(leaf) = leaf {
                finder.key(&key)?;
                found.push((key, leaf));
            }
        }
        code.truncate(size as usize);
        let bad = |what| MigrateError::Code { address, hash, what };
        let got = keccak256(&code);
        if got != hash {
            return Err(bad(format!("{size} bytes of its chunks have the hash {got}")));
        }
        if self.whole.code(&address, &hash, &code) != found {
            return Err(bad("its leaves are not the chunks of that code".into()));
        }
        self.counts.leaves += found.len() as u64;
        Ok(code.into())
    }
}

fn bad_size(address: Address, hash: B256, size: u32) -> MigrateError {
    let what = format!("the account says that it has {size} bytes");
    MigrateError::Code { address, hash, what }
}

/// The value of a leaf of a tree that is not the Merkle Patricia trie.
pub(crate) fn word(key: &[u8], value: &[u8]) -> Result<Word, MigrateError> {
    let malformed = |_| MigrateError::Malformed { what: "no word", key: key.to_vec() };
    Word::try_from(value).map_err(malformed)
}
