//! What a replay tells on its way: progress for people, events for programs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use alloy_primitives::B256;
use serde::Serialize;
use serde_json::{Value, json};
use spinney_archive::Growing;
use spinney_store::AnyStore;

use super::input::Input;
use crate::interrupt::Interrupt;
use crate::ui::Output;
use crate::ui::progress::{Progress, Unit};
use spinney_bench::Clock;

/// How often blocks alone make an event.
const EVENT_EVERY: Duration = Duration::from_secs(1);

/// Follows a run.
///
/// Fields: who is told and who ends it, what is counted, and what waits for it.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    output: &'a Output,
    interrupt: &'a Interrupt,
    progress: Progress,
    events: bool,
    told: Instant,
    read: Arc<AtomicU64>,
    unit: Unit,
    blocks: u64,
    transactions: u64,
    gas: u64,
    started: Instant,
    commits: u64,
    broken: Option<io::Error>,
    /// Since the command began, and the store that is filled.
    since: Option<(Clock, &'a AnyStore)>,
    first_commit: Option<FirstCommit>,
    /// The archive that grows beside the store.
    pub(crate) growing: Option<&'a Growing>,
}

/// What had been spent by the first commit, in seconds: reading a genesis and building its state,
/// in a new store.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct FirstCommit {
    block: u64,
    seconds: f64,
    cpu_seconds: Option<f64>,
    bytes_written: u64,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        (what, to, events): (&'static str, Option<u64>, bool),
        input: &Input,
        interrupt: &'a Interrupt,
        output: &'a Output,
    ) -> Self {
        let (unit, total) = match (to, input.total) {
            // The last block says more of the way than the bytes of a file that goes on behind it.
            (Some(to), _) => (Unit::Blocks, Some(to)),
            (None, Some((unit, total))) => (unit, Some(total)),
            (None, None) => (Unit::Blocks, None),
        };
        Self {
            output,
            interrupt,
            progress: Progress::new(output.quiet(), what, unit, total),
            events,
            told: Instant::now(),
            read: Arc::clone(&input.read),
            unit,
            blocks: 0,
            transactions: 0,
            gas: 0,
            started: Instant::now(),
            commits: 0,
            broken: None,
            since: None,
            first_commit: None,
            growing: None,
        }
    }

    /// Notes what was spent since a moment, and written into a store, by the first commit.
    pub(crate) fn since(mut self, clock: Clock, store: &'a AnyStore) -> Self {
        self.since = Some((clock, store));
        self
    }

    /// What ends the run once it is set.
    pub(crate) fn flag(&self) -> &'a AtomicBool {
        self.interrupt.flag()
    }

    pub(crate) const fn first_commit(&self) -> Option<FirstCommit> {
        self.first_commit
    }

    pub(crate) fn commits(&self) -> u64 {
        self.commits
    }

    pub(crate) fn warn(&self, text: String) {
        self.output.warn(text);
    }

    pub(crate) fn resumed(&mut self, number: u64) {
        self.output.note(&format!("the store stands at block {number}: going on from there"));
        self.event(|_| json!({ "event": "resumed", "block": number }));
    }

    pub(crate) fn block(&mut self, number: u64, root: B256, (transactions, gas): (u64, u64)) {
        self.blocks += 1;
        self.transactions += transactions;
        self.gas += gas;
        self.advance(number);
        if self.told.elapsed() >= EVENT_EVERY {
            self.event(|watch| {
                json!({
                    "event": "progress", "block": number, "root": root, "blocks": watch.blocks,
                    "transactions": watch.transactions, "gas_used": watch.gas,
                })
            });
        }
    }

    pub(crate) fn followed(&mut self, number: u64) {
        self.advance(number);
    }

    pub(crate) fn committed(&mut self, number: u64, hash: Option<B256>, time: Duration) {
        self.commits += 1;
        if self.first_commit.is_none()
            && let Some((clock, store)) = &self.since
        {
            self.first_commit = Some(FirstCommit {
                block: number,
                seconds: clock.seconds(),
                cpu_seconds: clock.cpu_seconds(),
                bytes_written: store.io().bytes_written,
            });
        }
        self.event(|watch| {
            json!({
                "event": "committed", "block": number, "hash": hash, "blocks": watch.blocks,
                "transactions": watch.transactions, "seconds": time.as_secs_f64(),
            })
        });
        if let Some(growing) = self.growing {
            growing.wait(number, self.interrupt.flag());
        }
    }

    fn advance(&mut self, number: u64) {
        let done = match self.unit {
            Unit::Bytes => self.read.load(Ordering::Relaxed),
            Unit::Blocks | Unit::Keys => number,
        };
        let (blocks, gas) = (self.blocks as f64, self.gas as f64 / 1e6);
        let seconds = self.started.elapsed().as_secs_f64().max(1e-9);
        self.progress.update(done, || match (self.unit, self.gas) {
            // The bar itself tells the block, and how many a second.
            (Unit::Blocks, 0) => String::new(),
            (Unit::Blocks, _) => format!("{:.1} Mgas/s", gas / seconds),
            (_, 0) => format!("block {number}"),
            (..) => {
                let (blocks, gas) = (blocks / seconds, gas / seconds);
                format!("block {number}, {blocks:.0} blocks/s, {gas:.1} Mgas/s")
            }
        });
    }

    /// Writes an event. Where nobody takes it, the run ends as it would by Ctrl-C.
    fn event(&mut self, event: impl FnOnce(&Self) -> Value) {
        if !self.events || self.broken.is_some() {
            return;
        }
        self.told = Instant::now();
        if let Err(error) = self.output.event(&event(self)) {
            self.broken = Some(error);
            self.interrupt.ask();
        }
    }

    pub(crate) fn finish(&self) {
        self.progress.finish();
    }

    /// Why events could not be written.
    pub(crate) fn broken(&mut self) -> io::Result<()> {
        self.broken.take().map_or(Ok(()), Err)
    }
}
