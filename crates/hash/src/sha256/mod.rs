//! SHA-256 (FIPS 180-4).

#[cfg(feature = "std")]
pub(crate) mod calibrate;
mod climb;
mod climbers;
mod portable;
mod rounds;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod groups;
#[cfg(target_arch = "x86_64")]
mod lane_words;
#[cfg(target_arch = "x86_64")]
mod sha_ni;

pub use climb::SumClimb;

#[cfg(target_arch = "x86_64")]
use crate::x86::groups::{GROUPS_MIN, LANES as GROUP};
use crate::{
    Backend, Digest, HashFunction, Inputs, backend,
    lanes::{self, Kernel, Known},
};

/// The SHA-256 digest of one input.
///
/// ```
/// let digest = spinney_hash::sha256(b"abc");
/// assert_eq!(digest[..4], [0xba, 0x78, 0x16, 0xbf]);
/// ```
pub fn sha256(input: &[u8]) -> Digest {
    Sha256::in_use().hash1(input)
}

/// The SHA-256 digest of each input, in order.
///
/// Inputs of like length are hashed side by side, wherever they stand.
///
/// ```
/// use spinney_hash::{Inputs, sha256, sha256_many};
///
/// let mut digests = [[0; 32]; 2];
/// sha256_many(Inputs::new(b"doedog", &[3, 6]), &mut digests);
/// assert_eq!(digests, [sha256(b"doe"), sha256(b"dog")]);
/// ```
///
/// # Panics
/// If `out` is not exactly as long as `inputs`.
pub fn sha256_many(inputs: Inputs<'_>, out: &mut [Digest]) {
    lanes::hash_many(&Sha256::in_use(), inputs, out);
}

/// The SHA-256 digest of each `len` bytes of `bytes`, in order. Pairs of digests, 64 bytes, have
/// the shortest way: their second block is known.
///
/// ```
/// use spinney_hash::{sha256, sha256_equal};
///
/// let mut digests = [[0; 32]; 2];
/// sha256_equal(b"doedog", 3, &mut digests);
/// assert_eq!(digests, [sha256(b"doe"), sha256(b"dog")]);
/// ```
///
/// # Panics
/// If `bytes` is not exactly `len` bytes for each of `out`.
pub fn sha256_equal(bytes: &[u8], len: usize, out: &mut [Digest]) {
    lanes::hash_equal(&Sha256::in_use(), bytes, len, out);
}

/// Takes each climb of a Merkle-sum sparse Merkle tree from its depth `from` up to its depth `to`,
/// beside nothing but empty subtrees.
///
/// `empty[d]` is the hash of the empty subtree at depth `d`. One level of a climb from depth `d +
/// 1` is `SHA256(left || right || sum as 8 bytes big-endian)`, where left and right are the hash so
/// far and `empty[d + 1]`, in the order that bit `d` of the path says (bip-tap-ms-smt).
///
/// ```
/// use spinney_hash::{SumClimb, sha256, sha256_sum_climb};
///
/// let empty = [[7; 32]; 3];
/// let mut path = [0; 32];
/// path[0] = 0b10;
/// let mut climbs = [SumClimb { hash: [1; 32], sum: 5, path, from: 2, to: 1 }];
/// sha256_sum_climb(&mut climbs, &empty);
/// let node = [&empty[2][..], &[1; 32], &5u64.to_be_bytes()].concat();
/// assert_eq!((climbs[0].hash, climbs[0].from), (sha256(&node), 1));
/// ```
///
/// # Panics
/// If a climb goes down (`from < to`), or starts below the table (`empty` has no entry `from`) or
/// below its path (256).
pub fn sha256_sum_climb(climbs: &mut [SumClimb], empty: &[Digest]) {
    Sha256::in_use().sum_climb(climbs, empty);
}

/// Fewer inputs than this run on the SHA instructions, where there are any, rather than on 16 lanes
/// of AVX-512: half of them, since the lanes are preferred only where they are faster when full.
const WIDE_INPUTS_MIN: usize = 8;

/// The kernels of one backend, which the CPU has.
pub(crate) struct Sha256 {
    backend: Backend,
    /// What a few inputs run on.
    few: Backend,
}

impl Sha256 {
    fn in_use() -> Self {
        Self::with_few(backend(HashFunction::Sha256))
    }

    fn with_few(backend: Backend) -> Self {
        let sha_ni = backend == Backend::Avx512 && Backend::ShaNi.is_available();
        Self { backend, few: if sha_ni { Backend::ShaNi } else { backend } }
    }

    #[cfg(test)]
    pub(crate) fn on(backend: Backend) -> Self {
        assert!(backend.is_available());
        Self::with_few(backend)
    }

    /// The kernels of that backend alone, however few inputs there are.
    #[cfg(any(feature = "std", test))]
    pub(crate) fn purely(backend: Backend) -> Self {
        assert!(backend.is_available());
        Self { backend, few: backend }
    }

