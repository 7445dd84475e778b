//! Durable commits beside nomt: same keys, same values, one run, one table. See ../README.md.

mod allocator;
#[cfg(feature = "commonware")]
mod commonware_side;
#[path = "../../trees/src/inputs.rs"]
mod inputs;
#[path = "../../trees/src/meter.rs"]
mod meter;
mod nomt_side;
mod worker;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use lexopt::prelude::{Long, Value, ValueExt};
use worker::{Answer, Contender};

type Error = Box<dyn std::error::Error>;

const USAGE: &str = "\
Measures durable commits of spinney's trees over redb and over the log beside nomt, on the same inputs.

Usage: bench-nomt [--quick] [--leaves N] [--keys N] [--rounds N] [--before N] [--only WHO] [--dir DIR]

  --quick      20,000 leaves and two rounds: does everything still run?
  --leaves N   keys of the tree (1,000,000)
  --keys N     keys that a commit changes (1,000)
  --rounds N   commits that count (20)
  --before N   commits before those (1)
  --only WHO   with nomt, mpt, mpt-log, pbt or pbt-log alone; may be given again. `cargo run -F
               commonware` builds commonware's ordered database in, as one more: commonware
  --dir DIR    where stores are made, and removed again: a disk, and not memory";

struct Options {
    leaves: usize,
    keys: usize,
    rounds: u64,
    before: u64,
    only: Vec<String>,
    dir: Option<PathBuf>,
    /// To serve as a worker instead: who, in which folder, bytes of a value.
    worker: Option<(Contender, PathBuf, usize)>,
    help: bool,
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn options() -> Result<Options, Error> {
    let mut options = Options {
        leaves: 1_000_000,
        keys: 1_000,
        rounds: 20,
        before: 1,
        only: Vec::new(),
        dir: None,
        worker: None,
        help: false,
    };
    let mut args = lexopt::Parser::from_env();
    while let Some(arg) = args.next()? {
        match arg {
            Long("quick") => (options.leaves, options.rounds) = (20_000, 2),
            Long("leaves") => options.leaves = args.value()?.parse()?,
            Long("keys") => options.keys = args.value()?.parse()?,
            Long("rounds") => options.rounds = args.value()?.parse()?,
            Long("before") => options.before = args.value()?.parse()?,
            Long("only") => options.only.push(args.value()?.string()?),
            Long("dir") => options.dir = Some(args.value()?.into()),
            Long("help") => options.help = true,
            Value(word) => {
                let known = Contender::ALL.iter().copied().find(|who| word == who.word());
                let who = known.ok_or("a worker is one of those that --only takes")?;
                options.worker = Some((who, args.value()?.into(), args.value()?.parse()?));
            }
            other => return Err(other.unexpected().into()),
        }
    }
    if options.keys == 0 || options.rounds == 0 || options.leaves < 2 * options.keys {
        return Err("at least one key and one round, and twice as many leaves as keys".into());
    }
    Ok(options)
}

fn run(options: &Options) -> Result<(), Error> {
    if options.help {
        println!("{USAGE}");
        return Ok(());
    }
    if let Some((who, folder, value_bytes)) = &options.worker {
        return worker::serve(*who, folder, (options.leaves, options.keys, *value_bytes));
    }
    println!(
        "A durable commit of {} changed keys among {}; medians of {} commits after {}, of bytes \
         their mean.\n\n\
         | values | contender | CPU | wall | p99 | to the disk | CPU, ratio to nomt | wall | p99 | bytes |\n\
         |---|---|---|---|---|---|---|---|---|---|",
        options.keys, options.leaves, options.rounds, options.before
    );
    for value_bytes in [inputs::VALUE_BYTES, 32] {
        measure(options, value_bytes)?;
    }
    Ok(())
}

/// Asks all contenders that take such values in turn, so that they share the machine's moods.
fn measure(options: &Options, value_bytes: usize) -> Result<(), Error> {
    let is_asked = |who: &Contender| {
        let all = options.only.is_empty() || *who == Contender::Nomt;
        all || options.only.iter().any(|word| word == who.word())
    };
    let taken =
        Contender::ALL.iter().copied().filter(|who| who.takes(value_bytes)).filter(is_asked);
    let mut workers = Vec::new();
    for who in taken {
        let folder = match &options.dir {
            Some(dir) => tempfile::tempdir_in(dir)?,
            None => tempfile::tempdir()?,
        };
        workers.push((Worker::start(who, folder.path(), options, value_bytes)?, folder));
    }
    let mut answers = vec![Vec::new(); workers.len()];
    for round in 0..options.before + options.rounds {
        for ((worker, _), answers) in workers.iter_mut().zip(&mut answers) {
            let answer = worker.ask(round)?;
            if round >= options.before {
                answers.push(answer);
            }
        }
    }
    let medians: Vec<_> = answers.iter().map(|answers| Median::of(answers)).collect();
    let peer = medians.last().ok_or("nobody was measured")?;
    for ((worker, _), median) in workers.iter().zip(&medians) {
        println!(
            "| {value_bytes} bytes | {} | {:.1} ms | {:.1} ms | {:.1} ms | {:.2} MiB | {:.2} | {:.2} | {:.2} | {:.2} |",
            worker.who.name(),
            median.cpu / 1e6,
            median.wall / 1e6,
            median.wall_p99 / 1e6,
            median.written / 1_048_576.0,
            median.cpu / peer.cpu,
            median.wall / peer.wall,
            median.wall_p99 / peer.wall_p99,
            median.written / peer.written,
        );
    }
    Ok(())
}

struct Median {
    cpu: f64,
    wall: f64,
    wall_p99: f64,
    written: f64,
}

impl Median {
    fn of(answers: &[Answer]) -> Self {
        let at = |part: usize, figure: fn(&Answer) -> u64| {
            let mut all: Vec<u64> = answers.iter().map(figure).collect();
            all.sort_unstable();
            all[(all.len() * part / 100).min(all.len() - 1)] as f64
        };
        let of = |figure| at(50, figure);
        Self {
            cpu: of(|answer| answer.cost.cpu_ns),
            wall: of(|answer| answer.cost.wall_ns),
            wall_p99: at(99, |answer| answer.cost.wall_ns),
            // Some write what they hold back once in many commits.
            written: answers.iter().map(|answer| answer.written as f64).sum::<f64>()
                / answers.len() as f64,
        }
    }
}

/// A running worker; it ends when its standard input does.
struct Worker {
    who: Contender,
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts it, and waits until it is filled.
    fn start(
        who: Contender,
        folder: &Path,
        options: &Options,
        value_bytes: usize,
    ) -> Result<Self, Error> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--leaves", &options.leaves.to_string()]);
        command.args(["--keys", &options.keys.to_string(), who.word()]);
        command.arg(folder.join("store")).arg(value_bytes.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().ok_or("a worker without output")?);
        let mut worker = Self { who, process, input, output };
        worker.line()?;
        Ok(worker)
    }

    fn ask(&mut self, round: u64) -> Result<Answer, Error> {
        writeln!(self.input.as_mut().ok_or("a worker without input")?, "{round}")?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(format!("{} ended: {}", self.who.name(), self.process.wait()?).into());
        }
        Ok(line)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.input.take());
        // What it ends with is of no interest: it has answered, or its error is on its way up.
        drop(self.process.wait());
    }
}
