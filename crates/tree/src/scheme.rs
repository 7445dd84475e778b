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
//! - `ubt` and `verkle`: implicit [`Owner`] at 31 bytes; a stem is an owner that exists as long as it has values,
//!   and the suffix byte is the path below it. So a stem is stored in proportion to its values, and
//!   pages are cut through the suffix byte like anywhere else.
//! - `pbt`: bits, no owner; the engine's normal form is the tree's own.
//! - `sum`: bits, lowest first in a byte, so its keys come with each byte's bits reversed; commitments
//!   carry the sum, and pages keep those of terminals, which cost a climb of hundreds of hashes.

use std::fmt;
use std::ops::Range;

use crate::digits::Run;
use crate::edit::Passed;
use crate::image::{Codec, MEMBER_COMMIT_AT};
use crate::node::{Chain, Change, Child, Link, Patch, Segment, Slot, SlotState};

/// The most bytes a key may have.
pub const KEY_BYTES_MAX: usize = 8_192;
/// The most bytes a value may have: what 65,535 overflow rows hold is far above it.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// A rule that terminals of one key length own the longer keys which they begin.
///
/// The keys of the tree then are either of `bytes` bytes (owners) or longer (owned). The subtree of the
/// owned keys hangs below its owner and goes with it. Implicit owners are no keys themselves: they exist
/// as long as they own something, and have no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The length of an owner's key in bytes.
    pub bytes: usize,
    /// Whether owners come and go with what they own.
    pub implicit: bool,
}

