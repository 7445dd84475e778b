//! Authenticated trees: one path-compressed radix engine, thin schemes.
//!
//! A [`Tree`] keeps keys and values in the pages of a store and one root that proves any of them. A
//! [`Batch`] of operations yields a [`Pending`] state with its root, which can be committed, built
//! upon or dropped. What a tree commits to is its [`Scheme`]'s business; the first one is
//! Ethereum's Merkle Patricia trie ([`mpt`]); the Merkle-sum tree ([`sum`]) has its rules and
//! proofs here so far.
//!
//! ```
//! use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeId, mpt::Mpt};
//!
//! let store = MemoryStore::new();
//! let mut tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
//! let mut batch = Batch::new();
//! for (key, value) in [("doe", "reindeer"), ("dog", "puppy"), ("dogglesworth", "cat")] {
//!     batch.put(key.as_bytes(), value.as_bytes());
//! }
//! let pending = tree.prepare(&store.snapshot()?, None, batch)?;
//! assert_eq!(pending.root()[..4], [0x8a, 0xad, 0x78, 0x9d]);
//! tree.commit(&store, &pending, None)?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! There is no I/O in this crate: stores implement [`PageStore`]. Its design is in docs/design.md.
#![forbid(unsafe_code)]

mod bare;
mod batch;
pub mod binary;
pub mod bulk;
mod cache;
mod check;
mod costs;
mod cut;
mod engine;
mod entries;
mod error;
mod grow;
mod head;
mod ids;
mod image;
mod key_proofs;
mod levels;
mod memory;
pub mod mpt;
pub mod names;
mod node;
mod node_check;
mod page;
mod page_key;
pub mod pbt;
mod pool;
mod prepare;
mod prove;
pub mod ranges;
mod read;
mod rebuild;
mod root_record;
mod rows;
mod scheme;
mod store;
pub mod sum;
mod tree;
pub mod ubt;
mod update;
mod verified;
pub mod verkle;
mod view;
mod visit;
mod walk;
mod weigh;
mod write;

pub use bare::{BareRows, bare_rows};
pub use batch::{Batch, Operation};
pub use check::Finding;
pub use costs::TreeCosts;
pub use entries::Entries;
pub use error::{Refused, TreeError};
pub use ids::{BlockId, SchemeId, TreeId};
pub use key_proofs::KeyProofs;
pub use memory::{MemorySnapshot, MemoryStore};
pub use page_key::{is_on_path, pages_below, root_page};
pub use read::{Entry, Value};
pub use rebuild::Rebuild;
pub use root_record::RootRecord;
pub use rows::{SharedSnapshot, SharedStore};
pub use scheme::{
    BranchJob, ChildChange, Children, Commitment, Differences, Engine, KEY_BYTES_MAX, Layout,
    LeafJob, Owned, Owner, PreviousLeaf, Scheme, VALUE_BYTES_MAX, Weights,
};
pub use spinney_hash::HashFunction;
pub use spinney_proof::digits::Run;
pub use spinney_proof::verkle::KeysFault;
pub use store::{CommitOf, KeptCommits, PageStore, RowOver, Snapshot, StoreError, Table, WriteSet};
pub use tree::{CACHE_BYTES_DEFAULT, CommitStats, Pending, PreparedCommit, Tree};
pub use view::TreeView;
