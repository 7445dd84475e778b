//! An archive that grows beside a store while something fills it.
//!
//! A thread of its own looks at the store's last commit now and then, and adds the blocks behind
//! those that the archive has, from a view of the store. Whoever fills the store keeps the history
//! of all blocks that are not archived yet, so none is missed. They wait where the archive falls
//! far behind; where it [need not go on](GrowOptions::ends) not while the archive's place fails.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use spinney_state::{HeldError, State, StateError, TreeSet, kept_range, newest_block};
use spinney_tree::{PageStore, SharedStore, StoreError, TreeError};

use crate::error::ArchiveError;
use crate::extend::Source;
use crate::objects::Objects;
use crate::writer::{Options, Writer};

/// How often the store is looked at.
const LOOKS_EVERY: Duration = Duration::from_millis(200);
/// How long it takes until a place that failed is tried again: at first, and in the end.
const PAUSE_LEAST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(60);
/// Memory for pages of the state that goes back.
const TREE_CACHE_BYTES: usize = 64 << 20;
/// Who fills the store waits where so many times the blocks that are added at once are missing.
const TIMES_BEHIND: u64 = 8;

/// How an archive grows.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct GrowOptions {
    /// So many blocks are added at a time.
    pub every: u64,
    /// So many blocks before the last one are left out: those that may be taken back.
    pub behind: u64,
    /// Whether what fills the store ends where the archive cannot go on, and waits while its place
    /// fails; else that is told.
    pub ends: bool,
}

impl Default for GrowOptions {
    fn default() -> Self {
        Self { every: 64, behind: 0, ends: true }
    }
}

/// An archive that grows.
#[derive(Debug)]
pub struct Growing {
    objects: Arc<dyn Objects>,
    options: GrowOptions,
    reached: Reached,
}

/// How far it is.
#[derive(Debug)]
struct Reached {
    /// The last block that is archived, or that an archive begins with; 0 until it is known.
    last: Arc<AtomicU64>,
    /// Nothing more is added.
    over: AtomicBool,
    /// The place failed, and is tried again later.
    fails: AtomicBool,
    /// The store gets no more blocks.
    filled: Mutex<bool>,
    woken: Condvar,
}

/// Why blocks could not be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrowError {
    /// The archive refused them, or failed.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The state of the store could not be opened.
    #[error(transparent)]
    Held(#[from] HeldError),
}

impl From<StateError> for GrowError {
    fn from(error: StateError) -> Self {
        Self::Held(error.into())
    }
}

impl From<StoreError> for GrowError {
    fn from(error: StoreError) -> Self {
        Self::Held(error.into())
    }
}

impl From<TreeError> for GrowError {
    fn from(error: TreeError) -> Self {
        Self::Held(error.into())
    }
}

impl GrowError {
    /// Whether the place failed, which may be there again later.
    pub const fn is_of_place(&self) -> bool {
        matches!(self, Self::Archive(ArchiveError::Object(_)))
    }
}

/// What is told while an archive grows.
#[derive(Debug)]
#[non_exhaustive]
pub enum GrowEvent {
    /// The place failed, and is tried again.
    Failed {
        /// Why.
        error: GrowError,
        /// After so long.
        pause: Duration,
    },
    /// Nothing more is added, and what fills the store goes on.
    Ended {
        /// Why.
        error: GrowError,
    },
}

/// Does something when it goes, also by a panic.
struct Then<F: FnMut()>(F);

impl<F: FnMut()> Drop for Then<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Growing {
    /// An archive in a place, whose last block is known if there is one.
    pub fn new(objects: Arc<dyn Objects>, last: Option<u64>, options: GrowOptions) -> Self {
        let reached = Reached {
            last: Arc::new(AtomicU64::new(last.unwrap_or(0))),
            over: AtomicBool::new(false),
            fails: AtomicBool::new(false),
            filled: Mutex::new(false),
            woken: Condvar::new(),
        };
        Self { objects, options, reached }
    }

    /// Has a state keep the history of all blocks that are not archived yet.
    pub fn is_kept_by<P: PageStore>(&self, state: &mut State<P>) {
        state.keep_history_from(Arc::clone(&self.reached.last));
    }

    /// The last block that is archived, while it grows.
    pub fn last(&self) -> Option<u64> {
        Some(self.reached.last.load(Ordering::Acquire)).filter(|last| *last != u64::MAX)
    }

    /// Waits where too many blocks are not archived yet, unless it is to stop. `head` is the last
    /// block that was committed.
    pub fn wait(&self, head: u64, stop: &AtomicBool) {
        let GrowOptions { every, behind, ends } = self.options;
        let most = every.saturating_mul(TIMES_BEHIND).saturating_add(behind);
        let is_near = || {
            let last = self.reached.last.load(Ordering::Acquire);
            head.saturating_sub(last) <= most
        };
        let goes_on = || {
            let fails = !ends && self.reached.fails.load(Ordering::Acquire);
            fails || self.reached.over.load(Ordering::Acquire) || stop.load(Ordering::Relaxed)
        };
        while !is_near() && !goes_on() {
            thread::sleep(LOOKS_EVERY / 20);
        }
    }

