//! What the explorer's page checks proofs with: the verifiers of [`spinney_proof`] behind one
//! question in JSON and one answer in JSON.
//!
//! A question names a tree, a root that is trusted, and what was asked for; with it comes, as text,
//! what a server answered. The answer says whether the text proves that, what it shows, and which
//! nodes lie on the way from the root down:
//!
//! ```
//! let question = r#"{
//!     "tree": "mpt",
//!     "root": "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421",
//!     "address": "0x0707070707070707070707070707070707070707",
//!     "answer": "{\"address\": \"0x0707070707070707070707070707070707070707\", \"nonce\": \"0x0\",
//!         \"balance\": \"0x0\", \"accountProof\": [], \"storageProof\": [],
//!         \"storageHash\": \"0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421\",
//!         \"codeHash\": \"0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470\"}"
//! }"#;
//! let answer = spinney_explorer::check(question.replace('\n', " ").as_bytes());
//! assert!(answer.contains(r#""holds":true"#), "{answer}");
//! ```
//!
//! Built for WebAssembly (`.ci/verifier`), a page writes the question into memory and reads the
//! answer out of it: see `exports.rs`, the only file with an attribute that Rust calls unsafe.
#![cfg_attr(not(target_family = "wasm"), forbid(unsafe_code))]
#![deny(
    unsafe_code,
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

mod account;
#[cfg(target_family = "wasm")]
mod exports;
mod question;
mod refused;
mod shown;
mod sums;
mod words;

use crate::question::{Question, Tree};
use crate::refused::Refused;
use crate::shown::{Outcome, Shown};

/// Checks what a question holds. Both are JSON; what is wrong with the question, or with what was
/// answered to it, is said in the answer.
#[must_use]
pub fn check(question: &[u8]) -> String {
    let outcome = match shown(question) {
        Ok(shown) => Outcome::Holds(shown),
        Err(why) => Outcome::refused(&why),
    };
    serde_json::to_string(&outcome).unwrap_or_else(|_| r#"{"holds":false}"#.into())
}

fn shown(question: &[u8]) -> Result<Shown, Refused> {
    let question: Question = serde_json::from_slice(question).map_err(Refused::Question)?;
    match question.tree()? {
        Tree::Mpt => account::check(&question),
        Tree::Ubt(tree) => words::check_binary(&tree, &question),
        Tree::Pbt(tree) => words::check_binary(&tree, &question),
        Tree::Verkle => words::check_verkle(&question),
        Tree::Sum(profile) => sums::check(profile, &question),
    }
}
