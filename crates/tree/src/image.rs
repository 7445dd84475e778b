//! The bytes of a page.
//!
//! ```text
//! row      = xxh3-64 of the row's key and all that follows (8, LE) | content
//! content  = 0x00 entry                root page: the top node, its body never cut off
//!          | 0x01 body                 the body of a branch
//!          | 0x02 item*                children of a branch whose digits share some first bits
//!          | 0x03 bytes                a part of what overflowed
//! body     = [ending] item*            items by digit
//! ending   = tag leaf                  the key that ends at the fork (suffix of no digits)
//! item     = tag digit node | tag digit bucket
//! node     = run value commit? [item]        a leaf, and what it owns (an item of digit 0)
//!          | commit run [length body]          a branch; without its body that has its own page
//! bucket   = bits count (digit flag commit?)*  a page of so many children, cut off at `bits` bits
//! run      = length in digits, bytes           aligned as in the path, zero outside
//! value    = length, bytes
//! overflow = run length, value length, xxh3-64 of run bytes and value: instead of both
//! ```
//! In a tree that follows differences ([`Differences`]) a leaf's commitment stands before
//! its run, every leaf that owns has one, and bucket entries have none. Lengths are LEB128.
//! The digit of the root entry and of an owned item is 0.
//!
//! Invariants:
//! - an entry's bytes depend on what lies at and below its node and on its depth alone, so an
//!   untouched entry is copied as it stands into whatever page it moves to;
//! - a branch always carries its commitment; a leaf carries one only when its bytes overflowed,
//!   when it is the root, when it is owned, if its tree keeps those
//!   ([`crate::Layout::keep_owned_values`]), or in a tree that keeps them all: a rule over the
//!   entries, not over history. Pages of a UBT that were written before it had that rule say more
//!   of owned values than is written now, and are read as they are;
//! - a page is at most [`PAGE_BYTES_MAX`] bytes.
//!
//! Parsing never panics, never recurses and never allocates: a page's bytes may be foreign.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::ops::Range;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::scheme::{Commitment, Differences, Scheme};
use spinney_proof::digits::{Run, Width};

/// A leaf whose suffix and value take more than this overflows.
pub(crate) const INLINE_BYTES_MAX: usize = 850;
/// A value at a fork that takes more than this overflows.
pub(crate) const FORK_VALUE_BYTES_MAX: usize = 256;
/// A prefix that takes more bytes than this overflows.
pub(crate) const PREFIX_BYTES_MAX: usize = 64;
/// What one overflow row holds.
pub(crate) const OVERFLOW_BYTES: usize = 4_000;
/// No page is larger.
pub(crate) const PAGE_BYTES_MAX: usize = 4_096;
/// The checksum in front of each row.
pub(crate) const SUM_BYTES: usize = 8;
/// What stands in front of a page's bytes: the checksum and the kind.
pub(crate) const FRAME_BYTES: usize = SUM_BYTES + 1;

/// How far behind the start of a branch's item, or of a bucket entry, its commitment stands.
pub(crate) const BUCKET_COMMIT_AT: usize = 2;

const TAG_KIND: u8 = 0b0000_0011;
const TAG_LEAF: u8 = 0;
const TAG_BRANCH: u8 = 1;
const TAG_BRANCH_PAGE: u8 = 2;
const TAG_BUCKET: u8 = 3;
const TAG_COMMIT: u8 = 0b0000_0100;
const TAG_OVERFLOW: u8 = 0b0000_1000;
const TAG_OWNS: u8 = 0b0001_0000;
const TAG_VALUE: u8 = 0b0010_0000;

/// What a page's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    Root = 0,
    Body = 1,
    Bucket = 2,
    Overflow = 3,
}

impl PageKind {
    pub(crate) const fn of(kind: u8) -> Option<Self> {
        match kind {
            0 => Some(Self::Root),
            1 => Some(Self::Body),
            2 => Some(Self::Bucket),
            3 => Some(Self::Overflow),
            _ => None,
        }
    }
}

