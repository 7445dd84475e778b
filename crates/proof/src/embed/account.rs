//! What the leaves of an account's header hold.

use core::fmt;

use super::Word;

/// An account's fields beside its code hash, packed in one leaf.
///
/// Bytes: version, 0 (1) | reserved, 0 (3) | code size (4) | nonce (8) | balance (16), all
/// big-endian. EIP-7864 gives the code size three bytes, from byte 5 on; geth writes four, from
/// byte 4 on, as EIP-8297 has it. Code is never so long that they differ.
///
/// ```
/// use spinney_proof::embed::BasicData;
///
/// let data = BasicData { code_size: 1234, nonce: 42, balance: 1_000_000_000_000_000_000 };
/// let leaf = data.encode();
/// assert_eq!(leaf[4..8], [0, 0, 0x04, 0xd2]);
/// assert_eq!(BasicData::decode(&leaf), Some(data));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BasicData {
    /// Bytes of code.
    pub code_size: u32,
    /// The nonce.
    pub nonce: u64,
    /// The balance in wei, which has 128 bits here.
    pub balance: u128,
}

impl BasicData {
    /// The leaf's value.
    pub fn encode(&self) -> Word {
        let mut leaf = [0; 32];
        leaf[4..8].copy_from_slice(&self.code_size.to_be_bytes());
        leaf[8..16].copy_from_slice(&self.nonce.to_be_bytes());
        leaf[16..].copy_from_slice(&self.balance.to_be_bytes());
        leaf
    }

    /// Reads a leaf's value; `None` if its version is another, or reserved bytes are in use.
    pub fn decode(leaf: &Word) -> Option<Self> {
        let (head, rest) = leaf.split_first_chunk::<4>()?;
        let (code_size, rest) = rest.split_first_chunk()?;
        let (nonce, balance) = rest.split_first_chunk()?;
        (*head == [0; 4]).then_some(Self {
            code_size: u32::from_be_bytes(*code_size),
            nonce: u64::from_be_bytes(*nonce),
            balance: u128::from_be_bytes(balance.try_into().ok()?),
        })
    }
}

/// An account as the leaves of its header have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// Its fields beside the code hash.
    pub data: BasicData,
    /// The Keccak-256 digest of its code.
    pub code_hash: Word,
    /// The leaf of its delegation (EIP-7702), in a partitioned binary tree.
    pub delegation: Option<Word>,
}

/// Leaves that are those of no account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Odd;

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the leaves are those of no account: basic data of another version")
    }
}

impl core::error::Error for Odd {}
