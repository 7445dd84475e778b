//! Whether 16 lanes of AVX-512 beat the SHA instructions on this machine: it differs from CPU to
//! CPU.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use super::Sha256;
use crate::{Backend, lanes};

/// How often each is timed; the least time counts, so that interruptions and the first use of wide
/// registers do not.
const ROUNDS: usize = 16;
/// Passes of 16 inputs that are timed at once.
const PASSES: usize = 4;

/// The quicker of the two, both of which the machine has: measured once a process, in about a tenth
/// of a millisecond.
pub(crate) fn quickest() -> Backend {
    static QUICKEST: OnceLock<Backend> = OnceLock::new();
    *QUICKEST.get_or_init(|| {
        let [mut wide, mut sha_ni] = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            wide = wide.min(time(Backend::Avx512));
            sha_ni = sha_ni.min(time(Backend::ShaNi));
        }
        // Few inputs do better on the SHA instructions, so what is about equal is theirs.
        if wide * 11 < sha_ni * 10 { Backend::Avx512 } else { Backend::ShaNi }
    })
}

/// The time that pairs of digests take.
fn time(backend: Backend) -> Duration {
    let mut out = [[0x5a; 32]; 16];
    let mut pairs = [[0; 64]; 16];
    let begun = Instant::now();
    for _ in 0..PASSES {
        for (pair, digest) in pairs.iter_mut().zip(&out) {
            pair[..32].copy_from_slice(digest);
        }
        lanes::hash_equal(&Sha256::purely(backend), pairs.as_flattened(), 64, &mut out);
    }
    core::hint::black_box(out);
    begun.elapsed()
}
