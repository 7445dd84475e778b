//! The leaves of a state by the EIPs, and nothing of the engine.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
use spinney_ipa::{Crs, Fr};
use spinney_state::{Account, Change, Changes};
use spinney_tree::{HashFunction, pbt, ubt};

type Word = [u8; 32];

/// Accounts as any tree sees them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts(pub(crate) BTreeMap<Address, Held>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    pub(crate) account: Account,
    pub(crate) code: Bytes,
    pub(crate) storage: BTreeMap<B256, U256>,
}

impl Accounts {
    pub(crate) fn apply(&mut self, changes: &Changes) {
        for (address, change) in &changes.accounts {
            let Change::Written(change) = change else {
                self.0.remove(address);
                continue;
            };
            if change.fresh {
                self.0.remove(address);
            }
            let held = self.0.entry(*address).or_default();
            held.account.nonce = change.nonce.unwrap_or(held.account.nonce);
            held.account.balance = change.balance.unwrap_or(held.account.balance);
            if let Some(code) = &change.code {
                held.account.code_hash = keccak256(code);
                held.code = code.clone();
            }
            for (slot, value) in &change.storage {
                held.storage.insert(*slot, *value);
            }
            held.storage.retain(|_, value| !value.is_zero());
        }
    }
}

fn basic_data(held: &Held) -> Word {
    let mut leaf = [0; 32];
    leaf[4..8].copy_from_slice(&(held.code.len() as u32).to_be_bytes());
    leaf[8..16].copy_from_slice(&held.account.nonce.to_be_bytes());
    leaf[16..].copy_from_slice(&held.account.balance.to::<u128>().to_be_bytes());
    leaf
}

/// Chunks, by running over the code byte by byte as the EIPs do.
fn chunks(code: &[u8]) -> Vec<Word> {
    let mut padded = code.to_vec();
    padded.resize(code.len().div_ceil(31) * 31 + 32, 0);
    let mut data_left = vec![0u8; padded.len() + 33];
    let mut at = 0;
    while at < code.len() {
        let pushed =
            if (0x60..0x80).contains(&code[at]) { usize::from(code[at]) - 0x5f } else { 0 };
        at += 1;
        for index in 0..pushed {
            data_left[at + index] = (pushed - index) as u8;
        }
        at += pushed;
    }
    let chunk = |start: usize| {
        let mut chunk = [0; 32];
        chunk[0] = data_left[start].min(31);
        chunk[1..].copy_from_slice(&padded[start..start + 31]);
        chunk
    };
    (0..code.len()).step_by(31).map(chunk).collect()
}

/// `value` with its low byte cut off, big-endian.
fn shifted(value: U256) -> Word {
    (value >> 8usize).to_be_bytes()
}

/// The leaves of a PBT.
#[derive(Debug, Default)]
pub(crate) struct Pbt(pub(crate) Accounts);

impl Pbt {
    pub(crate) fn of(changes: &Changes) -> Self {
        let mut accounts = Accounts::default();
        accounts.apply(changes);
        Self(accounts)
    }

    pub(crate) fn root(&self, hash: HashFunction) -> B256 {
        pbt::reference::root(hash, &self.leaves(hash)).into()
    }

    pub(crate) fn leaves(&self, hash: HashFunction) -> pbt::reference::PbtEntries {
        let mut leaves = pbt::reference::PbtEntries::new();
        for (address, held) in &self.0.0 {
            let address = address.into_word();
            let digest = hash.hash(&address[..]);
            let header = |place: u8| [&[0x00][..], &digest, &[place]].concat();
            leaves.insert(header(0), basic_data(held));
            if held.code.len() == 23 && held.code[..3] == [0xef, 0x01, 0x00] {
                let mut leaf = [0; 32];
                leaf[..23].copy_from_slice(&held.code);
                leaves.insert(header(2), leaf);
            } else {
                leaves.insert(header(1), held.account.code_hash.0);
                for (index, chunk) in chunks(&held.code).into_iter().enumerate() {
                    let group = shifted(U256::from(index));
                    let digest = hash.hash(&[held.account.code_hash.0, group].concat());
                    leaves.insert([&[0x01][..], &digest, &[index as u8]].concat(), chunk);
                }
            }
            for (slot, value) in &held.storage {
                let number = U256::from_be_bytes(slot.0);
                let key = if number < U256::from(64) {
                    header(64 + slot[31])
                } else {
                    let group = hash.hash(&[address.0, shifted(number)].concat());
                    [&[0xff][..], &digest, &group, &slot[31..]].concat()
                };
                leaves.insert(key, value.to_be_bytes());
            }
        }
        leaves.retain(|_, leaf| *leaf != [0; 32]);
        leaves
    }
}

