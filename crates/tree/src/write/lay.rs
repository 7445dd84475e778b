//! Laying out the children of a branch whose buckets may come, go, or be cut elsewhere.

use std::ops::RangeInclusive;

use super::{ListedChildren, Writer, Written};
use crate::cut::{Cutter, Part};
use crate::error::TreeError;
use crate::image::{BucketEntry, Codec};
use crate::node::{Chain, Made, Node, PageRef, TouchedChild};
use crate::page::{BUCKET_HEAD, IndexEntry, Within};
use crate::scheme::Scheme;

impl<'a, S: Scheme> Writer<'a, S> {
    /// Lays out the items of a branch's children behind all other bodies, large buckets cut off.
    pub(super) fn lay_out(&mut self, number: usize) -> Result<(), TreeError> {
        let (node, made) = self.node(number);
        let mut bytes = std::mem::take(&mut self.items);
        let mut parts = std::mem::take(&mut self.parts);
        bytes.clear();
        parts.clear();
        let mut changes = self.listed(number);
        if node.base != PageRef::NOWHERE {
            self.lay_stored(
                number,
                (node.base, node.within),
                &mut changes,
                None,
                (&mut bytes, &mut parts),
            )?;
        }
        self.lay_children(&mut changes, 256, (&mut bytes, &mut parts))?;
        let (codec, chain) = (self.codec, self.chain);
        let members = |digits: RangeInclusive<u8>| members(codec, chain, (made, node), digits);
        let path = chain.key(node, Self::WIDTH);
        let mut out = std::mem::take(&mut self.bodies);
        let emitted = &mut self.emitted;
        Cutter { codec, bytes: &bytes, members, fork: node.fork, path, emitted }
            .cut(&parts, 0, &mut out);
        (self.bodies, self.items, self.parts) = (out, bytes, parts);
        let rows = self.emitted.rows.drain(..);
        self.puts.extend(rows.map(Written::new));
        Ok(())
    }

    /// Lays out the stored children among some entries of a page, with the listed children before
    /// and between them; those of buckets that were opened one by one.
    fn lay_stored(
        &mut self,
        number: usize,
        (page, among): (PageRef, Within),
        changes: &mut ListedChildren<'a>,
        above: Option<(u8, u8)>,
        out: (&mut Vec<u8>, &mut Vec<Part>),
    ) -> Result<(), TreeError> {
        let (bytes, parts) = out;
        let (node, made) = self.node(number);
        let opened = self.chain.page(page);
        let mut at = among.from;
        while at < among.end {
            let entry = *opened.entry(at);
            self.lay_children(changes, u16::from(entry.digit), (&mut *bytes, &mut *parts))?;
            if !entry.kind.is_in_bucket() {
                at += 1;
                let is_it = |change: &TouchedChild| change.digit == entry.digit && change.stands();
                if let Some((change, plan)) = changes.next_if(&self.plans, is_it) {
                    if change.made.is_something() {
                        self.lay_child(plan, bytes, parts)?;
                    }
                    continue;
                }
                let from = bytes.len();
                bytes.extend_from_slice(&opened.row[usize::from(entry.at)..usize::from(entry.end)]);
                parts.push(Part { digit: entry.digit, bytes: from..bytes.len() });
                continue;
            }
            let rest = S::LAYOUT.digit_bits - entry.span;
            let prefix = entry.digit >> rest;
            let same = |e: &&IndexEntry| {
                e.kind.is_in_bucket() && e.span == entry.span && e.digit >> rest == prefix
            };
            let left = Within { from: at, end: among.end };
            let count = opened.entries(left).iter().take_while(same).count() as u16;
            debug_assert!(above.is_none_or(|(bits, _)| bits < entry.span));
            let bucket = self.chain.buckets(made.arena, node).find(|bucket| {
                let bucket = self.chain.page(*bucket);
                let first = bucket.entries(bucket.top()).first();
                bucket.bits == entry.span
                    && first.is_some_and(|first| first.digit >> rest == prefix)
            });
            match bucket {
                Some(bucket) => {
                    let top = self.chain.page(bucket).top();
                    let above = Some((entry.span, prefix));
                    self.lay_stored(
                        number,
                        (bucket, top),
                        changes,
                        above,
                        (&mut *bytes, &mut *parts),
                    )?;
                }
                None => {
                    let last = opened.entry(at + count - 1);
                    let range = usize::from(entry.at) - BUCKET_HEAD..usize::from(last.end);
                    let from = bytes.len();
                    bytes.extend_from_slice(&opened.row[range]);
                    parts.push(Part { digit: entry.digit, bytes: from..bytes.len() });
                }
            }
            at += count;
        }
        Ok(())
    }

    /// Lays out the listed children of digits below one that stand for nothing stored.
    fn lay_children(
        &mut self,
        changes: &mut ListedChildren<'a>,
        below: u16,
        (bytes, parts): (&mut Vec<u8>, &mut Vec<Part>),
    ) -> Result<(), TreeError> {
        let is_below = |change: &TouchedChild| u16::from(change.digit) < below;
        while let Some((change, plan)) = changes.next_if(&self.plans, is_below) {
            if change.made.is_something() {
                self.lay_child(plan, bytes, parts)?;
            }
        }
        Ok(())
    }

    fn lay_child(
        &mut self,
        plan: usize,
        bytes: &mut Vec<u8>,
        parts: &mut Vec<Part>,
    ) -> Result<(), TreeError> {
        let from = bytes.len();
        self.put_item(plan, bytes)?;
        let digit = self.node(plan).0.digit;
        parts.push(Part { digit, bytes: from..bytes.len() });
        Ok(())
    }
}

/// The children of a branch whose digits lie in a range, as a bucket has them.
fn members<S: Scheme>(
    codec: Codec<'_, S>,
    chain: Chain<'_, S::Commit>,
    (made, node): (Made, &Node),
    digits: RangeInclusive<u8>,
) -> Vec<BucketEntry<S::Commit>> {
    let changes = chain.changes(made.arena, node);
    let listed = changes
        .iter()
        .filter(|change| digits.contains(&change.digit) && change.made.is_something());
    let mut all: Vec<BucketEntry<S::Commit>> = listed
        .map(|change| BucketEntry {
            digit: change.digit,
            leaf: !chain.node(change.made).is_branch(),
            commit: (!Codec::<S>::DELTAS).then(|| chain.commit(change.made)),
        })
        .collect();
    if node.base != PageRef::NOWHERE {
        let page = chain.page(node.base);
        let is_listed =
            |digit: u8| changes.iter().any(|change| change.digit == digit && change.stands());
        for entry in page.entries(node.within) {
            if digits.contains(&entry.digit) && !is_listed(entry.digit) {
                let commit = match Codec::<S>::DELTAS {
                    true => None,
                    false => page.commit(codec, entry, node.fork as usize + 1),
                };
                let leaf = entry.kind.is_leaf();
                all.push(BucketEntry { digit: entry.digit, leaf, commit });
            }
        }
        all.sort_unstable_by_key(|member| member.digit);
    }
    all
}
