//! What is remembered of a page that batches open again: its branches and their children, parsed, and the
//! commitments of all children, those of terminals included, which pages do not keep.
//!
//! A page gets its directory when it is opened a second time: one that is opened once between two
//! commits, as most are, costs no more than before. Directories lie beside their pages in the cache,
//! count against its budget and go with them, so there is nothing to keep in step: a row is never
//! changed in place.
//!
//! Invariants:
//! - a page that is not wholly sound, or larger than any that is written, has no directory: what is wrong
//!   with it is told by whoever parses it on the way to a key;
//! - everything below a listed branch that lies in the same page is listed too, but for what lies below
//!   a skip that overflowed.

use crate::digits::{Run, Width};
use crate::image::{
    Codec, MEMBER_COMMIT_AT, Malformed, NodeView, PAGE_BYTES_MAX, PageKind, SUM_BYTES, Skimmed,
    SkipView, TerminalBody, TerminalView,
};
use crate::node::{Child, Link};
use crate::open::{UNCOMMITTED, within};
use crate::scheme::{JobKey, Scheme, TerminalJob};

/// Longer paths within one page are not remembered.
const PATH_BYTES_MAX: usize = 512;
/// The paths of all branches of a page, while its directory is made.
const PATHS_BYTES_MAX: usize = 64 << 10;

/// Whether pages of a scheme have directories: where a terminal's commitment is cheap to compute, and is
/// not kept in its page anyway.
pub(crate) const fn is_indexed<S: Scheme>() -> bool {
    !S::DELTAS && !S::KEEP_TERMINALS
}

/// A branch of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fork {
    /// Where its item starts; [`Fork::WHOLE`] for the branch whose children the page holds.
    item: u16,
    /// Where its body starts; 0 if it is not here.
    from: u16,
    /// Its children in the list of all.
    first: u16,
    count: u16,
    /// Whether there is a value at its fork.
    value: bool,
    /// Digits of its skip, or [`Fork::ELSEWHERE`] if they overflowed.
    skip: u16,
    skip_at: u16,
}

impl Fork {
    const WHOLE: u16 = 0;
    const ELSEWHERE: u16 = u16::MAX;

    /// Whether its body is a page of its own.
    pub(crate) const fn is_apart(&self) -> bool {
        self.from == 0
    }

    pub(crate) const fn has_value(&self) -> bool {
        self.value
    }

    /// The digits between its parent, which ends at digit `start`, and its fork.
    pub(crate) fn skip<'a>(&self, row: &'a [u8], start: usize, width: Width) -> Option<Run<'a>> {
        let (at, digits) = (usize::from(self.skip_at), usize::from(self.skip));
        let bytes = at..at + width.span(start, digits);
        (self.skip != Self::ELSEWHERE).then(|| Run::cut(&row[bytes], start, digits, width))
    }

    /// The places of its children in the list of all.
    pub(crate) fn children(&self) -> std::ops::Range<usize> {
        usize::from(self.first)..usize::from(self.first) + usize::from(self.count)
    }
}

/// A child of a branch of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// As links have it.
    at: u16,
    /// The branch that it is, if it is one that lies here.
    fork: u16,
    pub(crate) digit: u8,
    /// The bits of the group that it is in; 0 if its item is here.
    pub(crate) group: u8,
    terminal: bool,
}

impl Entry {
    const NO_FORK: u16 = u16::MAX;
}

/// The branches of a page, their children and those children's commitments.
#[derive(Debug)]
pub(crate) struct Directory<C> {
    /// The first of the branches: most pages are opened for that one.
    whole: Fork,
    forks: Box<[Fork]>,
    slots: Box<[Slot<C>]>,
}

/// A child and its commitment, side by side: one way to memory for both.
#[derive(Debug)]
struct Slot<C> {
    entry: Entry,
    commit: C,
}

