//! `reference`: a page of Markdown a verb, made of its help.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Command};

use crate::failure::Exit;
use crate::stores::Kind;
use crate::trees;
use crate::ui::{Answer, Output, Speech};

/// Write the pages of docs/reference/verbs, which a test compares with these, or man pages.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct ReferenceArgs {
    /// The folder; pages that are there are replaced.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Write man pages instead, a file a verb.
    #[arg(long)]
    pub(crate) man: bool,
}

/// The help of a page is as wide as a terminal was.
const COLUMNS: usize = 80;

/// The command, with names of trees and stores where it takes any text: for completions.
pub(crate) fn with_names(mut command: Command) -> Command {
    command.build();
    let verbs: Vec<_> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    for verb in verbs {
        command = command.mut_subcommand(verb, with_names);
    }
    let names = |arg: &Arg| match arg.get_long() {
        Some("tree" | "source-tree") => Some(trees::all()),
        Some("store" | "source-store" | "target-store") => Some(Kind::all()),
        _ => None,
    };
    let args: Vec<_> = command
        .get_arguments()
        .filter_map(|arg| Some((arg.get_id().clone(), names(arg)?)))
        .collect();
    for (id, names) in args {
        command = command.mut_arg(id, |arg| arg.value_parser(PossibleValuesParser::new(names)));
    }
    command
}

impl super::Command for ReferenceArgs {
    const NAME: &'static str = "reference";

    fn speech(&self) -> Speech {
        Speech::Documents
    }

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        let folder = &self.folder;
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let mut command = output.command().disable_help_subcommand(true);
        if self.man {
            clap_mangen::generate_to(command, folder)
                .with_context(|| format!("writing into {}", folder.display()))?;
            return Ok(Answer::documents(Exit::Ok));
        }
        command = command.term_width(COLUMNS);
        command.build();
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            page(folder, verb)?;
        }
        Ok(Answer::documents(Exit::Ok))
    }
}

/// A page of a verb and of those below it.
fn page(folder: &Path, verb: &Command) -> anyhow::Result<()> {
    let mut text = String::new();
    section(&mut text, verb, 1);
    let file = folder.join(format!("{}.md", verb.get_name()));
    fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
}

fn section(text: &mut String, verb: &Command, level: usize) {
    let name = verb.get_bin_name().unwrap_or(verb.get_name()).to_owned();
    let help = verb.clone().render_long_help().to_string();
    // What the environment says here is nobody else's business.
    let lines: Vec<_> = help.lines().map(str::trim_end).collect();
    text.push_str(&format!(
        "{} {name}\n\n```text\n{}\n```\n",
        "#".repeat(level),
        lines.join("\n").trim_end()
    ));
    for below in verb.get_subcommands().filter(|below| below.get_name() != "help") {
        text.push('\n');
        section(text, below, level + 1);
    }
}
