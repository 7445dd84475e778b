//! Merkle-sum trees by name, any number of them in one store.
//!
//! A [`SumTree`] is one tree of [`spinney_tree::sum`] with the store that keeps it: [`namespaces`]
//! lists those that a store holds. Several can be changed as one, also where the root of one is a
//! leaf of another: [`commit_together`].
//!
//! ```
//! use spinney_state::sum::{SumBatch, SumTree};
//! use spinney_tree::{MemoryStore, sum::{Leaf, Profile}};
//!
//! let store = MemoryStore::new();
//! let mut tree = SumTree::create(&store, "issuance", Profile::Compatible, 1 << 20)?;
//! let mut batch = SumBatch::new();
//! batch.put(&[1; 32], &Leaf { value: b"five".into(), sum: 5 });
//! batch.put(&[2; 32], &Leaf { value: b"seven".into(), sum: 7 });
//! tree.apply(&mut batch)?;
//! assert_eq!(tree.root().sum, 12);
//! assert_eq!(tree.get(&[1; 32])?.unwrap().sum, 5);
//!
//! let proofs = tree.prove(&[[2; 32], [3; 32]])?;
//! let seven = proofs[0].leaf.as_ref().unwrap();
//! proofs[0].proof.verify_inclusion(Profile::Compatible, tree.root(), &[2; 32], seven)?;
//! proofs[1].proof.verify_exclusion(Profile::Compatible, tree.root(), &[3; 32])?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod names;
mod together;
mod tree;
mod turns;

use std::io;

use spinney_tree::sum::Profile;
use spinney_tree::{SchemeId, StoreError, TreeError, TreeId};

pub use names::{NAME_BYTES_MAX, Namespace, namespaces};
pub use together::{Nest, commit_together};
pub use tree::{SumBatch, SumTree};

/// Why a sum tree refused or failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SumError {
    /// No tree may have such a name.
    #[error("a namespace of {bytes} bytes, where 1 to {most} are taken")]
    Name {
        /// The length of the name in bytes.
        bytes: usize,
        /// The longest that there may be.
        most: usize,
    },
    /// The tree of a name is no sum tree.
    #[error("{name:?} is the name of a tree {scheme}, and of no sum tree")]
    OtherTree {
        /// The name.
        name: String,
        /// The kind and hash of its tree.
        scheme: SchemeId,
    },
    /// The tree of a name is of another profile.
    #[error("namespace {name:?} holds a tree of the profile {is:?}, not {asked:?}")]
    OtherProfile {
        /// The name.
        name: String,
        /// The profile of its tree.
        is: Profile,
        /// The one that was asked for.
        asked: Profile,
    },
    /// Another handle has removed the tree.
    #[error("the tree of namespace {name:?} was removed meanwhile: open or create it again")]
    Removed {
        /// Its name.
        name: String,
    },
    /// Every tree has an id of its own, and all have been given.
    #[error("all ids of trees have been given: make another store")]
    NoId,
    /// What the store says of its namespaces makes no sense.
    #[error("the namespace under 0x{key} is damaged: {what}")]
    Damaged {
        /// The row's key.
        key: String,
        /// What is wrong with it.
        what: String,
    },
    /// A value of the tree is no leaf.
    #[error("{tree} holds no leaf under key 0x{key}: the store is damaged")]
    Malformed {
        /// The tree.
        tree: TreeId,
        /// The key.
        key: String,
    },
    /// The trees that are to nest do not stand in the order in which they do.
    #[error(
        "tree {child} is to be a leaf of tree {parent} of {count}: children come before parents"
    )]
    Nesting {
        /// The number of the one whose root is to be a leaf.
        child: usize,
        /// The number of the one that is to have it.
        parent: usize,
        /// How many trees there are.
        count: usize,
    },
    /// The tree refused or failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// What proofs are written to failed.
    #[error(transparent)]
    Output(#[from] io::Error),
}

impl From<StoreError> for SumError {
    fn from(error: StoreError) -> Self {
        Self::Tree(error.into())
    }
}
