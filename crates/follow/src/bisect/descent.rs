//! From two roots down to the accounts and slots that differ.
//!
//! Invariants:
//! - a node of a trie is taken for what it is by its digest: the digests that lead to it begin with
//!   the root of the side;
//! - what is the same on both sides is not asked for.

use std::collections::HashMap;

use alloy_primitives::{Address, B256, U256, keccak256};
use spinney_proof::mpt::differences::{Difference, Differences, SideError, Which};
use spinney_proof::mpt::partial::{MissingNode, NodeSource, PartialError};
use spinney_proof::mpt::{AccountFields, EMPTY_CODE_HASH, EMPTY_ROOT, decode_slot_value};

use super::budget::Budget;
use super::error::BisectError;
use super::found::{AccountDifference, AccountSeen, SlotDifference};
use super::names::Names;
use super::path::{digits, text};
use super::search::bytes_under;
use super::side::{Nodes, Owner, SideState};

/// So many places that cannot be looked into are told.
const HIDDEN_MAX: usize = 16;

/// Nodes of tries of both sides, by their digests.
#[derive(Debug, Default)]
struct Pool(HashMap<[u8; 32], Vec<u8>>);

impl NodeSource for &Pool {
    type Rlp = Vec<u8>;

    fn node(&self, digest: &[u8; 32], _: &[u8]) -> Option<Vec<u8>> {
        self.0.get(digest).cloned()
    }
}

/// Two states that are compared.
pub(super) struct Descent<'a> {
    pub(super) sides: [Box<dyn SideState + 'a>; 2],
    pub(super) names: Names,
    pub(super) budget: &'a Budget,
    /// So many accounts, and so many slots of each, are told.
    pub(super) limit: usize,
    pool: Pool,
}

/// What was found: of accounts, or of slots.
pub(super) struct Found<T> {
    pub(super) differences: Vec<T>,
    pub(super) is_all: bool,
    pub(super) hidden: Vec<String>,
}

/// A step of a comparison.
enum Step {
    Key(Difference),
    Hidden(Vec<u8>),
}

