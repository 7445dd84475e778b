//! Pages laid out for walks that come to them again and again.
//!
//! A row is written to be small: where an item lies is known once all before it are passed over, and terminals
//! carry no commitment, so that a walk reads all of a page and hashes what lies beside its way. An outline of it is
//! made once, is kept beside the row in memory, and has for each item where it lies, where the one behind it is,
//! and what it commits to, as far as anybody has had to know.
//!
//! Invariants:
//! - the children of a branch, or what a terminal owns, are entries one behind another, and those of a page that are
//!   in no other item of it come first; a bare terminal that another owns has none;
//! - nothing that is owned owns anything;
//! - digits rise among siblings, and each is one of the tree's;
//! - what an entry commits to is what its item in this very row does: another row has another outline.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use spinney_hash::prefetch;

use crate::cache::LinkCell;
use crate::image::{
    Codec, FRAME_BYTES, Item, MEMBER_COMMIT_AT, NodeView, PAGE_BYTES_MAX, PageKind, SUM_BYTES,
    SkipView,
};
use crate::open::stored_owned;
use crate::scheme::{Owned, Scheme};

/// The entries of a page, and apart from them, since who passes by has no need of it, what they commit to.
#[derive(Debug)]
pub(crate) struct Outline<C> {
    pub(crate) entries: Box<[Entry]>,
    commits: Box<[OnceLock<C>]>,
    /// Where the pages are that entries lead to.
    links: Box<[LinkCell]>,
    /// How many of them are in no other.
    top: u16,
    pub(crate) kind: PageKind,
    /// Whether somebody knows what each of those that are in no other commits to.
    known: AtomicBool,
}

/// An item of a page, or a member of a group that has a page of its own.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Where it lies in the row.
    pub(crate) at: u16,
    /// The entries of what is in it, the link to the page of that, or where in the row what it owns alone lies.
    first: u16,
    count: u8,
    pub(crate) digit: u8,
    pub(crate) kind: Kind,
    /// Of a branch, how many digits it skips; of a member, the bits of its group.
    pub(crate) span: u8,
    /// Whether what it commits to stands at [`MEMBER_COMMIT_AT`], in the usual number of bytes.
    pub(crate) keeps: bool,
    /// Whether somebody knows what each of those in it commits to.
    known: AtomicBool,
    /// Where what it commits to is among the outline's commitments, or [`Entry::IN_ROW`].
    commit: u16,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What it owns is behind it.
    Terminal,
    /// One that owns a bare terminal, which has no entry: who needs what that commits to makes it of the value.
    Lone,
    /// A branch, and its children behind it.
    Branch,
    /// A branch whose children have a page of their own.
    Apart,
    TerminalInGroup,
    BranchInGroup,
    /// A branch with a value of its own, or whose skip is no ordinary one.
    Odd,
}

impl Kind {
    pub(crate) const fn is_terminal(self) -> bool {
        matches!(self, Self::Terminal | Self::Lone | Self::TerminalInGroup)
    }

    /// Whether the item is in another page, that of a group.
    pub(crate) const fn is_in_group(self) -> bool {
        matches!(self, Self::TerminalInGroup | Self::BranchInGroup)
    }
}

impl Entry {
    const IN_ROW: u16 = u16::MAX;

    const fn new(at: usize, digit: u8, kind: Kind) -> Self {
        let (at, commit, known) = (at as u16, Self::IN_ROW, AtomicBool::new(false));
        Self { at, first: 0, count: 0, digit, kind, span: 0, keeps: false, known, commit }
    }

    /// The entries of its children, or of what it owns, unless it is [`Kind::Lone`].
    pub(crate) fn within(&self) -> Range<u16> {
        self.first..self.first + u16::from(self.count)
    }
}

