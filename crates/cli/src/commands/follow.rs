//! `follow`: a node's chain, block by block, into a store, which may be served meanwhile.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alloy_primitives::B256;
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Value, json};
use spinney_archive::Growing;
use spinney_follow::{
    DifferenceRow, Divergence, FollowError, FollowEvent, FollowOptions, Followed, Follower, Node,
    TakeBy, Url,
};
use spinney_replay::{BlockReport, RunOptions};
use spinney_rpc::{Finality, FollowMetrics, Options, Server};
use spinney_store::{AnyStore, WriteBehind};
use spinney_tree::{BlockId, SharedStore};

use crate::args::{CommitEvery, FormatArgs, KeepCommits, KeepUndo, StoreArgs};
use crate::commands::Command;
use crate::commands::archive::growing::{Filling, GrowArgs};
use crate::commands::replay::{
    all_cores, check_head, check_trees, check_witnesses, default_keep_undo, limit_threads,
    parse_genesis, trees_of,
};
use crate::commands::serve::{LimitArgs, addresses};
use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::stores::Place;
use crate::trees::TreeSet;
use crate::ui::{Answer, Output};
use spinney_bench::Clock;

/// For those who are told what differs.
const DIFFERS_HINT: &str = "all blocks before it are good, and nothing of it is in the store; one \
    of the two executed it wrongly: spinney db check reads all of the store";

/// So many blocks are not archived yet, unless told otherwise: the last ones may be taken back.
const BEHIND: u64 = 64;

/// Follow a node: take its blocks over JSON-RPC, execute them, and check every root.
///
/// Nothing that the node says is believed but which chain is its own. Where it leaves blocks, the
/// store goes back to the last one that both have, as far as --keep-undo goes, and behind a block
/// that the node called final only with --past-final. A node that is away, or behind, is waited
/// for. A store goes on where it stands; without --to it follows until Ctrl-C or SIGTERM.
// Fields: one an option.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    spinney follow http://127.0.0.1:8545 --genesis genesis.json --db state.db\n  \
    spinney follow http://127.0.0.1:8545 --genesis genesis.json --tree mpt,pbt:blake3 --db \
    trees.db \\\n      \
    --serve 127.0.0.1:8645 --metrics 127.0.0.1:9100")]
pub(crate) struct FollowArgs {
    /// The node, http://HOST:PORT. It needs eth_getBlockByNumber; debug_getRawBlock is taken where
    /// it is there, since it costs less.
    #[arg(value_name = "URL", env = "SPINNEY_NODE", hide_env_values = true)]
    node: Url,
    /// The chain's genesis.json, as geth writes it: it has the rules.
    #[arg(long, value_name = "FILE")]
    genesis: PathBuf,
    /// The last block to follow.
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// How long to wait before the node is asked for another block, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 500)]
    #[arg(value_parser = clap::value_parser!(u64).range(10..=600_000))]
    poll: u64,
    /// Blocks that can be taken back again: a number, or `all` from here on.
    #[arg(long, value_name = "N", default_value_t = default_keep_undo(), env = "SPINNEY_KEEP_UNDO")]
    keep_undo: KeepUndo,
    /// Commits of a log that stay readable: this many at least, the last one included, or `all`. As
    /// room is freed in parts, more may be readable for a while: db info says which. A proof at the
    /// block of any of them costs what one at the last block costs. Those that are kept already
    /// stay unless this is given.
    #[arg(long, value_name = "N", env = "SPINNEY_KEEP_COMMITS")]
    keep_commits: Option<KeepCommits>,
    /// Keep the execution witnesses of the last N blocks: debug_executionWitness of --serve, and of
    /// spinney serve, answers with them. Those that are there already stay unless this is given.
    #[arg(long, value_name = "N", env = "SPINNEY_KEEP_WITNESSES")]
    keep_witnesses: Option<u64>,
    /// Go back also behind a block that the node called final, as nodes of development chains do
    /// that were killed, or whose head was set back.
    #[arg(long)]
    past_final: bool,
    /// Where what blocks did comes from: lists, the access lists of blocks from Amsterdam on, which
    /// their headers name; execution, which checks all that headers say, and which all blocks get
    /// whose lists the node does not give; or traces of the node's (debug_traceBlockByHash). With
    /// lists and traces the root alone says whether all is right. Lists, unless witnesses are kept.
    #[arg(long, value_name = "HOW", env = "SPINNEY_BY")]
    by: Option<By>,
    /// Threads that recover senders and compute roots; all cores unless told otherwise.
    #[arg(long, value_name = "N", env = "SPINNEY_THREADS")]
    threads: Option<NonZeroUsize>,
    /// Answer JSON-RPC from the store meanwhile, at this address: see serve.
    #[arg(long, value_name = "ADDR", env = "SPINNEY_SERVE")]
    serve: Option<SocketAddr>,
    /// Print what happens as NDJSON events on standard output; the envelope is the last line.
    #[arg(long)]
    pub(crate) events: bool,
    #[command(flatten)]
    grow: GrowArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    Execution,
    Lists,
    Traces,
}