/// Why bytes are no page.
pub(crate) type Malformed = &'static str;

const CUT_OFF: Malformed = "it ends within an item";

/// The checksum of a row.
pub(crate) fn checksum(key: &[u8], content: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(key);
    hash.update(content);
    hash.digest()
}

/// The checksum that ties overflowed bytes to their entry.
pub(crate) fn overflow_checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Makes `row` a row: checksum, kind, and a page's bytes.
pub(crate) fn seal(key: &[u8], kind: PageKind, bytes: &[u8], row: &mut Vec<u8>) {
    row.clear();
    row.extend_from_slice(&[0; FRAME_BYTES]);
    row.extend_from_slice(bytes);
    seal_framed(key, kind, row);
}

/// Makes a row of a page's bytes that have [`FRAME_BYTES`] in front of them.
pub(crate) fn seal_framed(key: &[u8], kind: PageKind, row: &mut [u8]) {
    if let Some(place) = row.get_mut(SUM_BYTES) {
        *place = kind as u8;
    }
    seal_in_place(key, row);
}

/// Gives a row whose bytes have changed its checksum.
pub(crate) fn seal_in_place(key: &[u8], row: &mut [u8]) {
    if let Some((sum, content)) = row.split_first_chunk_mut() {
        *sum = checksum(key, content).to_le_bytes();
    }
}

/// Checks a row's checksum; its bytes start at `SUM_BYTES + 1`.
pub(crate) fn unseal(key: &[u8], row: &[u8]) -> Result<PageKind, Malformed> {
    let (sum, content) = row.split_at_checked(SUM_BYTES).ok_or("shorter than its checksum")?;
    if checksum(key, content).to_le_bytes() != sum {
        return Err("its checksum does not match");
    }
    match content.first() {
        Some(&kind) => PageKind::of(kind).ok_or("it is of no known kind"),
        None => Err("it is of no known kind"),
    }
}

/// A leaf as its page holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafView<'a, C> {
    pub(crate) body: LeafBody<'a>,
    pub(crate) commit: Option<C>,
    /// Where the owned item starts.
    pub(crate) owned: Option<usize>,
}

/// Suffix and value, or what stands for them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeafBody<'a> {
    Inline { suffix: Run<'a>, value: &'a [u8] },
    Overflow(Overflowed),
}

/// Bytes that lie in rows of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflowed {
    /// Digits of the suffix or prefix.
    pub(crate) digits: usize,
    /// Bytes of the value; none for a prefix.
    pub(crate) value: usize,
    pub(crate) sum: u64,
}

impl Overflowed {
    /// How many bytes lie in the rows, for a run that starts at digit `start`.
    pub(crate) fn bytes(&self, start: usize, width: Width) -> usize {
        width.span(start, self.digits).saturating_add(self.value)
    }
}

/// A branch as its page holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BranchView<'a> {
    pub(crate) prefix: PrefixView<'a>,
    /// Where its body lies in the same page, unless it is a page of its own.
    pub(crate) body: Option<(usize, usize)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum PrefixView<'a> {
    Inline(Run<'a>),
    Overflow(Overflowed),
}

impl PrefixView<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Inline(run) => run.len(),
            Self::Overflow(over) => over.digits,
        }
    }
}

/// A node as its page holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NodeView<'a, C> {
    Leaf(LeafView<'a, C>),
    Branch(BranchView<'a>),
}

/// One item of a body.
#[derive(Debug)]
pub(crate) enum Item<'a, C> {
    /// The value of the key that ends at the fork.
    Value(LeafView<'a, C>),
    Node {
        digit: u8,
        node: NodeView<'a, C>,
    },
    /// Children that lie in a page of their own: `bits` first bits of their digits name it. The
    /// first member is at `first`.
    Bucket {
        bits: u8,
        first: usize,
    },
}

/// A child in a bucket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketEntry<C> {
    pub(crate) digit: u8,
    pub(crate) leaf: bool,
    /// Kept unless the scheme follows differences.
    pub(crate) commit: Option<C>,
}

