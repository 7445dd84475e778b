//! Writing each page once, from its start to its end.

use std::ops::Range;
use std::sync::Arc;

use super::{Copied, ListedChildren, ROWS_AHEAD, Writer, Written};
use crate::cut::Put;
use crate::error::TreeError;
use crate::image::{
    BUCKET_COMMIT_AT, Codec, FORK_VALUE_BYTES_MAX, FRAME_BYTES, INLINE_BYTES_MAX, PREFIX_BYTES_MAX,
    PageKind, PutBranch, PutLeaf, seal_framed,
};
use crate::node::{ForkValue, Node, PageRef};
use crate::page::{Kind, Within};
use crate::page_key::PageKey;
use crate::scheme::{Commitment, Scheme};
use spinney_proof::digits::Run;

/// If there are so many plans two threads write the pages. The second one has a copy of the plans:
/// of more than these that would be memory to speak of.
const SHARED: Range<usize> = 1_024..65_536;

impl<'a, S: Scheme> Writer<'a, S> {
    /// Writes all pages.
    pub(super) fn write_pages(&mut self, row: &mut Vec<u8>) -> Result<(), TreeError> {
        let all = self.plans.len();
        if !SHARED.contains(&all) || rayon::current_num_threads() == 1 {
            self.write_below(0..all, row)?;
            return self.write_root(row);
        }
        let (mut beside, mut written) = (self.beside(), Ok(()));
        rayon::in_place_scope(|scope| {
            scope.spawn(|_| written = beside.write_below(all / 2..all, &mut Vec::new()));
            self.write_below(0..all / 2, row)
        })?;
        written?;
        self.take_in(beside);
        self.write_root(row)
    }

