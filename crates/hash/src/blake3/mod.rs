//! BLAKE3 without a key, 32 bytes of output (BLAKE3 paper, sections 2.1 to 2.5).
//!
//! An input of at most a chunk, 1,024 bytes, is a chain of blocks, and such inputs are hashed side
//! by side. A longer one is a tree over its chunks, which are hashed side by side in their turn.

mod portable;
mod rounds;
mod tree;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod groups;

#[cfg(target_arch = "x86_64")]
use crate::x86::groups::{GROUPS_MIN, LANES as GROUP};
use crate::{
    Backend, Digest, HashFunction, Inputs, backend,
    lanes::{self, Kernel, Known, LANES_MAX},
};

/// The bytes of a chunk.
const CHUNK: usize = 1024;

/// The BLAKE3 digest of one input.
///
/// ```
/// let digest = spinney_hash::blake3(b"");
/// assert_eq!(digest[..4], [0xaf, 0x13, 0x49, 0xb9]);
/// ```
pub fn blake3(input: &[u8]) -> Digest {
    Blake3::in_use().hash1(input)
}

/// The BLAKE3 digest of each input, in order.
///
/// Inputs of like length are hashed side by side, wherever they stand, and so are the chunks of an
/// input longer than 1,024 bytes.
///
/// ```
/// use spinney_hash::{Inputs, blake3, blake3_many};
///
/// let mut digests = [[0; 32]; 2];
/// blake3_many(Inputs::new(b"doedog", &[3, 6]), &mut digests);
/// assert_eq!(digests, [blake3(b"doe"), blake3(b"dog")]);
/// ```
///
/// # Panics
/// If `out` is not exactly as long as `inputs`.
pub fn blake3_many(inputs: Inputs<'_>, out: &mut [Digest]) {
    lanes::hash_many(&Blake3::in_use(), inputs, out);
}

/// The BLAKE3 digest of each `len` bytes of `bytes`, in order.
///
/// ```
/// use spinney_hash::{blake3, blake3_equal};
///
/// let mut digests = [[0; 32]; 2];
/// blake3_equal(b"doedog", 3, &mut digests);
/// assert_eq!(digests, [blake3(b"doe"), blake3(b"dog")]);
/// ```
///
/// # Panics
/// If `bytes` is not exactly `len` bytes for each of `out`.
pub fn blake3_equal(bytes: &[u8], len: usize, out: &mut [Digest]) {
    lanes::hash_equal(&Blake3::in_use(), bytes, len, out);
}

const CHUNK_START: u32 = 1;
const CHUNK_END: u32 = 2;
const PARENT: u32 = 4;
const ROOT: u32 = 8;

/// Where inputs of one pass stand in their trees.
#[derive(Clone, Copy)]
struct Node {
    /// The chunk number of the first input; a multiple of the number of lanes.
    counter: u64,
    /// Whether the inputs are successive chunks, or else all have the same number.
    successive: bool,
    /// Flags of the first block.
    first: u32,
    /// Flags of the last block.
    last: u32,
}

/// Inputs that are one chunk each.
const WHOLE_INPUT: Node =
    Node { counter: 0, successive: false, first: CHUNK_START, last: CHUNK_END | ROOT };

/// The flags of block `block` of an input of `len` bytes.
fn block_flags(len: usize, node: Node, block: usize) -> u32 {
    let first = if block == 0 { node.first } else { 0 };
    let last = if block + 1 == blocks(len) { node.last } else { 0 };
    first | last
}

/// The bytes in block `block` of an input of `len` bytes.
fn block_len(len: usize, block: usize) -> u32 {
    len.saturating_sub(64 * block).min(64) as u32
}

/// The bytes in block `block` of each input, and its flags; of an input that has ended, whatever.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn lens_and_flags<const N: usize>(inputs: &[&[u8]; N], node: Node, block: usize) -> [[u32; N]; 2] {
    [
        inputs.map(|input| block_len(input.len(), block)),
        inputs.map(|input| block_flags(input.len(), node, block)),
    ]
}

/// The number of blocks that `len` bytes take.
fn blocks(len: usize) -> usize {
    len.div_ceil(64).max(1)
}

/// The kernels of one backend, which the CPU has.
pub(crate) struct Blake3(Backend);

