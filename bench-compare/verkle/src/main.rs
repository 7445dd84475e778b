//! Spinney's Verkle tree beside go-verkle: same inputs, one run, one table. See ../README.md.

mod table;
mod work;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

pub(crate) type Error = Box<dyn std::error::Error>;

const USAGE: &str = "\
Measures spinney's Verkle tree beside go-verkle v0.2.2 on the same inputs.

Usage: bench-verkle [--quick] [--rounds N] [--pages [N]]

  --quick      1,000 and 20,000 keys and one round: does everything still run, do all roots agree?
  --rounds N   turns of each side, one after the other; the least of all times is shown (3)
  --pages N    instead, what batches of 1,000 write to a tree of N keys (1,000,000), beside the MPT";

/// How often a process measures a case. The machine's moods are longer than that: hence the turns.
const ROUNDS_A_TURN: usize = 2;

/// Who is measured.
pub(crate) const SIDES: [&str; 3] = ["ifma", "portable", "go-verkle"];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[String]) -> Result<(), Error> {
    let (mut sizes, mut rounds) = ([10_000, 100_000], 3);
    let mut rest = args.iter().map(String::as_str);
    while let Some(arg) = rest.next() {
        match arg {
            "--quick" => (sizes, rounds) = ([1_000, 20_000], 1),
            "--rounds" => rounds = rest.next().ok_or("--rounds N")?.parse()?,
            "--pages" => {
                return work::pages(rest.next().map_or(Ok(1_000_000), str::parse)?);
            }
            "--help" => {
                println!("{USAGE}");
                return Ok(());
            }
            "load" | "all" | "updates" | "written" | "memory" => return work::serve(args),
            other => return Err(format!("unknown argument {other}\n{USAGE}").into()),
        }
    }
    let go = build_go()?;
    let mut lines = Vec::new();
    let turns = |mode| (0..rounds).map(move |_| mode);
    let memory = std::iter::once(("memory", sizes[1]));
    let updates = turns(("all", sizes[1])).chain(turns(("written", sizes[1])));
    let cases = turns(("load", sizes[0])).chain(updates).chain(memory);
    for (mode, size) in cases {
        for side in SIDES {
            let program = if side == "go-verkle" { go.clone() } else { std::env::current_exe()? };
            eprintln!("{side}: {mode} of {size} keys");
            let output = Command::new(program)
                .args([mode, side, &size.to_string(), &ROUNDS_A_TURN.to_string()])
                .stderr(Stdio::inherit())
                .output()?;
            if !output.status.success() {
                return Err(format!("{side} failed at {mode}").into());
            }
            for line in String::from_utf8(output.stdout)?.lines() {
                lines.push((side, size, serde_json::from_str(line)?));
            }
        }
    }
    table::print(&lines)
}

fn build_go() -> Result<PathBuf, Error> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join("target/go-verkle");
    let status = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .current_dir(folder.join("go"))
        .status()
        .map_err(|error| format!("the Go program needs Go 1.25: {error}"))?;
    if status.success() { Ok(program) } else { Err("go build failed".into()) }
}
