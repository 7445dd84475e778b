//! The embedding of EIP-6800.
//!
//! The keys are those of [`spinney_proof::embed::verkle`].

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use alloy_primitives::{Address, B256, U256};
use spinney_ipa::{Crs, Fr};
pub use spinney_proof::embed::verkle::{AccountKeys, slot_key};

use super::Word;

/// What [`pedersen`] takes at most, in bytes.
pub const PEDERSEN_BYTES_MAX: usize = 255 * 16;

/// The hash of EIP-6800: the length and up to 255 parts of 16 bytes, committed to and mapped to a
/// scalar. `None` of more than [`PEDERSEN_BYTES_MAX`] bytes.
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
/// little-endian: version, balance, nonce, code hash and, of accounts with code, code size. Only to
/// read what they left.
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
