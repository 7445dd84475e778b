//! What differs from tree to tree.
//!
//! The engine owns the shape: a path-compressed radix tree in normal form, in which a branch has at
//! least two children and a terminal hangs at the shallowest depth at which its key is alone. A
//! [`Scheme`] says how wide a digit is, which keys and values it takes, and how terminals and branches
//! commit. It never sees pages, stores or batches.
//!
//! How the five trees fit:
//! - `mpt` over raw keys: nibbles; a key that ends at a fork is the branch's own value.
//! - `mpt` over Ethereum's state: [`Owner`] at 32 bytes; an account is a terminal that owns the subtree
//!   of its slots and commits to its root.
//! - `ubt` and `verkle`: [`Owner`] at 31 bytes; a stem is an owner that exists as long as it has values,
//!   and the suffix byte is the path below it. So a stem is stored in proportion to its values, and
//!   pages are cut through the suffix byte like anywhere else.
//! - `pbt`: bits, no owner; the engine's normal form is the tree's own.
//! - `sum`: keys are bit-reversed within each byte by [`Scheme::path`]; commitments carry the sum.

use std::fmt;

use crate::digits::Run;
use crate::node::Child;

/// The most bytes a key may have.
pub const KEY_BYTES_MAX: usize = 8_192;
/// The most bytes a value may have: what 65,535 overflow rows hold is far above it.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// A rule that terminals of one key length own the longer keys which they begin.
///
/// The keys of the tree then are either of `bytes` bytes (owners) or longer (owned). The subtree of the
/// owned keys hangs below its owner and goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The length of an owner's key in bytes.
    pub bytes: usize,
}

/// The discriminant of a scheme, as the root record keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemeId {
    /// Which tree.
    pub tree: u16,
    /// Which hash, or 0 where the tree fixes it.
    pub hash: u16,
}

impl fmt::Display for SchemeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.tree, self.hash) {
            (1, 0) => f.write_str("mpt over raw keys"),
            (2, 0) => f.write_str("mpt over Ethereum state"),
            (tree, hash) => write!(f, "unknown scheme {tree}/{hash}"),
        }
    }
}

/// Why a scheme takes no such key or value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The key's length does not suit the tree.
    #[error("a key of {got} bytes where the tree takes {expected}")]
    KeyLength {
        /// The key's length in bytes.
        got: usize,
        /// What the tree takes.
        expected: &'static str,
    },
    /// The value's length does not suit the tree.
    #[error("a value of {got} bytes where the tree takes {expected}")]
    ValueLength {
        /// The value's length in bytes.
        got: usize,
        /// What the tree takes.
        expected: &'static str,
    },
    /// The value's bytes mean nothing to the tree.
    #[error("the value is malformed: {0}")]
    Value(&'static str),
}

/// A tree's commitments. See the module's documentation for how each tree maps onto it.
pub trait Scheme: fmt::Debug + Send + Sync + 'static {
    /// The width of a digit in bits: 1, 2, 4 or 8.
    const DIGIT_BITS: u8;
    /// Whether terminals own the longer keys which they begin.
    const OWNER: Option<Owner>;
    /// Whether a key may begin another one (outside of [`Scheme::OWNER`]'s rule).
    const PREFIX_KEYS: bool;

    /// What a parent needs of a child: small, kept beside every child.
    type Commit: Copy + fmt::Debug + PartialEq + Send + Sync + 'static;
    /// What a user calls the root.
    type Root: Copy + fmt::Debug + PartialEq + Eq + AsRef<[u8]> + Send + Sync;
    /// Buffers that survive from level to level, so that hashing allocates nothing in steady state.
    type Scratch: Default + fmt::Debug + Send;

    /// The discriminant kept in the root record.
    fn id(&self) -> SchemeId;

    /// Whether the tree takes this key and value; `None` stands for a deletion, and an answer of
    /// `Ok(false)` says that the value means one.
    fn admit(&self, key: &[u8], value: Option<&[u8]>) -> Result<bool, Refused>;

    /// Commits to terminals, one output a job, in order.
    fn commit_terminals<'a>(
        &self,
        jobs: impl Iterator<Item = TerminalJob<'a, Self::Commit>>,
        scratch: &mut Self::Scratch,
        out: &mut Vec<Self::Commit>,
    );

    /// Commits to branches whose children are all committed, one output a job, in order.
    fn commit_branches<'a>(
        &self,
        jobs: impl Iterator<Item = BranchJob<'a, Self::Commit>>,
        scratch: &mut Self::Scratch,
        out: &mut Vec<Self::Commit>,
    );

    /// The root of a tree with this top node, or of the empty tree.
    fn root(&self, top: Option<&Self::Commit>) -> Self::Root;

    /// Reads a root as the root record keeps it.
    fn decode_root(&self, bytes: &[u8]) -> Option<Self::Root>;

    /// Appends a commitment as pages keep it.
    fn encode_commit(&self, commit: &Self::Commit, out: &mut Vec<u8>);

    /// Reads a commitment off the front of a page's bytes, with its length; `None` if it is malformed.
    fn decode_commit(&self, bytes: &[u8]) -> Option<(Self::Commit, usize)>;
}

/// A terminal to commit to.
#[derive(Clone, Copy, Debug)]
pub struct TerminalJob<'a, C> {
    /// The rest of the key below the node's parent.
    pub suffix: Run<'a>,
    /// The value's bytes.
    pub payload: &'a [u8],
    /// The commitment of the subtree that the terminal owns, if it owns one.
    pub owned: Option<C>,
}

/// A branch to commit to.
#[derive(Clone, Copy, Debug)]
pub struct BranchJob<'a, C> {
    /// The digits between the branch's parent and its fork.
    pub skip: Run<'a>,
    /// The children by digit, each with its commitment. Two at least, counting `value`.
    pub children: &'a [Child<C>],
    /// The value of the key that ends at the fork.
    pub value: Option<&'a [u8]>,
}
