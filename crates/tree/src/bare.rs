//! Rows without what their other bytes tell.
//!
//! A page says of each of its branches what that commits to, so that nobody has to hash a page to
//! read it. Of a branch whose children lie in the same page that follows from the page alone.
//! Whoever keeps many versions of a row, as an archive does, *blanks* those commitments, and the
//! seal: the row keeps its length, and of a changed value a few bytes differ in place of a path of
//! digests. To *restore* the row is to compute them again.
//!
//! Invariants (`tests/it/model.rs`, over the rows of all histories):
//! - which commitments are blanked follows from the other bytes, so a blanked row is restored
//!   whatever stood there;
//! - restoring what was blanked gives the row, to the byte;
//! - a row that is no page of its tree is refused, never a panic; a row of what overflowed has
//!   nothing to blank but its seal.

use std::fmt::Debug;
use std::iter::once;
use std::sync::{Arc, Mutex};

use spinney_proof::digits::Run;

use crate::error::TreeError;
use crate::ids::SchemeId;
use crate::image::{BUCKET_COMMIT_AT, Codec, PageKind, PrefixView, SUM_BYTES, seal_in_place};
use crate::page::{Kind, Lists, Page, Within, corrupt, owner_digits};
use crate::page_key::PageKey;
use crate::scheme::{BranchJob, ChildList, Commitment, JobKey, LeafJob, Owned, Scheme};
use crate::{HashFunction, mpt, pbt, ubt};

/// Blanks and restores the rows of one tree's pages.
///
/// ```
/// # use spinney_tree::{Batch, MemoryStore, PageStore, Snapshot, Table, Tree, TreeId};
/// # use spinney_tree::{Scheme, bare_rows, mpt::Mpt};
/// # let store = MemoryStore::new();
/// # let mut tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
/// # let mut batch = Batch::new();
/// # batch.put(b"cat", b"kitten");
/// # batch.put(b"dog", b"puppy");
/// # let pending = tree.prepare(&store.snapshot()?, None, batch)?;
/// # tree.commit(&store, &pending, None)?;
/// let form = bare_rows(Mpt.id()).unwrap();
/// let (low, high) = tree.page_range();
/// store.snapshot()?.scan(Table::Pages, &low, Some(&high), &mut |key, row| {
///     let mut bare = row.to_vec();
///     form.blank(key, &mut bare).unwrap();
///     assert_ne!(bare, row);
///     form.restore(key, &mut bare).unwrap();
///     assert_eq!(bare, row);
///     true
/// })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub trait BareRows: Debug + Send + Sync {
    /// Puts zeros in the place of the seal, and of what follows from the rest.
    ///
    /// # Errors
    /// [`TreeError::Corrupt`] if the row is no page of such a tree.
    fn blank(&self, key: &[u8], row: &mut [u8]) -> Result<(), TreeError>;

    /// Computes what was blanked.
    ///
    /// # Errors
    /// [`TreeError::Corrupt`] if the row is no page of such a tree, blanked.
    fn restore(&self, key: &[u8], row: &mut [u8]) -> Result<(), TreeError>;
}

/// The form of a tree's rows; nothing for a scheme that is not known.
pub fn bare_rows(id: SchemeId) -> Option<Arc<dyn BareRows>> {
    let hashes = [HashFunction::Keccak256, HashFunction::Sha256, HashFunction::Blake3];
    let is = |other: SchemeId| other == id;
    if is(mpt::Mpt.id()) {
        return Some(Of::form(mpt::Mpt));
    }
    if is(mpt::MptState.id()) {
        return Some(Of::form(mpt::MptState));
    }
    for hash in hashes {
        if is((ubt::Ubt { hash }).id()) {
            return Some(Of::form(ubt::Ubt { hash }));
        }
        if is((pbt::Pbt { hash }).id()) {
            return Some(Of::form(pbt::Pbt { hash }));
        }
    }
    // Of a Verkle tree what follows takes a multiplication of points; a sum tree of an earlier
    // version has checkpoints elsewhere than where they are put today.
    let whole = [
        SchemeId { tree: 6, hash: 0 },
        SchemeId { tree: 5, hash: 0 },
        SchemeId { tree: 5, hash: 1 },
    ];
    whole.contains(&id).then(|| Arc::new(Sealed) as Arc<dyn BareRows>)
}

/// Rows of which nothing but the seal is blanked.
#[derive(Debug)]
struct Sealed;

impl BareRows for Sealed {
    fn blank(&self, key: &[u8], row: &mut [u8]) -> Result<(), TreeError> {
        blank_seal(key, row)
    }

    fn restore(&self, key: &[u8], row: &mut [u8]) -> Result<(), TreeError> {
        seal_in_place(key, row);
        Ok(())
    }
}

fn blank_seal(key: &[u8], row: &mut [u8]) -> Result<(), TreeError> {
    let seal = row.first_chunk_mut::<SUM_BYTES>();
    *seal.ok_or_else(|| other(key, "a row is shorter than its seal"))? = [0; SUM_BYTES];
    Ok(())
}