    /// Does what fills a store, and lets the archive grow meanwhile. What the work answers comes
    /// with why the archive did not grow to its end; then `stop` was set, so that the work ends.
    ///
    /// # Errors
    /// If no thread can be made. Then nothing was done.
    pub fn beside<P, T>(
        &self,
        store: &P,
        stop: &AtomicBool,
        told: &(dyn Fn(GrowEvent) + Sync),
        work: impl FnOnce() -> T,
    ) -> io::Result<(T, Result<(), GrowError>)>
    where
        P: PageStore + Sync,
        for<'s> P::Snapshot<'s>: Send + Sync,
    {
        let reached = &self.reached;
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("archive".into());
            let grown = thread.spawn_scoped(scope, || {
                let _over = Then(|| reached.over.store(true, Ordering::Release));
                self.grow(store, stop, told)
            })?;
            let filled = Then(|| {
                *reached.filled.lock().unwrap_or_else(PoisonError::into_inner) = true;
                reached.woken.notify_all();
            });
            let done = work();
            drop(filled);
            match grown.join() {
                Ok(grown) => Ok((done, grown)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Adds blocks until the store is full, and what is left then.
    fn grow<P>(
        &self,
        store: &P,
        stop: &AtomicBool,
        told: &(dyn Fn(GrowEvent) + Sync),
    ) -> Result<(), GrowError>
    where
        P: PageStore,
        for<'s> P::Snapshot<'s>: Send + Sync,
    {
        let (mut writer, mut pause) = (None, PAUSE_LEAST);
        loop {
            let filled = *self.reached.filled.lock().unwrap_or_else(PoisonError::into_inner);
            match self.add(store, &mut writer, filled) {
                Ok(()) => {
                    self.reached.fails.store(false, Ordering::Release);
                    pause = PAUSE_LEAST;
                }
                Err(error) if error.is_of_place() && !filled => {
                    // After an error it is opened again.
                    writer = None;
                    self.reached.fails.store(true, Ordering::Release);
                    told(GrowEvent::Failed { error, pause });
                    self.sleep(pause);
                    pause = (pause * 2).min(PAUSE_MOST);
                    continue;
                }
                Err(error) if self.options.ends => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(error);
                }
                Err(error) => {
                    // Nothing has to be kept for it any more.
                    self.archived(u64::MAX);
                    told(GrowEvent::Ended { error });
                    return Ok(());
                }
            }
            if filled {
                return Ok(());
            }
            self.sleep(LOOKS_EVERY);
        }
    }

    /// Sleeps, but not once the store is full.
    fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut filled = self.reached.filled.lock().unwrap_or_else(PoisonError::into_inner);
        while !*filled {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.reached.woken.wait_timeout(filled, left);
            filled = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Adds the blocks that the store has more, if they are enough, or the last ones.
    fn add<P>(&self, store: &P, writer: &mut Option<Writer>, filled: bool) -> Result<(), GrowError>
    where
        P: PageStore,
        for<'s> P::Snapshot<'s>: Send + Sync,
    {
        let writer = match writer {
            Some(writer) => writer,
            none => match self.opened(store)? {
                Some(opened) => none.insert(opened),
                None => return Ok(()),
            },
        };
        let GrowOptions { every, behind, .. } = self.options;
        loop {
            let snapshot = store.snapshot()?;
            let Some(head) = newest_block(&snapshot)? else { return Ok(()) };
            let (last, end) = (writer.manifest().last, head.number.saturating_sub(behind));
            // A store that is behind its archive gets there.
            let more = end.saturating_sub(last);
            if more == 0 || more < every && !filled {
                return Ok(());
            }
            // What is added at once is in memory.
            let behind = head.number - (last + more.min(every.saturating_mul(2)));
            writer.extend(all_trees(snapshot, TREE_CACHE_BYTES), behind, |_, _| ())?;
            self.archived(writer.manifest().last);
        }
    }

    /// The archive, which begins with the oldest block that the store keeps if there was none;
    /// `None` while the store has no block.
    fn opened<P>(&self, store: &P) -> Result<Option<Writer>, GrowError>
    where
        P: PageStore,
        for<'s> P::Snapshot<'s>: Send + Sync,
    {
        let objects = Arc::clone(&self.objects);
        let writer = match Writer::open(Arc::clone(&objects), Options::default()) {
            Err(ArchiveError::Missing { .. }) => {
                let snapshot = store.snapshot()?;
                let Some(newest) = newest_block(&snapshot)? else { return Ok(None) };
                let first = kept_range(&snapshot, newest)?.oldest.number;
                // The view keeps what it begins with.
                self.archived(first);
                let source = all_trees(snapshot, TREE_CACHE_BYTES);
                Writer::begin(objects, Options::default(), source, first)?
            }
            opened => opened?,
        };
        self.archived(writer.manifest().last);
        Ok(Some(writer))
    }

    fn archived(&self, last: u64) {
        self.reached.last.store(last, Ordering::Release);
    }
}

/// What an archive takes from a view of a store, whichever trees it holds.
pub fn all_trees<'s, N>(
    snapshot: N,
    cache_bytes: usize,
) -> Source<N, impl FnOnce(SharedStore<'s>) -> Result<State<SharedStore<'s>>, GrowError>> {
    Source { snapshot, open: move |store| Ok(TreeSet::open_all(store, cache_bytes)?) }
}
