//! The embedding of EIP-6800.
//!
//! An account is the same sequence of positions as in [`ubt`]: only the hash of a stem
//! is another, a commitment, and leaves never go either. A stem is the first 31 bytes of `pedersen(32-byte
//! address | position / 256, 32 bytes little-endian)`.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use alloy_primitives::{Address, B256, U256};
use spinney_ipa::{Crs, Delta, Element, Fr, SignedScalar};

use super::{Word, padded, ubt};

/// What [`pedersen`] takes at most, in bytes.
pub const PEDERSEN_BYTES_MAX: usize = 255 * 16;

/// The hash of EIP-6800: the length and up to 255 parts of 16 bytes, committed to and mapped to a scalar.
/// `None` of more than [`PEDERSEN_BYTES_MAX`] bytes.
///
/// ```
/// use spinney_ipa::Crs;
/// use spinney_state::embed::verkle::pedersen;
///
/// let hash = pedersen(&Crs::new(), &[0; 64]).unwrap();
/// assert_eq!(hash[..4], [0x1a, 0x10, 0x06, 0x84]);
/// ```
pub fn pedersen(crs: &Crs, bytes: &[u8]) -> Option<Word> {
    if bytes.len() > PEDERSEN_BYTES_MAX {
        return None;
    }
    let mut vector = vec![Fr::from(2 + 256 * bytes.len() as u64)];
    for part in bytes.chunks(16) {
        let mut wide = [0; 32];
        wide[..part.len()].copy_from_slice(part);
        vector.push(Fr::from_le_bytes_reduced(&wide));
    }
    Some(crs.commit(&vector).map_to_field().to_le_bytes())
}

/// The part of an account's keys that its address fixes: each stem of it is two products more.
///
/// ```
/// use alloy_primitives::{Address, B256};
/// use spinney_ipa::Crs;
/// use spinney_state::embed::ubt::{BASIC_DATA, key, slot_position};
/// use spinney_state::embed::verkle::AccountKeys;
///
/// let crs = Crs::new();
/// let account = AccountKeys::new(&crs, &Address::ZERO);
/// let header = account.stem(&crs, &[0; 32]);
/// assert_eq!(key(header, BASIC_DATA)[..4], [0x1a, 0x10, 0x06, 0x84]);
/// // Where slots and code lie is as in the unified binary tree.
/// let (index, place) = slot_position(&B256::with_last_byte(64));
/// assert_ne!(account.stem(&crs, &index), header);
/// assert_eq!(place, 64);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AccountKeys {
    address: Element,
}

impl AccountKeys {
    /// The keys of an account.
    pub fn new(crs: &Crs, address: &Address) -> Self {
        Self::of_word(crs, &padded(address))
    }

    /// The keys of an address of 32 bytes.
    pub fn of_word(crs: &Crs, address: &Word) -> Self {
        let [low, high] = halves(address);
        let length = [2 + 256 * 64, 0, 0, 0];
        Self { address: sum(crs, Element::IDENTITY, [(0, length), (1, low), (2, high)]) }
    }

    /// The stem of `tree_index`, positions divided by 256, in 32 bytes big-endian.
    pub fn stem(&self, crs: &Crs, tree_index: &Word) -> [u8; 31] {
        let mut index = *tree_index;
        index.reverse();
        let [low, high] = halves(&index);
        let hash = sum(crs, self.address, [(3, low), (4, high)]).map_to_field().to_le_bytes();
        hash[..31].try_into().expect("31 of 32 bytes")
    }
}

/// The limbs of the two parts of 16 bytes.
fn halves(word: &Word) -> [[u64; 4]; 2] {
    let mut halves = [[0; 4]; 2];
    for (index, bytes) in word.chunks_exact(8).enumerate() {
        let limb = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        halves[index / 2][index % 2] = limb;
    }
    halves
}

fn sum<const N: usize>(crs: &Crs, start: Element, terms: [(u8, [u64; 4]); N]) -> Element {
    let mut sum = [start];
    let delta =
        |(basis, new)| Delta { target: 0, basis, amount: SignedScalar::between([0; 4], new) };
    crs.add_deltas(&mut sum, &terms.map(delta));
    sum[0]
}

/// How many accounts are remembered.
const KNOWN_MAX: usize = 1 << 16;

/// Keys of accounts that were asked for before.
#[derive(Debug, Default)]
pub struct KnownKeys(Mutex<HashMap<Address, (AccountKeys, [u8; 31])>>);

impl KnownKeys {
    /// A stem of an account.
    pub(super) fn stem(&self, crs: &Crs, address: &Address, tree_index: &Word) -> [u8; 31] {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX && !known.contains_key(address) {
            known.clear();
        }
        let (keys, header) = *known.entry(*address).or_insert_with(|| {
            let keys = AccountKeys::new(crs, address);
            (keys, keys.stem(crs, &[0; 32]))
        });
        drop(known);
        if *tree_index == [0; 32] { header } else { keys.stem(crs, tree_index) }
    }
}

/// The header of an account as the first test networks had it, in leaves of its stem with numbers
/// little-endian: version, balance, nonce, code hash and, of accounts with code, code size. Only to read
/// what they left.
///
/// ```
/// use alloy_primitives::{KECCAK256_EMPTY, U256};
/// use spinney_state::embed::verkle::legacy_header;
///
/// let leaves: Vec<_> = legacy_header(U256::from(258), 7, KECCAK256_EMPTY, 0).collect();
/// assert_eq!(leaves.len(), 4);
/// assert_eq!((leaves[1].0, &leaves[1].1[..3]), (1, &[2, 1, 0][..]));
/// ```
pub fn legacy_header(
    balance: U256,
    nonce: u64,
    code_hash: B256,
    code_size: u64,
) -> impl Iterator<Item = (u8, Word)> {
    let [balance, nonce, code_leaf] =
        [balance, U256::from(nonce), U256::from(code_size)].map(|n| n.to_le_bytes());
    let leaves = [[0; 32], balance, nonce, code_hash.0, code_leaf];
    (0..).zip(leaves).take(if code_size == 0 { 4 } else { 5 })
}

/// The key of a slot.
pub fn slot_key(crs: &Crs, keys: &AccountKeys, slot: &B256) -> Word {
    let (index, place) = ubt::slot_position(slot);
    ubt::key(keys.stem(crs, &index), place)
}
