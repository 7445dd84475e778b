//! `completions`: what a shell needs to complete this command's words.

use clap::Args;
use clap_complete::Shell;

use super::{Command, reference};
use crate::failure::Exit;
use crate::ui::{Answer, Output, Speech};

/// Print a shell's completion script.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    spinney completions bash > ~/.local/share/bash-completion/completions/spinney")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

impl Command for CompletionsArgs {
    const NAME: &'static str = "completions";

    fn speech(&self) -> Speech {
        Speech::Documents
    }

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        let mut script = Vec::new();
        let mut command = reference::with_names(output.command());
        clap_complete::generate(self.shell, &mut command, "spinney", &mut script);
        output.bytes(&script)?;
        Ok(Answer::documents(Exit::Ok))
    }
}
