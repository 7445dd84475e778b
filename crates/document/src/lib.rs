//! Documents of proofs: JSON that says what a tree holds under a root, and shows it.
//!
//! [`Document`] and [`SpanDocument`] are read of what somebody sent: nothing of it is trusted, and
//! what it claims is shown by [`Claim::verify`] and [`SpanClaim::verify`], as [`Fact`]s. That needs
//! no store. [`AccountDocument`], [`KeysDocument`], [`WordsDocument`] and [`SumDocument`] are
//! written, by whoever has a tree.
//!
//! ```
//! use spinney_document::Document;
//! use spinney_state::{State, TreeName};
//! use spinney_document::AccountDocument;
//! use spinney_tree::{MemoryStore, SharedStore};
//!
//! let state = State::open(SharedStore::new(MemoryStore::new()), 1 << 20)?;
//! let proof = state.prove([7; 20].into(), &[])?;
//! let sent = AccountDocument::new(TreeName::Mpt.to_string(), state.root(), None, proof);
//!
//! let read = Document::parse(&serde_json::to_vec(&sent)?)?;
//! let facts = read.claim.verify(&state.root(), TreeName::Mpt)?;
//! assert!(facts[0].to_string().ends_with(": absent"));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod asked;
mod bounded;
mod fact;
mod made;
mod over_time;
mod read;
mod refuted;
mod roots;
mod span;
mod sums;
mod verify;

pub use asked::Asked;
pub use bounded::ValuesMax;
pub use fact::{AccountFact, Blocks, Fact};
pub use made::{AccountDocument, KeyDocument, KeysDocument, WordsDocument};
pub use read::{
    Claim, Document, DocumentError, Strict, VALUES_MAX, WitnessClaim, WordsClaim, read,
};
pub use refuted::Refuted;
pub use roots::{RootsError, TrustedRoots};
pub use span::{SpanClaim, SpanDocument};
pub use sums::{SumClaim, SumDocument, SumDocumentError};