impl<C: Copy> Directory<C> {
    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.forks) + size_of_val(&*self.slots)
    }

    pub(crate) fn fork(&self, fork: u16) -> &Fork {
        &self.forks[usize::from(fork)]
    }

    /// The branch whose item starts at `at`.
    pub(crate) fn fork_at(&self, at: u16) -> Option<u16> {
        self.forks.iter().position(|fork| fork.item == at).map(|index| index as u16)
    }

    /// The branch whose children the page holds; in a root page the topmost.
    pub(crate) fn whole(&self) -> &Fork {
        &self.whole
    }

    /// The branch whose body starts at `from`.
    pub(crate) fn body_at(&self, from: usize) -> Option<&Fork> {
        let is = |fork: &&Fork| usize::from(fork.from) == from;
        Some(&self.whole).filter(is).or_else(|| self.forks.iter().find(is))
    }

    pub(crate) fn entry(&self, index: usize) -> &Entry {
        &self.slots[index].entry
    }

    /// The branch that a child is.
    pub(crate) fn fork_of(&self, index: usize) -> Option<u16> {
        Some(self.slots[index].entry.fork).filter(|&fork| fork != Entry::NO_FORK)
    }

    /// The child of a branch at a digit.
    pub(crate) fn find(&self, fork: &Fork, digit: u8) -> Option<usize> {
        let slots = &self.slots[fork.children()];
        let found = if slots.len() <= 16 {
            slots.iter().position(|slot| slot.entry.digit == digit)
        } else {
            slots.binary_search_by_key(&digit, |slot| slot.entry.digit).ok()
        };
        found.map(|index| fork.children().start + index)
    }

    /// An entry as a child; the page is page `page` of segment `segment`.
    pub(crate) fn child(&self, index: usize, segment: u32, page: u32) -> Child {
        let Entry { at, digit, group: bits, terminal, .. } = self.slots[index].entry;
        let link = match bits {
            0 => Link::Stored { segment, page, at },
            _ => Link::Group { segment, page, at, bits },
        };
        Child { link, commit: Child::LISTED | index as u32, digit, terminal }
    }

    pub(crate) fn commit(&self, index: usize) -> C {
        self.slots[index].commit
    }
}

/// A branch whose children are still to be listed.
#[derive(Debug)]
struct Unlisted {
    fork: u16,
    to: usize,
    /// Its path: so many bytes from here on, and so many digits.
    path: usize,
    bytes: usize,
    digits: usize,
}

/// A terminal to commit to.
#[derive(Debug)]
struct Uncommitted {
    entry: usize,
    path: usize,
    bytes: usize,
    digits: usize,
}

/// Makes directories. Its buffers serve one page after another.
#[derive(Debug)]
pub(crate) struct Indexer<S: Scheme> {
    forks: Vec<Fork>,
    entries: Vec<Entry>,
    commits: Vec<Option<S::Commit>>,
    todo: Vec<Unlisted>,
    terminals: Vec<Uncommitted>,
    paths: Vec<u8>,
    /// One being made.
    path: Vec<u8>,
    out: Vec<S::Commit>,
    scratch: S::Scratch,
    /// How many directories were made since somebody took them up.
    pub(crate) made: usize,
}

impl<S: Scheme> Default for Indexer<S> {
    fn default() -> Self {
        Self {
            forks: Vec::new(),
            entries: Vec::new(),
            commits: Vec::new(),
            todo: Vec::new(),
            terminals: Vec::new(),
            paths: Vec::new(),
            path: Vec::new(),
            out: Vec::new(),
            scratch: S::Scratch::default(),
            made: 0,
        }
    }
}

impl<S: Scheme> Indexer<S> {
    const WIDTH: Width = Codec::<S>::WIDTH;

    /// The directory of a page whose branch has the first `digits` digits of `path`; a root page's is
    /// found out. `None` if the page is to have none.
    pub(crate) fn index(
        &mut self,
        codec: Codec<'_, S>,
        kind: PageKind,
        row: &[u8],
        (path, digits): (&[u8], usize),
    ) -> Option<Directory<S::Commit>> {
        let bytes = digits.div_ceil(Self::WIDTH.per_byte());
        if !is_indexed::<S>() {
            return None;
        }
        if row.len() > PAGE_BYTES_MAX || bytes > PATH_BYTES_MAX || kind == PageKind::Overflow {
            return None;
        }
        self.clear();
        let made = self.try_index(codec, kind, row, (&path[..bytes], digits)).ok()?;
        self.made += 1;
        Some(made)
    }

    fn clear(&mut self) {
        self.forks.clear();
        self.entries.clear();
        self.commits.clear();
        self.todo.clear();
        self.terminals.clear();
        self.paths.clear();
        self.out.clear();
    }

