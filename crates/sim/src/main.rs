//! `spinney-sim`: runs seeds of the simulator, and shrinks what it finds.

#[cfg(unix)]
#[expect(dead_code, reason = "shared with the tests of spinney-store")]
#[path = "../../store/tests/it/server.rs"]
mod server;

use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use spinney_sim::{Failure, Kind, Tally, run, shrink};

/// Random verbs and faults from one seed, against a model in memory.
#[derive(Debug, Parser)]
#[command(name = "spinney-sim")]
struct Args {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, from the first one on.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Steps a seed.
    #[arg(long, default_value_t = 500)]
    steps: u64,
    /// The steps to take, as a failure names them, with commas; in place of --steps.
    #[arg(long, value_delimiter = ',', conflicts_with = "steps")]
    only: Vec<u64>,
    /// Where the stores lie.
    #[arg(long, value_enum, default_value_t = Store::Redb)]
    store: Store,
    /// Runs that shrinking may take; 0 shrinks nothing.
    #[arg(long, default_value_t = 400)]
    tries: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Store {
    Memory,
    Redb,
    Log,
    Sqlite,
    Postgres,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let Some(places) = Places::of(args.store) else { return ExitCode::from(2) };
    let steps = if args.only.is_empty() { (0..args.steps).collect() } else { args.only };
    let (started, mut sum, mut failures) = (Instant::now(), Tally::default(), 0);
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        match run(seed, &steps, &places.fresh()) {
            Ok(tally) => sum += tally,
            Err(failure) => {
                failures += 1;
                tell(&args.store, &failure);
                let smallest = shrink(failure, args.tries, || places.fresh());
                tell(&args.store, &smallest);
            }
        }
    }
    println!("{sum}");
    let seconds = started.elapsed().as_secs_f64();
    println!("{} seeds over {:?}: {failures} failures, {seconds:.1} s", args.seeds, args.store);
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(store: &Store, failure: &Failure) {
    println!("{failure}");
    let name = format!("{store:?}").to_lowercase();
    let (seed, steps) = (failure.seed, &failure.steps);
    if steps.iter().copied().eq(0..steps.len() as u64) {
        println!("  spinney-sim --store {name} --seed {seed} --steps {}", steps.len());
    } else {
        let steps: Vec<_> = steps.iter().map(u64::to_string).collect();
        println!("  spinney-sim --store {name} --seed {seed} --only {}", steps.join(","));
    }
}

/// Where the stores of runs lie.
enum Places {
    Here(Kind),
    #[cfg(unix)]
    Server(server::Server),
}

impl Places {
    fn of(store: Store) -> Option<Self> {
        Some(match store {
            Store::Memory => Self::Here(Kind::Memory),
            Store::Redb => Self::Here(Kind::Redb),
            Store::Log => Self::Here(Kind::Log),
            Store::Sqlite => Self::Here(Kind::Sqlite),
            #[cfg(unix)]
            Store::Postgres => Self::Server(server::Server::start()?),
            #[cfg(not(unix))]
            Store::Postgres => {
                eprintln!("a server is started on Unix alone");
                return None;
            }
        })
    }

    fn fresh(&self) -> Kind {
        match self {
            Self::Here(kind) => kind.clone(),
            #[cfg(unix)]
            Self::Server(server) => Kind::Postgres(server.schema().0),
        }
    }
}
