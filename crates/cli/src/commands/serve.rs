//! `serve`: JSON-RPC from a store, or from an archive.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use spinney_replay::Genesis;
use spinney_rpc::{Finality, Hosts, Limits, Options, Server, Stop};

use crate::args::{FromArgs, ReadFrom, Size};
use crate::commands::Command;
use crate::commands::archive;
use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::stores::{self, Mode, Place};
use crate::ui::{Answer, Output, Speech};

/// How often it looks whether it is to end.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// Answer JSON-RPC from a store or an archive: accounts, slots, code, proofs and roots at any
/// block.
///
/// Another process may fill the store meanwhile: each request, or batch, is answered from one
/// commit. With --archive there is no store: what is asked for is read by range from where the
/// archive lies, so any number of servers answer from one, each with its cache alone. It ends with
/// Ctrl-C or SIGTERM, when what was asked is answered. docs/reference/rpc.md has the methods.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    spinney serve --db state.db --genesis genesis.json\n  \
    spinney serve --db state.db --chain-id 1 --listen 127.0.0.1:8545 --metrics 127.0.0.1:9100\n  \
    spinney serve --archive s3://bucket/mainnet --cache 2GiB --chain-id 1")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    from: FromArgs,
    #[command(flatten)]
    chain: ServedChainArgs,
    #[command(flatten)]
    listen: ListenArgs,
}

/// What a store does not say of its chain.
#[derive(Clone, Debug, Args)]
struct ServedChainArgs {
    /// The chain's id, for eth_chainId and net_version: the store does not hold it.
    #[arg(long, value_name = "N", env = "SPINNEY_CHAIN_ID")]
    chain_id: Option<u64>,
    /// The chain's genesis.json, which says its id.
    #[arg(long, value_name = "FILE", conflicts_with = "chain_id")]
    genesis: Option<PathBuf>,
    /// Take blocks so far below the last one to be final: without this, nobody says which blocks
    /// `finalized` and `safe` are, and who asks for them is refused.
    #[arg(long, value_name = "N")]
    final_depth: Option<u64>,
}

/// Where a server listens.
#[derive(Clone, Debug, Args)]
pub(crate) struct ListenArgs {
    /// Where to listen. Whoever reaches it may ask: leave that to a proxy where others do.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8545", env = "SPINNEY_LISTEN")]
    listen: SocketAddr,
    /// Threads that read the store. Without it, as many as there are cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    #[command(flatten)]
    limits: LimitArgs,
}

/// What a server takes on, and where it tells what it counts.
#[derive(Clone, Debug, Args)]
pub(crate) struct LimitArgs {
    /// Where to tell metrics, at /metrics, as Prometheus reads them.
    #[arg(long, value_name = "ADDR", env = "SPINNEY_METRICS")]
    pub(crate) metrics: Option<SocketAddr>,
    /// The longest body of a request or a batch.
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    max_body: Size,
    /// The longest answer to a request or a batch.
    #[arg(long, value_name = "SIZE", default_value = "16MiB")]
    max_answer: Size,
    /// The most requests in a batch.
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_batch: usize,
    /// The most keys in a proof.
    #[arg(long, value_name = "N", default_value_t = 1_024)]
    max_keys: usize,
    /// The most connections at once; others wait.
    #[arg(long, value_name = "N", default_value_t = 512)]
    max_connections: usize,
    /// How many seconds a request or a batch may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3_600))]
    timeout: u64,
    /// Names by which this server may be asked, with commas between; * for any. Without it, by
    /// addresses and localhost alone: so no page of a browser reaches it under a name of its own.
    #[arg(long, value_name = "NAME,..", env = "SPINNEY_HOSTS")]
    hosts: Option<Hosts>,
    /// Do not serve the explorer, the page that a browser gets at /.
    #[arg(long)]
    no_explorer: bool,
}

impl LimitArgs {
    /// Whether a browser gets the explorer.
    pub(crate) const fn explorer(&self) -> bool {
        !self.no_explorer
    }