impl<'a> Descent<'a> {
    pub(super) fn new(
        sides: [Box<dyn SideState + 'a>; 2],
        names: Names,
        (budget, limit): (&'a Budget, usize),
    ) -> Self {
        Self { sides, names, budget, limit, pool: Pool::default() }
    }

    /// Accounts that differ below two roots.
    pub(super) fn accounts(
        &mut self,
        [left, right]: [B256; 2],
    ) -> Result<Found<AccountDifference>, BisectError> {
        for side in &self.sides {
            side.name_touched(&mut self.names)?;
        }
        self.all((left.0, right.0), None, Self::account)
    }

    fn account(&mut self, found: Difference) -> Result<AccountDifference, BisectError> {
        let key = B256::from(found.key);
        let address = self.address(&digits(key))?;
        let owner = Owner { key, address };
        let mut left = self.read_account(Which::Left, &key, found.left.as_deref())?;
        let mut right = self.read_account(Which::Right, &key, found.right.as_deref())?;
        let code_hash = |seen: &Option<AccountSeen>| {
            seen.as_ref().map_or(EMPTY_CODE_HASH.into(), |seen| seen.code_hash)
        };
        if code_hash(&left) != code_hash(&right) {
            for (seen, side) in [&mut left, &mut right].into_iter().zip(&self.sides) {
                if let Some(seen) = seen {
                    seen.code_len = side.code_len(&owner, seen.code_hash)?;
                }
            }
        }
        let root =
            |seen: &Option<AccountSeen>| seen.as_ref().map_or(EMPTY_ROOT, |s| s.storage_root.0);
        let slot = |descent: &mut Self, found| descent.slot(&owner, found);
        let slots = self.all((root(&left), root(&right)), Some(&owner), slot)?;
        let Found { differences: slots, is_all: has_all_slots, hidden: hidden_slots } = slots;
        Ok(AccountDifference { key, address, left, right, slots, has_all_slots, hidden_slots })
    }

    fn read_account(
        &self,
        side: Which,
        key: &B256,
        leaf: Option<&[u8]>,
    ) -> Result<Option<AccountSeen>, BisectError> {
        let Some(leaf) = leaf else { return Ok(None) };
        let malformed = || self.malformed(side, key, "account");
        let fields = AccountFields::of_leaf(leaf).ok_or_else(malformed)?;
        Ok(Some(AccountSeen {
            nonce: fields.nonce,
            balance: U256::from_be_bytes(fields.balance),
            code_hash: fields.code_hash.into(),
            code_len: None,
            storage_root: fields.storage_hash.into(),
        }))
    }

    fn slot(&mut self, owner: &Owner, found: Difference) -> Result<SlotDifference, BisectError> {
        let key = B256::from(found.key);
        let slot = self.slot_name(owner, &digits(key))?;
        let read = |side, leaf: Option<Vec<u8>>| match leaf {
            None => Ok(U256::ZERO),
            Some(leaf) => match decode_slot_value(&leaf) {
                Some(value) => Ok(U256::from_be_bytes(value)),
                None => Err(self.malformed(side, &key, "slot")),
            },
        };
        let (left, right) = (read(Which::Left, found.left)?, read(Which::Right, found.right)?);
        Ok(SlotDifference { key, slot, left, right })
    }

    fn malformed(&self, side: Which, key: &B256, what: &'static str) -> BisectError {
        BisectError::Leaf { side: self.side(side).name(), key: *key, what }
    }

    fn side(&self, which: Which) -> &dyn SideState {
        let [left, right] = &self.sides;
        match which {
            Which::Left => &**left,
            Which::Right => &**right,
        }
    }

    /// What differs below two roots: of accounts, or of the slots of one.
    fn all<T>(
        &mut self,
        (left, right): ([u8; 32], [u8; 32]),
        owner: Option<&Owner>,
        mut read: impl FnMut(&mut Self, Difference) -> Result<T, BisectError>,
    ) -> Result<Found<T>, BisectError> {
        let mut walk = Differences::between(left, right);
        let (mut differences, mut hidden) = (Vec::new(), Vec::new());
        while differences.len() < self.limit && hidden.len() < HIDDEN_MAX {
            match self.step(&mut walk, owner)? {
                None => return Ok(Found { differences, is_all: hidden.is_empty(), hidden }),
                Some(Step::Key(found)) => differences.push(read(self, found)?),
                Some(Step::Hidden(path)) => hidden.push(text(&path)),
            }
        }
        Ok(Found { differences, is_all: false, hidden })
    }

    fn step(
        &mut self,
        walk: &mut Differences,
        owner: Option<&Owner>,
    ) -> Result<Option<Step>, BisectError> {
        loop {
            let (side, missing) = match walk.advance(&&self.pool, &&self.pool) {
                Ok(found) => return Ok(found.map(Step::Key)),
                Err(SideError { side, error: PartialError::Missing(missing) }) => (side, missing),
                Err(SideError { side, error }) => {
                    return Err(BisectError::Trie { side: self.side(side).name(), error });
                }
            };
            if !self.fetch(side, owner, &missing)? {
                return Ok(walk.pass_over().map(Step::Hidden));
            }
        }
    }

    /// Asks for a node. The answer is no where there is no name to ask by.
    fn fetch(
        &mut self,
        side: Which,
        owner: Option<&Owner>,
        missing: &MissingNode,
    ) -> Result<bool, BisectError> {
        let by_name = self.side(side).is_asked_by_name();
        let path = &missing.path;
        let nodes: Nodes = match owner {
            None => {
                let name = if by_name { self.address(path)? } else { None };
                self.side(side).account_nodes(path, name)?
            }
            Some(owner) => {
                let can_name = by_name && owner.address.is_some();
                let name = if can_name { self.slot_name(owner, path)? } else { None };
                self.side(side).slot_nodes(owner, path, name)?
            }
        };
        if by_name && nodes.is_empty() {
            return Ok(false);
        }
        self.pool.0.extend(nodes.into_iter().map(|node| (keccak256(&node).0, node)));
        if self.pool.0.contains_key(&missing.digest) {
            return Ok(true);
        }
        // A proof that holds has it, and so has a sound store.
        let error = PartialError::Missing(missing.clone());
        Err(BisectError::Trie { side: self.side(side).name(), error })
    }

    /// An address whose hash begins with these digits.
    fn address(&mut self, path: &[u8]) -> Result<Option<Address>, BisectError> {
        for by_name in [false, true] {
            if let Some(known) = self.names.account(path) {
                return Ok(Some(known));
            }
            for side in self.sides.iter().filter(|side| side.is_asked_by_name() == by_name) {
                side.name_accounts(path, &mut self.names)?;
            }
        }
        if let Some(known) = self.names.account(path) {
            return Ok(Some(known));
        }
        let made = bytes_under(path, self.budget).map(Address::from);
        made.into_iter().for_each(|address| self.names.add_account(address));
        Ok(made)
    }

    /// A slot whose hash begins with these digits.
    fn slot_name(&mut self, owner: &Owner, path: &[u8]) -> Result<Option<B256>, BisectError> {
        for by_name in [false, true] {
            if let Some(known) = self.names.slot(path) {
                return Ok(Some(known));
            }
            for side in self.sides.iter().filter(|side| side.is_asked_by_name() == by_name) {
                side.name_slots(owner, path, &mut self.names)?;
            }
        }
        if let Some(known) = self.names.slot(path) {
            return Ok(Some(known));
        }
        let made = bytes_under(path, self.budget).map(B256::from);
        made.into_iter().for_each(|slot| self.names.add_slot(slot));
        Ok(made)
    }
}
