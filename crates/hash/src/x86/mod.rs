//! What the x86-64 kernels share: loads, stores and transpositions between inputs in memory and
//! lanes in registers. All memory access by intrinsics is here, behind slices and arrays whose
//! lengths are checked, so that the kernels themselves are safe code.

#![expect(
    unsafe_code,
    reason = "vector loads and stores take pointers; each is wrapped once, over a checked slice"
)]

pub(crate) mod avx2;
pub(crate) mod avx512;
pub(crate) mod groups;
