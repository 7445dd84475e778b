//! What an event does in a partitioned binary tree, and what all trees have in common.

use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256};
use spinney_proof::embed::Odd;
use spinney_tree::pbt::Pbt;
use spinney_tree::{PageStore, TreeId};

use super::account::narrow;
use super::embedding::sealed::Rules;
use super::embedding::{Embedding, Leaves, PBT, Plan, View};
use super::error::EmbedError;
use super::{BasicData, Word, chunkify, pbt};
use crate::{Account, AccountChange, Change};

pub(super) const ZEROS: Word = [0; 32];

impl Embedding for Pbt {
    const TREE: TreeId = PBT;

    fn read_account(
        &self,
        address: &Address,
        leaves: &[Option<Word>],
    ) -> Result<Option<(Account, u32)>, EmbedError> {
        let malformed = || EmbedError::malformed(&self.account_keys(address)[0]);
        let header = Header::of(leaves).map_err(|Odd| malformed())?;
        Ok(header.map(|header| (header.account, header.code_size)))
    }
}

impl Rules for Pbt {
    type Memo = ();

    const SHARES_CODE: bool = true;

    const KEEPS_SLOTS: bool = false;

    fn holds_slots<P: PageStore>(
        &self,
        view: &View<'_, Self, P>,
        address: &Address,
    ) -> Result<bool, EmbedError> {
        let header = pbt::header_prefix(self.hash, address);
        let in_header =
            |key: &[u8]| key.last().is_some_and(|place| (pbt::HEADER_STORAGE..128).contains(place));
        Ok(view.has_value(&header, in_header)?
            || view.has_value(&pbt::storage_prefix(self.hash, address), |_| true)?)
    }

    fn has_leaf(value: &Word) -> bool {
        *value != ZEROS
    }

    fn header_by(
        &self,
        _: &(),
        address: &Address,
        account: &Account,
        code_size: u32,
        delegation: Option<&[u8]>,
    ) -> Result<Leaves, EmbedError> {
        let delegation = delegation.and_then(pbt::delegation);
        let header = Header { account: *account, code_size, delegation };
        let leaves = header.leaves(self, address)?.into_iter();
        Ok(leaves.filter(|(_, value)| Self::has_leaf(value)).collect())
    }

    fn delegates(&self, code: &[u8]) -> bool {
        pbt::delegation(code).is_some()
    }

    fn delegation_of(&self, leaves: &[Option<Word>]) -> Option<Bytes> {
        let leaf = leaves.get(usize::from(pbt::DELEGATION)).copied().flatten()?;
        Some(Bytes::copy_from_slice(&leaf[..23]))
    }

    fn account_keys_by(&self, _: &(), address: &Address) -> Vec<Vec<u8>> {
        let key = |place| pbt::header_key(self.hash, address, place).to_vec();
        [pbt::BASIC_DATA, pbt::CODE_HASH, pbt::DELEGATION].map(key).into()
    }

    fn slot_key_by(&self, _: &(), address: &Address, slot: &B256) -> Vec<u8> {
        pbt::slot_key(self.hash, address, slot)
    }

    fn chunk_key_by(&self, _: &(), _: &Address, code_hash: &B256, chunk: u32) -> Vec<u8> {
        pbt::chunk_key(self.hash, code_hash, chunk).to_vec()
    }

    fn plan<P: PageStore>(
        plan: &mut Plan<'_, Self, P>,
        address: Address,
        change: &Change,
    ) -> Result<(), EmbedError> {
        let old = Header::read(plan.scheme, &plan.view, &address)?;
        let fresh =
            matches!(change, Change::Deleted | Change::Written(AccountChange { fresh: true, .. }));
        if fresh {
            plan.delete_prefix(&pbt::header_prefix(plan.scheme.hash, &address));
            plan.delete_prefix(&pbt::storage_prefix(plan.scheme.hash, &address));
        }
        let base = old.filter(|_| !fresh);
        let Change::Written(change) = change else {
            count(plan, old.and_then(Header::shared), None);
            return Ok(());
        };
        let new = changed(base.map(|base| base.account), change);
        let header = match base {
            Some(base) if base.account.code_hash == new.code_hash => {
                Header { account: new, ..base }
            }
            _ => {
                let code = plan.code(address, new.code_hash, change.code.as_ref())?;
                let code_size = code_size(address, &code)?;
                Header { account: new, code_size, delegation: pbt::delegation(&code) }
            }
        };
        if base != Some(header) {
            header.write(plan, &address)?;
        }
        count(plan, old.and_then(Header::shared), header.shared());
        for (slot, value) in &change.storage {
            put(plan, &pbt::slot_key(plan.scheme.hash, &address, slot), &value.to_be_bytes());
        }
        Ok(())
    }

