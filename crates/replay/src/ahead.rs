//! Blocks made ready ahead of their execution: read, and their signers recovered, on threads of
//! their own.
//!
//! One thread reads and hands blocks to those that recover; what they make is taken in the order of
//! the blocks. At most [`depth`] blocks are on their way at once, so memory is bounded, and nobody
//! waits for nothing: whoever ends drops its side of a queue, and the others end with it.

use std::{
    io::BufRead,
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use spinney_state::Changes;

use crate::{
    config::ChainConfig,
    diff::DiffError,
    error::{ReplayError, SourceError},
    report::RunOptions,
    rules::Failure,
    senders::{Signer, signers},
    source::ChainBlock,
    trace::{BlockTrace, TraceReader},
};

/// A block that is ready to be executed.
pub(crate) struct Ready {
    pub(crate) block: ChainBlock,
    pub(crate) known: Known,
    /// When it was read, and how long that took.
    pub(crate) read: Span,
    /// The same of recovering its signers.
    pub(crate) recovered: Span,
}

/// When something began, and how long it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) began: Instant,
    pub(crate) time: Duration,
}

impl Span {
    fn of<T>(work: impl FnOnce() -> T) -> (T, Self) {
        let began = Instant::now();
        let answer = work();
        (answer, Self { began, time: began.elapsed() })
    }
}

/// Blocks, and when each was read.
fn timed(
    mut blocks: impl Iterator<Item = Result<ChainBlock, SourceError>>,
) -> impl Iterator<Item = (Result<ChainBlock, SourceError>, Span)> {
    std::iter::from_fn(move || {
        let (block, span) = Span::of(|| blocks.next());
        block.map(|block| (block, span))
    })
}

/// What is known of a block's transactions before they are executed.
pub(crate) enum Known {
    /// Who signed them, or why nobody can have; nobody, of a block that the state holds.
    Signers(Result<Vec<Signer>, Failure>),
    /// What they did.
    Trace(BlockTrace),
    /// What the block as a whole does.
    Changes(Changes),
}

/// Why a block is not ready.
pub(crate) enum Unready {
    Source(SourceError),
    Trace(DiffError),
    NoTrace(u64),
}

impl From<SourceError> for Unready {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl From<DiffError> for Unready {
    fn from(error: DiffError) -> Self {
        Self::Trace(error)
    }
}

impl Unready {
    pub(crate) fn into_error<E: std::error::Error>(self) -> ReplayError<E> {
        match self {
            Self::Source(error) => error.into(),
            Self::Trace(error) => error.into(),
            Self::NoTrace(number) => ReplayError::misfit(number, "the traces end", "one", "none"),
        }
    }
}

/// How signers are recovered.
pub(crate) struct Recovery {
    pub(crate) config: ChainConfig,
    /// Blocks up to this one are in the state already.
    pub(crate) followed: u64,
}

impl Recovery {
    fn ready(&self, block: ChainBlock, read: Span, threads: usize) -> Ready {
        let is_followed = block.block.header.number <= self.followed;
        let (signers, recovered) = Span::of(|| match is_followed {
            true => Ok(Vec::new()),
            false => signers(&self.config, &block, threads),
        });
        Ready { block, known: Known::Signers(signers), read, recovered }
    }
}

/// A block that is ready, or why it is not.
pub(crate) type ReadyResult = Result<Ready, Unready>;
/// A block, and where it is waited for once it is ready.
type RecoveryJob = (ChainBlock, Span, SyncSender<ReadyResult>);

/// How many blocks are read ahead: enough for each thread to have one at hand.
fn depth(options: &RunOptions<'_>) -> usize {
    options.read_ahead.max(2 * options.recover_threads)
}

/// Hands blocks with their signers to `consume`, in order. `look` makes, for each thread, whoever
/// looks at them before.
pub(crate) fn recovered<R, L: FnMut(&ChainBlock, &[Signer]) + Send>(
    blocks: impl Iterator<Item = Result<ChainBlock, SourceError>> + Send,
    recovery: &Recovery,
    options: &RunOptions<'_>,
    look: impl Fn() -> L,
    consume: impl FnOnce(&mut dyn Iterator<Item = ReadyResult>) -> R,
) -> R {
    let threads = options.recover_threads.max(1);
    if options.read_ahead == 0 {
        let mut ready =
            timed(blocks).map(|(block, read)| Ok(recovery.ready(block?, read, threads)));
        return consume(&mut ready);
    }
    let (queue, in_order) = sync_channel(depth(options));
    let (jobs, waiting) = sync_channel(depth(options));
    let waiting = Mutex::new(waiting);
    thread::scope(|scope| {
        for _ in 0..threads {
            let (waiting, look) = (&waiting, look());
            scope.spawn(move || recover_all(waiting, recovery, look));
        }
        scope.spawn(move || hand_out(blocks, &queue, &jobs));
        // Of a block whose thread panicked nothing comes: then so does this one, at the end of the
        // scope.
        consume(
            &mut in_order.into_iter().map_while(|ready: Receiver<ReadyResult>| ready.recv().ok()),
        )
    })
}

/// Reads until the source ends or fails, or nobody wants more.
fn hand_out(
    blocks: impl Iterator<Item = Result<ChainBlock, SourceError>>,
    queue: &SyncSender<Receiver<ReadyResult>>,
    jobs: &SyncSender<RecoveryJob>,
) {
    for (block, read) in timed(blocks) {
        let (answer, ready) = sync_channel(1);
        if queue.send(ready).is_err() {
            return;
        }
        let taken = match block {
            Ok(block) => jobs.send((block, read, answer)).is_ok(),
            Err(error) => answer.send(Err(error.into())).is_ok(),
        };
        if !taken {
            return;
        }
    }
}

fn recover_all(
    waiting: &Mutex<Receiver<RecoveryJob>>,
    recovery: &Recovery,
    mut look: impl FnMut(&ChainBlock, &[Signer]),
) {
    loop {
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((block, read, answer)) = job else { return };
        let ready = recovery.ready(block, read, 1);
        if let Known::Signers(Ok(signers)) = &ready.known {
            look(&ready.block, signers);
        }
        // Nobody wants it if the run has ended.
        let _ = answer.send(Ok(ready));
    }
}

/// Hands blocks with their traces to `consume`, in order.
pub(crate) fn traced<R: BufRead + Send, T>(
    blocks: impl Iterator<Item = Result<ChainBlock, SourceError>> + Send,
    mut traces: TraceReader<R>,
    options: &RunOptions<'_>,
    consume: impl FnOnce(&mut dyn Iterator<Item = ReadyResult>) -> T,
) -> T {
    let mut ready = timed(blocks).map(move |(block, read)| with_trace(block?, read, &mut traces));
    if options.read_ahead == 0 {
        return consume(&mut ready);
    }
    let (queue, in_order) = sync_channel(options.read_ahead);
    thread::scope(|scope| {
        // The other side ends early on a bad block: no reason to read on.
        scope.spawn(move || ready.all(|block| queue.send(block).is_ok()));
        consume(&mut in_order.into_iter())
    })
}

/// A block with its trace. The genesis has none; another genesis is refused before that is looked
/// at.
fn with_trace<R: BufRead>(
    block: ChainBlock,
    read: Span,
    traces: &mut TraceReader<R>,
) -> ReadyResult {
    let number = block.block.header.number;
    let known = match number {
        0 => Known::Signers(Ok(Vec::new())),
        _ => Known::Trace(traces.of_block(number)?.ok_or(Unready::NoTrace(number))?),
    };
    let recovered = Span { began: read.began, time: Duration::ZERO };
    Ok(Ready { block, known, read, recovered })
}