/// The hash behind a stem, of a 32-byte address and a tree index.
pub(crate) type StemHash<'a> = &'a dyn Fn(&Word, U256) -> Word;

/// EIP-7864's.
pub(crate) fn ubt_stem(hash: HashFunction) -> impl Fn(&Word, U256) -> Word {
    move |address, index| hash.hash(&[*address, index.to_be_bytes()].concat())
}

/// EIP-6800's: seven numbers, committed to.
pub(crate) fn verkle_stem(crs: &Crs) -> impl Fn(&Word, U256) -> Word {
    |address, index| {
        let mut vector = vec![Fr::from(2 + 256 * 64)];
        for word in [*address, index.to_le_bytes()] {
            for half in word.chunks(16) {
                let mut wide = [0; 32];
                wide[..16].copy_from_slice(half);
                vector.push(Fr::from_le_bytes(&wide).unwrap());
            }
        }
        crs.commit(&vector).map_to_field().to_le_bytes()
    }
}

/// The leaves of a UBT or of a Verkle tree, which depend on what was there before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ubt {
    accounts: Accounts,
    pub(crate) leaves: ubt::reference::UbtEntries,
    /// The keys of each account's slots.
    slots: BTreeMap<Address, BTreeSet<Word>>,
}

impl Ubt {
    pub(crate) fn apply(&mut self, stem_hash: StemHash<'_>, changes: &Changes) {
        let before = std::mem::take(&mut self.accounts);
        self.accounts = before.clone();
        self.accounts.apply(changes);
        for (address, change) in &changes.accounts {
            // 256^31 more may take 257 bits.
            let key = |position: U256, main: bool| -> Word {
                let index =
                    (position >> 8usize) + if main { U256::from(1) << 240 } else { U256::ZERO };
                let mut key = stem_hash(&address.into_word().0, index);
                key[31] = position.byte(0);
                key
            };
            let (data, code_hash) = (key(U256::ZERO, false), key(U256::from(1), false));
            let Change::Written(change) = change else {
                if before.0.contains_key(address) {
                    self.leaves.insert(data, [0; 32]);
                    self.leaves.insert(code_hash, [0; 32]);
                }
                continue;
            };
            let slots = self.slots.entry(*address).or_default();
            if change.fresh {
                for slot in &*slots {
                    self.leaves.insert(*slot, [0; 32]);
                }
            }
            let held = &self.accounts.0[address];
            self.leaves.insert(data, basic_data(held));
            self.leaves.insert(code_hash, held.account.code_hash.0);
            for (index, chunk) in chunks(&held.code).into_iter().enumerate() {
                self.leaves.insert(key(U256::from(128 + index), false), chunk);
            }
            for (slot, value) in &change.storage {
                let number = U256::from_be_bytes(slot.0);
                let key = if number < U256::from(64) {
                    key(number + U256::from(64), false)
                } else {
                    key(number, true)
                };
                if !value.is_zero() || self.leaves.contains_key(&key) {
                    self.leaves.insert(key, value.to_be_bytes());
                    slots.insert(key);
                }
            }
        }
    }

    pub(crate) fn root(&self, hash: HashFunction) -> B256 {
        ubt::reference::root(hash, &self.leaves).into()
    }
}

/// How many accounts have each code that is shared.
pub(crate) fn code_uses(accounts: &Accounts) -> BTreeMap<B256, u64> {
    let mut uses = BTreeMap::new();
    for held in accounts.0.values() {
        let delegates = held.code.len() == 23 && held.code[..3] == [0xef, 0x01, 0x00];
        if held.account.code_hash != KECCAK256_EMPTY && !delegates {
            *uses.entry(held.account.code_hash).or_default() += 1;
        }
    }
    uses
}
