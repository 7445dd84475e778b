//! The whole command line: the verbs, and what all of them take.

use clap::builder::FalseyValueParser;
use clap::{ArgAction, Parser, Subcommand};

use crate::ui::Color;

/// Authenticated state: one engine for every Ethereum state tree.
///
/// Data goes to standard output, all else to standard error. Exit codes: 0 ok; 1 the answer is no
/// (a bad block, damage found, roots that differ, a proof that does not hold); 2 usage or run-time
/// error; 3 interrupted, and resumable.
#[derive(Debug, Parser)]
#[command(name = "spinney", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Print nothing on standard error but errors and warnings.
    #[arg(short, long, global = true, env = "SPINNEY_QUIET", value_parser = FalseyValueParser::new())]
    pub(crate) quiet: bool,
    /// Write more of what happens on standard error, as --log info does; -vv as --log debug.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Colours in errors; `auto` also heeds NO_COLOR.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", env = "SPINNEY_COLOR")]
    pub(crate) color: Color,
    /// Write what happens as events with their figures on standard error: a level, or
    /// `target=level` with commas between them. Targets are spinney::pipeline and spinney::chunk,
    /// levels error to trace.
    #[arg(long, global = true, value_name = "FILTER", env = "SPINNEY_LOG")]
    pub(crate) log: Option<String>,
}

impl Cli {
    /// The events that are asked for.
    pub(crate) fn events(&self) -> Option<&str> {
        let level = match self.verbose {
            0 => None,
            1 => Some("info"),
            2 => Some("debug"),
            _ => Some("trace"),
        };
        self.log.as_deref().or(level)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Demo(crate::commands::demo::DemoArgs),
    Replay(crate::commands::replay::ReplayArgs),
    Root(crate::commands::root::RootArgs),
    StateRoot(crate::commands::state_root::StateRootArgs),
    Prove(crate::commands::proof::ProveArgs),
    Verify(crate::commands::proof::VerifyArgs),
    Witness(crate::commands::witness::WitnessArgs),
    Db(crate::commands::db::DbArgs),
    Stage(crate::commands::stage::StageArgs),
    Import(crate::commands::import::ImportArgs),
    Convert(crate::commands::convert::ConvertArgs),
    Snapshot(crate::commands::snapshot::SnapshotArgs),
    CatchUp(crate::commands::catch_up::CatchUpArgs),
    Serve(crate::commands::serve::ServeArgs),
    Follow(crate::commands::follow::FollowArgs),
    Bisect(crate::commands::bisect::BisectArgs),
    Archive(crate::commands::archive::ArchiveArgs),
    Vectors(crate::commands::vectors::VectorsArgs),
    Bench(crate::commands::bench::BenchArgs),
    Doctor(crate::commands::doctor::DoctorArgs),
    #[command(hide = true)]
    Reference(crate::commands::reference::ReferenceArgs),
    Completions(crate::commands::completions::CompletionsArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
