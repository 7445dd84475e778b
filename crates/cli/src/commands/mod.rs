//! The verbs, a file or a folder each, and what all of them are.

pub(crate) mod archive;
pub(crate) mod bench;
pub(crate) mod bisect;
pub(crate) mod catch_up;
pub(crate) mod completions;
pub(crate) mod convert;
pub(crate) mod db;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod follow;
pub(crate) mod import;
pub(crate) mod proof;
pub(crate) mod reference;
pub(crate) mod replay;
pub(crate) mod root;
pub(crate) mod serve;
pub(crate) mod snapshot;
pub(crate) mod stage;
pub(crate) mod state_root;
pub(crate) mod sums;
pub(crate) mod vectors;
pub(crate) mod witness;

use std::fmt::Debug;

use clap::Args;

use crate::ui::{Answer, Output, Speech};

/// A verb: what it takes, which is the type itself, and what it does. A new one is a file here and
/// a line in the list of `cli.rs`.
pub(crate) trait Command: Args + Debug {
    /// As it is written.
    const NAME: &'static str;

    /// Most verbs report. One that does not says so here, and with it that errors have no envelope.
    fn speech(&self) -> Speech {
        Speech::default()
    }

    /// Does it. What it answers is printed afterwards, in the form that was asked for.
    fn run(&self, output: &Output) -> anyhow::Result<Answer>;
}

/// A [`Command`], whichever it is.
pub(crate) trait AnyCommand: Debug {
    fn speech(&self) -> Speech;
    fn run(&self, output: &Output) -> anyhow::Result<Answer>;
}

impl<C: Command> AnyCommand for C {
    fn speech(&self) -> Speech {
        Command::speech(self)
    }

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        Command::run(self, output)
    }
}
