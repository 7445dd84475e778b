//! The rows of a batch that only put values in the places of others.

use std::sync::Arc;

use foldhash::HashSet;
use smallvec::SmallVec;
use spinney_hash::prefetch;

use super::{Body, Edits, Node};
use crate::cache::{Cache, Mark};
use crate::error::TreeError;
use crate::image::{Codec, seal_in_place};
use crate::node::{Child, Segment};
use crate::page_key::{PageKey, Space};
use crate::scheme::Scheme;
use crate::write::{self, Buffers, Rows};

/// So many pages are rewritten before others may change the cache.
const PAGES_AT_ONCE: usize = 64;

/// How much of a row is asked for ahead.
const ROW_START_BYTES: usize = 256;

/// Numbers of nodes or pages: of one operation they need no memory of their own.
type Places = SmallVec<[u32; 64]>;

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
    let Edits { nodes, pages: walked, members } = &seg.edits;
    // By pages, by counting: the walk came back to the upper ones again and again.
    let homes = || nodes.iter().map(|node| node.page).chain(members.iter().map(|m| m.page));
    let mut ends = Places::from_elem(0, walked.len() + 1);
    homes().for_each(|page| ends[page as usize + 1] += 1);
    for page in 1..ends.len() {
        ends[page] += ends[page - 1];
    }
    let mut order = Places::from_elem(0, nodes.len() + members.len());
    let mut next = ends.clone();
    for (number, page) in (0..).zip(homes()) {
        let at = &mut next[page as usize];
        order[*at as usize] = number;
        *at += 1;
    }
    let mut commit = Vec::new();
    let mut rows = Vec::with_capacity(walked.len());
    let mut marks = Vec::with_capacity(order.len());
    let mut held = None;
    for (number, (page, span)) in walked.iter().zip(ends.windows(2)).enumerate() {
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
        if span[0] == span[1] {
            continue;
        }
        let old = &pages.page(page.link)?.row;
        let first = marks.len();
        let mut row = Arc::<[u8]>::from(&old[..]);
        let bytes = Arc::get_mut(&mut row).expect("nobody else has it yet");
        let mut differs = false;
        for &number in &order[span[0] as usize..span[1] as usize] {
            let number = number as usize;
            let (node, entry, at, in_row) = match nodes.get(number) {
                Some(node) => (node, node.entry, node.at, node.in_row),
                None => {
                    let member = &members[number - nodes.len()];
                    (&nodes[member.node as usize], member.entry, member.at, false)
                }
            };
            if number < nodes.len() && node.body == Body::Value {
                let value = &seg.bytes[node.value.range()];
                bytes[usize::from(node.payload)..][..value.len()].copy_from_slice(value);
                differs = true;
            }
            let new = seg.commits[node.commit as usize];
            // One at least says that nothing else changed.
            if !in_row || marks.len() == first {
                marks.push((rows.len() as u32, entry, new));
            }
            if at != Node::NOWHERE {
                commit.clear();
                codec.scheme.encode_commit(&new, &mut commit);
                let there = &mut bytes[usize::from(at)..][..commit.len()];
                differs |= *there != commit[..];
                there.copy_from_slice(&commit);
            }
        }
        if differs {
            let key = PageKey::page(space, &seg.bytes[page.key.range()], page.bits as usize);
            seal_in_place(key.as_bytes(), bytes);
            rows.push((key, row));
        } else {
            marks.truncate(first);
        }
    }
    Some((rows, marks))
}
