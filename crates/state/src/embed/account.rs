use alloy_primitives::U256;

use super::Word;

/// Bytes of code in a chunk.
const CHUNK_CODE_BYTES: usize = 31;
/// The opcode of the shortest push, PUSH1, and of the longest, PUSH32.
const PUSH1: u8 = 0x60;
const PUSH32: u8 = 0x7f;

/// An account's fields beside its code hash, packed in one leaf.
///
/// Bytes: version, 0 (1) | reserved, 0 (3) | code size (4) | nonce (8) | balance (16), all big-endian.
/// EIP-7864 gives the code size three bytes, from byte 5 on; geth writes four, from byte 4 on, as
/// EIP-8297 has it. Code is never so long that they differ.
///
/// ```
/// use alloy_primitives::U256;
/// use spinney_state::embed::BasicData;
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

/// A balance in 128 bits; `None` if it has more.
pub(super) fn narrow(balance: U256) -> Option<u128> {
    balance.try_into().ok()
}

/// The leaves of code: 31 bytes each, zeros behind the last, after a byte that says how many of them,
/// from the first on, are data of a push in an earlier chunk.
///
/// ```
/// use spinney_state::embed::chunkify;
///
/// // PUSH4, whose data reaches over the end of the first chunk.
/// let code = [&[1; 29][..], &[0x63, 0xaa, 0xbb, 0xcc, 0xdd, 1]].concat();
/// let chunks: Vec<_> = chunkify(&code).collect();
/// assert_eq!((chunks[0][0], chunks[0][31]), (0, 0xaa));
/// assert_eq!(chunks[1][..6], [3, 0xbb, 0xcc, 0xdd, 1, 0]);
/// ```
pub fn chunkify(code: &[u8]) -> impl ExactSizeIterator<Item = Word> + '_ {
    let mut pushed = 0;
    code.chunks(CHUNK_CODE_BYTES).map(move |part| {
        let mut chunk = [0; 32];
        chunk[0] = pushed.min(CHUNK_CODE_BYTES) as u8;
        chunk[1..=part.len()].copy_from_slice(part);
        let mut at = pushed;
        while let Some(&opcode) = part.get(at) {
            at += 1;
            if (PUSH1..=PUSH32).contains(&opcode) {
                at += usize::from(opcode - PUSH1) + 1;
            }
        }
        pushed = at.saturating_sub(CHUNK_CODE_BYTES);
        chunk
    })
}