impl Blake3 {
    fn in_use() -> Self {
        Self(backend(HashFunction::Blake3))
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
impl Blake3 {
    /// The chaining values of inputs of at most a chunk each, at most as many as there are lanes.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "only vector kernels ask for it")
    )]
    fn hash_nodes(&self, inputs: &[&[u8]], known: Known, node: Node, out: &mut [Digest]) {
        match (self.0, inputs.len()) {
            #[cfg(target_arch = "x86_64")]
            (Backend::Avx512, 9..) => {
                // SAFETY: a backend in use is available, so the CPU has what the kernel enables.
                lanes::run(inputs, out, |inputs, out| unsafe {
                    avx512::hash16(inputs, known, node, out);
                });
            }
            #[cfg(target_arch = "x86_64")]
            (Backend::Avx512, 2..) => {
                // SAFETY: as above.
                lanes::run(inputs, out, |inputs, out| unsafe {
                    avx512::hash8(inputs, known, node, out);
                });
            }
            #[cfg(target_arch = "x86_64")]
            (Backend::Avx2, 2..) => {
                // SAFETY: as above.
                lanes::run(inputs, out, |inputs, out| unsafe {
                    avx2::hash8(inputs, known, node, out);
                });
            }
            _ => {
                for (i, (digest, input)) in out.iter_mut().zip(inputs).enumerate() {
                    let counter = node.counter + if node.successive { i as u64 } else { 0 };
                    *digest = portable::hash(input, Node { counter, ..node });
                }
            }
        }
    }
}

impl Kernel for Blake3 {
    fn hash1(&self, input: &[u8]) -> Digest {
        if input.len() > CHUNK {
            return self.hash_tree(input);
        }
        let mut digests = [[0; 32]];
        self.hash_nodes(&[input], Known::Len(input.len()), WHOLE_INPUT, &mut digests);
        digests[0]
    }

    #[inline]
    fn hash(&self, inputs: &[&[u8]], known: Known, out: &mut [Digest]) {
        let short = match known {
            Known::Len(len) => len <= CHUNK,
            _ => inputs.iter().all(|input| input.len() <= CHUNK),
        };
        if short {
            return self.hash_nodes(inputs, known, WHOLE_INPUT, out);
        }
        // A tree fills the lanes by itself; the others of this pass share one.
        let mut short = [&[][..]; LANES_MAX];
        let mut places = [0; LANES_MAX];
        let mut count = 0;
        for (i, input) in inputs.iter().enumerate() {
            if input.len() > CHUNK {
                out[i] = self.hash_tree(input);
            } else {
                (short[count], places[count]) = (*input, i);
                count += 1;
            }
        }
        let mut digests = [[0; 32]; LANES_MAX];
        if count > 0 {
            self.hash_nodes(&short[..count], Known::Nothing, WHOLE_INPUT, &mut digests[..count]);
        }
        for (digest, place) in digests[..count].iter().zip(places) {
            out[place] = *digest;
        }
    }

    #[cfg_attr(
        target_arch = "x86_64",
        expect(unsafe_code, reason = "kernels run once their instructions are detected")
    )]
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "only vector kernels hash by groups")
    )]
    fn hash_groups(&self, bytes: &[u8], len: usize, out: &mut [Digest]) -> usize {
        match (self.0, len) {
            #[cfg(target_arch = "x86_64")]
            (Backend::Avx512, 32 | 64) if out.len() >= GROUPS_MIN * GROUP => {
                let done = out.len() - out.len() % GROUP;
                let (bytes, out) = (&bytes[..len * done], &mut out[..done]);
                // SAFETY: a backend in use is available, so the CPU has what the kernel enables.
                unsafe {
                    match len {
                        32 => groups::hash_groups::<2>(bytes, out),
                        _ => groups::hash_groups::<4>(bytes, out),
                    }
                }
                done
            }
            _ => 0,
        }
    }

    fn lanes(&self) -> usize {
        match self.0 {
            Backend::Avx512 => 16,
            Backend::Avx2 => 8,
            _ => 1,
        }
    }

    fn lanes_narrow(&self) -> usize {
        self.lanes().min(8)
    }

    fn blocks(&self, len: usize) -> usize {
        blocks(len)
    }
}