    /// The names that it answers to.
    pub(crate) fn hosts(&self) -> Hosts {
        self.hosts.clone().unwrap_or_default()
    }

    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        limits.body_bytes = self.max_body.0;
        limits.answer_bytes = self.max_answer.0;
        limits.batch = self.max_batch;
        limits.keys = self.max_keys;
        limits.connections = self.max_connections;
        limits.request = Duration::from_secs(self.timeout);
        limits
    }

    /// Listens at an address, which an option names, and says where.
    fn bind(
        &self,
        (listen, option): (SocketAddr, &str),
        output: &Output,
    ) -> anyhow::Result<Server> {
        let outside = [Some(listen), self.metrics].into_iter().flatten();
        for address in outside.filter(|address| !address.ip().is_loopback()) {
            output.warn(format!(
                "{address} is no loopback address: whoever reaches it may ask, without a password \
                 or TLS"
            ));
        }
        let server = Server::bind(listen, self.metrics).map_err(|error| {
            let metrics = self.metrics.map(|metrics| format!(" or {metrics} (--metrics)"));
            let metrics = metrics.unwrap_or_default();
            Failure::new(format!("cannot listen at {listen} ({option}){metrics}"))
                .because(error)
                .hint(format!(
                    "does another process listen there? {option} 127.0.0.1:0 takes a free port"
                ))
        })?;
        Ok(server)
    }

    /// The same for a server of a store, whose bytes its metrics tell.
    pub(crate) fn bind_over(
        &self,
        listen: (SocketAddr, &str),
        place: &Place,
        output: &Output,
    ) -> anyhow::Result<Server> {
        let (server, place) = (self.bind(listen, output)?, place.clone());
        Ok(server.with_store_bytes(Arc::new(move || place.file_bytes().ok().flatten())))
    }
}

impl ServedChainArgs {
    fn id(&self) -> anyhow::Result<Option<u64>> {
        let Some(path) = &self.genesis else { return Ok(self.chain_id) };
        let genesis = Genesis::parse(&stores::read_file(path)?);
        let genesis = genesis.with_context(|| format!("in {}", path.display()))?;
        Ok(Some(genesis.config.chain_id))
    }
}

impl ServeArgs {
    fn from(&self) -> Result<ReadFrom, Failure> {
        let nothing = || {
            Failure::new("no store is named (--db)").hint("give --db, or an archive by --archive")
        };
        self.from.place(false)?.ok_or_else(nothing)
    }

    fn options(&self, cache_bytes: usize) -> anyhow::Result<Options> {
        let mut options = Options::default();
        options.chain_id = self.chain.id()?;
        options.finality = self.chain.final_depth.map_or(Finality::Unknown, Finality::Depth);
        options.cache_bytes = cache_bytes;
        options.limits = self.listen.limits.limits();
        options.explorer = self.listen.limits.explorer();
        options.hosts = self.listen.limits.hosts();
        if let Some(threads) = self.listen.threads {
            options.threads = usize::from(threads);
        }
        Ok(options)
    }
}

impl Command for ServeArgs {
    const NAME: &'static str = "serve";

    fn speech(&self) -> Speech {
        Speech::Documents
    }

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        let listen = (self.listen.listen, "--listen");
        match self.from()? {
            ReadFrom::Store(place) => {
                let options = self.options(place.tree_cache())?;
                let store = place.open(Mode::Look)?;
                let server = self.listen.limits.bind_over(listen, &place, output)?;
                let stop = announced(&server, output)?;
                server.run(&store, options, &stop).context("serving")?;
                store.close()?;
            }
            ReadFrom::Archive(name) => {
                let cache_bytes = self.from.cache();
                let options = self.options(cache_bytes)?;
                let archive =
                    archive::open(&name, cache_bytes - cache_bytes / Options::PAGES_PART)?;
                let archive = Arc::new(archive);
                let server = self.listen.limits.bind(listen, output)?;
                let looked_at = Arc::clone(&archive);
                let server = server.with_store_bytes(Arc::new(move || {
                    Some(archive::bytes_of(&looked_at.manifest()))
                }));
                let stop = announced(&server, output)?;
                server.run_archive(&archive, options, &stop).context("serving")?;
            }
        }
        Ok(Answer::documents(Exit::Ok))
    }
}

/// Says where a server listens, and has Ctrl-C and SIGTERM stop it.
fn announced(server: &Server, output: &Output) -> anyhow::Result<Stop> {
    let interrupt = Interrupt::listen()?;
    for line in addresses(server) {
        output.line(&line)?;
    }
    output.finish()?;
    let stop = Stop::default();
    let watched = stop.clone();
    thread::Builder::new().name("interrupt".into()).spawn(move || {
        while !interrupt.is_asked() {
            thread::sleep(LOOKS_EVERY);
        }
        watched.stop();
    })?;
    Ok(stop)
}

/// Where a server can be reached, a line each.
pub(crate) fn addresses(server: &Server) -> impl Iterator<Item = String> {
    let metrics =
        server.metrics_address().map(|address| format!("metrics http://{address}/metrics"));
    [format!("rpc http://{}", server.address())].into_iter().chain(metrics)
}
