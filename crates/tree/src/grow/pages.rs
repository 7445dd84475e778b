//! The pages of what a reduction made: see [`crate::ranges`].
//!
//! Each node leaves the bytes of its item, children before their parents, as in [`crate::write`]. A
//! node that was made is whole, and the depth at which it hangs is known: so its bytes are final.

use std::ops::{Range, RangeInclusive};

use super::{Branch, Leaf, NONE, Reducer, SortedItem, leaf_job, value_of};
use crate::cut::{Cutter, Emitted, Part};
use crate::image::{
    BucketEntry, Codec, FORK_VALUE_BYTES_MAX, INLINE_BYTES_MAX, PREFIX_BYTES_MAX, PageKind,
    PutBranch, PutLeaf, is_leaf, set_digit,
};
use crate::page_key::{PageKey, Space};
use crate::scheme::Scheme;
use spinney_proof::digits::Run;

/// Rows of nodes, and the items that wait for their parents. Its buffers serve one reduction after
/// another.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) emitted: Emitted,
    /// The item bytes of the last reduction.
    bytes: Vec<u8>,
    /// Those of each slot.
    spans: Vec<Range<usize>>,
    body: Vec<u8>,
    parts: Vec<Part>,
}

/// What writing takes: the reduction, its items, and the bytes of those that are subtrees.
struct Reduced<'a, S: Scheme> {
    codec: Codec<'a, S>,
    reduced: &'a Reducer<S>,
    items: &'a [SortedItem<'a, S::Commit>],
}

