//! Rows on their way out, and the cutting of one branch's children into buckets.
//!
//! Whoever writes a tree, from the nodes of a batch or from sorted leaves, leaves each node's bytes
//! as an item and cuts pages here: so the pages are the same.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use crate::image::{
    BucketEntry, Codec, OVERFLOW_BYTES, Overflowed, PAGE_BYTES_MAX, PageKind, seal,
};
use crate::node::overflow_of;
use crate::page_key::{PageKey, Space};
use crate::scheme::{Layout, Owner, Scheme};
use spinney_proof::digits::Run;

/// A row that was written, and how many bits its place has.
#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) key: PageKey,
    pub(crate) row: Arc<[u8]>,
    pub(crate) bits: u32,
}

impl Put {
    /// Bytes of key and value.
    pub(crate) fn bytes(&self) -> usize {
        self.key.as_bytes().len() + self.row.len()
    }
}

/// Rows that were written.
#[derive(Debug)]
pub(crate) struct Emitted {
    pub(crate) space: Space,
    pub(crate) rows: Vec<Put>,
    /// A row being sealed.
    row: Vec<u8>,
}

impl Emitted {
    pub(crate) const fn new(space: Space) -> Self {
        Self { space, rows: Vec::new(), row: Vec::new() }
    }

    /// Writes a row, at a place of so many bits.
    pub(crate) fn emit(&mut self, (key, bits): (PageKey, usize), kind: PageKind, bytes: &[u8]) {
        seal(key.as_bytes(), kind, bytes, &mut self.row);
        assert!(self.row.len() <= PAGE_BYTES_MAX, "a page of {} bytes", self.row.len());
        self.rows.push(Put { key, row: Arc::from(&self.row[..]), bits: bits as u32 });
    }

    /// Writes overflowing bytes to rows of their own, at the place where the node's run starts.
    pub(crate) fn overflow<S: Scheme>(
        &mut self,
        path: &[u8],
        depth: u32,
        run: Run<'_>,
        value: &[u8],
        limit: usize,
    ) -> Option<Overflowed> {
        let (over, blob) = overflow_of(run, value, limit)?;
        let bits = depth as usize * Codec::<S>::WIDTH.bits();
        for (index, part) in blob.chunks(OVERFLOW_BYTES).enumerate() {
            let index = u16::try_from(index).expect("values are bounded");
            let key = PageKey::overflow(self.space, path, bits, index);
            self.emit((key, 0), PageKind::Overflow, part);
        }
        Some(over)
    }
}

/// An item of the branch being written.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// For a bucket that was not opened, its first child's.
    pub(crate) digit: u8,
    pub(crate) bytes: Range<usize>,
}

/// Whether buckets are cut off a branch whose items take so many bytes. The two halves of a digit
/// of one bit are never cut.
pub(crate) fn may_cut<S: Scheme>(fork: u32, bytes: usize) -> bool {
    let owner_digits = |owner: Owner| owner.bytes * Codec::<S>::WIDTH.per_byte();
    let owned = S::LAYOUT.owner.is_some_and(|owner| fork as usize >= owner_digits(owner));
    let Layout { digit_bits, cut_bytes, owned_cut_bytes, .. } = S::LAYOUT;
    digit_bits > 1 && bytes > if owned { owned_cut_bytes } else { cut_bytes }
}

/// Cuts the children of one branch into buckets.
pub(crate) struct Cutter<'w, S: Scheme, M> {
    pub(crate) codec: Codec<'w, S>,
    /// What the parts are ranges of.
    pub(crate) bytes: &'w [u8],
    /// The children whose digits lie in a range.
    pub(crate) members: M,
    pub(crate) fork: u32,
    pub(crate) path: &'w [u8],
    pub(crate) emitted: &'w mut Emitted,
}

impl<S: Scheme, M: Fn(RangeInclusive<u8>) -> Vec<BucketEntry<S::Commit>>> Cutter<'_, S, M> {
    /// Appends the residual image of `parts`, which share the first `bits` bits of their digits.
    /// The depth of the recursion is the width of a digit.
    pub(crate) fn cut(&mut self, parts: &[Part], bits: u32, out: &mut Vec<u8>) {
        let whole = u32::from(S::LAYOUT.digit_bits);
        match parts {
            [] => return,
            [part] => {
                out.extend_from_slice(&self.bytes[part.bytes.clone()]);
                return;
            }
            _ => {}
        }
        let from = out.len();
        let half = parts.partition_point(|p| p.digit >> (whole - 1 - bits) & 1 == 0);
        self.cut(&parts[..half], bits + 1, out);
        self.cut(&parts[half..], bits + 1, out);
        let forks = half > 0 && half < parts.len();
        if bits == 0 || !forks || !may_cut::<S>(self.fork, out.len() - from) {
            return;
        }
        let prefix = parts[0].digit >> (whole - bits) << (whole - bits);
        let fork = self.fork as usize;
        let mut path = self.path.to_vec();
        Codec::<S>::WIDTH.append(&mut path, fork, prefix);
        let place = fork * Codec::<S>::WIDTH.bits() + bits as usize;
        let key = PageKey::page(self.emitted.space, &path, place);
        self.emitted.emit((key, place), PageKind::Bucket, &out[from..]);
        out.truncate(from);
        let rest = ((1u16 << (whole - bits)) - 1) as u8;
        let members = (self.members)(prefix..=prefix | rest);
        self.codec.put_bucket(out, prefix, bits as u8, members.into_iter());
    }
}
