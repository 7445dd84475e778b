//! Authenticated state: trees by name, each with one short root that proves what it holds.
//!
//! A [`Database`] keeps any number of trees in one store: in memory, or, by the features `redb`
//! (the default), `sqlite` and `postgres`, in a directory, a file or a server. A tree is a Merkle
//! Patricia trie ([`Mpt`]), a binary tree of EIP-7864 ([`Ubt`]) or EIP-8297 ([`Pbt`]), a Verkle
//! tree ([`Verkle`]) or a Merkle-sum tree ([`Sum`]).
//!
//! ```
//! use spinney::{Database, Mpt, TreeKind};
//!
//! let db = Database::memory();                               // or open("state"), sqlite(..), ..
//! let accounts = db.tree::<Mpt>("accounts")?;
//! let pending = accounts.batch().put(b"doe", b"reindeer").delete(b"dog").prepare()?;
//! let root = pending.root();                                 // nothing is written yet
//! let proof = accounts.at(&pending).prove([b"doe"])?;        // a view: get, range, prefix, prove
//! pending.commit()?;                                         // durable
//! let verified = Mpt::verify(&root, &proof)?;                // needs `proof` alone
//! assert_eq!(verified.get(b"doe")?, Some(&b"reindeer"[..]));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! With the feature `replay` the modules `state` and `replay` come along: Ethereum's state in all
//! of these trees, and blocks that are executed and checked. The engine below is [`engine`].
#![forbid(unsafe_code)]

/// What the tutorial shows runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tutorial/7-the-library.md")]
struct Tutorial;

mod database;
mod error;
mod kind;
mod live;
mod pending;
mod shared;
mod tree;
mod view;

pub use database::{Database, TreeInfo};
pub use error::Error;
pub use kind::{MptProof, NotProven, ProofFault, TreeKind, Verified};
pub use pending::{Commit, PendingState, TreeBatch};
pub use shared::{AnyStore, DatabaseOptions};
#[cfg(feature = "replay")]
pub use spinney_replay as replay;
#[cfg(feature = "replay")]
pub use spinney_state as state;
pub use spinney_tree as engine;
pub use spinney_tree::binary::proof::KeysProof;
pub use spinney_tree::mpt::Mpt;
pub use spinney_tree::names::NameError;
pub use spinney_tree::pbt::Pbt;
pub use spinney_tree::sum::{Leaf, Profile, Sum};
pub use spinney_tree::ubt::Ubt;
pub use spinney_tree::verkle::Verkle;
pub use spinney_tree::{HashFunction, PageStore, SchemeId, StoreError, TreeError, Value};
pub use tree::DbTree;
pub use view::{Entries, View};
