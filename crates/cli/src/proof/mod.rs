//! `prove` and `verify`: proofs as documents.

mod document;
mod prove;
mod verify;
mod words;

pub(crate) use self::prove::{ProveArgs, run as prove};
pub(crate) use self::verify::{Said, VerifyArgs, check_tree, run as verify};