    fn try_index(
        &mut self,
        codec: Codec<'_, S>,
        kind: PageKind,
        row: &[u8],
        (path, digits): (&[u8], usize),
    ) -> Result<Directory<S::Commit>, Malformed> {
        let from = SUM_BYTES + 1;
        self.paths.extend_from_slice(path);
        if kind == PageKind::Root {
            self.branch(codec, row, from, (0, 0, 0), None)?;
        } else {
            Self::WIDTH.truncate(&mut self.paths, digits);
            let (item, value) = (Fork::WHOLE, false);
            let (from, first) = (from as u16, 0);
            self.forks.push(Fork { item, from, first, count: 0, value, skip: 0, skip_at: 0 });
            let bytes = self.paths.len();
            self.todo.push(Unlisted { fork: 0, to: row.len(), path: 0, bytes, digits });
        }
        while let Some(unlisted) = self.todo.pop() {
            self.list(codec, row, &unlisted)?;
        }
        self.commit(codec, row)?;
        let committed = self.entries.iter().zip(&self.commits);
        let slots: Option<Box<[_]>> =
            committed.map(|(&entry, commit)| Some(Slot { entry, commit: (*commit)? })).collect();
        Ok(Directory {
            whole: self.forks[0],
            forks: Box::from(&self.forks[..]),
            slots: slots.ok_or("a child has no commitment")?,
        })
    }

    /// Notes the branch whose item starts at `at`, and that its children are to be listed. Its parent's
    /// path is `bytes` bytes from `path` on, of `digits` digits. Answers it and its commitment.
    fn branch(
        &mut self,
        codec: Codec<'_, S>,
        row: &[u8],
        at: usize,
        (path, bytes, digits): (usize, usize, usize),
        digit: Option<u8>,
    ) -> Result<(u16, S::Commit), Malformed> {
        let start = digits + usize::from(digit.is_some());
        let (NodeView::Branch(view), _) = codec.node(row, at, start)? else {
            return Err("a terminal where a branch was");
        };
        let fork = u16::try_from(self.forks.len()).map_err(|_| "too many branches")?;
        let (item, from) = (at as u16, 0);
        let mut made =
            Fork { item, from, first: 0, count: 0, value: false, skip: 0, skip_at: at as u16 };
        match view.skip {
            SkipView::Inline(run) => {
                made.skip = run.len() as u16;
                made.skip_at = within(row, run.aligned()).at as u16;
                if let Some((from, to)) = view.body {
                    made.from = from as u16;
                    let below = self.paths.len();
                    if below + bytes + run.aligned().len() > PATHS_BYTES_MAX {
                        return Err("its paths are long");
                    }
                    self.own_path(run, (path, bytes, digits), digit);
                    let (bytes, digits) = (self.paths.len() - below, run.end());
                    self.todo.push(Unlisted { fork, to, path: below, bytes, digits });
                }
            }
            SkipView::Overflow(_) => made.skip = Fork::ELSEWHERE,
        }
        self.forks.push(made);
        Ok((fork, view.commit))
    }

    /// Appends to the paths that which ends with `run`, below a parent's and a digit.
    fn own_path(
        &mut self,
        run: Run<'_>,
        (path, bytes, digits): (usize, usize, usize),
        digit: Option<u8>,
    ) {
        self.path.clear();
        run.put_path(&self.paths[path..path + bytes], digits, digit, &mut self.path);
        self.paths.extend_from_slice(&self.path);
    }

    /// Lists the children of a branch.
    fn list(
        &mut self,
        codec: Codec<'_, S>,
        row: &[u8],
        unlisted: &Unlisted,
    ) -> Result<(), Malformed> {
        let &Unlisted { fork, to, path, bytes, digits } = unlisted;
        let first = self.entries.len();
        let mut at = usize::from(self.forks[usize::from(fork)].from);
        let mut value = false;
        while at < to {
            let (item, end) = codec.skim(&row[..to], at, digits + 1)?;
            match item {
                Skimmed::Value => value = true,
                Skimmed::Branch { digit } => {
                    let parent = (path, bytes, digits);
                    let (fork, commit) = self.branch(codec, row, at, parent, Some(digit))?;
                    self.push(at, Some(fork), digit, false, Some(commit));
                }
                Skimmed::Terminal { digit, carries } => {
                    let (entry, place) = (self.entries.len(), (path, bytes, digits));
                    let commit = self.terminal(codec, row, at, digit, carries, place)?;
                    if commit.is_none() {
                        self.terminals.push(Uncommitted { entry, path, bytes, digits });
                    }
                    self.push(at, None, digit, true, commit);
                }
                Skimmed::Group { bits, mut from, count } => {
                    for _ in 0..count {
                        let (digit, terminal, next) = codec.member(&row[..end], from)?;
                        let commit = codec.scheme.decode_commit(&row[from + MEMBER_COMMIT_AT..]);
                        self.push(from, None, digit, terminal, commit.map(|(commit, _)| commit));
                        self.entries.last_mut().expect("just pushed").group = bits;
                        from = next;
                    }
                }
            }
            at = end;
        }
        let listed = &self.entries[first..];
        let base = 1usize << S::DIGIT_BITS;
        if listed.windows(2).any(|pair| pair[0].digit >= pair[1].digit)
            || listed.last().is_some_and(|last| usize::from(last.digit) >= base)
        {
            return Err("children are out of order");
        }
        let count = listed.len() as u16;
        let fork = &mut self.forks[usize::from(fork)];
        (fork.first, fork.count, fork.value) = (first as u16, count, value);
        Ok(())
    }

