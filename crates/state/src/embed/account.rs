use alloy_primitives::U256;

use super::Word;

/// Bytes of code in a chunk.
const CHUNK_CODE_BYTES: usize = 31;
/// The opcode of the shortest push, PUSH1, and of the longest, PUSH32.
const PUSH1: u8 = 0x60;
const PUSH32: u8 = 0x7f;

/// A balance in 128 bits; `None` if it has more.
pub(super) fn narrow(balance: U256) -> Option<u128> {
    balance.try_into().ok()
}

/// The leaves of code: 31 bytes each, zeros behind the last, after a byte that says how many of
/// them, from the first on, are data of a push in an earlier chunk.
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
