//! Why an answer proves nothing.

use spinney_proof::{binary, embed, mpt, sum, verkle};
use thiserror::Error;

/// Why an answer does not prove what was asked.
#[derive(Debug, Error)]
pub(crate) enum Refused {
    #[error("the question is malformed: {0}")]
    Question(serde_json::Error),
    #[error("the question leaves out {0}")]
    Left(&'static str),
    #[error("no tree is called {0:?} here")]
    Tree(String),
    #[error("the answer cannot be read: {0}")]
    Answer(serde_json::Error),
    #[error("the answer is about {what} {got}, and {what} {asked} was asked for")]
    Other { what: &'static str, asked: String, got: String },
    #[error("the answer has {values} values for {keys} keys")]
    Values { keys: usize, values: usize },
    #[error("the keys in the answer are not those of account {address} and its slots")]
    Keys { address: String },
    #[error("the slots in the answer are not those that were asked for")]
    Slots,
    #[error("{0}")]
    Mpt(#[from] mpt::ProofError),
    #[error("{0}")]
    Binary(#[from] binary::ProofError),
    #[error("{0}")]
    Form(#[from] verkle::Malformed),
    #[error("{0}")]
    Verkle(#[from] verkle::ProofFault),
    #[error("{0}")]
    Sum(#[from] sum::ProofError),
    #[error("{0}")]
    Account(#[from] embed::Odd),
}