impl FollowArgs {
    fn keeps_witnesses(&self) -> bool {
        self.keep_witnesses.is_some_and(|count| count > 0)
    }

    /// A witness is what an execution reads.
    fn by(&self) -> By {
        let unsaid = if self.keeps_witnesses() { By::Execution } else { By::Lists };
        self.by.unwrap_or(unsaid)
    }
}

impl From<By> for TakeBy {
    fn from(by: By) -> Self {
        match by {
            By::Execution => Self::Execution,
            By::Lists => Self::Lists,
            By::Traces => Self::Traces,
        }
    }
}

// Fields: what the envelope holds is flat.
#[derive(Debug, Serialize)]
struct FollowReport {
    node: String,
    tree: String,
    store: &'static str,
    db: Option<String>,
    /// Blocks executed, those that the node left later included.
    blocks: u64,
    transactions: u64,
    gas_used: u64,
    roots_checked: u64,
    reorganisations: u64,
    dropped: u64,
    /// How often the node did not answer, or not as it should.
    failures: u64,
    head: u64,
    head_hash: B256,
    root: B256,
    seconds: f64,
    cpu_seconds: Option<f64>,
    stopped: bool,
}

impl FollowReport {
    fn of(
        (followed, head, root): (&Followed, BlockId, B256),
        (args, place, trees): (&FollowArgs, &Place, &TreeSet),
        clock: Clock,
    ) -> Self {
        Self {
            node: args.node.to_string(),
            tree: trees.to_string(),
            store: place.kind.name(),
            db: place.location.as_ref().map(ToString::to_string),
            blocks: followed.summary.block_count,
            transactions: followed.summary.transaction_count,
            gas_used: followed.summary.gas_used,
            roots_checked: followed.summary.root_count,
            reorganisations: followed.reorganisations,
            dropped: followed.dropped,
            failures: followed.failures,
            head: head.number,
            head_hash: head.hash.into(),
            root,
            seconds: clock.seconds(),
            cpu_seconds: clock.cpu_seconds(),
            stopped: followed.summary.stopped,
        }
    }

    fn answer(&self) -> anyhow::Result<Answer> {
        let columns = ["head", "root", "blocks", "reorganisations", "dropped", "failures"];
        Ok(Answer::of(self)?.row(&columns).line(format!(
            "block {}, root {} ({} blocks, {} reorganisations, {} blocks dropped)",
            self.head, self.root, self.blocks, self.reorganisations, self.dropped
        )))
    }
}

