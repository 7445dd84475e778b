//! Passing over items: as little of them as their readers ask for.

use super::{
    Bytes, CUT_OFF, Codec, InlineTerminal, Item, MEMBER_COMMIT_AT, Malformed, NodeView, Skimmed,
    TAG_BRANCH, TAG_BRANCH_PAGE, TAG_COMMIT, TAG_OWNS, TAG_TERMINAL,
};
use crate::digits::Run;
use crate::scheme::Scheme;

impl<S: Scheme> Codec<'_, S> {
    /// Passes over the item at `at`, whose node's run starts at digit `start`; answers where it ends.
    /// Refuses what [`Codec::item`] refuses.
    #[inline]
    pub(crate) fn skim(
        &self,
        page: &[u8],
        at: usize,
        start: usize,
    ) -> Result<(Skimmed, usize), Malformed> {
        let [tag, digit, ..] = page[at..] else { return Err(CUT_OFF) };
        let mut bytes = Bytes { page, at: at + MEMBER_COMMIT_AT };
        match tag {
            TAG_BRANCH | TAG_BRANCH_PAGE => {
                self.skip_commit(&mut bytes)?;
                bytes.skip_run(start, Self::WIDTH)?;
                if tag == TAG_BRANCH {
                    bytes.skip_payload()?;
                }
                Ok((Skimmed::Branch { digit }, bytes.at))
            }
            TAG_TERMINAL => {
                bytes.skip_run(start, Self::WIDTH)?;
                bytes.skip_payload()?;
                Ok((Skimmed::Terminal { digit, carries: false }, bytes.at))
            }
            _ => self.skim_rarer(page, at, start),
        }
    }

    /// As [`Codec::skim`], of what is neither a branch nor a terminal with nothing but a key and a value.
    fn skim_rarer(
        &self,
        page: &[u8],
        at: usize,
        start: usize,
    ) -> Result<(Skimmed, usize), Malformed> {
        if let Some((carries, end)) = self.skim_terminal(page, at, start)? {
            return Ok((Skimmed::Terminal { digit: page[at + 1], carries }, end));
        }
        let (item, end) = self.item(page, at, start)?;
        let skimmed = match item {
            Item::Value(_) => Skimmed::Value,
            Item::Node { digit, node: NodeView::Terminal(view) } => {
                Skimmed::Terminal { digit, carries: view.commit.is_some() }
            }
            Item::Node { digit, node: NodeView::Branch(_) } => Skimmed::Branch { digit },
            Item::Group { bits, members, .. } => {
                let from = members.start(end);
                Skimmed::Group { bits, from, count: members.count }
            }
        };
        Ok((skimmed, end))
    }

    /// Whether a terminal whose bytes did not overflow carries a commitment, and where it ends; nothing if
    /// the item is another one, or owns anything but a plain node.
    fn skim_terminal(
        &self,
        page: &[u8],
        at: usize,
        start: usize,
    ) -> Result<Option<(bool, usize)>, Malformed> {
        let tag = page[at];
        if tag & !(TAG_COMMIT | TAG_OWNS) != TAG_TERMINAL {
            return Ok(None);
        }
        let carries = tag & TAG_COMMIT != 0;
        let mut bytes = Bytes { page, at: at + 2 };
        if carries && S::DELTAS {
            self.skip_commit(&mut bytes)?;
        }
        bytes.skip_run(start, Self::WIDTH)?;
        bytes.skip_payload()?;
        if carries && !S::DELTAS {
            self.skip_commit(&mut bytes)?;
        }
        if tag & TAG_OWNS == 0 {
            return Ok(Some((carries, bytes.at)));
        }
        let Some(owner) = S::OWNER else { return Ok(None) };
        let (owned, below) = (bytes.at, owner.bytes * Self::WIDTH.per_byte());
        let end = match page.get(owned) {
            // One value, as most owners have, or a branch.
            Some(&tag) if tag & !TAG_COMMIT == TAG_TERMINAL && page.len() > owned + 1 => {
                self.skim_terminal(page, owned, below)?.map(|(_, end)| end)
            }
            Some(&(TAG_BRANCH | TAG_BRANCH_PAGE)) => Some(self.skim(page, owned, below)?.1),
            _ => None,
        };
        Ok(end.map(|end| (carries, end)))
    }

    /// The skip and the body of a branch at `at`, which was parsed before; nothing if it is no branch whose
    /// skip is inline.
    pub(crate) fn plain_branch<'a>(
        &self,
        page: &'a [u8],
        at: usize,
        start: usize,
    ) -> Option<(Run<'a>, Option<(usize, usize)>)> {
        let tag = *page.get(at)?;
        if tag != TAG_BRANCH && tag != TAG_BRANCH_PAGE {
            return None;
        }
        let mut bytes = Bytes { page, at: at + MEMBER_COMMIT_AT };
        self.skip_commit(&mut bytes).ok()?;
        let skip = bytes.run(start, Self::WIDTH).ok()?;
        if tag == TAG_BRANCH_PAGE {
            return Some((skip, None));
        }
        let len = bytes.length().ok()?;
        let from = bytes.at;
        bytes.take(len).ok()?;
        Some((skip, Some((from, bytes.at))))
    }

    /// The parts of the terminal at `at`, which was parsed before; nothing if there is none, or if it overflowed.
    pub(crate) fn inline_terminal<'a>(
        &self,
        page: &'a [u8],
        at: usize,
        start: usize,
    ) -> Option<InlineTerminal<'a>> {
        let tag = *page.get(at)?;
        if tag & !(TAG_COMMIT | TAG_OWNS) != TAG_TERMINAL {
            return None;
        }
        let mut bytes = Bytes { page, at: at + MEMBER_COMMIT_AT };
        let mut commit = (tag & TAG_COMMIT != 0).then_some(bytes.at);
        if commit.is_some() && S::DELTAS {
            self.skip_commit(&mut bytes).ok()?;
        }
        let suffix = bytes.run(start, Self::WIDTH).ok()?;
        let len = bytes.length().ok()?;
        let from = bytes.at;
        bytes.take(len).ok()?;
        let payload = from..bytes.at;
        if commit.is_some() && !S::DELTAS {
            commit = Some(bytes.at);
            self.skip_commit(&mut bytes).ok()?;
        }
        Some(InlineTerminal { suffix, payload, commit, end: bytes.at, owns: tag & TAG_OWNS != 0 })
    }

    /// The suffix and the payload of a terminal at `at` that has nothing else.
    pub(crate) fn bare_terminal<'a>(
        &self,
        page: &'a [u8],
        at: usize,
        start: usize,
    ) -> Option<(Run<'a>, &'a [u8])> {
        if *page.get(at)? != TAG_TERMINAL {
            return None;
        }
        let there = self.inline_terminal(page, at, start)?;
        Some((there.suffix, &page[there.payload]))
    }
}
