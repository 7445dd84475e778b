//! The `spinney` command: thin verbs over the libraries, and the way they speak.
#![forbid(unsafe_code)]

mod args;
mod cli;
mod commands;
mod commits;
mod failure;
mod hints;
mod interrupt;
mod log;
mod out_file;
mod place_name;
mod scratch;
mod sink;
mod stores;
mod trees;
mod ui;

use std::process::ExitCode;

use clap::FromArgMatches as _;

use crate::cli::{Cli, command};
use crate::failure::Failure;
use crate::ui::Output;
use crate::ui::output::Request;
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
    let read = |matches| Cli::from_arg_matches(&matches).map(|cli| (cli, Request::of(&matches)));
    let (cli, asked) = match command().try_get_matches().and_then(read) {
        Ok(read) => read,
        Err(error) => usage::exit(error, command()),
    };
    let verb = &*cli.verb.0;
    let output = Output::new(asked, verb.speech(), (cli.quiet, cli.color), command);
    let listens = || log::listen(cli.events(), output.warnings());
    let outcome = chosen.and_then(|()| listens()).and_then(|()| output.answer(verb.run(&output)?));
    ending::finish(outcome, &output).into()
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