/// Whether owners come and go with what they own.
pub(crate) const fn implicit_owners<S: Scheme>() -> bool {
    matches!(S::OWNER, Some(Owner { implicit: true, .. }))
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
            (3, 1) => f.write_str("ubt:keccak"),
            (3, 2) => f.write_str("ubt:sha256"),
            (3, 3) => f.write_str("ubt:blake3"),
            (4, 1) => f.write_str("pbt:keccak"),
            (4, 2) => f.write_str("pbt:sha256"),
            (4, 3) => f.write_str("pbt:blake3"),
            (5, 0) => f.write_str("sum"),
            (5, 1) => f.write_str("sum:bound"),
            (6, 0) => f.write_str("verkle"),
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
pub trait Scheme: fmt::Debug + Sized + Send + Sync + 'static {
    /// The width of a digit in bits: 1, 2, 4 or 8.
    const DIGIT_BITS: u8;
    /// Whether terminals own the longer keys which they begin.
    const OWNER: Option<Owner>;
    /// Whether a key may begin another one (outside of [`Scheme::OWNER`]'s rule).
    const PREFIX_KEYS: bool;

    /// Whether pages keep the commitment of every terminal, for trees in which it is dear to compute.
    /// Terminals that only move are then told the one they had: [`TerminalJob::was`].
    const KEEP_TERMINALS: bool = false;
    /// Whether pages keep what a value commits to that is all its owner owns. Where they do not, it is hashed whenever
    /// its owner is, and jobs have the value itself: [`Owned::Value`].
    const KEEP_OWNED_VALUES: bool = true;
    /// Batches of at least so many operations are split over the threads, unless the tree is told
    /// otherwise.
    const SPLIT_OPS_MIN: usize = crate::split::SPLIT_OPS_MIN;
    /// How many ranges such a batch is split into for each thread, one at least. A range commits for itself, so large
    /// ones fill their lanes better, and small ones keep no thread waiting.
    const RANGES_PER_THREAD: usize = crate::split::RANGES_PER_THREAD;
    /// The most that the weights of a tree's values may come to, where values have a weight. A batch
    /// that would exceed it is refused before anything is hashed.
    const WEIGHT_MAX: Option<u64> = None;

    /// What a parent needs of a child: small, kept beside every child.
    type Commit: Copy + fmt::Debug + PartialEq + Send + Sync + 'static;
    /// What a user calls the root.
    type Root: Copy + fmt::Debug + PartialEq + Eq + AsRef<[u8]> + Send + Sync;
    /// Buffers that survive from level to level, so that hashing allocates nothing in steady state.
    type Scratch: Default + fmt::Debug + Send;

    /// Whether a commitment follows from the one before it and the children that changed.
    ///
    /// Then jobs say what was ([`TerminalJob::was`], [`BranchJob::changes`]), terminals that own carry
    /// their commitments in pages, others have that of [`Scheme::value_commit`], and groups of children
    /// are kept without commitments, since nobody needs those of untouched neighbours. Digits are bytes.
    const DELTAS: bool = false;
    /// What a residual image may take before it becomes a page. At most the default.
    const CUT_BYTES: usize = crate::image::CUT_BYTES;
    /// What the residual image of a part of an owned branch may take before it becomes a page.
    const OWNED_CUT_BYTES: usize = Self::CUT_BYTES;
    /// What the body of an owned branch may take before it becomes a page.
    const OWNED_BODY_BYTES: usize = crate::image::OWNED_BYTES_MAX;

    /// How many bytes a commitment takes in pages, nearly always. A scheme that says so lets values be put in
    /// the places of others without making nodes; one with [`Scheme::DELTAS`], [`Scheme::KEEP_TERMINALS`] or a
    /// [`Scheme::WEIGHT_MAX`] does not.
    const COMMIT_BYTES: Option<usize> = None;

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
        jobs: impl Iterator<Item = BranchJob<'a, Self>>,
        scratch: &mut Self::Scratch,
        out: &mut Vec<Self::Commit>,
    );

    /// Commits to one terminal: as [`Scheme::commit_terminals`] of one job, for schemes that can do that with
    /// less ado.
    fn commit_terminal(
        &self,
        job: TerminalJob<'_, Self::Commit>,
        scratch: &mut Self::Scratch,
        out: &mut Vec<Self::Commit>,
    ) {
        self.commit_terminals(std::iter::once(job), scratch, out);
    }

    /// Commits to one branch: as [`Scheme::commit_branches`] of one job.
    fn commit_branch(
        &self,
        job: BranchJob<'_, Self>,
        scratch: &mut Self::Scratch,
        out: &mut Vec<Self::Commit>,
    ) {
        self.commit_branches(std::iter::once(job), scratch, out);
    }

    /// What a value weighs. Asked only where there is a [`Scheme::WEIGHT_MAX`], as is the next.
    fn weight(&self, _value: &[u8]) -> u64 {
        0
    }

    /// What all values below a node weigh.
    fn weight_below(&self, _commit: &Self::Commit) -> u64 {
        0
    }

    /// The root of a tree with this top node, or of the empty tree.
    fn root(&self, top: Option<&Self::Commit>) -> Self::Root;

    /// Reads a root as the root record keeps it.
    fn decode_root(&self, bytes: &[u8]) -> Option<Self::Root>;

    /// Appends a commitment as pages keep it.
    fn encode_commit(&self, commit: &Self::Commit, out: &mut Vec<u8>);

    /// How many bytes [`Scheme::encode_commit`] appends.
    fn encoded_bytes(&self, commit: &Self::Commit) -> usize {
        let mut out = Vec::new();
        self.encode_commit(commit, &mut out);
        out.len()
    }

    /// Reads a commitment off the front of a page's bytes, with its length; `None` if it is malformed.
    fn decode_commit(&self, bytes: &[u8]) -> Option<(Self::Commit, usize)>;

    /// The commitment of a terminal that pages keep without one, of its value alone: asked for only of
    /// a scheme with [`Scheme::DELTAS`].
    fn value_commit(&self, _payload: &[u8]) -> Self::Commit {
        unreachable!("only schemes that follow differences are asked")
    }

    /// The length of the commitment on the front of a page's bytes: of one that
    /// [`Scheme::decode_commit`] reads, else `None`.
    fn commit_bytes(&self, bytes: &[u8]) -> Option<usize> {
        self.decode_commit(bytes).map(|(_, len)| len)
    }
}

/// A terminal to commit to.
#[derive(Clone, Copy, Debug)]
pub struct TerminalJob<'a, C> {
    pub(crate) key: JobKey<'a>,
    /// The rest of the key below the node's parent.
    pub suffix: Run<'a>,
    /// The value's bytes.
    pub payload: &'a [u8],
    /// The subtree that the terminal owns, if it owns one.
    pub owned: Option<Owned<'a, C>>,
    /// What the terminal committed to before, if the scheme asks for it and it is known: the same
    /// terminal elsewhere ([`Scheme::KEEP_TERMINALS`]), or one that owned something else
    /// ([`Scheme::DELTAS`]).
    pub was: Option<WasTerminal<C>>,
}

