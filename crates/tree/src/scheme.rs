//! What differs from tree to tree.
//!
//! The engine owns the shape: a path-compressed radix tree in normal form, in which a branch has at
//! least two children and a terminal hangs at the shallowest depth at which its key is alone. A
//! [`Scheme`] says how wide a digit is, which keys and values it takes, and how terminals and
//! branches commit. It never sees pages, stores or batches.
//!
//! How the five trees fit:
//! - `mpt` over raw keys: nibbles; a key that ends at a fork is the branch's own value.
//! - `mpt` over Ethereum's state: [`Owner`] at 32 bytes; an account is a terminal that owns the
//!   subtree of its slots and commits to its root.
//! - `ubt` and `verkle`: implicit [`Owner`] at 31 bytes; a stem is an owner that exists as long as
//!   it has values, and the suffix byte is the path below it. So a stem is stored in proportion to
//!   its values, and pages are cut through the suffix byte like anywhere else.
//! - `pbt`: bits, no owner; the engine's normal form is the tree's own.
//! - `sum`: bits, lowest first in a byte, so its keys come with each byte's bits reversed;
//!   commitments carry the sum, and pages keep those of terminals, which cost a climb of hundreds
//!   of hashes.

use std::fmt;

use crate::engine::Engine;
use crate::error::Refused;
use crate::ids::SchemeId;
use crate::image::Codec;
use crate::node::{Chain, Link, TouchedChild};
use crate::page::{Entry, Page};
use spinney_proof::digits::Run;

/// The most bytes a key may have.
pub const KEY_BYTES_MAX: usize = 8_192;
/// The most bytes a value may have: what 65,535 overflow rows hold is far above it.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// A rule that terminals of one key length own the longer keys which they begin.
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
    matches!(S::OWNER, Some(Owner { implicit: true, .. }))
}

/// A tree's commitments. See the module's documentation for how each tree maps onto it.
pub trait Scheme: fmt::Debug + Sized + Send + Sync + 'static {
    /// The width of a digit in bits: 1, 2, 4 or 8.
    const DIGIT_BITS: u8;
    /// Whether terminals own the longer keys which they begin.
    const OWNER: Option<Owner>;
    /// Whether a key may begin another one (outside of [`Scheme::OWNER`]'s rule).
    const PREFIX_KEYS: bool;

    /// Whether pages keep the commitment of every terminal, for trees in which it is dear to
    /// compute. Terminals that only move are then told the one they had: [`TerminalJob::was`].
    const KEEP_TERMINALS: bool = false;
    /// Whether pages keep what a value commits to that is all its owner owns. Where they do not, it
    /// is hashed whenever its owner is, and jobs have the value itself: [`Owned::Value`].
    const KEEP_OWNED_VALUES: bool = true;
    /// Batches of at least so many operations are split over the threads, unless the tree is told
    /// otherwise.
    const SPLIT_OPS_MIN: usize = crate::prepare::SPLIT_OPS_MIN;
    /// How many ranges such a batch is split into for each thread, one at least. A range commits
    /// for itself, so large ones fill their lanes better, and small ones keep no thread waiting.
    const RANGES_PER_THREAD: usize = crate::prepare::RANGES_PER_THREAD;
    /// The most that the weights of a tree's values may come to, where values have a weight. A
    /// batch that would exceed it is refused before anything is hashed.
    const WEIGHT_MAX: Option<u64> = None;

    /// What a parent needs of a child: small, kept beside every child.
    type Commit: Copy + fmt::Debug + PartialEq + Send + Sync + 'static;
    /// What a user calls the root.
    type Root: Copy + fmt::Debug + PartialEq + Eq + AsRef<[u8]> + Send + Sync;
    /// Buffers that survive from level to level, so that hashing allocates nothing in steady state.
    type Scratch: Default + fmt::Debug + Send;

    /// Whether a commitment follows from the one before it and the children that changed.
    ///
    /// Then jobs say what was ([`TerminalJob::was`], [`BranchJob::changes`]), terminals that own
    /// carry their commitments in pages, others have that of [`Scheme::value_commit`], and groups
    /// of children are kept without commitments, since nobody needs those of untouched neighbours.
    /// Digits are bytes.
    const DELTAS: bool = false;
    /// What a residual image may take before it becomes a page. At most the default.
    const CUT_BYTES: usize = crate::image::CUT_BYTES;
    /// What the residual image of a part of an owned branch may take before it becomes a page.
    const OWNED_CUT_BYTES: usize = Self::CUT_BYTES;
    /// What the body of an owned branch may take before it becomes a page.
    const OWNED_BODY_BYTES: usize = crate::image::OWNED_BYTES_MAX;

    /// How many bytes a commitment takes in pages, nearly always. A scheme that says so lets values
    /// be put in the places of others without making nodes; one with [`Scheme::DELTAS`],
    /// [`Scheme::KEEP_TERMINALS`] or a [`Scheme::WEIGHT_MAX`] does not.
    const COMMIT_BYTES: Option<usize> = None;

    /// The discriminant kept in the root record.
    fn id(&self) -> SchemeId;

    /// The engine for this scheme. Where the scheme does not say it itself, the engine is compiled
    /// again in each crate that uses a tree of it; where it says the same as is said here, in a
    /// function with `#[inline(never)]`, that is done once, in the crate of the scheme.
    fn engine() -> Engine<Self> {
        Engine::here()
    }

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

    /// Commits to one terminal: as [`Scheme::commit_terminals`] of one job, for schemes that can do
    /// that with less ado.
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

    /// Whether two commitments of one node are the same to whoever reads below them: what a scheme
    /// notes in them for later commits may differ.
    fn agree(&self, one: &Self::Commit, other: &Self::Commit) -> bool {
        one == other
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

    /// Reads a commitment off the front of a page's bytes, with its length; `None` if it is
    /// malformed.
    fn decode_commit(&self, bytes: &[u8]) -> Option<(Self::Commit, usize)>;

    /// The commitment of a terminal that pages keep without one, of its value alone: asked for only
    /// of a scheme with [`Scheme::DELTAS`].
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
    /// A single value: the digits of its key behind the owner's, and its bytes. Only a scheme
    /// without [`Scheme::KEEP_OWNED_VALUES`] is told so.
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
    /// The first `fork` digits of a path, and the digit behind them, if there is one: the suffix
    /// follows.
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
    /// What changed since a commitment to the same fork, if the scheme follows differences and
    /// there was one.
    pub changes: Option<Changes<'a, S>>,
}

