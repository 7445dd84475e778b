//! Asking for what operations that are soon to come will read, so that it comes from memory meanwhile.
//!
//! A scout goes down the links of pages that are known to be at hand, for each operation a little ahead of the walk, to
//! the page that lies as deep as those in which operations ended last. It asks for that page's slot; later for its
//! outline; and then for what of its row and of its commitments the way leads past. Nothing depends on it.

use spinney_hash::prefetch;

use super::Walk;
use crate::image::Codec;
use crate::outline::Kind;
use crate::scheme::Scheme;

/// How many operations ahead a scout goes, asks for outlines, and for what is on the way.
const OPS_AHEAD: [usize; 3] = [10, 7, 4];

/// Where scouts are.
#[derive(Debug, Default)]
pub(super) struct Scouts {
    /// The operations that are next for each of [`OPS_AHEAD`].
    next: [usize; 3],
    /// By the operation: the slot of the page that it was taken to, if there is one, and at which digit its items hang.
    found: [Option<(u32, usize)>; 16],
}

impl Scouts {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn found(&mut self, op: usize) -> &mut Option<(u32, usize)> {
        let count = self.found.len();
        &mut self.found[op % count]
    }
}

impl<S: Scheme> Walk<'_, S> {
    /// Sends scouts ahead of an operation.
    pub(super) fn look_ahead(&mut self, op: usize) {
        let all = self.ops.len();
        if all == 1 {
            return;
        }
        for (stage, ahead) in OPS_AHEAD.into_iter().enumerate() {
            while self.desk.scouts.next[stage] < all.min(op + ahead + 1) {
                let op = self.desk.scouts.next[stage];
                self.desk.scouts.next[stage] += 1;
                if stage == 0 {
                    let found = self.scout(op);
                    found.into_iter().for_each(|(slot, _)| self.pages.fetch_slot(slot));
                    *self.desk.scouts.found(op) = found;
                } else if let Some((slot, fork)) = *self.desk.scouts.found(op) {
                    match self.pages.guess(slot) {
                        Some((row, None)) => prefetch(row),
                        Some((_, Some(outline))) if stage == 1 => outline.fetch(),
                        Some((row, Some(outline))) => {
                            outline.fetch_way(row, self.key(op), fork, Codec::<S>::WIDTH);
                        }
                        None => {}
                    }
                }
            }
        }
    }

    /// Goes down to a page that is as deep as those in which operations ended last; answers its slot, and at which digit
    /// its items part.
    fn scout(&self, op: usize) -> Option<(u32, usize)> {
        /// Pages that others made may go round in a ring.
        const STEPS_MAX: usize = 64;
        let deep = self.desk.depths.into_iter().filter(|&bits| bits > 0).min()?;
        let width = Codec::<S>::WIDTH;
        let path = self.key(op);
        let root = self.edits.pages.first()?.link.slot;
        let mut outline = self.pages.at(root).outline()?;
        let (mut entry, mut depth) = (0, 0);
        for _ in 0..STEPS_MAX {
            let item = &outline.entries[usize::from(entry)];
            let span = usize::from(item.span);
            let (fork, among) = match item.kind {
                Kind::Branch => (depth + span, item.within()),
                Kind::Terminal | Kind::Odd => return None,
                kind => {
                    // The members of a group part at the same digit as those around it.
                    let (fork, bits) = match kind {
                        Kind::Apart => (depth + span, 0),
                        _ => (depth.checked_sub(1)?, span),
                    };
                    let slot = self.pages.follow(outline.link(entry))?.slot;
                    if fork * width.bits() + bits >= deep {
                        return Some((slot, fork));
                    }
                    outline = self.pages.at(slot).outline()?;
                    (fork, outline.top())
                }
            };
            if fork >= path.len() * width.per_byte() {
                return None;
            }
            entry = outline.find(among, width.digit(path, fork), Self::MOST)?;
            depth = fork + 1;
        }
        None
    }
}
