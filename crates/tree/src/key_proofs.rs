//! One way to ask for proofs of keys and to check them, for every tree whose values are words.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use spinney_proof::binary::{KeysProof, VerifiedKeys};
use spinney_proof::verkle::{self, KeysFault};

use crate::error::TreeError;
use crate::pbt::Pbt;
use crate::scheme::Scheme;
use crate::store::Snapshot;
use crate::tree::{Pending, Tree};
use crate::ubt::Ubt;
use crate::verkle::Verkle;

/// A tree of values of 32 bytes whose keys are proven: [`Ubt`], [`Pbt`] and [`Verkle`].
///
/// ```
/// use spinney_tree::{Batch, KeyProofs, MemoryStore, PageStore, Tree, TreeId, verkle::Verkle};
///
/// let (store, verkle) = (MemoryStore::new(), Verkle::shared());
/// let tree = Tree::open(verkle.clone(), TreeId(1), &store.snapshot()?, 1 << 20)?;
/// let mut batch = Batch::new();
/// batch.put(&[1; 32], &[7; 32]);
/// let pending = tree.prepare(&store.snapshot()?, None, batch)?;
/// let keys = [[1; 32], [2; 32]];
/// let sent = Verkle::prove_keys(&tree, &store.snapshot()?, Some(&pending), &keys)?;
/// let verified = verkle.verify_keys(&pending.root(), &sent)?;
/// assert_eq!((verified.get(&keys[0])?, verified.get(&keys[1])?), (Some(&[7; 32]), None));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub trait KeyProofs: Scheme<Root = [u8; 32]> + Sized {
    /// Proves keys, present or absent, in `state` or in the last commit.
    ///
    /// # Errors
    /// If there are no keys or the tree has no such key, `state` stands on an older commit, or a
    /// page is damaged or cannot be read.
    fn prove_keys<N: Snapshot, K: AsRef<[u8]>>(
        tree: &Tree<Self>,
        snapshot: &N,
        state: Option<&Pending<Self>>,
        keys: &[K],
    ) -> Result<KeysProof, TreeError>;

    /// Checks, without a store, that a tree with this root holds what is claimed of every key. In a
    /// Verkle tree the absence of [`unsure_stems`](verkle::Proof::unsure_stems) is not shown by it.
    ///
    /// # Errors
    /// If the tree has no such key, one is claimed twice, the proof is malformed, or it shows
    /// anything else.
    fn verify_keys(&self, root: &[u8; 32], sent: &KeysProof) -> Result<VerifiedKeys, KeysFault>;
}

/// The binary trees have the same proofs.
macro_rules! binary {
    ($tree:ty) => {
        impl KeyProofs for $tree {
            fn prove_keys<N: Snapshot, K: AsRef<[u8]>>(
                tree: &Tree<Self>,
                snapshot: &N,
                state: Option<&Pending<Self>>,
                keys: &[K],
            ) -> Result<KeysProof, TreeError> {
                tree.prove(snapshot, state, keys)
            }

            fn verify_keys(
                &self,
                root: &[u8; 32],
                sent: &KeysProof,
            ) -> Result<VerifiedKeys, KeysFault> {
                Ok(sent.verify(self, root)?)
            }
        }
    };
}
binary!(Ubt);
binary!(Pbt);

impl KeyProofs for Verkle {
    fn prove_keys<N: Snapshot, K: AsRef<[u8]>>(
        tree: &Tree<Self>,
        snapshot: &N,
        state: Option<&Pending<Self>>,
        keys: &[K],
    ) -> Result<KeysProof, TreeError> {
        let (proof, diff) = tree.prove(snapshot, state, keys)?;
        let entries = diff.entries().map(|(key, entry)| (key.to_vec(), entry.current)).collect();
        Ok(KeysProof { entries, proof: proof.to_bytes() })
    }

    fn verify_keys(&self, root: &[u8; 32], sent: &KeysProof) -> Result<VerifiedKeys, KeysFault> {
        verkle::verify_keys(self.crs(), root, sent)
    }
}
