//! `vectors`: the engine against known roots.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use serde_json::json;
use spinney_vectors::{EMBEDDED, Options, Outcome, Over};

use crate::args::FormatArgs;
use crate::commands::Command;
use crate::failure::{Exit, Failure};
use crate::place_name::{PlaceName, without_password};
use crate::ui::{Answer, Format, Grid, Output, Speech};

/// Above it a case is large.
const QUICK_KEYS_MAX: u64 = 200_000;

/// Compute known roots, and compare.
///
/// Without --dir it runs the vectors that this program carries along. Exit code 1 if a root
/// differs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  spinney vectors\n  spinney vectors --dir vectors/mpt --quick")]
pub(crate) struct VectorsArgs {
    /// Run all vector files of this directory and of those in it.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Skip cases of more than 200,000 keys.
    #[arg(long)]
    quick: bool,
    // As it was until 0.1: --store redb.
    #[arg(long, hide = true)]
    redb: bool,
    /// The store that they run over: memory, log, redb, sqlite or postgres. All but the first are
    /// closed and opened again after every step; it takes a while.
    #[arg(long, value_name = "STORE", default_value = "memory", conflicts_with = "redb")]
    store: String,
    /// The URL of an empty schema for --store postgres; it is empty again at the end.
    #[arg(long, value_name = "URL", required_if_eq("store", "postgres"))]
    db: Option<PlaceName>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

fn over(args: &VectorsArgs) -> Result<Over, Failure> {
    if args.redb {
        return Ok(Over::Redb);
    }
    let over = match (&args.store[..], &args.db) {
        ("memory", None) => Over::Memory,
        ("log", None) => Over::Log,
        ("redb", None) => Over::Redb,
        ("sqlite", None) => Over::Sqlite,
        ("postgres", Some(PlaceName::Server(address))) => Over::Postgres(address.clone()),
        ("postgres", Some(_)) => {
            return Err(Failure::new("this is no server's address (--db)")
                .hint("--db postgres://user@host/database"));
        }
        ("memory" | "log" | "redb" | "sqlite", Some(_)) => {
            let what = format!("vectors over {} have a place of their own (--db)", args.store);
            return Err(Failure::new(what).hint("leave out --db"));
        }
        _ => {
            return Err(Failure::new(format!(
                "there is no store {} (--store)",
                without_password(&args.store)
            ))
            .hint("memory, log, redb, sqlite, or postgres with --db"));
        }
    };
    Ok(over)
}

#[derive(Debug, Serialize)]
struct FileReport {
    file: String,
    checks: u64,
    failed: usize,
    skipped: u64,
    failures: Vec<String>,
}

impl FileReport {
    fn of(file: String, outcome: Outcome) -> Self {
        let Outcome { checks, skipped, failures, .. } = outcome;
        Self { file, checks, failed: failures.len(), skipped, failures }
    }
}

impl Command for VectorsArgs {
    const NAME: &'static str = "vectors";

    fn speech(&self) -> Speech {
        Speech::Lines
    }

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        let mut options = Options::default();
        options.over = over(self)?;
        if self.quick {
            options.keys_max = QUICK_KEYS_MAX;
        }
        let mut reports = Vec::new();
        let mut report = |name: String, json: &[u8]| -> anyhow::Result<()> {
            let file = name.rsplit('/').next().unwrap_or(&name);
            match spinney_vectors::run(file, json, &options)
                .with_context(|| format!("in {name}"))?
            {
                Some(outcome) => {
                    let report = FileReport::of(name, outcome);
                    tell(&report, output)?;
                    reports.push(report);
                }
                None => output.warn(format!("{name}: no vectors known by this name; passed over")),
            }
            Ok(())
        };
        match &self.dir {
            None => {
                for (name, json) in EMBEDDED {
                    report(name.to_owned(), json.as_bytes())?;
                }
            }
            Some(dir) => {
                for path in files(dir)? {
                    let bytes =
                        fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
                    let name = path.strip_prefix(dir).unwrap_or(&path).display().to_string();
                    report(name, &bytes)?;
                }
            }
        }
        if reports.is_empty() {
            return Err(Failure::new("there are no vectors (--dir)")
                .hint("--dir names a directory with files like raw.json")
                .into());
        }
        answer(&reports)
    }
}

/// JSON files, in order, of a directory and one level below.
fn files(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let list = |dir: &Path| -> anyhow::Result<Vec<PathBuf>> {
        let read = || -> std::io::Result<Vec<PathBuf>> {
            fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
        };
        let mut paths = read().map_err(|error| {
            Failure::new(format!("cannot read {}", dir.display()))
                .hint("--dir names a directory with files like raw.json")
                .because(error)
        })?;
        paths.sort();
        Ok(paths)
    };
    let mut files = Vec::new();
    for path in list(dir)? {
        if path.is_dir() {
            files.extend(list(&path)?);
        } else {
            files.push(path);
        }
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    Ok(files)
}

/// A line a file, as soon as it is run; reports for programs come at the end.
fn tell(report: &FileReport, output: &Output) -> std::io::Result<()> {
    if !matches!(output.asked(), None | Some(Format::Table)) {
        return Ok(());
    }
    let FileReport { file, checks, failed, skipped, failures } = report;
    output.line(&format!("{file}: {checks} checks, {failed} failed, {skipped} skipped"))?;
    failures.iter().try_for_each(|failure| output.line(&format!("  {failure}")))
}

fn answer(reports: &[FileReport]) -> anyhow::Result<Answer> {
    let is_sound = reports.iter().all(|report| report.failed == 0);
    let exit = if is_sound { Exit::Ok } else { Exit::No };
    let files: Vec<_> = reports.iter().map(|report| json!(report)).collect();
    let grid = Grid::of_records(&["file", "checks", "failed", "skipped"], &files);
    Ok(Answer::of(&json!({ "files": files }))?.csv(grid).exit(exit))
}