impl<C: Copy> Outline<C> {
    /// The entries that are in no other.
    pub(crate) const fn top(&self) -> Range<u16> {
        0..self.top
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.entries[..])
            + size_of_val(&self.commits[..])
            + size_of_val(&self.links[..])
    }

    /// What an entry of the row commits to, if anybody knows.
    #[inline]
    pub(crate) fn commit<S: Scheme<Commit = C>>(
        &self,
        codec: Codec<'_, S>,
        row: &[u8],
        entry: u16,
    ) -> Option<C> {
        self.commit_of(codec, row, &self.entries[usize::from(entry)])
    }

    /// As [`Outline::commit`], of an entry at hand.
    #[inline(always)]
    pub(crate) fn commit_of<S: Scheme<Commit = C>>(
        &self,
        codec: Codec<'_, S>,
        row: &[u8],
        entry: &Entry,
    ) -> Option<C> {
        match self.commits.get(usize::from(entry.commit)) {
            Some(commit) => commit.get().copied(),
            None => Some(codec.kept(row, entry.at.into())),
        }
    }

    /// Whether somebody knows what each of the entries in another, or of those in none, commits to.
    #[inline]
    pub(crate) fn knows(&self, within: Option<u16>) -> bool {
        self.known(within).load(Ordering::Acquire)
    }

    /// Notes that [`Outline::learn`] was told of all of them.
    pub(crate) fn know(&self, within: Option<u16>) {
        self.known(within).store(true, Ordering::Release);
    }

    #[inline]
    fn known(&self, within: Option<u16>) -> &AtomicBool {
        within.map_or(&self.known, |entry| &self.entries[usize::from(entry)].known)
    }

    /// Where the page is that an entry's children have, or that the members of its group have.
    pub(crate) fn link(&self, entry: u16) -> &LinkCell {
        &self.links[usize::from(self.entries[usize::from(entry)].first)]
    }

    /// Where what a terminal owns lies in the row.
    pub(crate) fn owned(&self, entry: &Entry) -> usize {
        match entry.kind {
            Kind::Lone => entry.first.into(),
            _ => self.entries[usize::from(entry.first)].at.into(),
        }
    }

    /// Asks for the entries.
    pub(crate) fn fetch(&self) {
        prefetch(&self.entries);
    }

    /// Asks for the links to pages below.
    pub(crate) fn fetch_links(&self) {
        prefetch(&self.links);
    }

    /// Asks for what a branch with these children is committed to with.
    pub(crate) fn fetch_commits(&self, row: &[u8], entries: Range<u16>) {
        let within = usize::from(entries.start)..usize::from(entries.end);
        if self.commits.len() == self.entries.len() {
            return prefetch(&self.commits[within]);
        }
        entries.for_each(|entry| self.fetch_commit(row, entry));
    }

    /// Asks for what an entry commits to.
    #[inline]
    pub(crate) fn fetch_commit(&self, row: &[u8], entry: u16) {
        /// What a branch takes up to the end of its commitment, as a rule.
        const KEPT_BYTES: usize = 34;
        let entry = &self.entries[usize::from(entry)];
        let at = usize::from(entry.at);
        match (self.commits.get(usize::from(entry.commit)), row.get(at..at + KEPT_BYTES)) {
            (Some(commit), _) => prefetch(std::slice::from_ref(commit)),
            (None, Some(kept)) => prefetch(kept),
            (None, None) => {}
        }
    }

    /// Notes what an entry commits to that the row does not keep, for all who come after.
    pub(crate) fn learn(&self, entry: u16, commit: C) {
        let entry = &self.entries[usize::from(entry)];
        // Somebody else may have been faster: it is the same.
        let _ = self.commits[usize::from(entry.commit)].set(commit);
    }

    /// Takes up what entries commit to in a row that differs in such things alone.
    pub(crate) fn replace(&mut self, new: impl Iterator<Item = (u16, C)>) {
        for (entry, commit) in new {
            let place = usize::from(self.entries[usize::from(entry)].commit);
            if let Some(old) = self.commits.get_mut(place) {
                *old = OnceLock::from(commit);
            }
        }
    }

    /// The entry of a digit among siblings, in trees with digits up to `most`.
    #[inline]
    pub(crate) fn find(&self, among: Range<u16>, digit: u8, most: u8) -> Option<u16> {
        // Where there is one for each digit, nothing needs to be read.
        if among.len() == usize::from(most) + 1 {
            return Some(among.start + u16::from(digit));
        }
        let entries = &self.entries[usize::from(among.start)..usize::from(among.end)];
        let place = entries.iter().position(|entry| entry.digit >= digit)?;
        (entries[place].digit == digit).then_some(among.start + place as u16)
    }
}

/// Items of a page that are yet to be noted: where they lie, and how.
struct Body {
    range: Range<usize>,
    place: Place,
}

/// At which digit the runs of some items start, the entry that they are in, and whether they belong to an owner.
#[derive(Clone, Copy)]
struct Place {
    start: usize,
    parent: Option<usize>,
    owned: bool,
}

/// The entries of a page whose items' runs start at digit `start`; nothing if it is malformed, or is the body of a
/// branch with a value of its own.
pub(crate) fn of<S: Scheme>(
    codec: Codec<'_, S>,
    row: &[u8],
    start: usize,
) -> Option<Outline<S::Commit>> {
    if !(FRAME_BYTES..=PAGE_BYTES_MAX).contains(&row.len()) {
        return None;
    }
    // More of them are rare.
    let room = row.len() / 24;
    let (entries, commits) = (Vec::with_capacity(room), Vec::with_capacity(room));
    let mut outliner = Outliner { codec, row, entries, commits, links: Vec::new() };
    let owned = owner_digits::<S>().is_some_and(|digits| start > digits);
    let place = Place { start, parent: None, owned };
    let mut bodies = vec![Body { range: FRAME_BYTES..row.len(), place }];
    let (mut next, mut top) = (0, 0);
    while next < bodies.len() {
        let first = outliner.entries.len();
        outliner.body(next, &mut bodies)?;
        let count = outliner.entries.len() - first;
        match bodies[next].place.parent {
            Some(parent) => {
                let parent = &mut outliner.entries[parent];
                (parent.first, parent.count) = (first as u16, u8::try_from(count).ok()?);
            }
            None => top = count as u16,
        }
        next += 1;
    }
    let Outliner { entries, commits, links, .. } = outliner;
    let (entries, commits, links) = (entries.into(), commits.into(), links.into());
    let (kind, known) = (PageKind::of(row[SUM_BYTES])?, AtomicBool::new(false));
    Some(Outline { entries, commits, links, top, kind, known })
}