    fn push(
        &mut self,
        at: usize,
        fork: Option<u16>,
        digit: u8,
        terminal: bool,
        commit: Option<S::Commit>,
    ) {
        let fork = fork.unwrap_or(Entry::NO_FORK);
        self.entries.push(Entry { at: at as u16, fork, digit, group: 0, terminal });
        self.commits.push(commit);
    }

    /// Notes the branch that a terminal owns, if it lies here; answers the commitment that the terminal
    /// carries.
    fn terminal(
        &mut self,
        codec: Codec<'_, S>,
        row: &[u8],
        at: usize,
        digit: u8,
        carries: bool,
        (path, bytes, digits): (usize, usize, usize),
    ) -> Result<Option<S::Commit>, Malformed> {
        if S::OWNER.is_none() && !carries {
            return Ok(None);
        }
        let (NodeView::Terminal(view), _) = codec.node(row, at, digits + 1)? else {
            return Err("a branch where a terminal was");
        };
        if let (Some(owned), Some(owner), TerminalBody::Inline { suffix, .. }) =
            (view.owned, S::OWNER, view.body)
        {
            let start = owner.bytes * Self::WIDTH.per_byte();
            if suffix.end() == start
                && matches!(codec.node(row, owned, start)?.0, NodeView::Branch(_))
            {
                let below = self.paths.len();
                if below + owner.bytes > PATHS_BYTES_MAX {
                    return Err("its paths are long");
                }
                self.own_path(suffix, (path, bytes, digits), Some(digit));
                self.branch(codec, row, owned, (below, self.paths.len() - below, start), None)?;
            }
        }
        Ok(view.commit)
    }

    /// Commits to the terminals that carry no commitment.
    fn commit(&mut self, codec: Codec<'_, S>, row: &[u8]) -> Result<(), Malformed> {
        let Self { terminals, entries, commits, paths, out, scratch, .. } = self;
        let mut failed = None;
        let jobs = terminals.iter().map_while(|terminal| {
            let &Uncommitted { entry, path, bytes, digits: fork } = terminal;
            let Entry { at, digit, .. } = entries[entry];
            let path = &paths[path..path + bytes];
            let key = JobKey::Below { path, fork, digit: Some(digit) };
            match stored_terminal(codec, row, usize::from(at), fork + 1, key) {
                Ok(job) => Some(job),
                Err(what) => {
                    failed = Some(what);
                    None
                }
            }
        });
        codec.scheme.commit_terminals(jobs, scratch, out);
        for (terminal, commit) in terminals.iter().zip(&*out) {
            commits[terminal.entry] = Some(*commit);
        }
        failed.map_or(Ok(()), Err)
    }
}

/// A terminal in a page, to commit to: its bytes lie there, else it would carry its commitment.
pub(crate) fn stored_terminal<'a, S: Scheme>(
    codec: Codec<'_, S>,
    row: &'a [u8],
    at: usize,
    start: usize,
    key: JobKey<'a>,
) -> Result<TerminalJob<'a, S::Commit>, Malformed> {
    let (NodeView::Terminal(TerminalView { body, owned, .. }), _) = codec.node(row, at, start)?
    else {
        return Err("a branch has no commitment");
    };
    let TerminalBody::Inline { suffix, payload } = body else {
        return Err("an overflowed terminal has no commitment");
    };
    let owned = match (owned, S::OWNER) {
        (Some(at), Some(owner)) => {
            let start = owner.bytes * Codec::<S>::WIDTH.per_byte();
            let commit = match codec.node(row, at, start)?.0 {
                NodeView::Terminal(view) => view.commit,
                NodeView::Branch(view) => Some(view.commit),
            };
            Some(commit.ok_or(UNCOMMITTED)?)
        }
        _ => None,
    };
    Ok(TerminalJob { key, suffix, payload, owned, was: None })
}
