//! Keccak-256 as Ethereum uses it: rate 136, padding 0x01 .. 0x80.

use crate::{Digest, Inputs};

const RATE: usize = 136;

/// The Keccak-256 digest of one input.
pub fn keccak256(input: &[u8]) -> Digest {
    let mut state = [0u64; 25];
    let mut blocks = input.chunks_exact(RATE);
    for block in &mut blocks {
        absorb(&mut state, block);
        permute(&mut state);
    }
    let rest = blocks.remainder();
    let mut last = [0u8; RATE];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] ^= 0x01;
    last[RATE - 1] ^= 0x80;
    absorb(&mut state, &last);
    permute(&mut state);
    let mut digest = [0; 32];
    for (out, lane) in digest.chunks_exact_mut(8).zip(state) {
        out.copy_from_slice(&lane.to_le_bytes());
    }
    digest
}

/// The Keccak-256 digest of each input, in order.
///
/// # Panics
/// If `out` is not exactly as long as `inputs`.
pub fn keccak256_many(inputs: Inputs<'_>, out: &mut [Digest]) {
    assert_eq!(inputs.len(), out.len(), "one digest per input");
    for (input, out) in inputs.iter().zip(out) {
        *out = keccak256(input);
    }
}

fn absorb(state: &mut [u64; 25], block: &[u8]) {
    for (lane, word) in state.iter_mut().zip(block.chunks_exact(8)) {
        *lane ^= u64::from_le_bytes(word.try_into().expect("a chunk of eight bytes"));
    }
}

fn permute(state: &mut [u64; 25]) {
    keccak::Keccak::new().with_f1600(|f1600| f1600(state));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_nothing() {
        // Ethereum's hash of empty code.
        let digest = keccak256(b"");
        assert_eq!(digest[..4], [0xc5, 0xd2, 0x46, 0x01]);
        assert_eq!(digest[28..], [0x5d, 0x85, 0xa4, 0x70]);
    }
}
