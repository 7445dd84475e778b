//! What differs from tree to tree.
//!
//! The engine owns the shape: a path-compressed radix tree in normal form, in which a branch has at
//! least two children and a leaf hangs at the shallowest depth at which its key is alone. A
//! [`Scheme`] says how wide a digit is, which keys and values it takes, and how leaves and
//! branches commit. It never sees pages, stores or batches.
//!
//! How the five trees fit:
//! - `mpt` over raw keys: nibbles; a key that ends at a fork is the branch's own value.
//! - `mpt` over Ethereum's state: [`Owner`] at 32 bytes; an account is a leaf that owns the
//!   subtree of its slots and commits to its root.
//! - `ubt` and `verkle`: implicit [`Owner`] at 31 bytes; a stem is an owner that exists as long as
//!   it has values, and the suffix byte is the path below it. So a stem is stored in proportion to
//!   its values, and pages are cut through the suffix byte like anywhere else.
//! - `pbt`: bits, no owner; the engine's normal form is the tree's own.
//! - `sum`: bits, lowest first in a byte, so its keys come with each byte's bits reversed;
//!   commitments carry the sum, and pages keep those of leaves, which cost a climb of hundreds
//!   of hashes.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

use spinney_hash::Digest;

use crate::error::Refused;
use crate::ids::SchemeId;
use spinney_proof::digits::Run;

/// The most bytes a key may have.
pub const KEY_BYTES_MAX: usize = 8_192;
/// The most bytes a value may have: what 65,535 overflow rows hold is far above it.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// A rule that leaves of one key length own the longer keys which they begin.
///
/// The keys of the tree then are either of `bytes` bytes (owners) or longer (owned). The subtree of
/// the owned keys hangs below its owner and goes with it. Implicit owners are no keys themselves:
/// they exist as long as they own something, and have no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The length of an owner's key in bytes.
    pub bytes: usize,
    /// Whether owners come and go with what they own.
    pub implicit: bool,
}

/// Whether owners come and go with what they own.
pub(crate) const fn implicit_owners<S: Scheme>() -> bool {
    matches!(S::LAYOUT.owner, Some(Owner { implicit: true, .. }))
}

/// How the keys of a tree are laid out, and what its pages hold.
///
/// ```
/// use spinney_tree::Layout;
///
/// let hexary = Layout { prefix_keys: true, ..Layout::of_digits(4) };
/// assert_eq!((hexary.digit_bits, hexary.owner), (4, None));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The width of a digit in bits: 1, 2, 4 or 8. Where a scheme has [`Differences`], 8.
    pub digit_bits: u8,
    /// Whether leaves own the longer keys which they begin.
    pub owner: Option<Owner>,
    /// Whether a key may begin another one, outside of the owner's rule.
    pub prefix_keys: bool,
    /// Whether pages keep the commitment of every leaf, for trees in which it is dear to
    /// compute. Leaves that only move are then told the one they had: [`LeafJob::previous`].
    pub keep_leaves: bool,
    /// Whether pages keep what a value commits to that is all its owner owns. Where they do not, it
    /// is hashed whenever its owner is, and jobs have the value itself: [`Owned::Value`].
    pub keep_owned_values: bool,
    /// What a residual image may take before it becomes a page. At most the default.
    pub cut_bytes: usize,
    /// What the residual image of a part of an owned branch may take before it becomes a page.
    pub owned_cut_bytes: usize,
    /// What the body of an owned branch may take before it becomes a page. At most the default.
    pub owned_body_bytes: usize,
    /// Batches of at least so many operations are split over the threads, unless the tree is told
    /// otherwise.
    pub split_ops_min: usize,
    /// How many ranges such a batch is split into for each thread, one at least. A range commits
    /// for itself, so large ones fill their lanes better, and small ones keep no thread waiting.
    pub ranges_per_thread: usize,
}

impl Layout {
    /// Digits of so many bits; no owners, no key that begins another, all else as most trees have
    /// it.
    pub const fn of_digits(digit_bits: u8) -> Self {
        Self {
            digit_bits,
            owner: None,
            prefix_keys: false,
            keep_leaves: false,
            keep_owned_values: true,
            // docs/design.md, "Writing".
            cut_bytes: 1_750,
            owned_cut_bytes: 1_750,
            // What leaves room for the owner.
            owned_body_bytes: 800,
            split_ops_min: 512,
            ranges_per_thread: 8,
        }
    }
}

