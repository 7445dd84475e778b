//! How long each touched node's item is, and which bodies are pages of their own.

use std::ops::Range;

use super::Writer;
use crate::cut::may_cut;
use crate::error::TreeError;
use crate::image::{
    BUCKET_COMMIT_AT, Codec, INLINE_BYTES_MAX, PREFIX_BYTES_MAX, PageKind, length_bytes,
};
use crate::node::{ForkValue, Node, PageRef, TouchedChild, hangs_below_owner};
use crate::scheme::{Commitment, Scheme};

impl<'a, S: Scheme> Writer<'a, S> {
    /// Finds how long a node's item is. Those below it are planned.
    pub(super) fn plan(&mut self, number: usize) -> Result<(), TreeError> {
        let (node, _) = self.node(number);
        if !node.is_branch() {
            self.plans[number].len = self.leaf_len(number) as u32;
            return Ok(());
        }
        let (kept, items) = self.body_len(number)?;
        let mut body = items;
        if let Some(kept) = kept {
            body += kept;
        }
        let laid = S::LAYOUT.digit_bits > 1 && self.is_to_be_laid(number, items);
        if laid {
            let from = self.bodies.len();
            self.lay_out(number)?;
            let end = self.bodies.len();
            self.plans[number].laid = (from as u32, end as u32);
            self.plans[number].is_laid = true;
            body = end - from + kept.unwrap_or(0);
        }
        let limit = match hangs_below_owner::<S>(node.depth) && node.owned {
            true => S::LAYOUT.owned_body_bytes,
            false => S::LAYOUT.cut_bytes,
        };
        let out_of_line = number > 0 && body > limit;
        let prefix = self.chain.run(node, Self::WIDTH);
        let mut len = 2 + self.commit(number).encoded_bytes();
        len += match prefix.aligned().len() > PREFIX_BYTES_MAX {
            true => length_bytes(prefix.len()) + 1 + 8,
            false => length_bytes(prefix.len()) + prefix.aligned().len(),
        };
        if !out_of_line {
            len += length_bytes(body) + body;
        }
        let plan = &mut self.plans[number];
        (plan.len, plan.body, plan.out_of_line) = (len as u32, body as u32, out_of_line);
        if self.has_own_page(node) && !out_of_line {
            self.left.push(node.base);
        }
        if laid {
            let made = self.plans[number].made;
            self.left.extend(self.chain.buckets(made.arena, node));
        }
        Ok(())
    }

    pub(super) fn has_own_page(&self, node: &Node) -> bool {
        node.base != PageRef::NOWHERE && {
            let page = self.chain.page(node.base);
            page.kind == PageKind::Body && page.top() == node.within
        }
    }

    /// Whether a leaf says what it commits to.
    pub(super) fn carries(&self, number: usize, node: &Node, owns: bool, overflows: bool) -> bool {
        let is_owned = node.owned && hangs_below_owner::<S>(node.depth);
        number == 0
            || overflows
            || is_owned && S::LAYOUT.keep_owned_values
            || owns && Codec::<S>::DELTAS
            || S::LAYOUT.keep_leaves
    }

    /// The length of what a leaf owns, if it owns anything.
    pub(super) fn owned_len(&self, number: usize, node: &Node) -> Option<usize> {
        match self.changes(number).next() {
            Some((change, plan)) if change.made.is_something() => {
                Some(self.plans[plan].len as usize)
            }
            Some(_) => None,
            None if node.within.len() > 0 => {
                Some(self.chain.page(node.base).entry(node.within.from).len())
            }
            None => None,
        }
    }

    /// Whether a leaf's suffix and value have rows of their own.
    pub(super) fn overflows(&self, node: &Node) -> bool {
        let suffix = self.chain.run(node, Self::WIDTH);
        suffix.aligned().len() + self.chain.bytes(node.value).len() > INLINE_BYTES_MAX
    }

    fn leaf_len(&self, number: usize) -> usize {
        let (node, _) = self.node(number);
        let suffix = self.chain.run(node, Self::WIDTH);
        let (run, value) = (suffix.aligned().len(), self.chain.bytes(node.value).len());
        let overflows = self.overflows(node);
        let owned = self.owned_len(number, node);
        let mut len = 2 + owned.unwrap_or(0) + length_bytes(suffix.len()) + length_bytes(value);
        len += if overflows { 8 } else { run + value };
        if self.carries(number, node, owned.is_some(), overflows) {
            len += self.commit(number).encoded_bytes();
        }
        len
    }

    /// The lengths of a branch's value and of the items of its children, as they are now, if no
    /// bucket comes or goes.
    fn body_len(&mut self, number: usize) -> Result<(Option<usize>, usize), TreeError> {
        let (node, _) = self.node(number);
        let mut items = usize::from(node.body.1 - node.body.0);
        let mut value = None;
        if let Some(stored) = self.stored_value(node) {
            items -= stored.len();
            if node.fork_value == ForkValue::Stored {
                value = Some(stored.len());
            }
        }
        if node.fork_value == ForkValue::Put {
            let rows = self.emitted.rows.len();
            self.put_fork_value(node);
            // They are written with the item.
            self.emitted.rows.truncate(rows);
            value = Some(self.head.len());
        }
        let (mut more, mut less) = (0, 0);
        for (change, plan) in self.changes(number) {
            if change.stands() {
                less += self.chain.page(change.page).entry(change.entry).len();
            }
            if change.made.is_something() {
                more += self.plans[plan].len as usize;
            }
        }
        Ok((value, (items + more).saturating_sub(less)))
    }

    /// Where the value in front of the stored body of a branch lies.
    pub(super) fn stored_value(&self, node: &Node) -> Option<Range<usize>> {
        // Trees that take no key as a prefix of another refuse pages that have one.
        if !S::LAYOUT.prefix_keys || node.base == PageRef::NOWHERE {
            return None;
        }
        self.chain.page(node.base).value_range(node.body.0, node.within)
    }

    /// Whether the children of a branch are to be laid out anew, and not where they are stored:
    /// some lie in buckets, or might, and a length changed: nothing else tells where buckets are
    /// cut.
    fn is_to_be_laid(&self, number: usize, items: usize) -> bool {
        let (node, _) = self.node(number);
        let grouped = || {
            node.base != PageRef::NOWHERE && {
                let entries = self.chain.page(node.base).entries(node.within);
                entries.iter().any(|entry| entry.kind.is_in_bucket())
            }
        };
        if !may_cut::<S>(node.fork, items) && !grouped() {
            return false;
        }
        let stays = |(change, plan): (&TouchedChild, usize)| {
            change.made.is_something() && change.stands() && {
                let entry = self.chain.page(change.page).entry(change.entry);
                let is_leaf = !self.chain.node(change.made).is_branch();
                entry.len() == self.plans[plan].len as usize
                    && entry.kind.is_leaf() == is_leaf
                    && self.bucket_entry_stays(node, change, plan)
            }
        };
        !self.changes(number).all(stays)
    }

    /// Whether what a page says of a bucket entry takes as many bytes as before.
    fn bucket_entry_stays(&self, node: &Node, change: &TouchedChild, plan: usize) -> bool {
        if Codec::<S>::DELTAS || change.page == node.base {
            return true;
        }
        let page = self.chain.page(node.base);
        let member = page.find(node.within, change.digit, Self::WIDTH.mask());
        let bytes = BUCKET_COMMIT_AT + self.commit(plan).encoded_bytes();
        member.is_some_and(|member| page.entry(member).len() == bytes)
    }
}
