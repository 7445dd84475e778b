//! Those who answer of blocks whose commits the store keeps.
//!
//! Invariants:
//! - a block near the last one is answered for by the history of the view that is open, which takes
//!   it back by a few blocks; one that is farther, or that the history does not reach, by a view of
//!   the commit that the store keeps of it;
//! - who asks about a block that neither has is told what the history reaches.

use spinney_store::Frozen;
use spinney_tree::PageStore;

use crate::error::Fault;
use crate::methods::Session;
use crate::options::Options;
use crate::params::BlockRef;
use crate::query::{Query, Wants};
use crate::view::{EARLIER_MAX, Earlier, View};

/// So many blocks cost less to take back than the commit costs to open.
const NEAR: u64 = 32;

type Commit<'s, P> = Frozen<<P as PageStore>::Snapshot<'s>>;

/// Views of commits that were asked for lately.
pub(crate) struct KeptViews<'s, P: PageStore>
where
    P::Snapshot<'s>: Send + Sync,
{
    store: &'s P,
    options: &'s Options,
    /// Each has its part of the memory for pages.
    views: Earlier<u64, View<'s, Commit<'s, P>>>,
}

impl<'s, P: PageStore> KeptViews<'s, P>
where
    P::Snapshot<'s>: Send + Sync,
{
    pub(crate) const fn new(store: &'s P, options: &'s Options) -> Self {
        Self { store, options, views: Earlier::new(0, |_| 0) }
    }

    /// Answers what is asked, from the session or from a commit that is kept.
    pub(crate) fn answer<V: PageStore + Clone>(
        &mut self,
        session: &mut Session<'_, '_, V>,
        query: Query,
    ) -> Result<Vec<u8>, Fault> {
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
        let Some(view) = self.view(number)? else { return session.answer(query) };
        let query_there = Query { block: BlockRef::Number(number), ..query.clone() };
        match Session::new(view, options).answer(query_there) {
            Err(Fault::Pruned(_)) => session.answer(query),
            answer => answer,
        }
    }

    fn view(&mut self, number: u64) -> Result<Option<&View<'s, Commit<'s, P>>>, Fault> {
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
