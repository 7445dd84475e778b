//! The whole command line: the verbs, and what all of them take.

use clap::builder::FalseyValueParser;
use clap::error::ErrorKind;
use clap::{ArgAction, ArgMatches, CommandFactory as _, FromArgMatches, Parser, Subcommand};

use crate::commands::{
    AnyCommand, Command, archive::ArchiveArgs, bench::BenchArgs, bisect::BisectArgs,
    catch_up::CatchUpArgs, completions::CompletionsArgs, convert::ConvertArgs, db::DbArgs,
    demo::DemoArgs, doctor::DoctorArgs, follow::FollowArgs, import::ImportArgs, proof::ProveArgs,
    proof::VerifyArgs, reference::ReferenceArgs, replay::ReplayArgs, root::RootArgs,
    serve::ServeArgs, snapshot::SnapshotArgs, stage::StageArgs, state_root::StateRootArgs,
    vectors::VectorsArgs, witness::WitnessArgs,
};
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
    #[arg(short, long, global = true, env = "SPINNEY_QUIET")]
    #[arg(value_parser = FalseyValueParser::new())]
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

/// The whole command, whose long version names the hash kernels in use.
pub(crate) fn command() -> clap::Command {
    let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("SPINNEY_COMMIT"));
    let kernels = spinney_hash::backends();
    let long = format!("{version}\ncommit: {commit}\nhash kernels: {kernels}");
    Cli::command().version(format!("{version} ({commit})")).long_version(long)
}

/// The verbs, in the order of the help.
const VERBS: [VerbEntry; 22] = [
    VerbEntry::of::<DemoArgs>(),
    VerbEntry::of::<ReplayArgs>(),
    VerbEntry::of::<RootArgs>(),
    VerbEntry::of::<StateRootArgs>(),
    VerbEntry::of::<ProveArgs>(),
    VerbEntry::of::<VerifyArgs>(),
    VerbEntry::of::<WitnessArgs>(),
    VerbEntry::of::<DbArgs>(),
    VerbEntry::of::<StageArgs>(),
    VerbEntry::of::<ImportArgs>(),
    VerbEntry::of::<ConvertArgs>(),
    VerbEntry::of::<SnapshotArgs>(),
    VerbEntry::of::<CatchUpArgs>(),
    VerbEntry::of::<ServeArgs>(),
    VerbEntry::of::<FollowArgs>(),
    VerbEntry::of::<BisectArgs>(),
    VerbEntry::of::<ArchiveArgs>(),
    VerbEntry::of::<VectorsArgs>(),
    VerbEntry::of::<BenchArgs>(),
    VerbEntry::of::<DoctorArgs>(),
    VerbEntry::of::<ReferenceArgs>(),
    VerbEntry::of::<CompletionsArgs>(),
];

/// A verb as the command line has it.
struct VerbEntry {
    name: &'static str,
    take: fn(clap::Command) -> clap::Command,
    read: fn(&ArgMatches) -> Result<Verb, clap::Error>,
}

impl VerbEntry {
    const fn of<C: Command + 'static>() -> Self {
        let read = |matches: &ArgMatches| Ok(Verb(Box::new(C::from_arg_matches(matches)?)));
        Self { name: C::NAME, take: C::augment_args, read }
    }
}

/// The verb that was asked for.
#[derive(Debug)]
pub(crate) struct Verb(pub(crate) Box<dyn AnyCommand>);

impl FromArgMatches for Verb {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let asked = matches.subcommand();
        let entry = asked.and_then(|(name, below)| {
            Some((VERBS.iter().find(|entry| entry.name == name)?, below))
        });
        let (entry, below) = entry.ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
        (entry.read)(below)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Verb {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        let verbs = VERBS.iter().map(|entry| (entry.take)(clap::Command::new(entry.name)));
        command.subcommands(verbs)
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        VERBS.iter().any(|entry| entry.name == name)
    }
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
