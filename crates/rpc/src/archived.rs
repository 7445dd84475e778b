//! Those who answer from an archive: each request from a view of the block that it asks for.
//!
//! Invariants:
//! - all requests of a batch see the same last block;
//! - a view is of one block and of the trees that are asked for: nothing else is read to open it;
//! - a slice answers for its own accounts alone;
//! - the archive's writer removes objects that it replaced, while views still name them: what fails
//!   in a view is asked once more of the newest manifest, and what fails there, too, is told.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use spinney_archive::{Archive, TreeInfo};
use spinney_state::MPT;
use spinney_state::embed::PBT;
use spinney_tree::{BlockId, PageStore as _, SharedStore, TreeId};

use crate::error::Fault;
use crate::methods::Session;
use crate::options::Options;
use crate::params::BlockRef;
use crate::query::{About, Query, Wants};
use crate::queue::Next;
use crate::view::{EARLIER_MAX, Earlier, Mark, OF_STATES, View};
use crate::worker::{Shared, answer_job};

/// Which trees of a block a view has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trees {
    None,
    One(TreeId),
    All,
}

impl Trees {
    /// Those that are needed for what is asked, of those that are held.
    fn of(wants: &Wants, held: &[TreeInfo]) -> Self {
        let of_state = held.iter().filter(|tree| OF_STATES.contains(&TreeId(tree.id)));
        let one =
            |tree: Option<&TreeInfo>| tree.map_or(Self::All, |tree| Self::One(TreeId(tree.id)));
        // As a view chooses the tree that accounts are read from.
        let main = || {
            let first = [MPT, PBT].into_iter().find_map(|id| held.iter().find(|it| it.id == id.0));
            one(first.or_else(|| of_state.clone().next()))
        };
        match wants {
            Wants::Balance(_) | Wants::Nonce(_) | Wants::Code(_) | Wants::Slot(..) => main(),
            Wants::Witness | Wants::About(About::Head | About::Kept | About::Status) => main(),
            Wants::AccountProof(..) => one(held.iter().find(|tree| tree.id == MPT.0)),
            Wants::Root(name) | Wants::KeysProof(name, _) if name == "mpt" => {
                one(held.iter().find(|tree| tree.id == MPT.0))
            }
            Wants::Root(name) | Wants::KeysProof(name, _) => {
                one(of_state.clone().find(|tree| tree.scheme().to_string() == *name))
            }
            Wants::About(About::Trees) => Self::All,
            Wants::SumProof(..) | Wants::About(_) => Self::None,
        }
    }

    fn has(self, id: TreeId) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => id == one,
            Self::All => OF_STATES.contains(&id),
        }
    }
}

type Views = Earlier<(u64, Trees), View<'static>>;

/// Each has its part of the memory for pages, and nothing besides.
const fn no_views() -> Views {
    Views::new(0, |_| 0)
}

/// One who answers, and the views that he opened lately.
struct Reader<'a> {
    archive: &'a Archive,
    options: &'a Options,
    views: Views,
    /// The first block and the last one, as all requests of a batch see them.
    blocks: (u64, u64),
}

/// Answers until the queue is closed.
pub(crate) fn work(archive: &Archive, shared: &Shared) {
    let fresh = || Reader {
        archive,
        options: &shared.options,
        views: no_views(),
        blocks: archive.blocks(),
    };
    let mut reader = fresh();
    loop {
        match shared.queue.next(None) {
            Next::Idle => {}
            Next::Closed => return,
            Next::Job(job) => {
                reader.blocks = archive.blocks();
                let head = Some(reader.blocks.1);
                let answer = || answer_job(&mut |query| reader.answer(query), head, shared, job);
                // Who asked sees that no answer comes.
                if catch_unwind(AssertUnwindSafe(answer)).is_err() {
                    shared.metrics.panics.inc();
                    reader = fresh();
                }
            }
        }
    }
}

/// Looks for newer manifests until the server ends. What fails here is tried again; requests go on
/// from the manifest that is known.
pub(crate) fn refresh(archive: &Archive, options: &Options, ended: &Receiver<()>) {
    while ended.recv_timeout(options.refresh) == Err(RecvTimeoutError::Timeout) {
        let _ = archive.refresh();
    }
}

impl Reader<'_> {
    fn answer(&mut self, query: Query) -> Result<Vec<u8>, Fault> {
        match self.answer_once(query.clone()) {
            // The view's objects may be replaced; who looks for newer manifests may know already.
            Err(Fault::Internal(_)) => {
                let _ = self.archive.refresh();
                self.views = no_views();
                self.answer_once(query)
            }
            answer => answer,
        }
    }

    fn answer_once(&mut self, query: Query) -> Result<Vec<u8>, Fault> {
        let number = self.number(query.block)?;
        if let Some(address) = query.wants.account() {
            self.archive.check_account(&address.into_array())?;
        }
        let blocks = match query.wants {
            Wants::About(About::Kept | About::Status) => self.first_and_last()?,
            _ => Vec::new(),
        };
        let options = self.options;
        let view = self.view(number, &query.wants)?;
        // That block is the last one of its view.
        let query = Query { block: BlockRef::Latest, ..query };
        Session::new(view, options).with_blocks(blocks).answer(query)
    }

    fn view(&mut self, number: u64, wants: &Wants) -> Result<&View<'static>, Fault> {
        let (archive, options) = (self.archive, self.options);
        let store = archive.at(number)?;
        let held: Vec<TreeInfo> = store.trees().collect();
        let trees = Trees::of(wants, &held);
        let views = EARLIER_MAX * options.threads.max(1);
        let cache_bytes = options.cache_bytes / Options::PAGES_PART / views;
        let open = || {
            let ids = held.iter().map(|tree| TreeId(tree.id)).filter(|id| trees.has(*id));
            let ids: Vec<_> = ids.collect();
            let mark = Mark::of_trees(&store.snapshot()?, &ids)?;
            View::of(SharedStore::new(store), mark, cache_bytes)
        };
        self.views.get((number, trees), open)
    }

    /// The block that is asked for.
    fn number(&self, block: BlockRef) -> Result<u64, Fault> {
        let (first, last) = self.blocks;
        match block {
            BlockRef::Latest => Ok(last),
            BlockRef::Earliest => Ok(first),
            BlockRef::Number(number) => Ok(number),
            BlockRef::Finalized | BlockRef::Safe => self.options.finalized(last),
            BlockRef::Pending => Err(Fault::no_pending()),
            BlockRef::Hash(hash) => {
                let number = self.archive.number_of(&hash.0)?;
                number.ok_or_else(|| Fault::not_among(&hash, first, last))
            }
        }
    }

    fn first_and_last(&self) -> Result<Vec<BlockId>, Fault> {
        let (first, last) = self.blocks;
        let mut blocks = Vec::new();
        for number in [first, last] {
            blocks.extend(self.archive.block(number)?);
        }
        Ok(blocks)
    }
}
