//! `doctor`: what this build and this machine have.

use std::thread::available_parallelism;

use clap::Args;
use serde_json::{Value, json};
use spinney_bench::memory_bytes;
use spinney_tree::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::args::FormatArgs;
use crate::commands::Command;
use crate::ui::{Answer, Output};

/// Say what this build and this machine have: for bug reports, and before a long run.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  spinney doctor --format table")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

impl Command for DoctorArgs {
    const NAME: &'static str = "doctor";

    fn run(&self, _: &Output) -> anyhow::Result<Answer> {
        Ok(Answer::of(&facts())?.fields())
    }
}

fn facts() -> Value {
    let build = match cfg!(debug_assertions) {
        true => "debug: many times slower than release",
        false => "release",
    };
    let cores = available_parallelism().map_or(1, usize::from);
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "build": build,
        "target": format!("{} {}", std::env::consts::ARCH, std::env::consts::OS),
        "hash_kernels": spinney_hash::backends().to_string(),
        "stores": "memory, log, redb, sqlite, postgres",
        "trees": "mpt, ubt, pbt, verkle, sum",
        "newest_fork": "Amsterdam",
        "cores": cores,
        "memory_bytes": memory_bytes(),
        "temporary_folder": std::env::temp_dir().display().to_string(),
        "key_bytes_max": KEY_BYTES_MAX,
        "value_bytes_max": VALUE_BYTES_MAX,
    })
}