/// Reads and writes images of one scheme.
#[derive(Debug)]
pub(crate) struct Codec<'s, S> {
    pub(crate) scheme: &'s S,
}

impl<S> Clone for Codec<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for Codec<'_, S> {}

impl<'s, S: Scheme> Codec<'s, S> {
    pub(crate) const WIDTH: Width = Width::new(S::LAYOUT.digit_bits);
    /// Whether commitments follow from those before.
    pub(crate) const DELTAS: bool = S::Differences::FOLLOWED;

    /// Parses the item at `at`, whose node's run starts at digit `start`. Answers where it ends.
    pub(crate) fn item<'a>(
        &self,
        page: &'a [u8],
        at: usize,
        start: usize,
    ) -> Result<(Item<'a, S::Commit>, usize), Malformed> {
        let mut bytes = Bytes { page, at };
        let tag = bytes.byte()?;
        if tag & !(TAG_KIND | TAG_COMMIT | TAG_OVERFLOW | TAG_OWNS | TAG_VALUE) != 0 {
            return Err("an item has an unknown tag");
        }
        if tag & TAG_VALUE != 0 {
            let view = self.leaf(&mut bytes, tag, start)?;
            return Ok((Item::Value(view), bytes.at));
        }
        let digit = bytes.byte()?;
        let node = match tag & TAG_KIND {
            TAG_LEAF => NodeView::Leaf(self.leaf(&mut bytes, tag, start)?),
            TAG_BUCKET => {
                let (bits, first) = self.bucket(&mut bytes)?;
                return Ok((Item::Bucket { bits, first }, bytes.at));
            }
            kind => NodeView::Branch(self.branch(&mut bytes, tag, kind, start)?),
        };
        Ok((Item::Node { digit, node }, bytes.at))
    }

    /// Parses an item that has to be a node.
    pub(crate) fn node<'a>(
        &self,
        page: &'a [u8],
        at: usize,
        start: usize,
    ) -> Result<(NodeView<'a, S::Commit>, usize), Malformed> {
        match self.item(page, at, start)? {
            (Item::Node { node, .. }, end) => Ok((node, end)),
            _ => Err("an item is not the node it should be"),
        }
    }

    fn leaf<'a>(
        &self,
        bytes: &mut Bytes<'a>,
        tag: u8,
        start: usize,
    ) -> Result<LeafView<'a, S::Commit>, Malformed> {
        let carries = tag & TAG_COMMIT != 0;
        let mut commit =
            if carries && Codec::<S>::DELTAS { Some(self.commit(bytes)?) } else { None };
        let body = if tag & TAG_OVERFLOW != 0 {
            LeafBody::Overflow(bytes.overflowed()?)
        } else {
            let suffix = bytes.run(start, Self::WIDTH)?;
            let len = bytes.length()?;
            LeafBody::Inline { suffix, value: bytes.take(len)? }
        };
        if carries && !Codec::<S>::DELTAS {
            commit = Some(self.commit(bytes)?);
        }
        let owned = if tag & TAG_OWNS != 0 { Some(bytes.at) } else { None };
        if let (Some(at), Some(owner)) = (owned, S::LAYOUT.owner) {
            // The owned item is skipped over: its owner's end is its own.
            let start = owner.bytes.saturating_mul(Self::WIDTH.per_byte());
            let mut inner = Bytes { page: bytes.page, at };
            let tag = inner.byte()?;
            if tag & (TAG_OWNS | TAG_VALUE) != 0 || tag & TAG_KIND == TAG_BUCKET {
                return Err("an owned item is no plain node");
            }
            inner.byte()?;
            match tag & TAG_KIND {
                TAG_LEAF => drop(self.leaf(&mut inner, tag, start)?),
                kind => drop(self.branch(&mut inner, tag, kind, start)?),
            }
            bytes.at = inner.at;
        } else if owned.is_some() {
            return Err("a leaf owns a subtree in a tree without owners");
        }
        Ok(LeafView { body, commit, owned })
    }

    fn branch<'a>(
        &self,
        bytes: &mut Bytes<'a>,
        tag: u8,
        kind: u8,
        start: usize,
    ) -> Result<BranchView<'a>, Malformed> {
        self.commit(bytes)?;
        let prefix = if tag & TAG_OVERFLOW != 0 {
            PrefixView::Overflow(bytes.overflowed()?)
        } else {
            PrefixView::Inline(bytes.run(start, Self::WIDTH)?)
        };
        let body = if kind == TAG_BRANCH {
            let len = bytes.length()?;
            let from = bytes.at;
            bytes.take(len)?;
            Some((from, bytes.at))
        } else {
            None
        };
        Ok(BranchView { prefix, body })
    }

    fn bucket(&self, bytes: &mut Bytes<'_>) -> Result<(u8, usize), Malformed> {
        let bits = bytes.byte()?;
        if bits == 0 || bits >= S::LAYOUT.digit_bits {
            return Err("a bucket is cut at no bit of its digit");
        }
        let count = usize::from(bytes.byte()?).saturating_add(1);
        let from = bytes.at;
        for _ in 0..count {
            bytes.take(BUCKET_COMMIT_AT)?;
            self.skip_bucket_commit(bytes)?;
        }
        Ok((bits, from))
    }

    /// Passes over the bucket entry at `at`: its digit, whether it is a leaf, where it
    /// ends.
    pub(crate) fn member(&self, page: &[u8], at: usize) -> Result<(u8, bool, usize), Malformed> {
        let mut bytes = Bytes { page, at };
        let (digit, leaf) = (bytes.byte()?, bytes.flag()?);
        self.skip_bucket_commit(&mut bytes)?;
        Ok((digit, leaf, bytes.at))
    }

    /// What a branch or a bucket entry that was parsed before commits to.
    pub(crate) fn kept(&self, page: &[u8], at: usize) -> Option<S::Commit> {
        let bytes = page.get(at.wrapping_add(BUCKET_COMMIT_AT)..)?;
        S::Commit::decode(bytes).map(|(commit, _)| commit)
    }

    fn skip_bucket_commit(&self, bytes: &mut Bytes<'_>) -> Result<(), Malformed> {
        if Codec::<S>::DELTAS { Ok(()) } else { self.skip_commit(bytes) }
    }

    #[inline(always)]
    fn skip_commit(&self, bytes: &mut Bytes<'_>) -> Result<(), Malformed> {
        let rest = bytes.page.get(bytes.at..).ok_or(CUT_OFF)?;
        let len = S::Commit::length(rest).ok_or("a commitment is malformed")?;
        bytes.at = bytes.at.saturating_add(len);
        Ok(())
    }

    fn commit(&self, bytes: &mut Bytes<'_>) -> Result<S::Commit, Malformed> {
        let rest = bytes.page.get(bytes.at..).ok_or(CUT_OFF)?;
        let (commit, len) = S::Commit::decode(rest).ok_or("a commitment is malformed")?;
        bytes.at = bytes.at.saturating_add(len);
        Ok(commit)
    }

    /// The prefix and the body of a branch at `at`, which was parsed before; nothing if it is no
    /// branch whose prefix is inline.
    pub(crate) fn plain_branch<'a>(
        &self,
        page: &'a [u8],
        at: usize,
        start: usize,
    ) -> Option<(Run<'a>, Option<(usize, usize)>)> {
        let tag = *page.get(at)?;
        if tag != TAG_BRANCH && tag != TAG_BRANCH_PAGE {
            return None;
        }
        let mut bytes = Bytes { page, at: at.wrapping_add(BUCKET_COMMIT_AT) };
        self.skip_commit(&mut bytes).ok()?;
        let prefix = bytes.run(start, Self::WIDTH).ok()?;
        if tag == TAG_BRANCH_PAGE {
            return Some((prefix, None));
        }
        let len = bytes.length().ok()?;
        let from = bytes.at;
        bytes.take(len).ok()?;
        Some((prefix, Some((from, bytes.at))))
    }

    /// The parts of the leaf at `at`, which was parsed before; nothing if there is none, or if
    /// it overflowed.
    pub(crate) fn inline_leaf<'a>(
        &self,
        page: &'a [u8],
        at: usize,
        start: usize,
    ) -> Option<(Run<'a>, Range<usize>)> {
        let tag = *page.get(at)?;
        if tag & !(TAG_COMMIT | TAG_OWNS) != TAG_LEAF {
            return None;
        }
        let mut bytes = Bytes { page, at: at.wrapping_add(BUCKET_COMMIT_AT) };
        if tag & TAG_COMMIT != 0 && Codec::<S>::DELTAS {
            self.skip_commit(&mut bytes).ok()?;
        }
        let suffix = bytes.run(start, Self::WIDTH).ok()?;
        let len = bytes.length().ok()?;
        let from = bytes.at;
        bytes.take(len).ok()?;
        Some((suffix, from..bytes.at))
    }

    /// Appends a leaf. Overflowed bytes are the caller's to write.
    pub(crate) fn put_leaf(&self, out: &mut Vec<u8>, node: &PutLeaf<'_, S::Commit>) {
        let mut tag = TAG_LEAF;
        tag |= if node.commit.is_some() { TAG_COMMIT } else { 0 };
        tag |= if node.overflow.is_some() { TAG_OVERFLOW } else { 0 };
        tag |= if node.owned.is_some() { TAG_OWNS } else { 0 };
        match node.digit {
            Some(digit) => out.extend_from_slice(&[tag, digit]),
            None => out.push(tag | TAG_VALUE),
        }
        // At the same distance as a branch's, where others need it.
        let (first, last) =
            if Codec::<S>::DELTAS { (&node.commit, &None) } else { (&None, &node.commit) };
        if let Some(commit) = first {
            commit.encode(out);
        }
        if let Some(over) = node.overflow {
            put_overflow(out, over);
        } else {
            put_run(out, node.suffix);
            put_length(out, node.value.len());
            out.extend_from_slice(node.value);
        }
        if let Some(commit) = last {
            commit.encode(out);
        }
        if let Some(owned) = node.owned {
            out.extend_from_slice(owned);
        }
    }

    /// Appends a branch; `body` stands in the same page.
    pub(crate) fn put_branch(&self, out: &mut Vec<u8>, node: &PutBranch<'_, S::Commit>) {
        self.put_branch_head(out, node, node.body.map(<[u8]>::len));
        out.extend_from_slice(node.body.unwrap_or_default());
    }

    /// Appends what stands in front of a branch's body of some length, if that is in the same page.
    pub(crate) fn put_branch_head(
        &self,
        out: &mut Vec<u8>,
        node: &PutBranch<'_, S::Commit>,
        body: Option<usize>,
    ) {
        let mut tag = if body.is_some() { TAG_BRANCH } else { TAG_BRANCH_PAGE };
        tag |= if node.overflow.is_some() { TAG_OVERFLOW } else { 0 };
        out.extend_from_slice(&[tag, node.digit]);
        node.commit.encode(out);
        match node.overflow {
            Some(over) => put_overflow(out, over),
            None => put_run(out, node.prefix),
        }
        if let Some(body) = body {
            put_length(out, body);
        }
    }

    /// Appends a reference to a page of children.
    pub(crate) fn put_bucket(
        &self,
        out: &mut Vec<u8>,
        digit: u8,
        bits: u8,
        members: impl ExactSizeIterator<Item = BucketEntry<S::Commit>>,
    ) {
        // A digit has at most 256 values.
        let count = members.len().saturating_sub(1) as u8;
        out.extend_from_slice(&[TAG_BUCKET, digit, bits, count]);
        for member in members {
            out.extend_from_slice(&[member.digit, u8::from(member.leaf)]);
            if let Some(commit) = &member.commit {
                commit.encode(out);
            }
        }
    }
}