    fn finish<P: PageStore>(plan: &mut Plan<'_, Self, P>) -> Result<(), EmbedError> {
        for (hash, more) in std::mem::take(&mut plan.more_uses) {
            let before = plan.view.uses(&hash)?;
            // A count below zero would be a damaged store's.
            let after = before
                .checked_add_signed(more)
                .ok_or_else(|| EmbedError::malformed(hash.as_slice()))?;
            if before == after {
                continue;
            }
            plan.metadata.uses.insert(hash, after);
            if before > 0 && after > 0 {
                continue;
            }
            let code = plan.code(Address::ZERO, hash, None)?;
            for (index, chunk) in (0..).zip(chunkify(&code)) {
                let key = pbt::chunk_key(plan.scheme.hash, &hash, index);
                if after > 0 {
                    put(plan, &key, &chunk);
                } else {
                    plan.delete(&key);
                }
            }
        }
        Ok(())
    }
}

/// What the header of an account in a PBT says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    account: Account,
    code_size: u32,
    delegation: Option<Word>,
}

impl Header {
    fn read<P: PageStore>(
        scheme: &Pbt,
        view: &View<'_, Pbt, P>,
        address: &Address,
    ) -> Result<Option<Self>, EmbedError> {
        let keys = scheme.account_keys(address);
        let leaves: Result<Vec<_>, _> = keys.iter().map(|key| view.get(key)).collect();
        Self::of(&leaves?).map_err(|Odd| EmbedError::malformed(&keys[0]))
    }

    fn of(leaves: &[Option<Word>]) -> Result<Option<Self>, Odd> {
        Ok(pbt::read_header(leaves)?.map(|header| Self {
            account: account(header.data, header.code_hash.into()),
            code_size: header.data.code_size,
            delegation: header.delegation,
        }))
    }

    fn write<P: PageStore>(
        &self,
        plan: &mut Plan<'_, Pbt, P>,
        address: &Address,
    ) -> Result<(), EmbedError> {
        for (key, leaf) in self.leaves(plan.scheme, address)? {
            put(plan, &key, &leaf);
        }
        Ok(())
    }

    /// What its places hold; zeros stand for nothing.
    fn leaves(&self, scheme: &Pbt, address: &Address) -> Result<[(Vec<u8>, Word); 3], EmbedError> {
        let balance = balance(*address, &self.account)?;
        let data = BasicData { code_size: self.code_size, nonce: self.account.nonce, balance };
        let code_hash = if self.delegation.is_some() { ZEROS } else { self.account.code_hash.0 };
        let places = [
            (pbt::BASIC_DATA, data.encode()),
            (pbt::CODE_HASH, code_hash),
            (pbt::DELEGATION, self.delegation.unwrap_or_default()),
        ];
        let key = |place| pbt::header_key(scheme.hash, address, place).to_vec();
        Ok(places.map(|(place, leaf)| (key(place), leaf)))
    }

    /// The code that lies in the zone of code, if it has any there.
    fn shared(self) -> Option<B256> {
        let code_hash = self.account.code_hash;
        (self.delegation.is_none() && code_hash != KECCAK256_EMPTY).then_some(code_hash)
    }
}

/// Zeros are absent.
fn put<P: PageStore>(plan: &mut Plan<'_, Pbt, P>, key: &[u8], leaf: &Word) {
    if *leaf == ZEROS {
        plan.delete(key);
    } else {
        plan.put(key, leaf);
    }
}

/// An account uses other code than before.
fn count<P: PageStore>(plan: &mut Plan<'_, Pbt, P>, before: Option<B256>, after: Option<B256>) {
    if before != after {
        before.into_iter().for_each(|hash| *plan.more_uses.entry(hash).or_default() -= 1);
        after.into_iter().for_each(|hash| *plan.more_uses.entry(hash).or_default() += 1);
    }
}

pub(super) fn account(data: BasicData, code_hash: B256) -> Account {
    Account { nonce: data.nonce, balance: U256::from(data.balance), code_hash }
}

/// The account after a change of its fields.
pub(super) fn changed(base: Option<Account>, change: &AccountChange) -> Account {
    let base = base.unwrap_or_default();
    Account {
        nonce: change.nonce.unwrap_or(base.nonce),
        balance: change.balance.unwrap_or(base.balance),
        code_hash: change.code_hash.unwrap_or(base.code_hash),
    }
}

pub(super) fn balance(address: Address, account: &Account) -> Result<u128, EmbedError> {
    let balance = account.balance;
    narrow(balance).ok_or(EmbedError::Balance { address, balance })
}

pub(super) fn code_size(address: Address, code: &Bytes) -> Result<u32, EmbedError> {
    let len = code.len();
    len.try_into().map_err(|_| EmbedError::CodeSize { address, len })
}