impl Command for FollowArgs {
    const NAME: &'static str = "follow";

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        let clock = Clock::start();
        self.store.mode.heed();
        let place = self.store.place()?;
        let trees = trees_of(&self.store, &place)?;
        if self.serve.is_none() && self.limits.metrics.is_some() {
            return Err(Failure::new("--metrics without a server")
                .hint("give --serve 127.0.0.1:0 along: metrics are told by the one who serves")
                .into());
        }
        check_witnesses(self.keep_witnesses, &trees)?;
        self.keep_commits.map_or(Ok(()), |keep| keep.check(&place))?;
        if self.by() != By::Execution && self.keeps_witnesses() {
            return Err(Failure::new("--keep-witnesses of blocks that are not executed (--by)")
                .hint("a witness is what an execution reads: leave out --by, or --keep-witnesses")
                .into());
        }
        let growing = self.grow.growing(Filling { behind: BEHIND, ends: false })?;
        let genesis = parse_genesis(&self.genesis)?;
        let threads = self.threads.map_or_else(all_cores, NonZeroUsize::get);
        limit_threads(threads);
        let interrupt = Interrupt::listen()?;
        let node = Node::new(self.node.clone());
        let server =
            self.serve.map(|address| self.limits.bind_over((address, "--serve"), &place, output));
        let server = server.transpose()?;
        let mut told = FollowTold::new(self, output, &interrupt);
        told.growing = growing.as_ref();
        told.metrics.archived(growing.as_ref().and_then(Growing::last));
        let follower = Follower::new(&node, &genesis, options((self, &place), threads, &interrupt));
        // Nothing is made of the genesis of another chain.
        if !follower.meet(|event| told.event(event)).map_err(failure)? {
            return Ok(ended(self));
        }
        let (store, ()) =
            place.fill(output, |store| begin(&follower, store, (&place, &trees), self))?;
        let served = told.options(self, &place, genesis.config.chain_id);
        server.iter().for_each(|server| told.listening(server));
        let done = beside(&store, server.map(|server| (server, served)), || {
            let follow = Follow { args: self, place: &place, trees: &trees, follower: &follower };
            self.grow.beside(growing.as_ref(), &store, (&interrupt, output), || {
                if threads == 1 {
                    return follow.fill(SharedStore::new(&store), &mut told);
                }
                WriteBehind::over(&store, |store| follow.fill(SharedStore::new(store), &mut told))
            })
        });
        let (followed, head, root) = done?;
        place.close(store)?;
        told.broken()?;
        let report = FollowReport::of((&followed, head, root), (self, &place, &trees), clock);
        let answer = report.answer()?;
        let is_short = report.stopped && self.to.is_some_and(|to| report.head < to);
        Ok(if is_short { answer.goes_on() } else { answer })
    }
}

/// It was told to end: before a block that was wanted, or, where none was, as it always ends.
fn ended(args: &FollowArgs) -> Answer {
    let answer = Answer::interrupted();
    if args.to.is_some() { answer.goes_on() } else { answer.exit(Exit::Ok) }
}

fn options<'i>(
    (args, place): (&FollowArgs, &Place),
    threads: usize,
    interrupt: &'i Interrupt,
) -> FollowOptions<'i> {
    let mut options = FollowOptions::default();
    options.poll = Duration::from_millis(args.poll);
    options.past_final = args.past_final;
    options.by = args.by().into();
    options.run = RunOptions::default();
    options.run.commit_every = CommitEvery::of(None, place);
    options.run.last = args.to;
    options.run.stop = Some(interrupt.flag());
    options.run.recover_threads = threads;
    if threads == 1 {
        options.run.read_ahead = 0;
    }
    options
}

/// Puts the genesis into a store that is empty; refuses one that this chain cannot take further.
fn begin(
    follower: &Follower<'_>,
    store: &AnyStore,
    (place, trees): (&Place, &TreeSet),
    args: &FollowArgs,
) -> anyhow::Result<()> {
    check_trees(store, trees)?;
    args.keep_commits.map_or(Ok(()), |keep| keep.apply(store))?;
    let mut state = trees.open(SharedStore::new(store), place.tree_cache())?;
    check_head(&state, args.to)?;
    follower.check(&state).map_err(failure)?;
    if state.block().is_some() {
        return Ok(());
    }
    state.keep_history(args.keep_undo.0);
    follower.begin(state).map_err(failure)?;
    Ok(())
}

struct Follow<'a> {
    args: &'a FollowArgs,
    place: &'a Place,
    trees: &'a TreeSet,
    follower: &'a Follower<'a>,
}

