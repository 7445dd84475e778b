//! Those who answer of blocks whose commits the store keeps.
//!
//! Invariants:
//! - a block near the last one is answered for by the history of the view that is open, which takes
//!   it back by a few blocks; one that is farther, or that the history does not reach, by a view of
//!   the commit that the store keeps of it;
//! - who asks about a block that neither has is told what both have;
//! - the earliest block is the oldest one that either answers for.

use std::sync::{Mutex, PoisonError};

use spinney_state::kept_range;
use spinney_store::Frozen;
use spinney_tree::{BlockId, KeptCommits, PageStore};

use crate::error::Fault;
use crate::methods::Session;
use crate::options::Options;
use crate::params::BlockRef;
use crate::query::{Query, Wants};
use crate::view::{EARLIER_MAX, Earlier, View};

/// So many blocks cost less to take back than the commit costs to open.
const NEAR: u64 = 32;

/// Views of commits that were asked for lately.
pub(crate) struct KeptViews<'s, P: PageStore>
where
    P::Snapshot<'s>: Send + Sync,
{
    store: &'s P,
    options: &'s Options,
    /// Each has its part of the memory for pages.
    views: Earlier<u64, View<'s>>,
    /// What the store keeps, once it was asked.
    kept: Option<Option<KeptCommits>>,
    first: &'s Mutex<FirstKept>,
}

/// The block of the first commit that is kept, and the oldest one that it leads back to: to open an
/// old commit may take long, and who asks which block is the earliest asks at each new block.
pub(crate) type FirstKept = Option<(u64, BlockId)>;

impl<'s, P: PageStore> KeptViews<'s, P>
where
    P::Snapshot<'s>: Send + Sync,
{
    pub(crate) const fn new(
        store: &'s P,
        options: &'s Options,
        first: &'s Mutex<FirstKept>,
    ) -> Self {
        Self { store, options, views: Earlier::new(0, |_| 0), kept: None, first }
    }

    /// Answers what is asked, from the session or from a commit that is kept.
    pub(crate) fn answer(
        &mut self,
        session: &mut Session<'_, '_>,
        query: Query,
    ) -> Result<Vec<u8>, Fault> {
        if query.asks_for_earliest() {
            session.goes_back_to(self.oldest()?);
        }
        let earlier = match query.wants {
            // What the store holds of witnesses does not change from commit to commit.
            Wants::Witness => None,
            _ => session.blocks_behind(query.block)?,
        };
        let Some((number, behind)) = earlier else { return session.answer(query) };
        if behind <= NEAR {
            match session.answer(query.clone()) {
                Err(Fault::Pruned(_)) => {}
                answer => return answer,
            }
        }
        let options = self.options;
        let query_there = Query { block: BlockRef::Number(number), ..query.clone() };
        if let Some(view) = self.view(number)? {
            match Session::new(view, options).answer(query_there) {
                Err(Fault::Pruned(_)) => {}
                answer => return answer,
            }
        }
        match (session.answer(query), self.kept()?) {
            (Err(Fault::Pruned(what)), Some(KeptCommits { count, first, last })) => {
                let blocks = if count == 1 { "block" } else { "blocks" };
                let kept = format!("commits are kept of {count} {blocks}, from {first} to {last}");
                Err(Fault::Pruned(format!("{what}; {kept}")))
            }
            (answer, _) => answer,
        }
    }

    fn kept(&mut self) -> Result<Option<KeptCommits>, Fault> {
        let kept = match self.kept {
            Some(kept) => kept,
            None => self.store.kept_commits()?,
        };
        Ok(*self.kept.insert(kept))
    }

    fn oldest(&mut self) -> Result<Option<BlockId>, Fault> {
        let Some(KeptCommits { first, .. }) = self.kept()? else { return Ok(None) };
        let known = *self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, oldest)) = known.filter(|(of, _)| *of == first) {
            return Ok(Some(oldest));
        }
        let view = self.view(first)?;
        let Some((view, head)) = view.and_then(|view| Some((view, view.head?))) else {
            return Ok(None);
        };
        let oldest = kept_range(&view.store.snapshot()?, head)?.oldest;
        *self.first.lock().unwrap_or_else(PoisonError::into_inner) = Some((first, oldest));
        Ok(Some(oldest))
    }

    fn view(&mut self, number: u64) -> Result<Option<&View<'s>>, Fault> {
        let (store, options) = (self.store, self.options);
        let views = EARLIER_MAX * options.threads.max(1);
        let cache_bytes = options.cache_bytes / Options::PAGES_PART / views;
        let open = || match Frozen::kept(store, number) {
            Ok(Some(frozen)) => View::open(frozen, cache_bytes).map_err(Some),
            Ok(None) => Err(None),
            Err(error) => Err(Some(error.into())),
        };
        match self.views.get(number, open) {
            Ok(view) => Ok(Some(view)),
            Err(None) => Ok(None),
            Err(Some(fault)) => Err(fault),
        }
    }
}
