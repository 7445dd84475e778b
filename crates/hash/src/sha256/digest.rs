//! The public functions, on the backend in use. They are apart from the kernels, which are timed to
//! find that out.

use super::{Sha256, SumClimb};
use crate::{
    Digest, HashFunction, Inputs, backend,
    lanes::{self, Kernel as _},
};

/// The SHA-256 digest of one input.
///
/// ```
/// let digest = spinney_hash::sha256(b"abc");
/// assert_eq!(digest[..4], [0xba, 0x78, 0x16, 0xbf]);
/// ```
pub fn sha256(input: &[u8]) -> Digest {
    in_use().hash1(input)
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
    lanes::hash_many(&in_use(), inputs, out);
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
    lanes::hash_equal(&in_use(), bytes, len, out);
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
    in_use().sum_climb(climbs, empty);
}

fn in_use() -> Sha256 {
    Sha256::with_few(backend(HashFunction::Sha256))
}
