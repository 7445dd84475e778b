//! `prove` and `verify`: proofs as documents.

mod document;
mod prove;
mod remote;
mod verify;
mod words;

pub(crate) use self::prove::ProveArgs;
pub(crate) use self::remote::{failure as remote_failure, failure_at as remote_failure_at};
pub(crate) use self::verify::{Said, VerifyArgs, check_tree, run as verify};

use crate::failure::Exit;
use crate::output::Output;

/// Proves from a store, or from a node.
pub(crate) fn prove(args: &ProveArgs, output: &Output) -> anyhow::Result<Exit> {
    match args.source()? {
        prove::ProofSource::Store(place) => prove::run(args, &place, output),
        prove::ProofSource::Node(url) => remote::prove(args, &url, output),
    }
}