/// What changed in a branch since a commitment to the same fork.
#[derive(Debug)]
pub struct Changes<'a, S: Scheme> {
    /// The branch's commitment before.
    pub was: S::Commit,
    pub(crate) codec: Codec<'a, S>,
    pub(crate) chain: Chain<'a, S::Commit>,
    pub(crate) before: Link,
    pub(crate) kids: &'a [TouchedChild],
    /// The digit at which the runs of children begin.
    pub(crate) start: usize,
}

impl<S: Scheme> Changes<'_, S> {
    /// Each digit whose child changed, with the commitments of the child that was there and of the
    /// one that is.
    pub fn iter(&self) -> impl Iterator<Item = (u8, Option<S::Commit>, Option<S::Commit>)> + '_ {
        let fresh = self.kids.iter().filter(|kid| kid.fresh);
        fresh.map(move |kid| {
            let old = self.chain.commit_before(self.codec, self.before, kid, self.start);
            let new = kid.made.is_something().then(|| self.chain.commit(kid.made));
            (kid.digit, old, new)
        })
    }
}

/// The children of a branch, by digit.
#[derive(Debug)]
pub struct Children<'a, S: Scheme>(Source<'a, S>);

#[derive(Debug)]
enum Source<'a, S: Scheme> {
    List(&'a [(u8, Option<S::Commit>)]),
    /// Of a touched branch.
    Touched(Touched<'a, S>),
}

/// The children of a touched branch: those that are stored, but for those that are listed.
#[derive(Debug)]
pub(crate) struct Touched<'a, S: Scheme> {
    pub(crate) codec: Codec<'a, S>,
    pub(crate) chain: Chain<'a, S::Commit>,
    pub(crate) page: Option<&'a Page<S::Commit>>,
    pub(crate) stored: &'a [Entry],
    pub(crate) kids: &'a [TouchedChild],
    /// The digit at which the runs of children begin.
    pub(crate) start: usize,
}

impl<S: Scheme> Clone for Touched<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: Scheme> Copy for Touched<'_, S> {}