/// What a terminal owns.
#[derive(Clone, Copy, Debug)]
pub enum Owned<'a, C> {
    /// What it commits to.
    Commit(C),
    /// A single value: the digits of its key behind the owner's, and its bytes. Only a scheme without
    /// [`Scheme::KEEP_OWNED_VALUES`] is told so.
    Value(Run<'a>, &'a [u8]),
}

impl<C: Copy> Owned<'_, C> {
    /// What it commits to, in a scheme with [`Scheme::KEEP_OWNED_VALUES`].
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

/// The commitments of a terminal with the same key before it moved or changed.
#[derive(Clone, Copy, Debug)]
pub struct WasTerminal<C> {
    /// The terminal's own.
    pub commit: C,
    /// The depth at which it hung, in digits.
    pub depth: usize,
    /// That of the subtree that it owned.
    pub owned: Option<C>,
}

/// Where the whole key of a terminal comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JobKey<'a> {
    Whole(&'a [u8]),
    /// The first `fork` digits of a path, and the digit behind them, if there is one: the suffix follows.
    Below {
        path: &'a [u8],
        fork: usize,
        digit: Option<u8>,
    },
}

impl<C> TerminalJob<'_, C> {
    /// Appends the whole key.
    pub fn put_key(&self, out: &mut Vec<u8>) {
        match self.key {
            JobKey::Whole(key) => out.extend_from_slice(key),
            JobKey::Below { path, fork, digit } => self.suffix.put_path(path, fork, digit, out),
        }
    }
}

/// A branch to commit to.
#[derive(Debug)]
pub struct BranchJob<'a, S: Scheme> {
    /// The digits between the branch's parent and its fork.
    pub skip: Run<'a>,
    /// The children, each committed to. Two at least, counting `value`.
    pub children: Children<'a, S>,
    /// The value of the key that ends at the fork.
    pub value: Option<&'a [u8]>,
    /// What changed since a commitment to the same fork, if the scheme follows differences and there
    /// was one.
    pub changes: Option<Changes<'a, S>>,
}

/// What changed in a branch since a commitment to the same fork.
#[derive(Debug)]
pub struct Changes<'a, S: Scheme> {
    /// The branch's commitment before.
    pub was: S::Commit,
    pub(crate) scheme: &'a S,
    pub(crate) chain: Chain<'a, S::Commit>,
    pub(crate) home: u32,
    pub(crate) list: &'a [Change],
}

impl<S: Scheme> Changes<'_, S> {
    /// Each digit whose child changed, with the commitments of the child that was there and of the one
    /// that is.
    pub fn iter(&self) -> impl Iterator<Item = (u8, Option<S::Commit>, Option<S::Commit>)> + '_ {
        let codec = Codec { scheme: self.scheme };
        let commit = move |child: &Child| self.chain.commit(codec, self.home, child);
        self.list.iter().map(move |change| {
            (change.digit, change.old.as_ref().map(commit), change.new.as_ref().map(commit))
        })
    }
}

/// What a child of a patched branch, whose body is in `row`, commits to.
fn slot_commit<S: Scheme>(
    scheme: &S,
    chain: Chain<'_, S::Commit>,
    home: &Segment<S::Commit>,
    row: &[u8],
    slot: &Slot,
) -> S::Commit {
    if slot.state == SlotState::Changed {
        let Link::Made { segment, node } = home.children[slot.beside as usize].link else {
            unreachable!("what changed was made")
        };
        return chain.node(segment, node).commit.expect("children commit before their parent");
    }
    if slot.beside != Child::NOWHERE {
        return home.commits[slot.beside as usize];
    }
    let bytes = &row[usize::from(slot.at) + MEMBER_COMMIT_AT..];
    scheme.decode_commit(bytes).expect("it was skimmed").0
}

/// The children of a branch, by digit.
#[derive(Debug)]
pub struct Children<'a, S: Scheme>(Source<'a, S>);

