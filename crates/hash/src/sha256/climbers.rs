//! The climb on each backend.

use super::{
    Sha256, WIDE_INPUTS_MIN,
    climb::{Climber, Siblings, SumClimb, climb, tail_schedule},
    portable,
    rounds::{digest_of, words_of},
};
use crate::{Backend, Digest};

/// Runs every climb on kernels that the CPU has.
pub(super) fn climb_on(kernels: &Sha256, climbs: &mut [SumClimb], empty: &[Digest]) {
    match (kernels.backend_for(climbs.len()), climbs.len()) {
        #[cfg(target_arch = "x86_64")]
        (Backend::ShaNi, _) => x86::climb_sha_ni(climbs, empty),
        #[cfg(target_arch = "x86_64")]
        (Backend::Avx512, _) if kernels.few == Backend::ShaNi => {
            x86::climb_avx512(climbs, empty, WIDE_INPUTS_MIN);
            x86::climb_sha_ni(climbs, empty);
        }
        #[cfg(target_arch = "x86_64")]
        (Backend::Avx512, 3..) => x86::climb_avx512(climbs, empty, 1),
        #[cfg(target_arch = "x86_64")]
        (Backend::Avx2, 3..) => x86::climb_avx2(climbs, empty),
        _ => climb(&mut Portable { hash: [0; 8], tail: [0; 64] }, climbs, empty, 1),
    }
}

struct Portable {
    hash: [u32; 8],
    tail: [u32; 64],
}

impl Climber for Portable {
    const LANES: usize = 1;

    fn put(&mut self, _lane: usize, hash: &Digest, sum: u64) {
        (self.hash, self.tail) = (words_of(hash), tail_schedule(sum));
    }

    fn hash(&self, _lane: usize) -> Digest {
        digest_of(&self.hash)
    }

    fn copy(&mut self, from: usize, to: usize) {
        assert_eq!(from, to, "there is one lane");
    }

    fn level(&mut self, siblings: Siblings<'_>, right: u16, _active: usize) {
        let sibling = match siblings {
            Siblings::One(sibling) => words_of(sibling),
            Siblings::Each(siblings) => words_of(siblings[0]),
        };
        self.hash = if right & 1 == 1 {
            portable::hash_node(&sibling, &self.hash, &self.tail)
        } else {
            portable::hash_node(&self.hash, &sibling, &self.tail)
        };
    }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "kernels run once their instructions are detected")]
mod x86 {
    use core::arch::x86_64::__m128i;

    use super::super::{
        avx2, avx512,
        climb::{Climber, LANES_MAX, Siblings, SumClimb, climb, tail_block},
        lane_words::LaneWords,
        sha_ni,
    };
    use crate::{Backend, Digest};

    pub(super) fn climb_sha_ni(climbs: &mut [SumClimb], empty: &[Digest]) {
        climb(&mut ShaNi::new(), climbs, empty, 1);
    }

    pub(super) fn climb_avx2(climbs: &mut [SumClimb], empty: &[Digest]) {
        climb(&mut Avx2::new(), climbs, empty, 1);
    }

    /// Until fewer than `least` are left.
    pub(super) fn climb_avx512(climbs: &mut [SumClimb], empty: &[Digest], least: usize) {
        climb(&mut Avx512::new(), climbs, empty, least);
    }

    /// Four chains; exists only where the instructions do.
    struct ShaNi {
        hashes: [[__m128i; 2]; 4],
        tails: [[__m128i; 16]; 4],
    }

    impl ShaNi {
        fn new() -> Self {
            assert!(Backend::ShaNi.is_available());
            // SAFETY: all bits zero is a value of a vector of integers.
            unsafe { core::mem::zeroed() }
        }

        fn level_of<const N: usize>(&mut self, siblings: &[&Digest; LANES_MAX], right: u16) {
            if let (Some(hashes), Some(tails), Some(siblings)) = (
                self.hashes.first_chunk_mut::<N>(),
                self.tails.first_chunk::<N>(),
                siblings.first_chunk::<N>(),
            ) {
                // SAFETY: `new` made sure that the CPU has what the kernel enables.
                unsafe { sha_ni::climb(hashes, tails, siblings, right) };
            }
        }
    }

    impl Climber for ShaNi {
        const LANES: usize = 4;

        fn put(&mut self, lane: usize, hash: &Digest, sum: u64) {
            let mut block = [0; 64];
            for (bytes, word) in block.as_chunks_mut().0.iter_mut().zip(tail_block(sum)) {
                *bytes = word.to_be_bytes();
            }
            // SAFETY: `new` made sure that the CPU has what these enable.
            unsafe {
                self.hashes[lane] = sha_ni::load_digest(hash);
                self.tails[lane] = sha_ni::schedule(&block);
            }
        }

        fn hash(&self, lane: usize) -> Digest {
            // SAFETY: `new` made sure that the CPU has what this enables.
            unsafe { sha_ni::store_digest(self.hashes[lane]) }
        }

        fn copy(&mut self, from: usize, to: usize) {
            self.hashes[to] = self.hashes[from];
            self.tails[to] = self.tails[from];
        }

        fn level(&mut self, siblings: Siblings<'_>, right: u16, active: usize) {
            let siblings = match siblings {
                Siblings::One(sibling) => &[sibling; LANES_MAX],
                Siblings::Each(siblings) => siblings,
            };
            match active {
                1 => self.level_of::<1>(siblings, right),
                2 => self.level_of::<2>(siblings, right),
                3 => self.level_of::<3>(siblings, right),
                _ => self.level_of::<4>(siblings, right),
            }
        }
    }

    /// Defines the climber of vector lanes; it exists only where the instructions do.
    macro_rules! vector_climber {
        ($name:ident, $lanes:literal, $level:path, $in_step:path) => {
            struct $name(LaneWords<$lanes>);

            impl $name {
                fn new() -> Self {
                    assert!(Backend::$name.is_available());
                    Self(LaneWords::new())
                }
            }

            impl Climber for $name {
                const LANES: usize = $lanes;

                fn put(&mut self, lane: usize, hash: &Digest, sum: u64) {
                    self.0.put(lane, hash, sum);
                }

                fn hash(&self, lane: usize) -> Digest {
                    self.0.hash(lane)
                }

                fn copy(&mut self, from: usize, to: usize) {
                    self.0.copy(from, to);
                }

                fn level(&mut self, siblings: Siblings<'_>, right: u16, active: usize) {
                    // SAFETY: `new` made sure that the CPU has what the kernels enable.
                    unsafe {
                        match siblings {
                            Siblings::One(sibling) => $in_step(&mut self.0, sibling, right),
                            Siblings::Each(siblings) => {
                                let siblings = LaneWords::siblings(&siblings[..active]);
                                $level(&mut self.0, &siblings, right);
                            }
                        }
                    }
                }
            }
        };
    }

    vector_climber!(Avx2, 8, avx2::climb8, avx2::climb8_in_step);
    vector_climber!(Avx512, 16, avx512::climb16, avx512::climb16_in_step);
}
