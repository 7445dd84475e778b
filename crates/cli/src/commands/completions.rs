//! `completions`: what a shell needs to complete this command's words.

use clap::Args;
use clap_complete::Shell;

use super::reference;
use crate::failure::Exit;
use crate::ui::Output;

/// Print a shell's completion script.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    spinney completions bash > ~/.local/share/bash-completion/completions/spinney")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(
    args: &CompletionsArgs,
    command: clap::Command,
    output: &Output,
) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    let mut command = reference::with_names(command);
    clap_complete::generate(args.shell, &mut command, "spinney", &mut script);
    output.bytes(&script)?;
    Ok(Exit::Ok)
}
