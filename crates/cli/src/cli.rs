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
    copyable(Cli::command().version(format!("{version} ({commit})")).long_version(long))
}

/// Breaks long examples of the help as a shell takes them: clap would break them anywhere.
fn copyable(command: clap::Command) -> clap::Command {
    let examples = command.get_after_help().map(|text| {
        let lines = text.to_string();
        lines.lines().map(broken).collect::<Vec<_>>().join("\n")
    });
    let command = match examples {
        Some(examples) => command.after_help(examples),
        None => command,
    };
    command.mut_subcommands(copyable)
}

/// Columns of an example.
const EXAMPLE_WIDTH: usize = 78;

fn broken(line: &str) -> String {
    let words = line.trim_start();
    let indent = line.len() - words.len();
    if line.len() <= EXAMPLE_WIDTH || !words.starts_with("spinney ") {
        return line.to_owned();
    }
    let (mut text, mut column) = (" ".repeat(indent), indent);
    let mut words = words.split(' ').peekable();
    while let Some(word) = words.next() {
        // An option and its value stay together, where a line has room for both.
        let value = words.next_if(|next| {
            let both = word.len() + 1 + next.len();
            let fits = indent + 4 + both + " \\".len() <= EXAMPLE_WIDTH;
            word.starts_with("--") && !next.starts_with("--") && fits
        });
        let part = [Some(word), value].into_iter().flatten().collect::<Vec<_>>().join(" ");
        if column > indent && column + 1 + part.len() + " \\".len() > EXAMPLE_WIDTH {
            text += &format!(" \\\n{}", " ".repeat(indent + 4));
            column = indent + 4;
        } else if column > indent {
            text.push(' ');
            column += 1;
        }
        column += part.len();
        text += &part;
    }
    text
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

    use super::{Cli, EXAMPLE_WIDTH, broken, command};

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn each_verb_has_an_example() {
        fn look(command: &clap::Command, path: &str, missing: &mut Vec<String>) {
            let path = format!("{path} {}", command.get_name());
            let mut verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).peekable();
            let help = command.get_after_help().map(|text| text.to_string()).unwrap_or_default();
            if verbs.peek().is_none() && !help.contains(&format!("\n  {}", path.trim_start())) {
                missing.push(path.clone());
            }
            verbs.for_each(|verb| look(verb, &path, missing));
        }
        let mut missing = Vec::new();
        look(&command(), "", &mut missing);
        assert!(missing.is_empty(), "without an example: {missing:?}");
    }

    #[test]
    fn long_examples_are_broken_between_options() {
        let short = "  spinney db info --db state";
        assert_eq!(broken(short), short);
        let long =
            format!("  spinney prove --db state.db --address 0x{} --slot 0x0", "7".repeat(40));
        let said = broken(&long);
        assert!(said.lines().all(|line| line.len() <= EXAMPLE_WIDTH), "{said}");
        assert!(said.contains("state.db \\\n      --address 0x7"), "{said}");
        assert_eq!(said.replace(" \\\n      ", " "), long);
        let long = format!("  spinney verify --tree mpt --root 0x{} proof.json", "7".repeat(64));
        let said = broken(&long);
        assert!(said.lines().all(|line| line.len() <= EXAMPLE_WIDTH), "{said}");
        assert_eq!(said.replace(" \\\n      ", " "), long);
    }
}
