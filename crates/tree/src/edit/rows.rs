//! The rows of a batch that only put values in the places of others.

use std::sync::Arc;

use foldhash::HashSet;
use spinney_hash::prefetch;

use super::{Body, Edits, Node, Walked};
use crate::batch::OpKind;
use crate::cache::{Cache, Mark, Pages};
use crate::error::TreeError;
use crate::image::{Codec, seal_in_place};
use crate::node::{Child, Segment};
use crate::page_key::{PageKey, Space};
use crate::row::{Block, Row};
use crate::scheme::Scheme;
use crate::write::{self, Buffers, Rows};

/// So many pages are rewritten before others may change the cache.
const PAGES_AT_ONCE: usize = 64;

/// A block is kept for the next batch if it takes no more of a cache's budget than that.
const BLOCK_SHARE: usize = 8;

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
        let rewritten = rewritten(codec, space, cache, edited, &mut buffers.block);
        return Ok(rewritten.map(|(puts, marks)| Rows { puts, marks, ..Rows::default() }));
    }
    let mut rows = write::rows(codec, space, segments, top, buffers)?;
    let known: HashSet<&PageKey> =
        rows.puts.iter().map(|(key, _)| key).chain(&rows.deletes).collect();
    let dropped = |key: &PageKey| {
        let key = key.as_bytes();
        rows.drops.iter().any(|(low, high)| &low[..] < key && key < &high[..])
    };
    let left = |(key, _): &&(PageKey, Row)| !known.contains(key) && !dropped(key);
    let left: Vec<_> = edited.rewritten.iter().filter(left).cloned().collect();
    rows.puts.extend(left);
    Ok(Some(rows))
}

/// The pages of a segment with their edits, those left out that stay what they were, and what their entries commit to
/// now. Nothing if one is not in the cache any more. `kept` is a block whose memory is used again, and then this one.
#[expect(clippy::type_complexity, reason = "rows, and marks of them")]
pub(crate) fn rewritten<S: Scheme>(
    codec: Codec<'_, S>,
    space: Space,
    cache: &Cache<S::Commit>,
    seg: &Segment<S::Commit>,
    kept: &mut Arc<Block>,
) -> Option<(Vec<(PageKey, Row)>, Vec<Mark<S::Commit>>)> {
    let Edits { nodes, pages: walked, members, row_bytes, .. } = &seg.edits;
    // Asked for before the cache is held: who waits to write to it lets nobody read it twice.
    let most = cache.budget() / BLOCK_SHARE;
    let mut block = Block::anew(std::mem::take(kept), walked.len(), *row_bytes);
    let mut keys = Vec::with_capacity(walked.len());
    let mut marks = Vec::with_capacity(nodes.len() + members.len());
    let (mut held, mut commit) = (None, Vec::new());
    for (number, page) in walked.iter().enumerate() {
        if number % PAGES_AT_ONCE == 0 {
            // Let others have it first.
            drop(held.take());
        }
        let pages = &**held.get_or_insert_with(|| cache.pages());
        look_ahead(pages, seg, number);
        let [passed, ends] = page.nodes;
        if passed.len() + ends.len() == 0 && page.members.iter().all(|some| some.len() == 0) {
            continue;
        }
        let first = marks.len();
        let row = pages.linked(page.link)?;
        let number = keys.len() as u32;
        let differs = block.push_if(row, |copy| {
            let mark = |entry, commits_to, in_row: bool| {
                // One at least says that nothing else changed.
                if !in_row || marks.len() == first {
                    marks.push((number, entry, commits_to));
                }
            };
            let differs = lay_over(codec, seg, page, (row, &mut *copy), &mut commit, mark);
            if differs {
                let path = &seg.bytes[seg.ops[page.op as usize].key.range()];
                let key = PageKey::page(space, path, page.bits as usize);
                seal_in_place(key.as_bytes(), copy);
                keys.push(key);
            }
            differs
        });
        if !differs {
            marks.truncate(first);
        }
    }
    let block = Arc::new(block);
    let rows = keys.into_iter().zip(block.rows()).collect();
    if block.capacity() <= most {
        *kept = block;
    }
    Some((rows, marks))
}

/// Asks for what is soon to be copied, and what is to be laid over that. A row is asked for twice: with what it begins
/// with comes where it is in memory, and then all of it comes at once.
fn look_ahead<C: Copy>(pages: &Pages<C>, seg: &Segment<C>, number: usize) {
    const SLOTS_AHEAD: usize = 12;
    const STARTS_AHEAD: usize = 8;
    const ROWS_AHEAD: usize = 2;
    let ahead = |ahead: usize| seg.edits.pages.get(number + ahead);
    let row = |page: &Walked| pages.linked(page.link);
    if let Some(page) = ahead(SLOTS_AHEAD) {
        pages.fetch_slot(page.link.slot);
    }
    if let Some(start) = ahead(STARTS_AHEAD).and_then(row).and_then(|row| row.get(..1)) {
        prefetch(start);
    }
    let Some(page) = ahead(ROWS_AHEAD) else { return };
    prefetch(row(page).unwrap_or_default());
    for node in page.nodes.iter().flat_map(|numbers| &seg.edits.nodes[numbers.range()]) {
        prefetch(std::slice::from_ref(&seg.commits[node.commit as usize]));
    }
}

/// Lays the edits of a page over a copy of its row; both are given. `mark` is told of each entry what it commits to
/// now, and whether the outline has that from the row; `bytes` are room to encode it. Whether anything differs.
fn lay_over<S: Scheme>(
    codec: Codec<'_, S>,
    seg: &Segment<S::Commit>,
    page: &Walked,
    (old, row): (&[u8], &mut [u8]),
    bytes: &mut Vec<u8>,
    mut mark: impl FnMut(u16, S::Commit, bool),
) -> bool {
    let Edits { nodes, kids, members, .. } = &seg.edits;
    let mut differs = false;
    let mut lay = |row: &mut [u8], entry, at: u16, node: &Node, in_row| {
        let commit = seg.commits[node.commit as usize];
        if entry != Node::NO_ENTRY {
            mark(entry, commit, in_row);
        }
        if at != Node::NOWHERE {
            bytes.clear();
            codec.scheme.encode_commit(&commit, bytes);
            let there = usize::from(at)..usize::from(at) + bytes.len();
            differs = differs || old[there.clone()] != bytes[..];
            row[there].copy_from_slice(bytes);
        }
    };
    let mut puts = false;
    for node in page.nodes.iter().flat_map(|numbers| &nodes[numbers.range()]) {
        if node.body == Body::Value
            && let OpKind::Put(value) = seg.ops[node.op as usize].kind
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
