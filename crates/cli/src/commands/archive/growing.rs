//! `replay --archive` and `follow --archive`: an archive grows beside a store.
//!
//! A thread of its own looks at the store's last commit now and then, and adds the blocks behind
//! those that the archive has, from a view of the store. Whoever fills the store keeps the history
//! of all blocks that are not archived yet, so none is missed. They wait where the archive falls
//! far behind; a follower not while the archive's place fails.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use spinney_archive::{Archive, ArchiveError, Objects, Options, Source, Writer, place};
use spinney_state::{State, StateError};
use spinney_store::AnyStore;
use spinney_tree::{BlockId, PageStore, SharedStore, Snapshot};

use super::build::oldest_block;
use super::opened::{check_whole, failure};
use crate::interrupt::Interrupt;
use crate::stores::Place;
use crate::trees::{self, TreeSet};
use crate::ui::Output;
use crate::ui::output::Warnings;

/// How often the store is looked at.
const LOOKS_EVERY: Duration = Duration::from_millis(200);
/// How long it takes until a place that failed is tried again: at first, and in the end.
const PAUSE_LEAST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(60);
/// Memory for pages of the state that goes back.
const TREE_CACHE_BYTES: usize = 64 << 20;
/// Who fills the store waits where so many times the blocks that are added at once are missing.
const TIMES_BEHIND: u64 = 8;

#[derive(Clone, Debug, Args)]
pub(crate) struct GrowArgs {
    /// Add the blocks to an archive meanwhile, which is made if there is none: a directory, or a
    /// URL of a bucket. See archive build.
    #[arg(long, value_name = "ARCHIVE")]
    archive: Option<String>,
    /// Add so many blocks to the archive at a time. The store keeps the history of those that are
    /// not archived yet, whatever --keep-undo says.
    #[arg(long, value_name = "N", default_value_t = 64, requires = "archive")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    archive_every: u64,
    /// Leave out so many blocks before the last one: those that a reorganisation may take back.
    /// Without it, 64 of a chain that is followed, and none of one that is replayed.
    #[arg(long, value_name = "N", requires = "archive")]
    archive_behind: Option<u64>,
}

/// What fills the store, as far as its archive is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filling {
    /// So many blocks are left out unless told otherwise.
    pub(crate) behind: u64,
    /// Whether it ends where the archive cannot go on, and waits while its place fails; else that
    /// is a warning.
    pub(crate) ends: bool,
}

/// An archive that grows.
#[derive(Debug)]
pub(crate) struct Growing {
    name: String,
    objects: Arc<dyn Objects>,
    every: u64,
    behind: u64,
    ends: bool,
    reached: Reached,
}

/// How far it is.
#[derive(Debug, Default)]
struct Reached {
    /// The last block that is archived, or that an archive begins with. None is until it is known.
    last: Arc<AtomicU64>,
    /// Nothing more is added.
    over: AtomicBool,
    /// The place failed, and is tried again later.
    fails: AtomicBool,
    /// The store gets no more blocks.
    filled: Mutex<bool>,
    woken: Condvar,
}

impl GrowArgs {
    /// The archive that is asked for, which has to be one that can grow.
    pub(crate) fn growing(&self, filling: Filling) -> anyhow::Result<Option<Growing>> {
        let Some(name) = &self.archive else { return Ok(None) };
        let objects = place(name).map_err(ArchiveError::from).map_err(failure)?;
        let reached = Reached::default();
        match Archive::open(Arc::clone(&objects), 0) {
            Ok(archive) => {
                check_whole(&archive.manifest(), name, "no blocks are added to it")?;
                reached.last.store(archive.manifest().last, Ordering::Release);
            }
            Err(ArchiveError::Missing { .. }) => {}
            Err(error) => return Err(failure(error)),
        }
        let behind = self.archive_behind.unwrap_or(filling.behind);
        let (name, every) = (name.clone(), self.archive_every);
        Ok(Some(Growing { name, objects, every, behind, ends: filling.ends, reached }))
    }
}

/// Why blocks could not be added.
enum GrowError {
    Archive(ArchiveError),
    Other(anyhow::Error),
}

impl From<ArchiveError> for GrowError {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

impl From<StateError> for GrowError {
    fn from(error: StateError) -> Self {
        Self::Other(error.into())
    }
}

impl From<anyhow::Error> for GrowError {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl GrowError {
    /// Whether the place failed, which may be there again later.
    const fn is_of_place(&self) -> bool {
        matches!(self, Self::Archive(ArchiveError::Object(_)))
    }

