//! Keccak-256 as Ethereum uses it: rate 136, padding 0x01 .. 0x80 (FIPS 202 with the padding that
//! the Keccak team submitted, before the standard's domain bits).

mod portable;
mod rounds;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use crate::{
    Backend, Digest, HashFunction, Inputs, backend,
    lanes::{self, Kernel, Known},
};

/// The bytes of a block.
const RATE: usize = 136;

/// The Keccak-256 digest of one input.
///
/// ```
/// let empty_code = spinney_hash::keccak256(b"");
/// assert_eq!(empty_code[..4], [0xc5, 0xd2, 0x46, 0x01]);
/// ```
pub fn keccak256(input: &[u8]) -> Digest {
    Keccak256::in_use().hash1(input)
}

/// The Keccak-256 digest of each input, in order.
///
/// Inputs of like length are hashed side by side, wherever they stand.
///
/// ```
/// use spinney_hash::{Inputs, keccak256, keccak256_many};
///
/// let mut digests = [[0; 32]; 2];
/// keccak256_many(Inputs::new(b"doedog", &[3, 6]), &mut digests);
/// assert_eq!(digests, [keccak256(b"doe"), keccak256(b"dog")]);
/// ```
///
/// # Panics
/// If `out` is not exactly as long as `inputs`.
pub fn keccak256_many(inputs: Inputs<'_>, out: &mut [Digest]) {
    lanes::hash_many(&Keccak256::in_use(), inputs, out);
}

/// The Keccak-256 digest of each `len` bytes of `bytes`, in order.
///
/// ```
/// use spinney_hash::{keccak256, keccak256_equal};
///
/// let mut digests = [[0; 32]; 2];
/// keccak256_equal(b"doedog", 3, &mut digests);
/// assert_eq!(digests, [keccak256(b"doe"), keccak256(b"dog")]);
/// ```
///
/// # Panics
/// If `bytes` is not exactly `len` bytes for each of `out`.
pub fn keccak256_equal(bytes: &[u8], len: usize, out: &mut [Digest]) {
    lanes::hash_equal(&Keccak256::in_use(), bytes, len, out);
}

/// The kernels of one backend, which the CPU has.
pub(crate) struct Keccak256(Backend);

impl Keccak256 {
    fn in_use() -> Self {
        Self(backend(HashFunction::Keccak256))
    }

    #[cfg(test)]
    pub(crate) fn on(backend: Backend) -> Self {
        assert!(backend.is_available());
        Self(backend)
    }
}

#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "kernels run once their instructions are detected")
)]
impl Kernel for Keccak256 {
    fn hash1(&self, input: &[u8]) -> Digest {
        match self.0 {
            // SAFETY: a backend in use is available, so the CPU has what the kernel enables.
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512 => unsafe { avx512::hash1(input) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2 => unsafe { avx2::hash1(input) },
            _ => portable::hash(input),
        }
    }

    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "only vector kernels ask for it")
    )]
    #[inline]
    fn hash(&self, inputs: &[&[u8]], known: Known, out: &mut [Digest]) {
        match (self.0, inputs.len()) {
            #[cfg(target_arch = "x86_64")]
            (Backend::Avx512, 5..) => {
                // SAFETY: a backend in use is available, so the CPU has what the kernel enables.
                lanes::run(inputs, out, |inputs, out| unsafe { avx512::hash8(inputs, known, out) });
            }
            #[cfg(target_arch = "x86_64")]
            (Backend::Avx512, 2..) => {
                // SAFETY: as above.
                lanes::run(inputs, out, |inputs, out| unsafe { avx512::hash4(inputs, known, out) });
            }
            #[cfg(target_arch = "x86_64")]
            (Backend::Avx2, 2..) => {
                // SAFETY: as above.
                lanes::run(inputs, out, |inputs, out| unsafe { avx2::hash4(inputs, known, out) });
            }
            _ => {
                for (digest, input) in out.iter_mut().zip(inputs) {
                    *digest = self.hash1(input);
                }
            }
        }
    }

    fn lanes(&self) -> usize {
        match self.0 {
            Backend::Avx512 => 8,
            Backend::Avx2 => 4,
            _ => 1,
        }
    }

    fn lanes_narrow(&self) -> usize {
        self.lanes().min(4)
    }

    fn blocks(&self, len: usize) -> usize {
        blocks(len)
    }
}

/// The number of blocks that `len` bytes and the padding take.
fn blocks(len: usize) -> usize {
    len / RATE + 1
}

/// The last eight bytes of a block, of what is left of an input, with the padding.
#[cfg(target_arch = "x86_64")]
#[inline]
fn last_word(rest: &[u8]) -> u64 {
    const END: u64 = 1 << 63;
    match rest.len() {
        0..128 => END,
        len @ 128..RATE => {
            // Of the eight bytes up to the end, those from 128 on, and the mark after them.
            let word = u64::from_le_bytes(*rest.last_chunk().expect("at least 128 bytes"));
            let bits = 8 * (len as u32 - 128);
            (word.unbounded_shr(64 - bits) | 1 << bits) ^ END
        }
        _ => u64::from_le_bytes(*rest[128..].first_chunk().expect("a whole block")),
    }
}

/// The rest of an input, less than a block, with its padding.
fn last_block(rest: &[u8]) -> [u8; RATE] {
    let mut block = [0; RATE];
    block[..rest.len()].copy_from_slice(rest);
    block[rest.len()] = 0x01;
    block[RATE - 1] ^= 0x80;
    block
}