impl<S: Scheme> Touched<'_, S> {
    /// What a stored child commits to.
    #[inline(always)]
    fn stored(&self, entry: &Entry) -> S::Commit {
        let commit = self.page.and_then(|page| page.commit(self.codec, entry, self.start));
        commit.expect("siblings commit before parents")
    }

    /// How many there are.
    fn len(&self) -> usize {
        let count = |kids: &[TouchedChild], is: fn(&TouchedChild) -> bool| {
            kids.iter().filter(|kid| is(kid)).count()
        };
        let made = count(self.kids, |kid| kid.made.is_something());
        self.stored.len() + made - count(self.kids, TouchedChild::stands)
    }

    /// The digits of two children and what these commit to, if there are not more or fewer.
    #[inline(always)]
    fn pair(&self) -> Option<[(u8, S::Commit); 2]> {
        match (self.stored, self.kids) {
            ([left, right], [kid]) if kid.stands() && kid.made.is_something() => {
                let commit = self.chain.commit(kid.made);
                Some(if kid.digit == left.digit {
                    [(kid.digit, commit), (right.digit, self.stored(right))]
                } else {
                    [(left.digit, self.stored(left)), (kid.digit, commit)]
                })
            }
            _ => {
                let mut all = *self;
                let pair = [all.next()?, all.next()?];
                all.next().is_none().then_some(pair)
            }
        }
    }
}

/// A child's digit and what it commits to.
impl<S: Scheme> Iterator for Touched<'_, S> {
    type Item = (u8, S::Commit);

    #[inline]
    fn next(&mut self) -> Option<(u8, S::Commit)> {
        loop {
            let stored = self.stored.first();
            if let Some((kid, kids)) = self.kids.split_first()
                && stored.is_none_or(|entry| kid.digit <= entry.digit)
            {
                self.kids = kids;
                if stored.is_some_and(|entry| kid.digit == entry.digit) {
                    self.stored = &self.stored[1..];
                }
                if kid.made.is_something() {
                    return Some((kid.digit, self.chain.commit(kid.made)));
                }
                continue;
            }
            let (entry, rest) = self.stored.split_first()?;
            self.stored = rest;
            return Some((entry.digit, self.stored(entry)));
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), Some(self.len()))
    }
}

impl<S: Scheme> ExactSizeIterator for Touched<'_, S> {}

/// The children of a branch, one after another.
enum Each<'a, 'b, S: Scheme> {
    Touched(Touched<'a, S>),
    Listed(std::slice::Iter<'b, (u8, Option<S::Commit>)>),
}

impl<S: Scheme> Iterator for Each<'_, '_, S> {
    type Item = (u8, S::Commit);

    #[inline]
    fn next(&mut self) -> Option<(u8, S::Commit)> {
        match self {
            Self::Touched(touched) => touched.next(),
            Self::Listed(list) => list.next().map(listed),
        }
    }

    #[inline(always)]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, tell: F) -> B {
        match self {
            Self::Touched(touched) => touched.fold(init, tell),
            Self::Listed(list) => list.map(listed).fold(init, tell),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Touched(touched) => touched.size_hint(),
            Self::Listed(list) => list.size_hint(),
        }
    }
}

fn listed<C: Copy>((digit, commit): &(u8, Option<C>)) -> (u8, C) {
    (*digit, commit.expect("children commit before their parent"))
}

impl<S: Scheme> ExactSizeIterator for Each<'_, '_, S> {}

impl<'a, S: Scheme> Children<'a, S> {
    pub(crate) const fn touched(touched: Touched<'a, S>) -> Self {
        Self(Source::Touched(touched))
    }

    pub(crate) const fn list(children: &'a [(u8, Option<S::Commit>)]) -> Self {
        Self(Source::List(children))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            Source::List(children) => children.len(),
            Source::Touched(touched) => touched.len(),
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
            Source::Touched(touched) => touched.pair()?,
            Source::List([first, second]) => [listed(first), listed(second)],
            Source::List(_) => return None,
        };
        (first.0 == 0 && second.0 == 1).then_some([first.1, second.1])
    }

    /// Each child's digit and commitment, in order of digits. To go through them from within
    /// ([`Iterator::for_each`]) is faster: what they come from is looked at once.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u8, S::Commit)> + '_ {
        match &self.0 {
            Source::Touched(touched) => Each::Touched(*touched),
            Source::List(list) => Each::Listed(list.iter()),
        }
    }
}
