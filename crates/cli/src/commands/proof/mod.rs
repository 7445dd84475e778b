//! `prove` and `verify`: proofs as documents.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

mod args;
mod facts;
mod prove;
mod remote;
mod roots;
mod span;
mod verify;

use self::args::ProofSource;
pub(crate) use self::args::ProveArgs;
pub(crate) use self::facts::Said;
pub(crate) use self::remote::{failure as remote_failure, failure_at as remote_failure_at};
pub(crate) use self::verify::{VerifyArgs, check_tree};

use crate::args::ReadFrom;
use crate::commands::Command;
use crate::ui::{Answer, Output, Speech};

impl Command for ProveArgs {
    const NAME: &'static str = "prove";

    fn speech(&self) -> Speech {
        Speech::Documents
    }

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        let exit = match self.source()? {
            ProofSource::Here(ReadFrom::Store(place)) => prove::run(self, &place, output),
            ProofSource::Here(ReadFrom::Archive(name)) => prove::from_archive(self, &name, output),
            ProofSource::Node(url) => remote::prove(self, &url, output),
        }?;
        Ok(Answer::documents(exit))
    }
}
