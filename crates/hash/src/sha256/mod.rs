//! SHA-256 (FIPS 180-4).

#[cfg(feature = "std")]
pub(crate) mod calibrate;
mod climb;
mod climbers;
mod digest;
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
pub use digest::{sha256, sha256_equal, sha256_many, sha256_sum_climb};

use crate::{
    Backend, Digest,
    lanes::{Kernel, Known},
};
#[cfg(target_arch = "x86_64")]
use crate::{
    lanes,
    x86::groups::{GROUPS_MIN, LANES as GROUP},
};

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
