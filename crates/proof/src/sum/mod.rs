//! The Merkle-sum sparse Merkle tree of Taproot Assets (bip-tap-ms-smt), and a profile of it for
//! liabilities: what its nodes hash to, and proofs.
//!
//! A tree of depth 256: a key of 32 bytes is a path from the root, the bits of each byte from the
//! lowest up, 0 to the left. A leaf is a value with a sum; every node carries the sum of what is
//! below it.
//!
//! ```
//! use spinney_proof::sum::{Leaf, Profile, Proof};
//!
//! // A root that is trusted; in the tree is one leaf, so that all siblings on its path are empty.
//! let leaf = Leaf { value: b"five".into(), sum: 5 };
//! let proof = Proof::decode(&[&[0; 2][..], &[0xff; 32]].concat())?;
//! let root = proof.root(Profile::Compatible, &[1; 32], &leaf)?;
//!
//! let found = proof.verify_inclusion(Profile::Compatible, root, &[1; 32], &leaf)?;
//! assert_eq!((found.key(), found.leaf().sum, found.root().sum), (&[1; 32], 5, 5));
//! assert!(proof.verify_exclusion(Profile::Compatible, root, &[3; 32]).is_err());
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod climb;
mod leaves;
mod proof;
mod verify;

use alloc::vec::Vec;
use core::fmt;

use spinney_hash::{Digest, sha256};

#[cfg(feature = "std")]
pub use climb::levels_climbed;
pub use leaves::LeafHashes;
pub use proof::{Excluded, Included, Proof, ProofError};
pub use verify::{Claim, ClaimError, verify_many};

/// Levels below the root: leaves are at this depth.
pub const DEPTH: usize = 256;

/// What a branch binds of its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Taproot Assets' own: a branch hashes its children's hashes and their total.
    ///
    /// It does not bind how the total is split. Whoever makes the tree can show one split to one
    /// reader and another to the next: two leaves of 100 in a tree whose root says 100 both verify.
    /// Fine where readers check the whole tree, as of assets; not for liabilities.
    #[default]
    Compatible,
    /// Version 1 of `sum:bound`: a branch hashes its children's hashes and each one's sum; leaves
    /// and branches begin with different bytes.
    Bound,
}

/// What a leaf of [`Profile::Bound`] begins with: version 1, a leaf.
const BOUND_LEAF: u8 = 0x10;
/// What a branch of [`Profile::Bound`] begins with: version 1, a branch.
const BOUND_BRANCH: u8 = 0x11;

/// A value and what it counts for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Leaf {
    /// Bytes of any length.
    pub value: Vec<u8>,
    /// What it adds to every sum above it.
    pub sum: u64,
}

impl Leaf {
    /// Whether this is no leaf: putting it is a deletion. Without a value but with a sum it is one.
    pub fn is_empty(&self) -> bool {
        self.value.is_empty() && self.sum == 0
    }

    /// The leaf as a value of the engine: its sum (8 bytes, big-endian), then its own value.
    pub fn encode(&self) -> Vec<u8> {
        [&self.sum.to_be_bytes()[..], &self.value].concat()
    }

    /// Reads what [`Leaf::encode`] writes; `None` if it is too short for a sum.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (sum, value) = bytes.split_first_chunk()?;
        Some(Self { value: value.to_vec(), sum: u64::from_be_bytes(*sum) })
    }
}

/// The hash and the sum of a node: of the root, what a whole tree is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SumNode {
    /// SHA-256.
    pub hash: [u8; 32],
    /// The total of all leaves below.
    pub sum: u64,
}

/// The root of one tree as a leaf of another: the hash as its value, and the sum.
impl From<SumNode> for Leaf {
    fn from(node: SumNode) -> Self {
        Self { value: node.hash.to_vec(), sum: node.sum }
    }
}

/// A root as a root record has it: the hash, then the sum, big-endian.
impl From<[u8; 40]> for SumNode {
    fn from(bytes: [u8; 40]) -> Self {
        Self::read(&bytes)
    }
}