impl Follow<'_> {
    fn fill(
        &self,
        store: SharedStore<'_>,
        told: &mut FollowTold<'_>,
    ) -> anyhow::Result<(Followed, BlockId, B256)> {
        let mut state = self.trees.open(store, self.place.tree_cache())?;
        state.keep_history(self.args.keep_undo.0);
        told.growing.iter().for_each(|growing| growing.is_kept_by(&mut state));
        self.args.keep_witnesses.iter().for_each(|count| state.keep_witnesses(*count));
        let followed = self.follower.follow(state, |event| told.event(event));
        let (followed, state) = followed.map_err(|error| told.failure(error))?;
        let head = state.block().context("the state stands at no block")?;
        Ok((followed, head, state.root()))
    }
}

/// Does some work on a store that is served meanwhile.
fn beside<T>(
    store: &AnyStore,
    server: Option<(Server, Options)>,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some((server, options)) = server else { return work() };
    let (done, served) = server.run_beside(store, options, work)?;
    done.and_then(|done| served.context("serving").map(|()| done))
}

fn failure(error: FollowError) -> anyhow::Error {
    let hint = match &error {
        FollowError::Replay(_) | FollowError::State(_) => {
            return match error {
                FollowError::Replay(error) => (*error).into(),
                FollowError::State(error) => error.into(),
                other => other.into(),
            };
        }
        FollowError::OtherChain { .. } => "give the genesis of the node's chain, or another node",
        FollowError::TooDeep { .. } => {
            "follow into a new --db, or import a state that the node's chain has; a larger \
             --keep-undo goes further back"
        }
        FollowError::Final { .. } => {
            "is it the right node? --past-final goes back all the same, as for a development chain"
        }
        _ => "begin anew in a new --db",
    };
    Failure::new(error.to_string()).hint(hint).exit(Exit::No).into()
}

/// What is told on the way: lines for people, or events for programs; and what is counted.
struct FollowTold<'a> {
    output: &'a Output,
    interrupt: &'a Interrupt,
    events: bool,
    metrics: FollowMetrics,
    /// `u64::MAX` until the node says.
    finalized: Arc<AtomicU64>,
    /// What differs after a block whose root does not fit.
    differs: Vec<String>,
    broken: Option<std::io::Error>,
    /// The archive that grows beside the store.
    growing: Option<&'a Growing>,
}

impl<'a> FollowTold<'a> {
    fn new(args: &FollowArgs, output: &'a Output, interrupt: &'a Interrupt) -> Self {
        let finalized = Arc::new(AtomicU64::new(u64::MAX));
        let metrics = FollowMetrics::default();
        let (events, differs) = (args.events, Vec::new());
        let (broken, growing) = (None, None);
        Self { output, interrupt, events, metrics, finalized, differs, broken, growing }
    }

    /// What a server is told that answers meanwhile.
    fn options(&self, args: &FollowArgs, place: &Place, chain_id: u64) -> Options {
        let mut options = Options::default();
        options.chain_id = Some(chain_id);
        options.finality = Finality::Told(Arc::clone(&self.finalized));
        options.cache_bytes = place.tree_cache();
        options.limits = args.limits.limits();
        options.explorer = args.limits.explorer();
        options.hosts = args.limits.hosts();
        options.follow = Some(self.metrics.clone());
        options
    }

    fn listening(&mut self, server: &Server) {
        let metrics = server.metrics_address().map(|address| format!("http://{address}/metrics"));
        let rpc = format!("http://{}", server.address());
        let line = || addresses(server).collect::<Vec<_>>().join(", ");
        self.tell(line, || json!({ "event": "listening", "rpc": rpc, "metrics": metrics }));
    }

