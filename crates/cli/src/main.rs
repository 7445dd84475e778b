//! The `spinney` command: thin verbs over the libraries, and the way they speak.
#![forbid(unsafe_code)]

mod args;
mod cli;
mod clock;
mod commands;
mod commits;
mod failure;
mod hints;
mod interrupt;
mod log;
mod memory;
mod out_file;
mod place_name;
mod scratch;
mod sink;
mod stores;
mod trees;
mod ui;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::cli::{Cli, Verb};
use crate::commands::{
    archive, bench, bisect, catch_up, completions, convert, db, demo, doctor, follow, import,
    proof, reference, replay, root, serve, snapshot, stage, state_root, vectors, witness,
};
use crate::failure::{Exit, Failure};
use crate::ui::Output;
use crate::ui::output::Asked;
use crate::ui::{ending, usage};

/// Threads free what other threads made. In a large replay the system's allocator took a fourth of
/// the time of the thread that executes.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ending::quieten_panics();
    // Before anything is hashed, and before `--version` names the choice.
    let chosen = choose_kernels();
    let read = |matches| Cli::from_arg_matches(&matches).map(|cli| (cli, Asked::of(&matches)));
    let (cli, asked) = match command().try_get_matches().and_then(read) {
        Ok(read) => read,
        Err(error) => usage::exit(error, command()),
    };
    let output = Output::new(asked, cli.quiet, cli.color);
    let listens = || log::listen(cli.events(), output.warnings());
    let outcome = chosen.and_then(|()| listens()).and_then(|()| run(cli.verb, &output));
    ending::finish(outcome, &output).into()
}

/// The command, whose long version names the hash kernels in use.
fn command() -> clap::Command {
    let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("SPINNEY_COMMIT"));
    let kernels = spinney_hash::backends();
    let long = format!("{version}\ncommit: {commit}\nhash kernels: {kernels}");
    Cli::command().version(format!("{version} ({commit})")).long_version(long)
}

/// Heeds `SPINNEY_SIMD`, which is there for tests and bug reports: no digest depends on it.
fn choose_kernels() -> anyhow::Result<()> {
    let name = std::env::var("SPINNEY_SIMD").unwrap_or_default();
    if name.is_empty() {
        return Ok(());
    }
    let choose = || spinney_hash::set_backend(Some(name.parse()?));
    choose().map_err(|error| {
        Failure::new(format!("SPINNEY_SIMD={name}"))
            .because(error)
            .hint("unset it, or say avx512, avx2, sha-ni or portable")
            .into()
    })
}

fn run(verb: Verb, output: &Output) -> anyhow::Result<Exit> {
    match verb {
        Verb::Replay(args) => replay::run(&args, output),
        Verb::Root(args) => root::run(&args, output),
        Verb::Prove(args) => proof::prove(&args, output),
        Verb::Verify(args) => proof::verify(&args, output),
        Verb::Witness(args) => witness::run(&args, output),
        Verb::StateRoot(args) => state_root::run(&args, output),
        Verb::Db(args) => db::run(&args, output),
        Verb::Stage(args) => stage::run(&args, output),
        Verb::Import(args) => import::run(&args, output),
        Verb::Convert(args) => convert::run(&args, output),
        Verb::Snapshot(args) => snapshot::run(&args, output),
        Verb::CatchUp(args) => catch_up::run(&args, output),
        Verb::Serve(args) => serve::run(&args, output),
        Verb::Follow(args) => follow::run(&args, output),
        Verb::Bisect(args) => bisect::run(&args, output),
        Verb::Archive(args) => archive::run(&args, output),
        Verb::Vectors(args) => vectors::run(&args, output),
        Verb::Bench(args) => bench::run(&args, output),
        Verb::Demo(args) => demo::run(&args, output),
        Verb::Doctor(args) => doctor::run(&args, output),
        Verb::Reference(args) => reference::run(&args, command()),
        Verb::Completions(args) => completions::run(&args, command(), output),
    }
}
