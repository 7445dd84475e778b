//! What a server is told: of its chain, and how much it takes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Fault;
use crate::hosts::Hosts;
use crate::metrics::FollowMetrics;

/// What the server takes on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of a request's body, or of a batch's.
    pub body_bytes: usize,
    /// Requests of a batch.
    pub batch: usize,
    /// Keys of a proof.
    pub keys: usize,
    /// Bytes of an answer, or of those to a batch.
    pub answer_bytes: usize,
    /// Bytes of all answers that are being sent.
    pub answers_bytes: usize,
    /// Connections at once; others wait.
    pub connections: usize,
    /// Requests or batches that wait for a worker; others are refused.
    pub waiting: usize,
    /// How long a request or a batch may take, waiting included.
    pub request: Duration,
    /// How long a client may take to send a header, then a body, and to stay without sending any.
    pub read: Duration,
    /// How long a client may take nothing of its answer.
    pub write: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 1 << 20,
            batch: 100,
            keys: 1_024,
            answer_bytes: 16 << 20,
            answers_bytes: 256 << 20,
            connections: 512,
            waiting: 1_024,
            request: Duration::from_secs(10),
            read: Duration::from_secs(30),
            write: Duration::from_secs(20),
        }
    }
}

/// What is known of final blocks.
#[derive(Clone, Debug, Default)]
pub enum Finality {
    /// Nothing: who asks for `finalized` or `safe` is told so.
    #[default]
    Unknown,
    /// Blocks so far below the last one are taken to be final.
    Depth(u64),
    /// Somebody who follows the chain tells the number of the last final one; `u64::MAX` until he
    /// knows.
    Told(Arc<AtomicU64>),
}

/// What a server is told beside its store.
#[derive(Clone, Debug)]
pub struct Options {
    /// The chain's id, which the store does not hold.
    pub chain_id: Option<u64>,
    /// What is known of final blocks.
    pub finality: Finality,
    /// Memory for pages, of all workers together.
    pub cache_bytes: usize,
    /// Threads that read the store and answer.
    pub threads: usize,
    /// What is taken on.
    pub limits: Limits,
    /// Whether `GET /` answers the explorer's page.
    pub explorer: bool,
    /// The names by which it may be asked for anything but metrics.
    pub hosts: Hosts,
    /// How often an archive is looked at for blocks that were added to it.
    pub refresh: Duration,
    /// What is counted by who follows a chain into the store, if it is in this process.
    pub follow: Option<FollowMetrics>,
    pub(crate) started: Instant,
}

impl Default for Options {
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(2, usize::from);
        Self {
            chain_id: None,
            finality: Finality::Unknown,
            cache_bytes: 256 << 20,
            threads,
            limits: Limits::default(),
            explorer: true,
            hosts: Hosts::default(),
            refresh: Duration::from_secs(2),
            follow: None,
            started: Instant::now(),
        }
    }
}

impl Options {
    /// A server of an archive gives one part in so many of [`cache_bytes`](Self::cache_bytes) to
    /// pages. Whoever opens the archive gives the rest to what is read of it.
    pub const PAGES_PART: usize = 4;

    /// The last final block, where the last block is `head`.
    pub(crate) fn finalized(&self, head: u64) -> Result<u64, Fault> {
        let unknown = || {
            let why = "nobody says which blocks are final (--final-depth)";
            Fault::NotFound(format!("finalized block not found: {why}"))
        };
        match &self.finality {
            Finality::Unknown => Err(unknown()),
            Finality::Depth(depth) => Ok(head.saturating_sub(*depth)),
            Finality::Told(number) => {
                let number = number.load(Ordering::Relaxed);
                (number <= head).then_some(number).ok_or_else(unknown)
            }
        }
    }
}

/// How many bytes a store takes, for those who measure.
pub type StoreBytes = Arc<dyn Fn() -> Option<u64> + Send + Sync>;
