//! What a trie of accounts and slots holds.

use alloc::vec::Vec;

use super::rlp;

/// The root of an empty trie: the Keccak-256 digest of the RLP of nothing, `0x80`.
pub const EMPTY_ROOT: [u8; 32] = [
    0x56, 0xe8, 0x1f, 0x17, 0x1b, 0xcc, 0x55, 0xa6, 0xff, 0x83, 0x45, 0xe6, 0x92, 0xc0, 0xf8, 0x6e,
    0x5b, 0x48, 0xe0, 0x1b, 0x99, 0x6c, 0xad, 0xc0, 0x01, 0x62, 0x2f, 0xb5, 0xe3, 0x63, 0xb4, 0x21,
];

/// The Keccak-256 digest of no code.
pub const EMPTY_CODE_HASH: [u8; 32] = [
    0xc5, 0xd2, 0x46, 0x01, 0x86, 0xf7, 0x23, 0x3c, 0x92, 0x7e, 0x7d, 0xb2, 0xdc, 0xc7, 0x03, 0xc0,
    0xe5, 0x00, 0xb6, 0x53, 0xca, 0x82, 0x27, 0x3b, 0x7b, 0xfa, 0xd8, 0x04, 0x5d, 0x85, 0xa4, 0x70,
];

/// The value of an account, as a tree of accounts keeps it: `nonce` and `balance` in RLP, then the
/// code hash.
///
/// `balance` is big-endian; leading zeros are dropped.
pub fn account_value(nonce: u64, balance: &[u8; 32], code_hash: &[u8; 32]) -> Vec<u8> {
    let mut value = Vec::with_capacity(9 + 33 + 32);
    rlp::put_integer(&mut value, &nonce.to_be_bytes());
    rlp::put_integer(&mut value, balance);
    value.extend_from_slice(code_hash);
    value
}

/// Reads [`account_value`] back: nonce, balance and code hash; `None` if the bytes are none.
pub fn decode_account_value(value: &[u8]) -> Option<(u64, [u8; 32], [u8; 32])> {
    let (nonce, rest) = rlp::take_integer::<8>(value)?;
    let (balance, rest) = rlp::take_integer::<32>(rest)?;
    Some((u64::from_be_bytes(nonce), balance, rest.try_into().ok()?))
}

/// The RLP of a slot's value, as a tree of accounts keeps it; empty for zero, which is a deletion.
pub fn slot_value(value: &[u8; 32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(33);
    if value.iter().any(|&byte| byte != 0) {
        rlp::put_integer(&mut out, value);
    }
    out
}

/// Reads [`slot_value`] back; `None` if the bytes are none.
pub fn decode_slot_value(value: &[u8]) -> Option<[u8; 32]> {
    match rlp::take_integer::<32>(value)? {
        (word, []) => Some(word),
        _ => None,
    }
}
