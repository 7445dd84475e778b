//! Spinney's trees beside their peers: same inputs, one run, one table. See ../README.md.

mod allocator;
mod alloy;
mod blocks;
mod cases;
mod driver;
mod inputs;
mod meter;
mod ours;
mod path;
mod table;
mod worker;

use std::{path::PathBuf, process::ExitCode};

use lexopt::prelude::{Long, Value, ValueExt};

type Error = Box<dyn std::error::Error>;

const USAGE: &str = "\
Measures spinney's trees beside alloy-trie and go-ethereum on the same inputs.

Usage: bench-trees [--quick] [--leaves N] [--rounds N] [--only TEXT] [--no-geth] [--json FILE]

  --quick       20,000 leaves and one round of each: does everything still run, do all roots agree?
  --leaves N    leaves of the tree (1,000,000)
  --rounds N    rounds of what takes long; five times as many of the rest (5)
  --only TEXT   only cases whose name has TEXT in it
  --no-geth     leave the Go program out
  --json FILE   write all rounds of all cases there";

/// What the command line asks for.
struct Options {
    leaves: usize,
    rounds: usize,
    only: String,
    geth: bool,
    json: Option<PathBuf>,
    /// To serve as a worker instead.
    worker: Option<worker::Side>,
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
        rounds: 5,
        only: String::new(),
        geth: true,
        json: None,
        worker: None,
        help: false,
    };
    let mut args = lexopt::Parser::from_env();
    while let Some(arg) = args.next()? {
        match arg {
            Long("quick") => (options.leaves, options.rounds) = (20_000, 1),
            Long("leaves") => options.leaves = args.value()?.parse()?,
            Long("rounds") => options.rounds = args.value()?.parse()?,
            Long("only") => options.only = args.value()?.string()?,
            Long("no-geth") => options.geth = false,
            Long("json") => options.json = Some(args.value()?.into()),
            Long("help") => options.help = true,
            Value(word) if word == "ours" => options.worker = Some(worker::Side::Ours),
            Value(word) if word == "alloy" => options.worker = Some(worker::Side::Alloy),
            other => return Err(other.unexpected().into()),
        }
    }
    if options.leaves < 100 || options.rounds == 0 {
        return Err("at least 100 leaves and one round".into());
    }
    Ok(options)
}

fn run(options: &Options) -> Result<(), Error> {
    if options.help {
        println!("{USAGE}");
        return Ok(());
    }
    if let Some(side) = options.worker {
        return worker::serve(side, options.leaves);
    }
    let geth = if options.geth { driver::build_geth()? } else { None };
    let mut results = Vec::new();
    for mut group in cases::groups(options.leaves, options.rounds) {
        let chosen = |case: &cases::Case| case.name.contains(&options.only);
        if !group.cases.iter().any(chosen) {
            continue;
        }
        // What follows a load needs it.
        group.cases.retain(|case| case.name.contains("::load") || chosen(case));
        results.extend(driver::measure(&group, options.leaves, geth.as_deref())?);
    }
    table::print(options.leaves, &results);
    if let Some(path) = &options.json {
        table::write_json(path, options.leaves, &results)?;
    }
    Ok(())
}