/// What a parent needs of a child: small, kept beside every child, in memory and in pages.
pub trait Commitment: Copy + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// Appends it as pages keep it.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads one off the front of a page's bytes, with its length; `None` if it is malformed.
    fn decode(bytes: &[u8]) -> Option<(Self, usize)>;

    /// How many bytes [`Commitment::encode`] appends.
    fn encoded_bytes(&self) -> usize {
        let mut out = Vec::new();
        self.encode(&mut out);
        out.len()
    }

    /// The length of the one on the front of a page's bytes: of one that [`Commitment::decode`]
    /// reads, else `None`.
    fn length(bytes: &[u8]) -> Option<usize> {
        Self::decode(bytes).map(|(_, len)| len)
    }

    /// Whether two commitments of one node are the same to whoever reads below them: what is noted
    /// in them for later commits may differ.
    fn agrees(&self, other: &Self) -> bool {
        self == other
    }
}

/// A digest is kept as it is.
impl Commitment for Digest {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        bytes.first_chunk().map(|digest| (*digest, size_of::<Self>()))
    }

    fn encoded_bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn length(bytes: &[u8]) -> Option<usize> {
        (bytes.len() >= size_of::<Self>()).then_some(size_of::<Self>())
    }
}

/// How commitments follow from those before them and the children that changed, where they do.
///
/// Then jobs say what was ([`LeafJob::previous`], [`Children::changes`]), leaves that own carry
/// their commitments in pages, others have that of their value, and buckets of children are kept
/// without commitments, since nobody needs those of untouched neighbours. `()` stands for: they do
/// not.
pub trait Differences<C> {
    /// Whether they do.
    const FOLLOWED: bool = true;

    /// The commitment of a leaf that pages keep without one, of its value alone.
    fn value_commit(value: &[u8]) -> C;
}

impl<C> Differences<C> for () {
    const FOLLOWED: bool = false;

    fn value_commit(_: &[u8]) -> C {
        unreachable!("only schemes that follow differences are asked")
    }
}

/// What values weigh, where they have a weight. `()` stands for: they have none.
pub trait Weights<C> {
    /// The most that the weights of a tree's values may come to. A batch that would exceed it is
    /// refused before anything is hashed.
    const MAX: Option<u64>;

    /// What a value weighs.
    fn of_value(value: &[u8]) -> u64;

    /// What all values below a node weigh.
    fn below(commit: &C) -> u64;
}

impl<C> Weights<C> for () {
    const MAX: Option<u64> = None;

    fn of_value(_: &[u8]) -> u64 {
        0
    }

    fn below(_: &C) -> u64 {
        0
    }
}

/// The engine as it is compiled for a scheme. Only the engine looks inside: a scheme passes it on.
pub struct Engine<S> {
    pub(crate) table: &'static (dyn Any + Send + Sync),
    pub(crate) scheme: PhantomData<fn() -> S>,
}

impl<S> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// A tree's commitments. See the module's documentation for how each tree maps onto it.
pub trait Scheme: fmt::Debug + Sized + Send + Sync + 'static {
    /// How its keys are laid out, and what its pages hold.
    const LAYOUT: Layout;

    /// What a parent needs of a child.
    type Commit: Commitment;
    /// What a user calls the root.
    type Root: Copy + fmt::Debug + PartialEq + Eq + AsRef<[u8]> + Send + Sync;
    /// Buffers that survive from level to level, so that hashing allocates nothing in steady state.
    type Scratch: Default + fmt::Debug + Send;
    /// How commitments follow from those before, or `()`.
    type Differences: Differences<Self::Commit>;
    /// What values weigh, or `()`.
    type Weights: Weights<Self::Commit>;

    /// The discriminant kept in the root record.
    fn id(&self) -> SchemeId;

    /// The engine for this scheme: [`Engine::here`], said in a function with `#[inline(never)]`.
    fn engine() -> Engine<Self>;

    /// Whether the tree takes this key and value; `None` stands for a deletion, and an answer of
    /// `Ok(false)` says that the value means one.
    fn admit(&self, key: &[u8], value: Option<&[u8]>) -> Result<bool, Refused>;

    /// Commits to leaves, one output a job, in order. Where one operation changes a tree, its
    /// jobs come alone.
    fn commit_leaves<'a>(
        &self,
        jobs: impl Iterator<Item = LeafJob<'a, Self::Commit>>,
        scratch: &mut Self::Scratch,
        out: &mut Vec<Self::Commit>,
    );

    /// Commits to branches whose children are all committed, one output a job, in order.
    fn commit_branches<'a, B: Children<Self::Commit>>(
        &self,
        jobs: impl Iterator<Item = BranchJob<'a, B>>,
        scratch: &mut Self::Scratch,
        out: &mut Vec<Self::Commit>,
    );

    /// The root of a tree with this top node, or of the empty tree.
    fn root(&self, top: Option<&Self::Commit>) -> Self::Root;
}