/// A leaf to write: `digit` is `None` for a value at a fork.
pub(crate) struct PutLeaf<'a, C> {
    pub(crate) digit: Option<u8>,
    pub(crate) suffix: Run<'a>,
    pub(crate) value: &'a [u8],
    pub(crate) overflow: Option<Overflowed>,
    pub(crate) commit: Option<C>,
    /// The bytes of the owned item.
    pub(crate) owned: Option<&'a [u8]>,
}

/// A branch to write.
pub(crate) struct PutBranch<'a, C> {
    pub(crate) digit: u8,
    pub(crate) commit: C,
    pub(crate) prefix: Run<'a>,
    pub(crate) overflow: Option<Overflowed>,
    pub(crate) body: Option<&'a [u8]>,
}

/// Writes another digit into an item's bytes.
pub(crate) fn set_digit(item: &mut [u8], digit: u8) {
    if let Some(place) = item.get_mut(1) {
        *place = digit;
    }
}

/// Whether an item is a leaf that has nothing but its key and its value.
pub(crate) fn is_bare_leaf(item: &[u8]) -> bool {
    item.first() == Some(&TAG_LEAF)
}

/// Whether an item that is a node is a leaf.
pub(crate) fn is_leaf(item: &[u8]) -> bool {
    item.first().is_some_and(|tag| tag & TAG_KIND == TAG_LEAF)
}

