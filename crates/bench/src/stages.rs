//! A replay of the blocks, stage beside stage: when each stage was at which block.

use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use spinney_replay::{ChainReader, Event, Genesis, Replay, RunOptions};
use spinney_state::State;
use spinney_store::{Location, OpenFor, WriteBehind};
use spinney_tree::SharedStore;

use crate::clock::Clock;

/// The stages, in the order in which a block goes through them.
pub(crate) const STAGES: [&str; 5] = ["read", "senders", "execute", "root", "commit"];

/// A stage was at a block, or at the blocks that a commit takes, for a while. Times are seconds
/// since the run began.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Span {
    /// Which of [`STAGES`].
    pub(crate) stage: usize,
    /// The block, or the last one of a commit.
    pub(crate) block: u64,
    pub(crate) began: f64,
    pub(crate) seconds: f64,
}

/// What a replay by stages took, its genesis apart.
#[derive(Clone, Debug, Serialize)]
pub struct Stages {
    pub(crate) threads: usize,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) spans: Vec<Span>,
}

/// Replays a chain into a new log in a folder.
pub fn replay_staged(
    (genesis, blocks): (impl Read, impl Read + Send),
    to: Option<u64>,
    (folder, cache_bytes): (&Path, usize),
    stop: &AtomicBool,
) -> anyhow::Result<Stages> {
    let genesis = Genesis::read(BufReader::new(genesis)).context("in the genesis")?;
    let blocks = ChainReader::new(blocks).context("reading the blocks")?;
    let store = Location::Log(folder.join("stages")).open(OpenFor::Filling, cache_bytes / 2)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = RunOptions::default();
    (options.recover_threads, options.last) = (threads, to);
    options.stop = Some(stop);
    let stages = WriteBehind::over(&store, |store| {
        let mut state = State::open(SharedStore::new(store), cache_bytes / 2)?;
        let reader = state.reader().expect("mpt is there");
        let mut replay = Replay::start(&genesis, state)?;
        let (clock, mut spans) = (Clock::start(), Vec::new());
        let mut add = |stage, block, (began, time): (Duration, Duration)| {
            let (began, seconds) = (began.as_secs_f64(), time.as_secs_f64());
            spans.push(Span { stage, block, began, seconds });
        };
        replay.run_staged(reader, blocks, &options, |event| match event {
            Event::Block(block) => {
                let times = &block.times;
                let starts = &times.began;
                let parts = [
                    (starts.read, times.read),
                    (starts.recover, times.recover),
                    (starts.execute, times.execute),
                    (starts.apply, times.apply),
                ];
                for (stage, part) in parts.into_iter().enumerate() {
                    add(stage, block.number, part);
                }
            }
            Event::Committed { number, began, time, .. } => add(4, number, (began, time)),
            _ => {}
        })?;
        let (seconds, cpu_seconds) = (clock.seconds(), clock.cpu_seconds());
        anyhow::Ok(Stages { threads, seconds, cpu_seconds, spans })
    })?;
    store.close()?;
    Ok(stages)
}