impl SumNode {
    /// The hash and the sum, 8 bytes big-endian.
    #[inline]
    pub fn bytes(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..32].copy_from_slice(&self.hash);
        bytes[32..].copy_from_slice(&self.sum.to_be_bytes());
        bytes
    }

    /// Reads what [`SumNode::bytes`] writes.
    #[inline]
    pub fn read(bytes: &[u8; 40]) -> Self {
        let (mut hash, mut sum) = ([0; 32], [0; 8]);
        hash.copy_from_slice(&bytes[..32]);
        sum.copy_from_slice(&bytes[32..]);
        Self { hash, sum: u64::from_be_bytes(sum) }
    }
}

/// The sums below a node exceed 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumOverflow;

impl fmt::Display for SumOverflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the sum of the leaves overflows 64 bits (integer overflow)")
    }
}

impl core::error::Error for SumOverflow {}

impl Profile {
    /// The node of a leaf: `SHA256(value || sum)`, with the sum as 8 bytes, big-endian; bound,
    /// `SHA256(0x10 || value || sum)`.
    pub fn leaf(self, leaf: &Leaf) -> SumNode {
        let mut bytes = Vec::with_capacity(leaf.value.len() + 9);
        self.put_leaf(&leaf.value, leaf.sum, &mut bytes);
        SumNode { hash: sha256(&bytes), sum: leaf.sum }
    }

    /// The node over two: `SHA256(left || right || total)`; bound,
    /// `SHA256(0x11 || left || left sum || right || right sum)`.
    ///
    /// # Errors
    /// If the total overflows.
    pub fn branch(self, left: SumNode, right: SumNode) -> Result<SumNode, SumOverflow> {
        let sum = left.sum.checked_add(right.sum).ok_or(SumOverflow)?;
        let hash = match self {
            Self::Compatible => sha256(&[&left.hash[..], &right.hash, &sum.to_be_bytes()].concat()),
            Self::Bound => sha256(
                &[
                    &[BOUND_BRANCH],
                    &left.hash[..],
                    &left.sum.to_be_bytes(),
                    &right.hash,
                    &right.sum.to_be_bytes(),
                ]
                .concat(),
            ),
        };
        Ok(SumNode { hash, sum })
    }

    /// The hashes of empty subtrees by the depth of their top, 0 to 256. Their sums are 0.
    ///
    /// They are computed once a process; without the feature `std`, at each call.
    pub fn empty(self) -> impl core::ops::Deref<Target = EmptyHashes> {
        #[cfg(feature = "std")]
        {
            static TABLES: [std::sync::LazyLock<EmptyHashes>; 2] = [
                std::sync::LazyLock::new(|| empty_table(Profile::Compatible)),
                std::sync::LazyLock::new(|| empty_table(Profile::Bound)),
            ];
            &*TABLES[usize::from(self == Self::Bound)]
        }
        #[cfg(not(feature = "std"))]
        alloc::boxed::Box::new(empty_table(self))
    }

    /// The node of an empty subtree whose top is at a depth.
    ///
    /// # Panics
    /// If the depth is over 256.
    pub fn empty_node(self, depth: usize) -> SumNode {
        SumNode { hash: self.empty()[depth], sum: 0 }
    }
}

/// The hashes of empty subtrees, by depth.
pub type EmptyHashes = [Digest; DEPTH + 1];

fn empty_table(profile: Profile) -> EmptyHashes {
    let mut node = profile.leaf(&Leaf::default());
    let mut table = [node.hash; DEPTH + 1];
    for depth in (0..DEPTH).rev() {
        // Sums of nothing do not overflow.
        node = profile.branch(node, node).unwrap_or(node);
        table[depth] = node.hash;
    }
    table
}

/// Whether a key goes right below a depth.
///
/// # Panics
/// If the depth is 256 or more.
#[inline]
pub fn goes_right(key: &[u8; 32], depth: usize) -> bool {
    (key[depth / 8] >> (depth % 8)) & 1 == 1
}