fn put_run(out: &mut Vec<u8>, run: Run<'_>) {
    put_length(out, run.len());
    run.write(out);
}

fn put_overflow(out: &mut Vec<u8>, over: Overflowed) {
    put_length(out, over.digits);
    put_length(out, over.value);
    out.extend_from_slice(&over.sum.to_le_bytes());
}

/// How many bytes a length takes.
pub(crate) const fn length_bytes(len: usize) -> usize {
    let bits = usize::BITS.saturating_sub(len.leading_zeros());
    if bits == 0 { 1 } else { bits.div_ceil(7) as usize }
}

fn put_length(out: &mut Vec<u8>, mut len: usize) {
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
}

/// A place in a page.
struct Bytes<'a> {
    page: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    #[inline(always)]
    fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = *self.page.get(self.at).ok_or(CUT_OFF)?;
        self.at = self.at.wrapping_add(1);
        Ok(byte)
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("a child is neither leaf nor branch"),
        }
    }

    #[inline(always)]
    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(len).ok_or("a length is out of bounds")?;
        let bytes = self.page.get(self.at..end).ok_or(CUT_OFF)?;
        self.at = end;
        Ok(bytes)
    }

    #[inline(always)]
    fn length(&mut self) -> Result<usize, Malformed> {
        if let Some(&byte @ 0..0x80) = self.page.get(self.at) {
            self.at = self.at.wrapping_add(1);
            return Ok(usize::from(byte));
        }
        self.long_length()
    }

    fn long_length(&mut self) -> Result<usize, Malformed> {
        let mut len = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            if shift == 28 && byte > 0x0f {
                break;
            }
            len |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err("a length is not in its shortest form");
                }
                return Ok(len as usize);
            }
        }
        Err("a length is out of bounds")
    }

    #[inline(always)]
    fn run(&mut self, start: usize, width: Width) -> Result<Run<'a>, Malformed> {
        let len = self.length()?;
        let bytes = self.take(width.span(start, len))?;
        Ok(Run::cut(bytes, start, len, width))
    }

    fn overflowed(&mut self) -> Result<Overflowed, Malformed> {
        let digits = self.length()?;
        let value = self.length()?;
        let sum = *self.take(8)?.first_chunk().ok_or(CUT_OFF)?;
        Ok(Overflowed { digits, value, sum: u64::from_le_bytes(sum) })
    }
}