/// A leaf to commit to.
#[derive(Clone, Copy, Debug)]
pub struct LeafJob<'a, C> {
    pub(crate) key: JobKey<'a>,
    /// The rest of the key below the node's parent.
    pub suffix: Run<'a>,
    /// The value's bytes.
    pub value: &'a [u8],
    /// The subtree that the leaf owns, if it owns one.
    pub owned: Option<Owned<'a, C>>,
    /// What the leaf committed to before, if the scheme asks for it and it is known: the same
    /// leaf elsewhere ([`Layout::keep_leaves`]), or one that owned something else
    /// ([`Differences`]).
    pub previous: Option<PreviousLeaf<C>>,
}

/// What a leaf owns.
#[derive(Clone, Copy, Debug)]
pub enum Owned<'a, C> {
    /// What it commits to.
    Commit(C),
    /// A single value: the digits of its key behind the owner's, and its bytes. Only a scheme
    /// without [`Layout::keep_owned_values`] is told so.
    Value(Run<'a>, &'a [u8]),
}

impl<C: Copy> Owned<'_, C> {
    /// What it commits to, in a scheme with [`Layout::keep_owned_values`].
    ///
    /// # Panics
    /// If it is a value.
    pub fn commit(&self) -> C {
        match self {
            Self::Commit(commit) => *commit,
            Self::Value(..) => unreachable!("a scheme that keeps commitments is not told values"),
        }
    }
}

/// The commitments of a leaf with the same key before it moved or changed.
#[derive(Clone, Copy, Debug)]
pub struct PreviousLeaf<C> {
    /// The leaf's own.
    pub commit: C,
    /// The depth at which it hung, in digits.
    pub depth: usize,
    /// That of the subtree that it owned.
    pub owned: Option<C>,
}

/// Where the whole key of a leaf comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JobKey<'a> {
    Whole(&'a [u8]),
    /// The first `fork` digits of a path, and the digit behind them, if there is one: the suffix
    /// follows.
    Below {
        path: &'a [u8],
        fork: usize,
        digit: Option<u8>,
    },
}

impl<C> LeafJob<'_, C> {
    /// Appends the whole key.
    pub fn put_key(&self, out: &mut Vec<u8>) {
        match self.key {
            JobKey::Whole(key) => out.extend_from_slice(key),
            JobKey::Below { path, fork, digit } => self.suffix.put_path(path, fork, digit, out),
        }
    }
}

/// A branch to commit to.
#[derive(Clone, Copy, Debug)]
pub struct BranchJob<'a, B> {
    /// The digits between the branch's parent and its fork.
    pub prefix: Run<'a>,
    /// The [`Children`], each committed to. Two at least, counting `value`.
    pub children: B,
    /// The value of the key that ends at the fork.
    pub value: Option<&'a [u8]>,
}

/// A digit whose child changed: what the child that was there commits to, and the one that is.
pub type ChildChange<C> = (u8, Option<C>, Option<C>);

/// The children of a branch, as the engine has them.
pub trait Children<C: Copy> {
    /// Each child's digit and commitment, in order of digits.
    fn iter(&self) -> impl ExactSizeIterator<Item = (u8, C)>;

    /// What the children at digits 0 and 1 commit to, if there are just these.
    fn pair(&self) -> Option<[C; 2]> {
        let mut all = self.iter();
        match [all.next()?, all.next()?] {
            [(0, left), (1, right)] if all.next().is_none() => Some([left, right]),
            _ => None,
        }
    }

    /// What changed since a commitment to the same fork, if the scheme has [`Differences`] and
    /// there was one: that commitment, and each child that changed.
    fn changes(&self) -> Option<(C, impl Iterator<Item = ChildChange<C>>)>;
}

/// Children of which nobody knows what they were.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChildList<'a, C>(pub(crate) &'a [(u8, Option<C>)]);

impl<C: Copy> Children<C> for ChildList<'_, C> {
    fn iter(&self) -> impl ExactSizeIterator<Item = (u8, C)> {
        let committed = |commit: Option<C>| commit.expect("children commit before their parent");
        self.0.iter().map(move |&(digit, commit)| (digit, committed(commit)))
    }

    fn changes(&self) -> Option<(C, impl Iterator<Item = ChildChange<C>>)> {
        None::<(C, std::iter::Empty<_>)>
    }
}