impl Pages {
    pub(crate) fn new(space: Space) -> Self {
        let (bytes, spans, body, parts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { emitted: Emitted::new(space), bytes, spans, body, parts }
    }

    /// Writes the nodes that the last reduction of `items` made. `written` has the bytes of each
    /// item that is a subtree. Then hands what the reduction left to `left`: the item that it
    /// begins with and, for a subtree, its bytes.
    pub(crate) fn write<'i, S: Scheme>(
        &mut self,
        scheme: &S,
        reduced: &Reducer<S>,
        items: &[SortedItem<'i, S::Commit>],
        written: impl Fn(usize) -> &'i [u8],
        mut left: impl FnMut(usize, Option<(S::Commit, &[u8])>),
    ) {
        self.bytes.clear();
        self.spans.clear();
        self.spans.resize(reduced.slots.len(), 0..0);
        for &(slot, item) in &reduced.settled {
            let from = self.bytes.len();
            self.bytes.extend_from_slice(written(item as usize));
            self.spans[slot as usize] = from..self.bytes.len();
        }
        let made = Reduced { codec: Codec { scheme }, reduced, items };
        for leaf in &reduced.leaves {
            self.leaf(&made, leaf, None);
        }
        let (owners, branches) = (&reduced.owner_ranks, &reduced.branch_ranks);
        for height in 0..owners.count().max(branches.count()) {
            if height < owners.count() {
                for &index in owners.of(height) {
                    let owner = &reduced.owners[index as usize];
                    self.leaf(&made, &owner.leaf, Some(owner.owned));
                }
            }
            if height < branches.count() {
                for &index in branches.of(height) {
                    self.branch(&made, &reduced.branches[index as usize]);
                }
            }
        }
        for &(item, slot) in &reduced.left {
            let made = (slot != NONE).then(|| {
                let commit = made.commit(slot);
                (commit, &self.bytes[self.spans[slot as usize].clone()])
            });
            left(item as usize, made);
        }
    }

    /// Writes the root page, given the item bytes of the topmost node.
    pub(crate) fn root(&mut self, item: &[u8]) {
        let key = PageKey::page(self.emitted.space, &[], 0);
        self.emitted.emit((key, 0), PageKind::Root, item);
    }

    /// A leaf's item. It carries its commitment at the top, if it overflows, and as [`Scheme`]
    /// says.
    fn leaf<S: Scheme>(&mut self, made: &Reduced<'_, S>, leaf: &Leaf, owned: Option<u32>) {
        let commit = made.commit(leaf.slot);
        let key = made.items[leaf.item as usize].key;
        let job = leaf_job::<S>(made.items, leaf, owned.map(|slot| made.commit(slot)));
        let is_owned = owned.is_none() && made.below_owner(key.len(), leaf.depth);
        let (suffix, value) = (job.suffix, job.value);
        let overflow = self.emitted.overflow::<S>(key, leaf.depth, suffix, value, INLINE_BYTES_MAX);
        let carries = leaf.depth == 0
            || (is_owned && S::LAYOUT.keep_owned_values)
            || overflow.is_some()
            || S::LAYOUT.keep_leaves
            || (Codec::<S>::DELTAS && owned.is_some());
        let from = self.bytes.len();
        // The owned item is copied behind the owner's own bytes.
        let owned = owned.map(|slot| self.bytes[self.spans[slot as usize].clone()].to_vec());
        let put = PutLeaf {
            digit: Some(0),
            suffix,
            value,
            overflow,
            commit: carries.then_some(commit),
            owned: owned.as_deref(),
        };
        made.codec.put_leaf(&mut self.bytes, &put);
        self.spans[leaf.slot as usize] = from..self.bytes.len();
    }

    /// A branch's item. The root's body is never cut off; an owned one's is sooner.
    fn branch<S: Scheme>(&mut self, made: &Reduced<'_, S>, branch: &Branch) {
        let path = made.items[branch.item as usize].key;
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        self.body(made, branch, path, &mut body);
        let below_owner = S::LAYOUT.owner.is_some_and(|owner| {
            branch.depth as usize == owner.bytes * Codec::<S>::WIDTH.per_byte()
        });
        let limit = if below_owner { S::LAYOUT.owned_body_bytes } else { S::LAYOUT.cut_bytes };
        let out_of_line = branch.depth > 0 && body.len() > limit;
        if out_of_line {
            let bits = branch.fork as usize * Codec::<S>::WIDTH.bits();
            let key = PageKey::page(self.emitted.space, path, bits);
            self.emitted.emit((key, bits), PageKind::Body, &body);
        }
        let (depth, fork) = (branch.depth as usize, branch.fork as usize);
        let prefix = Run::of(path, depth, fork, Codec::<S>::WIDTH);
        let overflow =
            self.emitted.overflow::<S>(path, branch.depth, prefix, &[], PREFIX_BYTES_MAX);
        let commit = made.commit(branch.slot);
        let put = PutBranch {
            digit: 0,
            commit,
            prefix,
            overflow,
            body: (!out_of_line).then_some(&body[..]),
        };
        let from = self.bytes.len();
        made.codec.put_branch(&mut self.bytes, &put);
        self.spans[branch.slot as usize] = from..self.bytes.len();
        self.body = body;
    }

    /// A branch's body, its large buckets cut off.
    fn body<S: Scheme>(
        &mut self,
        made: &Reduced<'_, S>,
        branch: &Branch,
        path: &[u8],
        body: &mut Vec<u8>,
    ) {
        if branch.value != NONE {
            let fork = branch.fork as usize;
            let value = value_of(&made.items[branch.value as usize]);
            let suffix = Run::cut(&[], fork, 0, Codec::<S>::WIDTH);
            let limit = FORK_VALUE_BYTES_MAX;
            let overflow = self.emitted.overflow::<S>(path, branch.fork, suffix, value, limit);
            let (digit, commit, owned) = (None, None, None);
            let put = PutLeaf { digit, suffix, value, overflow, commit, owned };
            made.codec.put_leaf(body, &put);
        }
        let slots = branch.children.0 as usize..branch.children.1 as usize;
        let children = &made.reduced.slots[slots.clone()];
        let spans = &self.spans[slots];
        self.parts.clear();
        for (child, span) in children.iter().zip(spans) {
            set_digit(&mut self.bytes[span.clone()], child.0);
            self.parts.push(Part { digit: child.0, bytes: span.clone() });
        }
        let bytes = &self.bytes[..];
        let members = |digits: RangeInclusive<u8>| {
            let within = children.iter().zip(spans).filter(|(child, _)| digits.contains(&child.0));
            let member = |(child, span): (&(u8, Option<S::Commit>), &Range<usize>)| BucketEntry {
                digit: child.0,
                leaf: is_leaf(&bytes[span.clone()]),
                commit: if Codec::<S>::DELTAS { None } else { child.1 },
            };
            within.map(member).collect()
        };
        let (codec, emitted) = (made.codec, &mut self.emitted);
        Cutter { codec, bytes, members, fork: branch.fork, path, emitted }.cut(
            &self.parts,
            0,
            body,
        );
    }
}

impl<S: Scheme> Reduced<'_, S> {
    fn commit(&self, slot: u32) -> S::Commit {
        self.reduced.slots[slot as usize].1.expect("all nodes are committed to")
    }

    /// Whether a leaf of so long a key hangs right below its owner.
    fn below_owner(&self, key_bytes: usize, depth: u32) -> bool {
        S::LAYOUT.owner.is_some_and(|owner| {
            key_bytes > owner.bytes && depth as usize == owner.bytes * Codec::<S>::WIDTH.per_byte()
        })
    }
}
