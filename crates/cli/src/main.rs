//! The `spinney` command: thin verbs over the libraries, and the way they speak.
#![forbid(unsafe_code)]

mod args;
mod clock;
mod db;
mod failure;
mod interrupt;
mod output;
mod progress;
mod replay;
mod root;
mod self_test;
mod state_root;
mod stores;
mod trace;
mod trees;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::{Cli, Verb};
use crate::failure::Exit;
use crate::output::Output;

fn main() -> ExitCode {
    failure::quieten_panics();
    let cli = Cli::parse();
    let output = Output::new(cli.format(), cli.quiet, cli.color);
    let verb = cli.verb.name();
    let outcome = run(cli.verb, &output);
    failure::finish(outcome, verb, &output).into()
}

fn run(verb: Verb, output: &Output) -> anyhow::Result<Exit> {
    match verb {
        Verb::Replay(args) => replay::run(&args, output),
        Verb::Root(args) => root::run(&args, output),
        Verb::StateRoot(args) => state_root::run(&args, output),
        Verb::Db(args) => db::run(&args, output),
        Verb::Vectors(args) => self_test::run(&args, output),
        Verb::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "spinney", &mut script);
            output.bytes(&script)?;
            Ok(Exit::Ok)
        }
    }
}
