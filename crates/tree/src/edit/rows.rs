//! The rows of a batch that only put values in the places of others.

use std::sync::Arc;

use foldhash::HashSet;

use super::{Edit, What};
use crate::cache::Mark;
use crate::error::TreeError;
use crate::image::{Codec, PageKind, SUM_BYTES, seal_framed};
use crate::node::{Child, Segment};
use crate::page_key::{PageKey, Space};
use crate::scheme::Scheme;
use crate::write::{self, Buffers, Rows};

/// The rows of a state whose second segment has edits that differ from the last commit's: those of what was
/// made upon the edits, and the edited pages that are left of it.
pub(crate) fn rows<S: Scheme>(
    codec: Codec<'_, S>,
    space: Space,
    segments: &[Arc<Segment<S::Commit>>],
    top: Option<&Child>,
    buffers: &mut Buffers,
) -> Result<Rows<S::Commit>, TreeError> {
    let edited = &segments[1];
    if segments.len() == 2 {
        // Its root page is the edited one by now, if they were made before.
        let (puts, marks) = match &edited.rewritten[..] {
            [] => rewritten(codec, edited),
            rewritten => (rewritten.to_vec(), Vec::new()),
        };
        return Ok(Rows { puts, marks, ..Rows::default() });
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
    Ok(rows)
}

/// The pages of a segment with their edits, those left out that stay what they were, and what their entries commit
/// to now.
#[expect(clippy::type_complexity, reason = "rows, and marks of them")]
pub(crate) fn rewritten<S: Scheme>(
    codec: Codec<'_, S>,
    seg: &Segment<S::Commit>,
) -> (Vec<(PageKey, Arc<[u8]>)>, Vec<Mark<S::Commit>>) {
    // By pages, by counting: the walk came back to the upper ones again and again.
    let mut ends = vec![0_u32; seg.pages.len() + 1];
    for edit in &seg.edits {
        ends[edit.page as usize + 1] += 1;
    }
    for page in 1..ends.len() {
        ends[page] += ends[page - 1];
    }
    let mut order = vec![0_u32; seg.edits.len()];
    let mut next = ends.clone();
    for (number, edit) in (0..).zip(&seg.edits) {
        let at = &mut next[edit.page as usize];
        order[*at as usize] = number;
        *at += 1;
    }
    let mut commit = Vec::new();
    let mut rows = Vec::with_capacity(seg.pages.len());
    let mut marks = Vec::with_capacity(seg.edits.len());
    for (page, span) in seg.pages.iter().zip(ends.windows(2)) {
        if span[0] == span[1] {
            continue;
        }
        let first = marks.len();
        let mut row = Arc::<[u8]>::from(&page.row[..]);
        let bytes = Arc::get_mut(&mut row).expect("nobody else has it yet");
        for &number in &order[span[0] as usize..span[1] as usize] {
            let Edit { at, entry, in_row, what, .. } = seg.edits[number as usize];
            let new = match what {
                What::Value { op } => seg.value_of(op as usize),
                What::Commit { node } => {
                    let new = seg.commits[node as usize];
                    // One at least says that nothing else changed.
                    if !in_row || marks.len() == first {
                        marks.push((rows.len() as u32, entry, new));
                    }
                    if at == Edit::NOWHERE {
                        continue;
                    }
                    commit.clear();
                    codec.scheme.encode_commit(&new, &mut commit);
                    &commit
                }
            };
            bytes[usize::from(at)..][..new.len()].copy_from_slice(new);
        }
        let kind = PageKind::of(bytes[SUM_BYTES]).expect("it was looked at when it was opened");
        seal_framed(page.key.as_bytes(), kind, bytes);
        if row[..SUM_BYTES] != page.row[..SUM_BYTES] || row != page.row {
            rows.push((page.key.clone(), row));
        } else {
            marks.truncate(first);
        }
    }
    (rows, marks)
}
