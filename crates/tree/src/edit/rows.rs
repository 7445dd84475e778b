//! The rows of a batch that only put values in the places of others.

use std::sync::Arc;

use foldhash::HashSet;
use spinney_hash::prefetch;

use super::{Body, Edits, Node, Walked};
use crate::batch::OpKind;
use crate::cache::{Cache, Mark};
use crate::error::TreeError;
use crate::image::{Codec, PAGE_BYTES_MAX, seal_in_place};
use crate::node::{Child, Segment};
use crate::page_key::{PageKey, Space};
use crate::scheme::Scheme;
use crate::write::{self, Buffers, Rows};

/// So many pages are rewritten before others may change the cache.
const PAGES_AT_ONCE: usize = 64;

/// How much of a row is asked for ahead.
const ROW_START_BYTES: usize = 256;

/// The rows of a state whose second segment has edits that differ from the last commit's: those of what was
/// made upon the edits, and the edited pages that are left of it. Nothing if a page that was edited went from the
/// cache meanwhile.
pub(crate) fn rows<S: Scheme>(
    codec: Codec<'_, S>,
    space: Space,
    cache: &Cache<S::Commit>,
    segments: &[Arc<Segment<S::Commit>>],
    top: Option<&Child>,
    buffers: &mut Buffers,
) -> Result<Option<Rows<S::Commit>>, TreeError> {
    let edited = &segments[1];
    if segments.len() == 2 {
        // They were made before if something was made upon them that came to nothing.
        if !edited.rewritten.is_empty() {
            return Ok(Some(Rows { puts: edited.rewritten.clone(), ..Rows::default() }));
        }
        let rewritten = rewritten(codec, space, cache, edited);
        return Ok(rewritten.map(|(puts, marks)| Rows { puts, marks, ..Rows::default() }));
    }
    let mut rows = write::rows(codec, space, segments, top, buffers)?;
    let known: HashSet<&PageKey> =
        rows.puts.iter().map(|(key, _)| key).chain(&rows.deletes).collect();
    let dropped = |key: &PageKey| {
        let key = key.as_bytes();
        rows.drops.iter().any(|(low, high)| &low[..] < key && key < &high[..])
    };
    let left = |(key, _): &&(PageKey, Arc<[u8]>)| !known.contains(key) && !dropped(key);
    let left: Vec<_> = edited.rewritten.iter().filter(left).cloned().collect();
    rows.puts.extend(left);
    Ok(Some(rows))
}

/// The pages of a segment with their edits, those left out that stay what they were, and what their entries commit
/// to now. Nothing if one is not in the cache any more.
#[expect(clippy::type_complexity, reason = "rows, and marks of them")]
pub(crate) fn rewritten<S: Scheme>(
    codec: Codec<'_, S>,
    space: Space,
    cache: &Cache<S::Commit>,
    seg: &Segment<S::Commit>,
) -> Option<(Vec<(PageKey, Arc<[u8]>)>, Vec<Mark<S::Commit>>)> {
    let Edits { nodes, pages: walked, members, .. } = &seg.edits;
    let mut rows = Vec::with_capacity(walked.len());
    let mut marks = Vec::with_capacity(nodes.len() + members.len());
    let (mut held, mut commit, mut copy) = (None, Vec::new(), [0; PAGE_BYTES_MAX]);
    for (number, page) in walked.iter().enumerate() {
        if number % PAGES_AT_ONCE == 0 {
            // Let others have it first.
            drop(held.take());
        }
        let pages = &**held.get_or_insert_with(|| cache.pages());
        if let Some(later) = walked.get(number + 6) {
            pages.fetch_slot(later.link.slot);
        }
        if let Some(soon) = walked.get(number + 2).and_then(|page| pages.page(page.link)) {
            // What follows comes by itself as soon as it is read in a row.
            prefetch(&soon.row[..soon.row.len().min(ROW_START_BYTES)]);
        }
        if let Some(soon) = walked.get(number + 1) {
            for node in soon.nodes.iter().flat_map(|numbers| &nodes[numbers.range()]) {
                prefetch(std::slice::from_ref(&seg.commits[node.commit as usize]));
            }
        }
        let [passed, ends] = page.nodes;
        if passed.len() + ends.len() == 0 && page.members.iter().all(|some| some.len() == 0) {
            continue;
        }
        let first = marks.len();
        // Laid over where it is in the core's cache: who writes to memory that no cache has waits for it when it is read
        // again.
        let row = &pages.page(page.link)?.row;
        let copy = &mut copy[..row.len()];
        copy.copy_from_slice(row);
        let differs = lay_over(codec, seg, page, copy, &mut commit, |entry, commits_to, in_row| {
            // One at least says that nothing else changed.
            if !in_row || marks.len() == first {
                marks.push((rows.len() as u32, entry, commits_to));
            }
        });
        if differs {
            let path = &seg.bytes[seg.ops[page.op as usize].key.range()];
            let key = PageKey::page(space, path, page.bits as usize);
            seal_in_place(key.as_bytes(), copy);
            rows.push((key, Arc::from(&*copy)));
        } else {
            marks.truncate(first);
        }
    }
    Some((rows, marks))
}

/// Lays the edits of a page over a copy of its row. `mark` is told of each entry what it commits to now, and whether the
/// outline has that from the row; `bytes` are room to encode it. Whether anything differs.
fn lay_over<S: Scheme>(
    codec: Codec<'_, S>,
    seg: &Segment<S::Commit>,
    page: &Walked,
    row: &mut [u8],
    bytes: &mut Vec<u8>,
    mut mark: impl FnMut(u16, S::Commit, bool),
) -> bool {
    let Edits { nodes, kids, members, .. } = &seg.edits;
    let mut differs = false;
    let mut lay = |row: &mut [u8], entry, at: u16, node: &Node, in_row| {
        let commit = seg.commits[node.commit as usize];
        mark(entry, commit, in_row);
        if at != Node::NOWHERE {
            bytes.clear();
            codec.scheme.encode_commit(&commit, bytes);
            let there = &mut row[usize::from(at)..][..bytes.len()];
            differs = differs || *there != bytes[..];
            there.copy_from_slice(bytes);
        }
    };
    let mut puts = false;
    for node in page.nodes.iter().flat_map(|numbers| &nodes[numbers.range()]) {
        if let OpKind::Put(value) = seg.ops[node.op as usize].kind
            && node.body == Body::Value
        {
            let value = &seg.bytes[value.range()];
            row[usize::from(node.payload)..][..value.len()].copy_from_slice(value);
            puts = true;
        }
        lay(row, node.entry, node.at, node, node.in_row);
    }
    for member in page.members.iter().flat_map(|numbers| &members[numbers.range()]) {
        let node = kids[member.kid as usize].node;
        if let Some(node) = nodes.get(node as usize) {
            lay(row, member.entry, member.at, node, false);
        }
    }
    differs || puts
}