    fn block(&mut self, report: &BlockReport, lag: u64) {
        self.metrics.block(report.is_root_checked, lag);
        let times = &report.times;
        let stages = [
            ("read", times.read),
            ("senders", times.recover),
            ("execute", times.execute),
            ("root", times.apply),
        ];
        stages.into_iter().for_each(|(stage, time)| self.metrics.took(stage, time));
        let (number, hash) = (report.number, report.hash);
        let (count, gas) = (report.transaction_count, report.gas_used);
        let milliseconds = (times.execute + times.apply).as_secs_f64() * 1e3;
        let line = || {
            let mgas = gas as f64 / 1e6;
            let what = format!("{count} transactions, {mgas:.1} Mgas, {milliseconds:.1} ms");
            format!("block {number} {hash}: {what}, {lag} behind")
        };
        let event = || {
            json!({
                "event": "block", "block": number, "hash": hash, "root": report.state_root,
                "root_checked": report.is_root_checked, "transactions": count,
                "gas_used": gas, "milliseconds": milliseconds, "lag": lag,
            })
        };
        self.tell(line, event);
    }

    fn event(&mut self, event: FollowEvent<'_>) {
        match event {
            FollowEvent::Block { report, lag } => self.block(report, lag),
            FollowEvent::Committed { number, time } => {
                self.metrics.took("commit", time);
                if self.events {
                    let seconds = time.as_secs_f64();
                    self.put(&json!({ "event": "committed", "block": number, "seconds": seconds }));
                }
                self.metrics.archived(self.growing.and_then(Growing::last));
                if let Some(growing) = self.growing {
                    growing.wait(number, self.interrupt.flag());
                }
            }
            FollowEvent::Reorganised { from, to } => {
                self.metrics.reorganised();
                let line = || {
                    let left = from.number.saturating_sub(to.number);
                    format!(
                        "the node left {left} blocks: back from {} to {}",
                        from.number, to.number
                    )
                };
                let event = || {
                    json!({
                        "event": "reorganised",
                        "from": from.number, "from_hash": B256::from(from.hash),
                        "to": to.number, "to_hash": B256::from(to.hash),
                    })
                };
                self.tell(line, event);
            }
            FollowEvent::Head { head, finalized } => {
                self.metrics.head(head.number);
                if let Some(finalized) = finalized {
                    self.finalized.store(finalized, Ordering::Relaxed);
                }
            }
            FollowEvent::Failed { error, pause } => {
                self.metrics.failed();
                let seconds = pause.as_secs_f64();
                let line = || format!("{error}: it is asked again in {seconds:.1} s");
                let error = error.to_string();
                let event =
                    || json!({ "event": "node_failed", "error": error, "seconds": seconds });
                self.tell(line, event);
            }
            FollowEvent::Differs(found) => self.differs(found),
            _ => {}
        }
    }

    fn differs(&mut self, found: &Divergence) {
        let line = |row: DifferenceRow| {
            let DifferenceRow { account, slot, what, left, right, .. } = row;
            let of = slot.map_or_else(|| format!(", {what}"), |slot| format!(", slot {slot}"));
            format!("account {account}{of}: the node has {left}, the execution {right}")
        };
        self.differs = found.rows().into_iter().map(line).collect();
        if self.events {
            let Divergence { block, accounts, is_all, hidden, left, .. } = found;
            let event = json!({
                "event": "differs", "block": block, "hash": left.hash, "accounts": accounts,
                "is_all": is_all, "hidden": hidden,
            });
            self.put(&event);
        }
    }

    /// The error, with what differs, if that is known.
    fn failure(&mut self, error: FollowError) -> anyhow::Error {
        let differs = std::mem::take(&mut self.differs);
        match error {
            FollowError::Replay(error) if !differs.is_empty() => {
                let what = error.to_string();
                let failure = Failure::new(what).details(differs).because(*error).exit(Exit::No);
                failure.hint(DIFFERS_HINT).into()
            }
            error => failure(error),
        }
    }

    fn tell(&mut self, line: impl FnOnce() -> String, event: impl FnOnce() -> Value) {
        if self.events {
            self.put(&event());
        } else {
            self.output.note(&line());
        }
    }

    /// Writes an event. Where nobody takes it, it ends as it would by Ctrl-C.
    fn put(&mut self, event: &Value) {
        if self.broken.is_some() {
            return;
        }
        if let Err(error) = self.output.event(event) {
            self.broken = Some(error);
            self.interrupt.ask();
        }
    }

    /// Why events could not be written.
    fn broken(&mut self) -> std::io::Result<()> {
        self.broken.take().map_or(Ok(()), Err)
    }
}