    fn told(self) -> anyhow::Error {
        match self {
            Self::Archive(error) => failure(error),
            Self::Other(error) => error,
        }
    }
}

/// Does what fills a store, and lets its archive grow meanwhile, if there is one.
pub(crate) fn beside<T>(
    growing: Option<&Growing>,
    (db, store): (&Place, &AnyStore),
    (interrupt, output): (&Interrupt, &Output),
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    /// Does something when it goes, also by a panic.
    struct Then<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Then<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let Some(growing) = growing else { return work() };
    let (reached, warnings) = (&growing.reached, output.warnings());
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("archive".into());
        let grown = thread.spawn_scoped(scope, || {
            let _over = Then(|| reached.over.store(true, Ordering::Release));
            growing.grow((db, store), interrupt, &warnings)
        })?;
        let filled = Then(|| {
            *reached.filled.lock().unwrap_or_else(PoisonError::into_inner) = true;
            reached.woken.notify_all();
        });
        let done = work();
        drop(filled);
        match grown.join() {
            Ok(grown) => done.and_then(|done| grown.map(|()| done)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

impl Growing {
    /// Has a state keep the history of all blocks that are not archived yet.
    pub(crate) fn is_kept_by<P: PageStore>(&self, state: &mut State<P>) {
        state.keep_history_from(Arc::clone(&self.reached.last));
    }

    /// The last block that is archived, while it grows.
    pub(crate) fn last(&self) -> Option<u64> {
        Some(self.reached.last.load(Ordering::Acquire)).filter(|last| *last != u64::MAX)
    }

    /// Waits where too many blocks are not archived yet. `head` is the last block that was
    /// committed.
    pub(crate) fn wait(&self, head: u64, interrupt: &Interrupt) {
        let most = self.every.saturating_mul(TIMES_BEHIND).saturating_add(self.behind);
        let is_near = || {
            let last = self.reached.last.load(Ordering::Acquire);
            head.saturating_sub(last) <= most
        };
        let goes_on = || {
            let fails = !self.ends && self.reached.fails.load(Ordering::Acquire);
            fails || self.reached.over.load(Ordering::Acquire) || interrupt.is_asked()
        };
        while !is_near() && !goes_on() {
            thread::sleep(LOOKS_EVERY / 20);
        }
    }

    /// Adds blocks until the store is full, and what is left then.
    fn grow(
        &self,
        from: (&Place, &AnyStore),
        interrupt: &Interrupt,
        warnings: &Warnings,
    ) -> anyhow::Result<()> {
        let (mut writer, mut pause) = (None, PAUSE_LEAST);
        loop {
            let filled = *self.reached.filled.lock().unwrap_or_else(PoisonError::into_inner);
            match self.add(from, &mut writer, filled) {
                Ok(()) => {
                    self.reached.fails.store(false, Ordering::Release);
                    pause = PAUSE_LEAST;
                }
                Err(error) if error.is_of_place() && !filled => {
                    // After an error it is opened again.
                    writer = None;
                    self.reached.fails.store(true, Ordering::Release);
                    let seconds = pause.as_secs();
                    warnings.add(&format!(
                        "nothing is archived for now ({}): {}; it is tried again in {seconds} s",
                        self.name,
                        error.told()
                    ));
                    self.sleep(pause);
                    pause = (pause * 2).min(PAUSE_MOST);
                    continue;
                }
                Err(error) => return self.ended(error, interrupt, warnings),
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

    /// Nothing more can be added.
    fn ended(
        &self,
        error: GrowError,
        interrupt: &Interrupt,
        warnings: &Warnings,
    ) -> anyhow::Result<()> {
        let is_of_place = error.is_of_place();
        let error = error.told();
        if self.ends {
            interrupt.ask();
            return Err(error);
        }
        let next = match is_of_place {
            true => "the next run goes on with it",
            false => "the blocks from here on are not archived",
        };
        // Nothing has to be kept for it any more.
        self.archived(u64::MAX);
        warnings.add(&format!("{} does not grow: {error:#}; {next}", self.name));
        Ok(())
    }

    /// Adds the blocks that the store has more, if they are enough, or the last ones.
    fn add(
        &self,
        from: (&Place, &AnyStore),
        writer: &mut Option<Writer>,
        filled: bool,
    ) -> Result<(), GrowError> {
        let writer = match writer {
            Some(writer) => writer,
            none => match self.opened(from)? {
                Some(opened) => none.insert(opened),
                None => return Ok(()),
            },
        };
        loop {
            let snapshot = from.1.snapshot().map_err(anyhow::Error::from)?;
            let Some(head) = newest(&snapshot)? else { return Ok(()) };
            let (last, end) = (writer.manifest().last, head.number.saturating_sub(self.behind));
            // A store that is behind its archive gets there.
            let more = end.saturating_sub(last);
            if more == 0 || more < self.every && !filled {
                return Ok(());
            }
            // What is added at once is in memory.
            let behind = head.number - (last + more.min(self.every.saturating_mul(2)));
            writer.extend(Source { snapshot, open }, behind, |_, _| ())?;
            self.archived(writer.manifest().last);
        }
    }

    /// The archive, which begins with the oldest block that the store keeps if there was none;
    /// `None` while the store has no block.
    fn opened(&self, (db, store): (&Place, &AnyStore)) -> Result<Option<Writer>, GrowError> {
        let objects = Arc::clone(&self.objects);
        let writer = match Writer::open(Arc::clone(&objects), Options::default()) {
            Err(ArchiveError::Missing { .. }) => {
                let snapshot = store.snapshot().map_err(anyhow::Error::from)?;
                if newest(&snapshot)?.is_none() {
                    return Ok(None);
                }
                let first = oldest_block(&snapshot, db)?;
                // The view keeps what it begins with.
                self.archived(first);
                Writer::begin(objects, Options::default(), Source { snapshot, open }, first)?
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

fn open<'s>(store: SharedStore<'s>) -> Result<State<SharedStore<'s>>, GrowError> {
    TreeSet::open_all(store, TREE_CACHE_BYTES).map_err(GrowError::Other)
}

/// The last block of a store.
fn newest(snapshot: &impl Snapshot) -> anyhow::Result<Option<BlockId>> {
    Ok(trees::of_states(snapshot)?.first().and_then(|(_, record)| record.block))
}