/// How many digits the keys of owners have.
fn owner_digits<S: Scheme>() -> Option<usize> {
    S::OWNER.map(|owner| owner.bytes * Codec::<S>::WIDTH.per_byte())
}

struct Outliner<'a, S: Scheme> {
    codec: Codec<'a, S>,
    row: &'a [u8],
    entries: Vec<Entry>,
    commits: Vec<OnceLock<S::Commit>>,
    links: Vec<LinkCell>,
}

impl<S: Scheme> Outliner<'_, S> {
    /// Notes the items of a body, and the bodies in them.
    fn body(&mut self, number: usize, bodies: &mut Vec<Body>) -> Option<()> {
        let Body { range: Range { start: mut at, end }, place } = bodies[number];
        let first = self.entries.len();
        while at < end {
            at = self.item(at, place, bodies)?;
        }
        let own = &self.entries[first..];
        let rises = own.is_sorted_by(|a, b| a.digit < b.digit);
        let last = own.last().is_none_or(|last| last.digit <= Codec::<S>::WIDTH.mask());
        (at == end && rises && last).then_some(())
    }

    /// Notes the item at `at`, all members of it if it is a group. Answers where it ends.
    fn item(
        &mut self,
        at: usize,
        Place { start, parent, owned: among_owned }: Place,
        bodies: &mut Vec<Body>,
    ) -> Option<usize> {
        let (item, end) = self.codec.item(self.row, at, start).ok()?;
        let number = Some(self.entries.len());
        match item {
            // A key ends where the branch forks.
            Item::Value(_) => self.entries[parent?].kind = Kind::Odd,
            Item::Node { digit, node: NodeView::Terminal(view) } => {
                let mut entry = Entry::new(at, digit, Kind::Terminal);
                if let (Some(owned), Some(start)) = (view.owned, owner_digits::<S>()) {
                    if among_owned {
                        return None;
                    }
                    match stored_owned(self.codec, self.row, owned).ok()? {
                        // It ends where its owner does.
                        Owned::Value(..) => (entry.kind, entry.first) = (Kind::Lone, owned as u16),
                        Owned::Commit(_) => {
                            let place = Place { start, parent: number, owned: true };
                            bodies.push(Body { range: owned..end, place });
                        }
                    }
                }
                self.push(entry, view.commit);
            }
            Item::Node { digit, node: NodeView::Branch(view) } => {
                let span = match view.skip {
                    SkipView::Inline(run) => u8::try_from(run.len()).ok(),
                    SkipView::Overflow(_) => None,
                };
                let kind = match (span, view.body) {
                    (None, _) => Kind::Odd,
                    (_, Some(_)) => Kind::Branch,
                    (_, None) => Kind::Apart,
                };
                let (span, keeps) = (span.unwrap_or(0), self.keeps(at));
                let first = if kind == Kind::Apart { self.link() } else { 0 };
                let entry = Entry { span, keeps, first, ..Entry::new(at, digit, kind) };
                self.push(entry, Some(view.commit));
                if let (Kind::Branch, Some((from, to))) = (kind, view.body) {
                    let start = start + view.skip.len() + 1;
                    let place = Place { start, parent: number, owned: among_owned };
                    bodies.push(Body { range: from..to, place });
                }
            }
            Item::Group { bits, members, .. } => {
                let (mut from, first) = (members.start(end), self.link());
                while from < end {
                    let (digit, terminal, behind) = self.codec.member(self.row, from).ok()?;
                    let kind = if terminal { Kind::TerminalInGroup } else { Kind::BranchInGroup };
                    let commit = &self.row[from + MEMBER_COMMIT_AT..];
                    let (commit, _) = self.codec.scheme.decode_commit(commit)?;
                    let keeps = self.keeps(from);
                    let new = Entry::new(from, digit, kind);
                    let entry = Entry { span: bits, keeps, first, ..new };
                    self.push(entry, Some(commit));
                    from = behind;
                }
            }
        }
        Some(end)
    }

    fn keeps(&self, at: usize) -> bool {
        let bytes = self.codec.scheme.commit_bytes(&self.row[at + MEMBER_COMMIT_AT..]);
        bytes == S::COMMIT_BYTES
    }

    /// Makes room for a link.
    fn link(&mut self) -> u16 {
        self.links.push(LinkCell::default());
        self.links.len() as u16 - 1
    }

    /// Notes an entry. Where branches are wide, what their children commit to is brought together; where they are not,
    /// it is as near in the row.
    fn push(&mut self, mut entry: Entry, commit: Option<S::Commit>) {
        if S::DIGIT_BITS > 1 || !entry.keeps {
            entry.commit = self.commits.len() as u16;
            self.commits.push(commit.map_or_else(OnceLock::new, OnceLock::from));
        }
        self.entries.push(entry);
    }
}