fn other(key: &[u8], what: &str) -> TreeError {
    TreeError::Corrupt { page: crate::page_key::describe(key), what: what.into() }
}

#[derive(Debug)]
struct Of<S: Scheme> {
    scheme: S,
    /// For whoever takes them first; others make their own.
    lists: Mutex<Lists<S::Commit>>,
}

impl<S: Scheme> Of<S> {
    fn form(scheme: S) -> Arc<dyn BareRows> {
        Arc::new(Self { scheme, lists: Mutex::default() })
    }

    fn branches(
        &self,
        key: &[u8],
        row: &[u8],
        need: Need,
    ) -> Result<Option<Branches<S::Commit>>, TreeError> {
        match self.lists.try_lock() {
            Ok(mut lists) => Branches::of(&self.scheme, (key, row), need, &mut lists),
            Err(_) => Branches::of(&self.scheme, (key, row), need, &mut Lists::default()),
        }
    }
}

impl<S: Scheme> BareRows for Of<S> {
    fn blank(&self, key: &[u8], row: &mut [u8]) -> Result<(), TreeError> {
        if let Some(branches) = self.branches(key, row, Need::Places)? {
            for branch in &branches.list {
                let place = branches.commit_range(branch)?;
                row[place].fill(0);
            }
        }
        blank_seal(key, row)
    }

    fn restore(&self, key: &[u8], row: &mut [u8]) -> Result<(), TreeError> {
        if let Some(branches) = self.branches(key, row, Need::Paths)? {
            branches.commit(&self.scheme, row)?;
        }
        seal_in_place(key, row);
        Ok(())
    }
}

/// What has to be known of the branches of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Where they lie.
    Places,
    /// The paths to them, too.
    Paths,
}

/// No commitment in a page is longer.
const ZEROS: [u8; 256] = [0; 256];

/// A branch of a page, with its children in the same page.
#[derive(Debug)]
struct BareBranch {
    entry: u16,
    /// The path to its fork, if paths are needed, and how many digits that has.
    path: Vec<u8>,
    fork: usize,
    /// Where its own run begins.
    start: usize,
}

/// The branches of a page whose commitments follow from it, parents before children.
#[derive(Debug)]
struct Branches<C> {
    page: Page<C>,
    list: Vec<BareBranch>,
}

/// Siblings, and where they hang: `digits` digits of a path lead to their fork.
struct Siblings {
    within: Within,
    path: Vec<u8>,
    digits: usize,
    /// Where their runs begin.
    start: usize,
    /// Whether their digits are part of the path: not those of the root and of what is owned.
    have_digits: bool,
}

impl<C: Commitment> Branches<C> {
    /// Nothing, if the row is no page, or one at a place that is too long to be read back.
    fn of<S: Scheme<Commit = C>>(
        scheme: &S,
        (key, row): (&[u8], &[u8]),
        need: Need,
        lists: &mut Lists<C>,
    ) -> Result<Option<Self>, TreeError> {
        let Some((path, bits)) = PageKey::path_of(key) else { return Ok(None) };
        let codec = Codec { scheme };
        let width = Codec::<S>::WIDTH;
        let page_key = PageKey::from_bytes(key);
        let page = Page::parse(codec, page_key, Arc::from(row), bits, &[], lists)?;
        if page.kind == PageKind::Overflow {
            return Ok(None);
        }
        let is_root = page.kind == PageKind::Root;
        let digits = if is_root { 0 } else { bits / width.bits() };
        let mut queue = vec![Siblings {
            within: page.top(),
            path,
            digits,
            start: if is_root { 0 } else { digits + 1 },
            have_digits: !is_root,
        }];
        let mut list = Vec::new();
        while let Some(siblings) = queue.pop() {
            visit(codec, &page, (&siblings, need), (&mut queue, &mut list))?;
        }
        Ok(Some(Self { page, list }))
    }

    /// Where a branch's commitment lies, but for the length that may stand before it.
    fn commit_range(&self, branch: &BareBranch) -> Result<std::ops::Range<usize>, TreeError> {
        let from = usize::from(self.page.entry(branch.entry).at) + BUCKET_COMMIT_AT;
        let bytes = self.page.row.get(from..).unwrap_or_default();
        let malformed = || corrupt(&self.page.key, "a commitment is malformed");
        let len = C::length(bytes).ok_or_else(malformed)?;
        let zeros = ZEROS.get(..len).ok_or_else(malformed)?;
        let says_length = C::length(zeros) != Some(len);
        Ok(from + usize::from(says_length)..from + len)
    }

