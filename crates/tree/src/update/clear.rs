//! Dropping whole subtrees: one range of rows, or page by page below paths too long for one.

use super::{Condemned, Update, Visit};
use crate::error::TreeError;
use crate::node::{Dropped, KeyAt, Link, PageRef, TouchedChild};
use crate::page::{HandleCell, Kind};
use crate::page_key::PageKey;
use crate::scheme::Scheme;

/// Below paths of this length a subtree is one range of rows.
const LONG_PATH_BYTES: usize = 1_000;

impl<S: Scheme> Update<'_, S> {
    /// Forgets what is there and every row below it.
    pub(super) fn drop_child(&mut self, link: Link, visit: &Visit) -> Result<(), TreeError> {
        if visit.hung as usize * Self::WIDTH.bits() / 8 < LONG_PATH_BYTES {
            self.drop_below(visit.ops.from, visit.hung);
            return Ok(());
        }
        let path = self.key_at(visit.ops.from);
        self.work.condemned.push(Condemned { link, path, hung: visit.hung });
        Ok(())
    }

    /// Notes that every row below a place goes.
    pub(super) fn drop_below(&mut self, op: u32, digits: u32) {
        let bits = digits as usize * Self::WIDTH.bits();
        let path = self.key(op)[..bits.div_ceil(8)].to_vec();
        self.arena.dropped.push(Dropped { path, bits });
    }

    /// Below a path too long for a range of rows, each page is opened to be left. Answers whether
    /// that is done, or pages are missing.
    pub(super) fn drop_condemned(&mut self) -> Result<bool, TreeError> {
        let mut todo = std::mem::take(&mut self.work.condemned);
        while let Some(next) = todo.pop() {
            if !self.condemn(next, &mut todo)? {
                self.work.condemned.push(next);
            }
        }
        Ok(self.work.condemned.is_empty())
    }

    fn condemn(&mut self, next: Condemned, todo: &mut Vec<Condemned>) -> Result<bool, TreeError> {
        let Condemned { link, path, hung } = next;
        let Some(seen) = self.resolve_at(link, (path, hung), hung)? else { return Ok(false) };
        let fork = hung + seen.piece.digits;
        let key = match link {
            Link::Made(made) => self.chain().node(made).key,
            Link::Stored { .. } => self.compose((path, hung), &seen.piece),
        };
        let (mut base, mut within) = (seen.base, seen.within);
        if let Some(handle) = seen.out_of_line {
            let Some(page) = self.fetch(Some(handle), (key, fork), 0) else { return Ok(false) };
            within = page.top();
            base = self.push_page(page);
            self.arena.left.push(base);
        } else if base != PageRef::NOWHERE
            && seen.kind == crate::node::NodeKind::Branch
            && self.chain().page(base).kind == crate::image::PageKind::Body
            && within == self.chain().page(base).top()
        {
            self.arena.left.push(base);
        }
        self.leave_overflow(seen.overflowed, hung, key);
        let mut changes: Vec<TouchedChild> = Vec::new();
        while let Some(change) = self.older_change(seen.over, changes.len()) {
            changes.push(change);
        }
        let is_owner = seen.kind == crate::node::NodeKind::Leaf;
        let below = if is_owner { fork } else { fork + 1 };
        for change in changes.iter().filter(|change| change.made.is_something()) {
            todo.push(Condemned { link: Link::Made(change.made), path: key, hung: below });
        }
        if base == PageRef::NOWHERE {
            return Ok(true);
        }
        let mut pages = vec![(base, within)];
        while let Some((page, within)) = pages.pop() {
            let opened = std::sync::Arc::clone(self.chain().page(page));
            let mut buckets: Vec<(u8, u8)> = Vec::new();
            for number in within.range() {
                let entry = opened.entry(number);
                let replaces =
                    |change: &TouchedChild| change.digit == entry.digit && change.stands();
                if !is_owner && changes.iter().any(replaces) {
                    continue;
                }
                let at = if is_owner { key } else { self.compose_digit(key, fork, entry.digit) };
                if !entry.kind.is_in_bucket() {
                    let link = Link::Stored { page, entry: number };
                    let leads_on = matches!(entry.kind, Kind::Branch | Kind::OutOfLine);
                    if leads_on || entry.is_overflowed() {
                        todo.push(Condemned { link, path: at, hung: below });
                    }
                    continue;
                }
                let rest = S::LAYOUT.digit_bits - entry.span;
                if buckets.contains(&(entry.span, entry.digit >> rest)) {
                    continue;
                }
                buckets.push((entry.span, entry.digit >> rest));
                let handle = opened.handle(number).map(HandleCell::get);
                let bits = u32::from(entry.span);
                let Some(bucket) = self.fetch(handle, (at, fork), bits) else { return Ok(false) };
                let top = bucket.top();
                let bucket = self.push_page(bucket);
                self.arena.left.push(bucket);
                pages.push((bucket, top));
            }
        }
        Ok(true)
    }

    /// A page at hand, at the first digits of a path and some bits; else it is among the missing.
    fn fetch(
        &mut self,
        handle: Option<crate::page::Handle>,
        (path, digits): (KeyAt, u32),
        bits: u32,
    ) -> Option<std::sync::Arc<crate::page::Page<S::Commit>>> {
        let whole = digits + u32::from(bits > 0);
        let bytes = self.chain().path(path, whole, Self::WIDTH);
        let bits = digits * Self::WIDTH.bits() as u32 + bits;
        let key = PageKey::page(self.space, bytes, bits as usize);
        let page = self.source.page(handle, &key);
        if page.is_none() {
            self.work.missing.push((key, bits));
        }
        page
    }
}
