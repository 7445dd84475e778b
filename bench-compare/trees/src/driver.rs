//! Starts the workers of a group, asks them the same cases in turn, and holds their roots together.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde::Serialize;

use crate::Error;
use crate::cases::{Case, Contender, Group, Program};
use crate::meter::Cost;

/// All rounds of one contender of a case.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    pub label: &'static str,
    pub ours: bool,
    pub rounds: Vec<Cost>,
}

/// A case as it was measured; a contender that is missing has no series.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub name: String,
    pub per: usize,
    pub series: Vec<Series>,
}

/// Builds the Go program. `None`, with a line that says so, where there is no Go or the modules
/// cannot be had.
pub fn build_geth() -> Result<Option<PathBuf>, Error> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = root.join("target/geth");
    let mut build = Command::new("go");
    build.args(["build", "-trimpath", "-o"]).arg(&program).arg(".");
    build.current_dir(root.join("../geth"));
    match build.status() {
        Ok(status) if status.success() => Ok(Some(program)),
        Ok(status) => {
            eprintln!("geth is left out: `go build` in bench-compare/geth ended with {status}");
            Ok(None)
        }
        Err(error) => {
            eprintln!("geth is left out: there is no Go to run here ({error})");
            Ok(None)
        }
    }
}

/// Asks all cases of a group. Rounds go from contender to contender, so that they share the
/// machine's moods; one round more than asked for comes first and does not count where rounds are
/// many.
pub fn measure(group: &Group, leaves: usize, geth: Option<&Path>) -> Result<Vec<Outcome>, Error> {
    let mut workers: Vec<Worker> = Vec::new();
    let mut outcomes = Vec::new();
    for case in &group.cases {
        eprintln!("{}", case.name);
        let present = |contender: &&Contender| contender.program != Program::Geth || geth.is_some();
        let contenders: Vec<Contender> = case.contenders.iter().filter(present).copied().collect();
        for contender in &contenders {
            if !workers.iter().any(|worker| worker.program == contender.program) {
                workers.push(Worker::start(contender.program, leaves, geth)?);
            }
        }
        outcomes.push(ask(case, &contenders, &mut workers)?);
    }
    Ok(outcomes)
}

fn ask(case: &Case, contenders: &[Contender], workers: &mut [Worker]) -> Result<Outcome, Error> {
    let series = |contender: &Contender| Series {
        label: contender.label,
        ours: contender.program == Program::Ours && contender.label == Program::Ours.name(),
        rounds: Vec::with_capacity(case.rounds),
    };
    let mut all: Vec<Series> = contenders.iter().map(series).collect();
    let warm_up = usize::from(case.rounds > 1);
    for round in 0..case.rounds + warm_up {
        let mut root: Option<(&str, String)> = None;
        for (contender, series) in contenders.iter().zip(&mut all) {
            let worker = workers
                .iter_mut()
                .find(|worker| worker.program == contender.program)
                .expect("started before");
            let cost = worker.ask(&format!("{} {} {round}", contender.command, case.size))?;
            if !cost.root.is_empty() {
                let (first, root) = root.get_or_insert((contender.label, cost.root.clone()));
                if *root != cost.root {
                    return Err(format!(
                        "{}, round {round}: {first} has the root {root}, {} has {}",
                        case.name, contender.label, cost.root
                    )
                    .into());
                }
            }
            if round >= warm_up {
                series.rounds.push(cost);
            }
        }
    }
    Ok(Outcome { name: case.name.clone(), per: case.per, series: all })
}

/// A running worker; it ends when its standard input does.
struct Worker {
    program: Program,
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(program: Program, leaves: usize, geth: Option<&Path>) -> Result<Self, Error> {
        let mut command = match (program, geth) {
            (Program::Geth, Some(path)) => Command::new(path),
            _ => Command::new(env::current_exe()?),
        };
        match program {
            Program::Alloy => command.args(["alloy", "--leaves"]),
            Program::Geth => &mut command,
            Program::Ours => command.args(["ours", "--leaves"]),
        };
        command.arg(leaves.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().ok_or("a worker without output")?);
        Ok(Self { program, process, input, output })
    }

    fn ask(&mut self, line: &str) -> Result<Cost, Error> {
        let input = self.input.as_mut().ok_or("a worker without input")?;
        let mut answer = String::new();
        writeln!(input, "{line}")?;
        self.output.read_line(&mut answer)?;
        serde_json::from_str(&answer)
            .map_err(|error| format!("{}, asked {line:?}: {error}", self.program.name()).into())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.input.take());
        // What it ends with is of no interest: it has answered, or its error is on its way up.
        drop(self.process.wait());
    }
}
