//! The embedding of EIP-8297.
//!
//! The first byte of a key is its zone. Accounts, 0x00: a header of 256 places, `H(32-byte
//! address)`. Code, 0x01: chunks under the hash of what the code hashes to, shared by all accounts
//! with that code. Storage, 0xff: slots from 64 on, under their account and then in groups of 256.
//! A leaf of zeros is absent, so an account or its storage goes by its prefix.

use alloc::vec::Vec;

use spinney_hash::{HashFunction, keccak256};

use super::account::{BasicData, Header, Odd};
use super::{Address, Word, padded};
use crate::mpt::EMPTY_CODE_HASH;

/// The zone of account headers.
pub const ACCOUNT_ZONE: u8 = 0x00;
/// The zone of code.
pub const CODE_ZONE: u8 = 0x01;
/// The zone of storage.
pub const STORAGE_ZONE: u8 = 0xff;

/// The place of basic data in an account's header.
pub const BASIC_DATA: u8 = 0;
/// The place of the code hash, unless the account delegates.
pub const CODE_HASH: u8 = 1;
/// The place of the delegation of EIP-7702, in place of the code hash.
pub const DELEGATION: u8 = 2;
/// The place of slot 0; the header holds 64 of them.
pub const HEADER_STORAGE: u8 = 64;

/// What the code of an account begins with that delegates (EIP-7702): the target's address follows.
const DELEGATES: [u8; 3] = [0xef, 0x01, 0x00];

/// What all keys of an account's header begin with.
///
/// ```
/// use spinney_hash::HashFunction::Blake3;
/// use spinney_proof::embed::pbt::header_prefix;
///
/// let address = core::array::from_fn(|at| 0x11 * (at as u8 % 16));
/// assert_eq!(header_prefix(Blake3, &address)[..4], [0x00, 0xf4, 0xe4, 0x25]);
/// ```
pub fn header_prefix(hash: HashFunction, address: &Address) -> [u8; 33] {
    zoned(ACCOUNT_ZONE, hash.hash(&padded(address)))
}

/// What all keys of an account's storage begin with, its header's slots apart.
pub fn storage_prefix(hash: HashFunction, address: &Address) -> [u8; 33] {
    zoned(STORAGE_ZONE, hash.hash(&padded(address)))
}

/// The key of a place in an account's header: 34 bytes.
pub fn header_key(hash: HashFunction, address: &Address, place: u8) -> [u8; 34] {
    placed(header_prefix(hash, address), place)
}

/// The key of a slot: 34 bytes for one in the header, else 66.
pub fn slot_key(hash: HashFunction, address: &Address, slot: &Word) -> Vec<u8> {
    let place = slot[31];
    if slot[..31] == [0; 31] && place < 64 {
        return header_key(hash, address, HEADER_STORAGE + place).to_vec();
    }
    let mut group = [0; 32];
    group[1..].copy_from_slice(&slot[..31]);
    let group = hash.hash([padded(address), group].as_flattened());
    [&storage_prefix(hash, address)[..], &group, &[place]].concat()
}

/// The key of a code chunk, in all accounts with the code of this hash: 34 bytes.
pub fn chunk_key(hash: HashFunction, code_hash: &Word, chunk: u32) -> [u8; 34] {
    let mut group = [0; 32];
    group[28..].copy_from_slice(&(chunk >> 8).to_be_bytes());
    placed(zoned(CODE_ZONE, hash.hash([*code_hash, group].as_flattened())), chunk as u8)
}

/// The leaf of an account whose code delegates to another account's; `None` for other code.
///
/// ```
/// use spinney_proof::embed::pbt::delegation;
///
/// let code = [&[0xef, 0x01, 0x00][..], &[7; 20]].concat();
/// let leaf = delegation(&code).unwrap();
/// assert_eq!(leaf[..23], code);
/// assert_eq!(delegation(&code[..22]), None);
/// ```
pub fn delegation(code: &[u8]) -> Option<Word> {
    let fits = code.len() == 23 && code.starts_with(&DELEGATES);
    fits.then(|| {
        let mut leaf = [0; 32];
        leaf[..23].copy_from_slice(code);
        leaf
    })
}

/// What the code of a delegation's leaf hashes to.
fn delegation_code_hash(leaf: &Word) -> Word {
    keccak256(&leaf[..23])
}

/// An account, of the leaves under its basic data, its code hash and its delegation; `None` where
/// it is not there.
///
/// # Errors
/// If no account has such leaves.
pub fn read_header(leaves: &[Option<Word>]) -> Result<Option<Header>, Odd> {
    let leaf = |at: usize| leaves.get(at).copied().flatten();
    let (data, code_hash, delegation) = (leaf(0), leaf(1), leaf(2));
    if (data, code_hash, delegation) == (None, None, None) {
        return Ok(None);
    }
    let data = BasicData::decode(&data.unwrap_or_default()).ok_or(Odd)?;
    let code_hash = match (code_hash, delegation) {
        (Some(code_hash), _) => code_hash,
        (None, Some(leaf)) => delegation_code_hash(&leaf),
        (None, None) => EMPTY_CODE_HASH,
    };
    Ok(Some(Header { data, code_hash, delegation }))
}

fn zoned(zone: u8, digest: Word) -> [u8; 33] {
    let mut prefix = [zone; 33];
    prefix[1..].copy_from_slice(&digest);
    prefix
}

fn placed(prefix: [u8; 33], place: u8) -> [u8; 34] {
    let mut key = [place; 34];
    key[..33].copy_from_slice(&prefix);
    key
}