#[derive(Debug)]
enum Source<'a, S: Scheme> {
    /// Of a node in segment `home`.
    Chain {
        scheme: &'a S,
        chain: Chain<'a, S::Commit>,
        home: u32,
        children: &'a [Child],
    },
    List(&'a [(u8, Option<S::Commit>)]),
    /// Of a branch in a binary tree.
    Two([S::Commit; 2]),
    /// Of a patched node in segment `home`: those that did not change say in `row` what they commit to.
    Patched {
        scheme: &'a S,
        chain: Chain<'a, S::Commit>,
        home: &'a Segment<S::Commit>,
        row: &'a [u8],
        slots: &'a [Slot],
    },
    /// Of a branch in a page that is edited.
    Passed(Passed<'a, S>),
}

/// The children of a branch, one after another.
enum Kids<'a, 'b, S: Scheme> {
    Passed(Passed<'a, S>),
    /// Those that are left of all.
    Named(&'b Children<'a, S>, Range<usize>),
}

impl<S: Scheme> Iterator for Kids<'_, '_, S> {
    type Item = (u8, S::Commit);

    #[inline]
    fn next(&mut self) -> Option<(u8, S::Commit)> {
        match self {
            Self::Passed(passed) => passed.next(),
            Self::Named(all, left) => left.next().map(|index| all.at(index)),
        }
    }

    #[inline(always)]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, tell: F) -> B {
        match self {
            Self::Passed(passed) => passed.fold(init, tell),
            Self::Named(all, left) => left.map(|index| all.at(index)).fold(init, tell),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Passed(passed) => passed.size_hint(),
            Self::Named(_, left) => left.size_hint(),
        }
    }
}

impl<S: Scheme> ExactSizeIterator for Kids<'_, '_, S> {}

impl<'a, S: Scheme> Children<'a, S> {
    pub(crate) const fn of(
        scheme: &'a S,
        chain: Chain<'a, S::Commit>,
        home: u32,
        children: &'a [Child],
    ) -> Self {
        Self(Source::Chain { scheme, chain, home, children })
    }

    pub(crate) fn patched(
        scheme: &'a S,
        chain: Chain<'a, S::Commit>,
        home: u32,
        patch: &Patch,
    ) -> Self {
        let (home, row) = (chain.segment(home), chain.row(patch.segment, patch.page));
        let slots = &home.slots[patch.slots.range()];
        Self(Source::Patched { scheme, chain, home, row, slots })
    }

    pub(crate) const fn passed(passed: Passed<'a, S>) -> Self {
        Self(Source::Passed(passed))
    }

    pub(crate) const fn two(commits: [S::Commit; 2]) -> Self {
        Self(Source::Two(commits))
    }

    pub(crate) const fn list(children: &'a [(u8, Option<S::Commit>)]) -> Self {
        Self(Source::List(children))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            Source::Chain { children, .. } => children.len(),
            Source::List(children) => children.len(),
            Source::Two(_) => 2,
            Source::Patched { slots, .. } => slots.len(),
            Source::Passed(passed) => passed.len(),
        }
    }

    /// Whether there are none: the branch then is a value at a fork, about to go.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the children at digits 0 and 1 commit to, if there are just these.
    #[inline(always)]
    pub fn pair(&self) -> Option<[S::Commit; 2]> {
        let [first, second] = match &self.0 {
            Source::Two(commits) => return Some(*commits),
            Source::Passed(passed) => passed.pair()?,
            _ if self.len() == 2 => [self.at(0), self.at(1)],
            _ => return None,
        };
        (first.0 == 0 && second.0 == 1).then_some([first.1, second.1])
    }

    /// Each child's digit and commitment, in order of digits. To go through them from within
    /// ([`Iterator::for_each`]) is faster: what they come from is looked at once.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u8, S::Commit)> + '_ {
        match &self.0 {
            Source::Passed(passed) => Kids::Passed(passed.clone()),
            _ => Kids::Named(self, 0..self.len()),
        }
    }

    /// A child that is named by its place among all.
    fn at(&self, index: usize) -> (u8, S::Commit) {
        match &self.0 {
            Source::Chain { scheme, chain, home, children } => {
                let child = &children[index];
                (child.digit, chain.commit(Codec { scheme: *scheme }, *home, child))
            }
            Source::List(children) => {
                let (digit, commit) = children[index];
                (digit, commit.expect("children commit before their parent"))
            }
            Source::Patched { scheme, chain, home, row, slots } => {
                let slot = &slots[index];
                (slot.digit, slot_commit(*scheme, *chain, home, row, slot))
            }
            Source::Two(commits) => (index as u8, commits[index]),
            Source::Passed(_) => unreachable!("these are gone through, not named"),
        }
    }
}