    /// What so many inputs run on.
    fn backend_for(&self, inputs: usize) -> Backend {
        if inputs < WIDE_INPUTS_MIN { self.few } else { self.backend }
    }

    pub(crate) fn sum_climb(&self, climbs: &mut [SumClimb], empty: &[Digest]) {
        for climb in &*climbs {
            assert!(climb.to <= climb.from, "a climb goes from {} to {}", climb.from, climb.to);
            if climb.to < climb.from {
                assert!(
                    usize::from(climb.from) < empty.len(),
                    "no empty subtree at {}",
                    climb.from
                );
                assert!(usize::from(climb.from) <= 8 * climb.path.len(), "a path has 256 bits");
            }
        }
        climbers::climb_on(self, climbs, empty);
    }
}

#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "kernels run once their instructions are detected")
)]
impl Kernel for Sha256 {
    fn hash1(&self, input: &[u8]) -> Digest {
        match self.few {
            #[cfg(target_arch = "x86_64")]
            Backend::ShaNi => {
                let mut digests = [[0; 32]];
                // SAFETY: a backend in use is available, so the CPU has what the kernel enables.
                unsafe { sha_ni::hash(&[input], &mut digests) };
                digests[0]
            }
            _ => portable::hash(input),
        }
    }

    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "only vector kernels ask for it")
    )]
    #[inline]
    fn hash(&self, inputs: &[&[u8]], known: Known, out: &mut [Digest]) {
        match (self.backend_for(inputs.len()), inputs.len()) {
            #[cfg(target_arch = "x86_64")]
            (Backend::Avx512, 3..) => {
                // SAFETY: a backend in use is available, so the CPU has what the kernel enables.
                lanes::run(inputs, out, |inputs, out| unsafe {
                    avx512::hash16(inputs, known, out);
                });
            }
            #[cfg(target_arch = "x86_64")]
            (Backend::Avx2, 3..) => {
                // SAFETY: as above.
                lanes::run(inputs, out, |inputs, out| unsafe { avx2::hash8(inputs, known, out) });
            }
            #[cfg(target_arch = "x86_64")]
            (Backend::ShaNi, 5..) => {
                for (inputs, out) in inputs.chunks(4).zip(out.chunks_mut(4)) {
                    self.hash(inputs, known, out);
                }
            }
            #[cfg(target_arch = "x86_64")]
            (Backend::ShaNi, 4) => {
                // SAFETY: as above.
                lanes::run(inputs, out, |inputs, out| unsafe { sha_ni::hash::<4>(inputs, out) });
            }
            #[cfg(target_arch = "x86_64")]
            (Backend::ShaNi, 3) => {
                // SAFETY: as above.
                lanes::run(inputs, out, |inputs, out| unsafe { sha_ni::hash::<3>(inputs, out) });
            }
            #[cfg(target_arch = "x86_64")]
            (Backend::ShaNi, 2) => {
                // SAFETY: as above.
                lanes::run(inputs, out, |inputs, out| unsafe { sha_ni::hash::<2>(inputs, out) });
            }
            _ => {
                for (digest, input) in out.iter_mut().zip(inputs) {
                    *digest = self.hash1(input);
                }
            }
        }
    }

    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "only vector kernels hash by groups")
    )]
    fn hash_groups(&self, bytes: &[u8], len: usize, out: &mut [Digest]) -> usize {
        match (self.backend, len) {
            #[cfg(target_arch = "x86_64")]
            (Backend::Avx512, 64) if out.len() >= GROUPS_MIN * GROUP => {
                let done = out.len() - out.len() % GROUP;
                // SAFETY: as above.
                unsafe { groups::hash_groups(&bytes[..len * done], &mut out[..done]) };
                done
            }
            _ => 0,
        }
    }

    fn lanes(&self) -> usize {
        match self.backend {
            Backend::Avx512 => 16,
            Backend::Avx2 => 8,
            Backend::ShaNi => 4,
            Backend::Portable => 1,
        }
    }

    fn lanes_narrow(&self) -> usize {
        self.lanes()
    }

    fn blocks(&self, len: usize) -> usize {
        blocks(len)
    }
}

/// The number of blocks that `len` bytes, the mark and the length take.
fn blocks(len: usize) -> usize {
    (len + 8) / 64 + 1
}

/// Block `block` of `input`, in `padded` if it is not whole; past the last block it is arbitrary.
fn block_of<'a>(input: &'a [u8], block: usize, padded: &'a mut [u8; 64]) -> &'a [u8; 64] {
    let rest = input.get(64 * block..);
    if let Some(whole) = rest.and_then(|rest| rest.first_chunk()) {
        return whole;
    }
    *padded = [0; 64];
    if let Some(rest) = rest {
        padded[..rest.len()].copy_from_slice(rest);
        padded[rest.len()] = 0x80;
    }
    if block + 1 == blocks(input.len()) {
        padded[56..].copy_from_slice(&(8 * input.len() as u64).to_be_bytes());
    }
    padded
}
