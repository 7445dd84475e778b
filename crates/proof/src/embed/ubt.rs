//! The embedding of EIP-7864, as geth has it.
//!
//! An account is a sequence of *positions*: basic data at 0, the code hash at 1, slots below 64
//! from 64 on, code chunks from 128 on, other slots from 256^31 on. A key is `H(32-byte address ||
//! position / 256)[..31] || position % 256`. Leaves never go: what is cleared is zeros.

use spinney_hash::HashFunction;

use super::account::{BasicData, Header, Odd};
use super::{Address, Word, padded};

/// The place of basic data in an account's header stem.
pub const BASIC_DATA: u8 = 0;
/// The place of the code hash.
pub const CODE_HASH: u8 = 1;
/// The place of the first header slot.
pub const HEADER_STORAGE: u8 = 64;
/// The place of the first code chunk; 128 of them lie in the header stem.
pub const CODE: u8 = 128;

/// A stem of an account: that of `tree_index`, positions divided by 256, in 32 bytes big-endian.
pub fn stem(hash: HashFunction, address: &Address, tree_index: &Word) -> [u8; 31] {
    let digest = hash.hash([padded(address), *tree_index].as_flattened());
    let [stem @ .., _] = digest;
    stem
}

/// The key of a place in a stem.
pub fn key(stem: [u8; 31], place: u8) -> Word {
    let mut key = [place; 32];
    key[..31].copy_from_slice(&stem);
    key
}

/// The stem of an account's header.
///
/// ```
/// use spinney_hash::HashFunction;
/// use spinney_proof::embed::ubt::{BASIC_DATA, header, key};
///
/// let stem = header(HashFunction::Sha256, &[0; 20]);
/// assert_eq!(key(stem, BASIC_DATA)[..4], [0xf5, 0xa5, 0xfd, 0x42]);
/// ```
pub fn header(hash: HashFunction, address: &Address) -> [u8; 31] {
    stem(hash, address, &[0; 32])
}

/// Where a slot lies: the tree index of its stem, and its place there.
///
/// ```
/// use spinney_proof::embed::ubt::slot_position;
///
/// let mut slot = [0; 32];
/// slot[31] = 63;
/// assert_eq!(slot_position(&slot), ([0; 32], 127));
/// slot[31] = 64;
/// let (index, place) = slot_position(&slot);
/// assert_eq!((index[1], place), (1, 64));
/// // The sum may have 257 bits.
/// assert_eq!(slot_position(&[0xff; 32]).0[..3], [1, 0, 0xff]);
/// ```
pub fn slot_position(slot: &Word) -> (Word, u8) {
    let place = slot[31];
    if slot[..31] == [0; 31] && place < 64 {
        return ([0; 32], HEADER_STORAGE + place);
    }
    // 256^31 more, divided by 256.
    let mut index = [0; 32];
    index[1..].copy_from_slice(&slot[..31]);
    let (first, carry) = slot[0].overflowing_add(1);
    (index[0], index[1]) = (u8::from(carry), first);
    (index, place)
}

/// The key of a slot.
pub fn slot_key(hash: HashFunction, address: &Address, slot: &Word) -> Word {
    let (index, place) = slot_position(slot);
    key(stem(hash, address, &index), place)
}

/// Where a code chunk lies: the tree index of its stem, and its place there.
///
/// ```
/// use spinney_proof::embed::ubt::chunk_position;
///
/// assert_eq!(chunk_position(127), ([0; 32], 255));
/// assert_eq!((chunk_position(128).0[31], chunk_position(128).1), (1, 0));
/// ```
pub fn chunk_position(chunk: u32) -> (Word, u8) {
    let position = u64::from(chunk) + u64::from(CODE);
    let mut index = [0; 32];
    index[24..].copy_from_slice(&(position >> 8).to_be_bytes());
    (index, position as u8)
}

/// The key of a code chunk.
pub fn chunk_key(hash: HashFunction, address: &Address, chunk: u32) -> Word {
    let (index, place) = chunk_position(chunk);
    key(stem(hash, address, &index), place)
}

/// An account, of the leaves under its basic data and its code hash; `None` where it is not there.
///
/// # Errors
/// If no account has such leaves.
pub fn read_header(leaves: &[Option<Word>]) -> Result<Option<Header>, Odd> {
    let leaf = |at: usize| leaves.get(at).copied().flatten().unwrap_or_default();
    let (data, code_hash) = (leaf(0), leaf(1));
    // A deleted account is zeros, as if it had never been.
    if (data, code_hash) == ([0; 32], [0; 32]) {
        return Ok(None);
    }
    let data = BasicData::decode(&data).ok_or(Odd)?;
    Ok(Some(Header { data, code_hash, delegation: None }))
}
