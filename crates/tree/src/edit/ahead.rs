//! Asking for what operations that are soon to come will read, so that it comes from memory meanwhile.
//!
//! A scout goes ahead of the walk for each operation, down the links of pages, with a rest wherever it comes to what is
//! likely not near yet: at the page above the one that operations end in, and at that. It asks for the page's slot;
//! later for its outline; and at last for what of the row and of the commitments the way leads past. Nothing depends
//! on it.

use spinney_hash::prefetch;

use super::Walk;
use crate::image::Codec;
use crate::outline::Kind;
use crate::scheme::Scheme;

/// How many operations ahead a scout goes to the one page, asks for its outline, goes to the other, asks for that one's
/// outline, and for what is on the way there.
const OPS_AHEAD: [usize; 5] = [16, 13, 10, 7, 4];

/// Keys are asked for before any of these.
const OPS_FAR_AHEAD: usize = 22;

/// Where scouts are.
#[derive(Debug, Default)]
pub(super) struct Scouts {
    /// The operations that are next for each of [`OPS_AHEAD`].
    next: [usize; 5],
    /// By the operation.
    found: [Option<Scout>; 32],
    /// The last that went to either page, and its operation: the next one's are mostly the same.
    last: [Option<(usize, Scout)>; 2],
    /// How deep, in bits, the page lies that an operation ended in lately, and the page above it.
    deep: usize,
    above: usize,
}

/// A page on the way of an operation: its slot, its depth in bits, and at which digit its items part.
#[derive(Clone, Copy, Debug)]
struct Scout {
    slot: u32,
    bits: usize,
    fork: usize,
    /// Whether an operation before has asked for it.
    asked: bool,
}

impl Scouts {
    pub(super) fn clear(&mut self) {
        self.next = [0; 5];
        self.found = [None; 32];
        self.last = [None; 2];
    }

    /// Notes where an operation ended: the depths of its page and of the one above.
    pub(super) const fn note(&mut self, deep: usize, above: usize) {
        (self.deep, self.above) = (deep, above);
    }

    const fn found(&mut self, op: usize) -> &mut Option<Scout> {
        let count = self.found.len();
        &mut self.found[op % count]
    }
}

impl<S: Scheme> Walk<'_, S> {
    /// Sends scouts ahead of an operation.
    pub(super) fn look_ahead(&mut self, op: usize) {
        let all = self.ops.len();
        if all == 1 || self.desk.scouts.deep == 0 {
            return;
        }
        if let Some(op) = self.ops.get(op + OPS_FAR_AHEAD) {
            prefetch(&self.bytes[op.key.range()]);
        }
        for (stage, ahead) in OPS_AHEAD.into_iter().enumerate() {
            // Those that are past need none, and what is found for one is overwritten 32 operations later.
            self.desk.scouts.next[stage] = self.desk.scouts.next[stage].max(op);
            while self.desk.scouts.next[stage] < all.min(op + ahead + 1) {
                let op = self.desk.scouts.next[stage];
                self.desk.scouts.next[stage] += 1;
                self.scout(op, stage);
            }
        }
    }

    fn scout(&mut self, op: usize, stage: usize) {
        let root = if stage == 0 { self.pages.top.hint() } else { None };
        let root = root.map(|slot| Scout { slot, bits: 0, fork: 0, asked: true });
        let Some(at) = root.or(*self.desk.scouts.found(op)) else { return };
        match stage {
            0 | 2 => self.send(op, at, stage / 2),
            1 | 3 if at.asked => {}
            1 | 3 => self.fetch_outline(at),
            _ => self.fetch_way(op, at),
        }
    }

    /// Sends a scout on to the page above the one that it ends in, or to that one, and asks for its slot.
    fn send(&mut self, op: usize, from: Scout, leg: usize) {
        let Scouts { deep, above, last, .. } = self.desk.scouts;
        let bits = [above, deep][leg];
        let to = match last[leg] {
            Some((before, to))
                if before + 1 == op
                    && to.bits >= bits
                    && self.common(before, op) * Codec::<S>::WIDTH.bits() >= to.bits =>
            {
                Scout { asked: true, ..to }
            }
            _ => {
                let to = self.go_down(op, from, bits);
                self.pages.fetch_slot(to.slot);
                to
            }
        };
        self.desk.scouts.last[leg] = Some((op, to));
        *self.desk.scouts.found(op) = Some(to);
    }

    fn fetch_outline(&self, at: Scout) {
        match self.pages.guess(at.slot) {
            Some((row, None)) => prefetch(row),
            Some((_, Some(outline))) => {
                outline.fetch();
                outline.fetch_links();
            }
            None => {}
        }
    }

    fn fetch_way(&self, op: usize, at: Scout) {
        if let Some((row, Some(outline))) = self.pages.guess(at.slot) {
            outline.fetch_way(row, self.key(op), at.fork, Codec::<S>::WIDTH);
        }
    }

    /// Goes down from a page to one that is as deep as `bits`, or as far as there are links.
    fn go_down(&self, op: usize, mut at: Scout, bits: usize) -> Scout {
        /// Pages that others made may go round in a ring.
        const STEPS_MAX: usize = 64;
        for _ in 0..STEPS_MAX {
            let below = if at.bits < bits { self.page_below(op, at) } else { None };
            match below {
                Some(below) => at = below,
                None => break,
            }
        }
        at
    }

    /// The page below a page, if it has an outline and a link to there.
    #[inline]
    fn page_below(&self, op: usize, at: Scout) -> Option<Scout> {
        let width = Codec::<S>::WIDTH;
        let path = self.key(op);
        let outline = self.pages.guess(at.slot)?.1?;
        // The root page has one item, which hangs at no digit.
        let (mut entry, mut depth) = (0, 0);
        if at.fork >= path.len() * width.per_byte() {
            return None;
        }
        if at.bits > 0 {
            entry = outline.find(outline.top(), width.digit(path, at.fork), Self::MOST)?;
            depth = at.fork + 1;
        }
        loop {
            let item = outline.entries.get(usize::from(entry))?;
            let fork = depth + usize::from(item.span);
            let (bits, fork) = match item.kind {
                Kind::Branch if fork < path.len() * width.per_byte() => {
                    let digit = width.digit(path, fork);
                    entry = outline.find(item.within(), digit, Self::MOST)?;
                    depth = fork + 1;
                    continue;
                }
                Kind::Apart if fork < path.len() * width.per_byte() => (fork * width.bits(), fork),
                // The members of a group part at the same digit as those around it.
                Kind::TerminalInGroup | Kind::BranchInGroup if depth > 0 => {
                    ((depth - 1) * width.bits() + usize::from(item.span), depth - 1)
                }
                _ => return None,
            };
            // Whether it still leads there would have to be waited for.
            let slot = outline.link(entry).hint()?;
            return Some(Scout { slot, bits, fork, asked: false });
        }
    }
}