    /// Computes what the branches commit to, children first, and writes it into the row.
    fn commit<S: Scheme<Commit = C>>(&self, scheme: &S, row: &mut [u8]) -> Result<(), TreeError> {
        let codec = Codec { scheme };
        let mut made: Vec<(u16, C)> = Vec::with_capacity(self.list.len());
        let mut scratch = S::Scratch::default();
        let (mut out, mut bytes, mut children) = (Vec::new(), Vec::new(), Vec::new());
        for branch in self.list.iter().rev() {
            let entry = self.page.entry(branch.entry);
            self.children(codec, (branch, &made), &mut scratch, &mut children)?;
            let prefix = Run::of(&branch.path, branch.start, branch.fork, Codec::<S>::WIDTH);
            let children = ChildList(&children);
            out.clear();
            let job = BranchJob { prefix, children, value: None };
            scheme.commit_branches(once(job), &mut scratch, &mut out);
            let commit = out.pop();
            let commit = commit.ok_or_else(|| corrupt(&self.page.key, "a branch has no digest"))?;
            made.push((branch.entry, commit));
            bytes.clear();
            commit.encode(&mut bytes);
            let from = usize::from(entry.at) + BUCKET_COMMIT_AT;
            let place = row.get_mut(from..from + bytes.len());
            let fits = S::Commit::length(&self.page.row[from..]) == Some(bytes.len());
            let place = place.filter(|_| fits);
            place
                .ok_or_else(|| corrupt(&self.page.key, "a commitment has another length"))?
                .copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// What the children of a branch commit to: it follows from others in the page, is in the row,
    /// or is computed.
    fn children<S: Scheme<Commit = C>>(
        &self,
        codec: Codec<'_, S>,
        (branch, made): (&BareBranch, &[(u16, C)]),
        scratch: &mut S::Scratch,
        children: &mut Vec<(u8, Option<C>)>,
    ) -> Result<(), TreeError> {
        children.clear();
        let (within, start) = (self.page.entry(branch.entry).within(), branch.fork + 1);
        let known = |number: u16| made.iter().find(|(entry, _)| *entry == number).map(|it| it.1);
        let (mut jobs, mut places) = (Vec::new(), Vec::new());
        for number in within.range() {
            let entry = self.page.entry(number);
            let commit = match known(number) {
                Some(commit) => Some(commit),
                None if self.page.is_uncommitted(entry) => None,
                None => self.page.commit(codec, entry, start),
            };
            if commit.is_none() {
                let digit = Some(entry.digit);
                let key = JobKey::Below { path: &branch.path, fork: branch.fork, digit };
                let Some((suffix, value)) = self.page.inline_leaf(codec, entry, start) else {
                    return Err(corrupt(&self.page.key, "an overflowed leaf has no commitment"));
                };
                let owned = match entry.owns().then(|| entry.within().from) {
                    Some(own) => Some(match known(own) {
                        Some(commit) => Owned::Commit(commit),
                        None => self.page.owned(codec, own)?,
                    }),
                    None => None,
                };
                let value = &self.page.row[value];
                jobs.push(LeafJob { key, suffix, value, owned, previous: None });
                places.push(children.len());
            }
            children.push((entry.digit, commit));
        }
        let mut computed = Vec::with_capacity(jobs.len());
        codec.scheme.commit_leaves(jobs.into_iter(), scratch, &mut computed);
        for (place, commit) in places.into_iter().zip(computed) {
            children[place].1 = Some(commit);
        }
        match children.iter().all(|child| child.1.is_some()) {
            true => Ok(()),
            false => Err(corrupt(&self.page.key, "a child has no commitment")),
        }
    }
}

/// Notes the branches among siblings whose commitments follow from the page, and what is below
/// them.
fn visit<S: Scheme>(
    codec: Codec<'_, S>,
    page: &Page<S::Commit>,
    (siblings, need): (&Siblings, Need),
    (queue, list): (&mut Vec<Siblings>, &mut Vec<BareBranch>),
) -> Result<(), TreeError> {
    let Siblings { within, path, digits, start, have_digits } = siblings;
    for number in within.range() {
        let entry = page.entry(number);
        let digit = have_digits.then_some(entry.digit);
        if entry.is_overflowed() {
            continue;
        }
        match entry.kind {
            Kind::Branch => {
                let PrefixView::Inline(prefix) = page.prefix(codec, entry, *start)? else {
                    continue;
                };
                let mut to_fork = Vec::new();
                if need == Need::Paths {
                    prefix.put_path(path, *digits, digit, &mut to_fork);
                }
                let (fork, within) = (prefix.end(), entry.within());
                if !entry.is_valued() {
                    let path = to_fork.clone();
                    list.push(BareBranch { entry: number, path, fork, start: *start });
                }
                let below = fork + 1;
                let path = to_fork;
                queue.push(Siblings {
                    within,
                    path,
                    digits: fork,
                    start: below,
                    have_digits: true,
                });
            }
            Kind::Leaf if entry.owns() => {
                let Some((suffix, _)) = page.inline_leaf(codec, entry, *start) else {
                    continue;
                };
                let mut owner = Vec::new();
                if need == Need::Paths {
                    suffix.put_path(path, *digits, digit, &mut owner);
                }
                let (digits, within) = (owner_digits::<S>(), entry.within());
                let start = digits;
                queue.push(Siblings { within, path: owner, digits, start, have_digits: false });
            }
            _ => {}
        }
    }
    Ok(())
}