    /// Writes the pages of some plans: of bodies, and of buckets whose branches are not laid out.
    fn write_below(&mut self, plans: Range<usize>, row: &mut Vec<u8>) -> Result<(), TreeError> {
        for number in plans {
            let plan = self.plans[number];
            let (node, made) = self.node(number);
            if let Some(ahead) = self.plans.get(number + ROWS_AHEAD)
                && ahead.out_of_line
                && let Some(page) = self.base(ahead.made)
            {
                self.chain.page(page).fetch_row();
            }
            if !node.is_branch() {
                continue;
            }
            if plan.out_of_line {
                let own = self.has_own_page(node).then_some(node.base);
                self.start_page(row, own);
                self.put_body(number, row)?;
                let path = self.chain.key(node, Self::WIDTH);
                let bits = node.fork as usize * Self::WIDTH.bits();
                let key = PageKey::page(self.emitted.space, path, bits);
                self.end_page((key, bits), PageKind::Body, own, row);
            }
            if S::LAYOUT.digit_bits > 1 && !plan.is_laid {
                for bucket in self.chain.buckets(made.arena, node) {
                    self.write_bucket(number, bucket, row)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the root page, and says what rows its nodes and those of the others overflow to.
    fn write_root(&mut self, row: &mut Vec<u8>) -> Result<(), TreeError> {
        let key = PageKey::page(self.emitted.space, &[], 0);
        // The last commit's own arena has nothing but its root page.
        let own = (!self.chain.arena(0).pages.is_empty()).then_some(PageRef { arena: 0, page: 0 });
        self.start_page(row, own);
        let is_like = own.is_some_and(|own| self.is_like(0, own, 0));
        self.like = self.like.filter(|_| is_like);
        if is_like {
            let commit = self.commit(0);
            self.known.push((0, commit));
        }
        self.put_item(0, row)?;
        self.end_page((key, 0), PageKind::Root, own, row);
        for put in std::mem::take(&mut self.emitted.rows) {
            self.puts.push(Written::new(put));
        }
        Ok(())
    }

    /// Writes the page of a bucket in which no length changed.
    fn write_bucket(
        &mut self,
        number: usize,
        bucket: PageRef,
        row: &mut Vec<u8>,
    ) -> Result<(), TreeError> {
        let page = self.chain.page(bucket);
        let (node, _) = self.node(number);
        self.start_page(row, Some(bucket));
        let changes = self.listed(number);
        let end = self.put_between(changes, (bucket, page.top()), FRAME_BYTES, row)?;
        self.copy(bucket, end..page.row.len(), row);
        let bits = node.fork as usize * Self::WIDTH.bits() + usize::from(page.bits);
        self.end_page((page.key.clone(), bits), PageKind::Bucket, Some(bucket), row);
        Ok(())
    }

    fn start_page(&mut self, row: &mut Vec<u8>, like: Option<PageRef>) {
        row.clear();
        row.extend_from_slice(&[0; FRAME_BYTES]);
        self.copies.clear();
        self.like = like;
        self.page_known = self.known.len();
    }

    fn end_page(
        &mut self,
        (key, bits): (PageKey, usize),
        kind: PageKind,
        own: Option<PageRef>,
        row: &mut [u8],
    ) {
        assert!(row.len() <= crate::image::PAGE_BYTES_MAX, "a page of {} bytes", row.len());
        let old = own.map(|own| self.chain.page(own));
        seal_framed(key.as_bytes(), kind, row);
        if let Some(old) = old
            && kind != PageKind::Root
            && !self.cleared
            && *old.row == *row
        {
            self.known.truncate(self.page_known);
            self.same.push(key);
            return;
        }
        let (old, is_like) = (old.cloned(), self.like.is_some());
        // Of a page that is like another, they are named by entries.
        if !is_like {
            self.carry_over();
        }
        let known = self.page_known..self.known.len();
        let put = Put { key, row: Arc::from(&*row), bits: bits as u32 };
        self.puts.push(Written { put, old, is_like, known });
    }

    /// Takes along what leaves commit to in stretches that were copied.
    fn carry_over(&mut self) {
        let from = self.page_known;
        let mut copies = std::mem::take(&mut self.copies);
        copies.sort_unstable_by_key(|copied| (copied.page.arena, copied.page.page, copied.from));
        for copied in copies.chunk_by(|a, b| a.page == b.page) {
            for (at, commit) in self.chain.page(copied[0].page).known() {
                let behind = copied.partition_point(|stretch| stretch.from <= at);
                let stretch = behind.checked_sub(1).map(|last| copied[last]);
                if let Some(stretch) = stretch.filter(|stretch| at < stretch.end) {
                    self.known.push((at - stretch.from + stretch.to, commit));
                }
            }
        }
        self.copies = copies;
        self.known[from..].sort_unstable_by_key(|known| known.0);
    }

    /// Copies a stretch of a row.
    fn copy(&mut self, page: PageRef, range: Range<usize>, out: &mut Vec<u8>) {
        if range.is_empty() {
            return;
        }
        let (from, end, to) = (range.start as u16, range.end as u16, out.len() as u16);
        self.copies.push(Copied { page, from, end, to });
        out.extend_from_slice(&self.chain.page(page).row[range]);
    }

    /// Whether a node stands where an entry does, as long and of the same kind, and leads to the
    /// same pages: what is known of those goes along. A prefix of another length can take as many
    /// bytes.
    fn is_like(&self, number: usize, page: PageRef, entry: u16) -> bool {
        let (node, plan) = (self.node(number).0, &self.plans[number]);
        let opened = self.chain.page(page);
        let entry = opened.entry(entry);
        let kind = match (node.is_branch(), plan.out_of_line) {
            (false, _) => Kind::Leaf,
            (true, false) => Kind::Branch,
            (true, true) => Kind::OutOfLine,
        };
        let is_inner_same = match kind {
            Kind::Branch => node.base == page && node.within == entry.within() && !plan.is_laid,
            Kind::Leaf => {
                let owns = self.owned_len(number, node).is_some();
                owns == entry.owns()
                    && entry.is_overflowed() == self.overflows(node)
                    && (!owns || node.base == page && node.within == entry.within())
            }
            _ => {
                self.has_own_page(node)
                    && entry.has_prefix_of(self.chain.run(node, Self::WIDTH).len())
            }
        };
        entry.kind == kind && entry.len() == plan.len as usize && is_inner_same
    }

    /// Writes an item in place of a stored one.
    fn replace(
        &mut self,
        number: usize,
        (page, entry): (PageRef, u16),
        out: &mut Vec<u8>,
    ) -> Result<(), TreeError> {
        if self.like.is_some() {
            if self.like == Some(page) && self.is_like(number, page, entry) {
                let commit = self.commit(number);
                self.known.push((entry, commit));
            } else {
                self.unlike();
            }
        }
        self.put_item(number, out)
    }

    /// The page being written is not like another one: what is known of it is named by where that
    /// lies.
    fn unlike(&mut self) {
        let Some(page) = self.like.take() else { return };
        let opened = self.chain.page(page);
        let mut kept = self.page_known;
        for number in self.page_known..self.known.len() {
            let (entry, commit) = self.known[number];
            let entry = opened.entry(entry);
            if entry.kind == Kind::Leaf {
                // So far nothing moved.
                self.known[kept] = (entry.at, commit);
                kept += 1;
            }
        }
        self.known.truncate(kept);
    }

    /// Writes the item of a node.
    pub(super) fn put_item(&mut self, number: usize, out: &mut Vec<u8>) -> Result<(), TreeError> {
        let (node, _) = self.node(number);
        match node.is_branch() {
            true => self.put_branch(number, node, out),
            false => self.put_leaf(number, node, out),
        }
    }

    fn put_leaf(
        &mut self,
        number: usize,
        node: &'a Node,
        out: &mut Vec<u8>,
    ) -> Result<(), TreeError> {
        let commit = self.commit(number);
        if self.like.is_none() && out.len() <= usize::from(u16::MAX) {
            self.known.push((out.len() as u16, commit));
        }
        let suffix = self.chain.run(node, Self::WIDTH);
        let value = self.chain.bytes(node.value);
        let key = self.chain.key(node, Self::WIDTH);
        let overflow = self.emitted.overflow::<S>(key, node.depth, suffix, value, INLINE_BYTES_MAX);
        let owns = self.owned_len(number, node).is_some();
        let carries = self.carries(number, node, owns, overflow.is_some());
        let put = PutLeaf {
            digit: Some(node.digit),
            suffix,
            value,
            overflow,
            commit: carries.then_some(commit),
            // Its item comes behind.
            owned: owns.then_some(&[]),
        };
        self.codec.put_leaf(out, &put);
        let change = self.changes(number).next().map(|(change, plan)| (*change, plan));
        match change {
            Some((change, plan)) if change.made.is_something() => match change.stands() {
                true => self.replace(plan, (change.page, change.entry), out),
                false => {
                    self.unlike();
                    self.put_item(plan, out)
                }
            },
            None if node.within.len() > 0 => {
                let entry = self.chain.page(node.base).entry(node.within.from);
                let range = usize::from(entry.at)..usize::from(entry.end);
                self.copy(node.base, range, out);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn put_branch(
        &mut self,
        number: usize,
        node: &'a Node,
        out: &mut Vec<u8>,
    ) -> Result<(), TreeError> {
        let plan = self.plans[number];
        let path = self.chain.key(node, Self::WIDTH);
        let prefix = self.chain.run(node, Self::WIDTH);
        let overflow = self.emitted.overflow::<S>(path, node.depth, prefix, &[], PREFIX_BYTES_MAX);
        let (commit, body) = (self.commit(number), None);
        let put = PutBranch { digit: node.digit, commit, prefix, overflow, body };
        self.codec.put_branch_head(out, &put, (!plan.out_of_line).then_some(plan.body as usize));
        if plan.out_of_line { Ok(()) } else { self.put_body(number, out) }
    }

    /// Writes the body of a branch.
    fn put_body(&mut self, number: usize, out: &mut Vec<u8>) -> Result<(), TreeError> {
        let (node, _) = self.node(number);
        let plan = self.plans[number];
        let stored = self.stored_value(node);
        let mut from = usize::from(node.body.0);
        if let Some(stored) = &stored {
            from = stored.end;
        }
        match node.fork_value {
            // A row of its own may lie within what is dropped: the row's number follows the path
            // there.
            ForkValue::Stored if self.cleared => {
                self.put_fork_value(node);
                out.extend_from_slice(&self.head);
            }
            ForkValue::Stored => {
                let range = stored.unwrap_or_default();
                self.copy(node.base, range, out);
            }
            ForkValue::Put => {
                self.unlike();
                self.put_fork_value(node);
                out.extend_from_slice(&self.head);
            }
            ForkValue::None if stored.is_some() => self.unlike(),
            ForkValue::None => {}
        }
        if plan.is_laid {
            self.unlike();
            out.extend_from_slice(&self.bodies[plan.laid.0 as usize..plan.laid.1 as usize]);
            return Ok(());
        }
        let mut changes = self.listed(number);
        if node.base == PageRef::NOWHERE {
            while let Some((change, plan)) = changes.next(&self.plans) {
                if change.made.is_something() {
                    self.put_item(plan, out)?;
                }
            }
            return Ok(());
        }
        let from = self.put_between(changes, (node.base, node.within), from, out)?;
        self.copy(node.base, from..usize::from(node.body.1), out);
        Ok(())
    }

    /// Writes the listed children of a branch among stored ones, from a place in their page on.
    /// Answers what was copied up to.
    fn put_between(
        &mut self,
        mut changes: ListedChildren<'a>,
        (page, among): (PageRef, Within),
        mut from: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, TreeError> {
        let opened = self.chain.page(page);
        while let Some((change, plan)) = changes.next(&self.plans) {
            let entries = opened.entries(among);
            let place = entries.partition_point(|entry| entry.digit < change.digit);
            let number = among.from + place as u16;
            match entries.get(place) {
                Some(entry) if entry.digit == change.digit && entry.kind.is_in_bucket() => {
                    if !Codec::<S>::DELTAS {
                        let at = usize::from(entry.at) + BUCKET_COMMIT_AT;
                        self.copy(page, from..at, out);
                        let commit = self.commit(plan);
                        commit.encode(out);
                        if self.like.is_some() {
                            self.known.push((number, commit));
                        }
                        from = entry.end.into();
                    }
                }
                Some(entry) if entry.digit == change.digit => {
                    self.copy(page, from..usize::from(entry.at), out);
                    from = entry.end.into();
                    match change.made.is_something() {
                        true => self.replace(plan, (page, number), out)?,
                        false => self.unlike(),
                    }
                }
                // Of another part of the branch.
                _ if opened.kind == PageKind::Bucket && among == opened.top() => {}
                next => {
                    let at = next.map_or(from, |next| usize::from(next.at));
                    let at = match next {
                        None => entries.last().map_or(from, |last| usize::from(last.end)),
                        Some(_) => at,
                    };
                    self.copy(page, from..at.max(from), out);
                    from = from.max(at);
                    self.unlike();
                    if change.made.is_something() {
                        self.put_item(plan, out)?;
                    }
                }
            }
        }
        Ok(from)
    }

    /// Makes the item of the value of the key that ends at a branch's fork.
    pub(super) fn put_fork_value(&mut self, node: &Node) {
        let fork = node.fork as usize;
        let path = self.chain.key(node, Self::WIDTH);
        let value = self.chain.bytes(node.value);
        let suffix = Run::cut(&[], fork, 0, Self::WIDTH);
        let limit = FORK_VALUE_BYTES_MAX;
        let overflow = self.emitted.overflow::<S>(path, node.fork, suffix, value, limit);
        let (digit, commit, owned) = (None, None, None);
        let put = PutLeaf { digit, suffix, value, overflow, commit, owned };
        self.head.clear();
        self.codec.put_leaf(&mut self.head, &put);
    }
}
