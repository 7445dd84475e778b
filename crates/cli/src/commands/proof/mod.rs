//! `prove` and `verify`: proofs as documents.

mod args;
mod document;
mod over_time;
mod prove;
mod remote;
mod roots;
mod span;
mod verify;
mod words;

use self::args::ProofSource;
pub(crate) use self::args::ProveArgs;
pub(crate) use self::remote::{failure as remote_failure, failure_at as remote_failure_at};
pub(crate) use self::verify::{Said, VerifyArgs, check_tree, run as verify};

use crate::args::ReadFrom;
use crate::failure::Exit;
use crate::ui::Output;

/// Proves from a store, from an archive, or from a node.
pub(crate) fn prove(args: &ProveArgs, output: &Output) -> anyhow::Result<Exit> {
    match args.source()? {
        ProofSource::Here(ReadFrom::Store(place)) => prove::run(args, &place, output),
        ProofSource::Here(ReadFrom::Archive(name)) => prove::from_archive(args, &name, output),
        ProofSource::Node(url) => remote::prove(args, &url, output),
    }
}
