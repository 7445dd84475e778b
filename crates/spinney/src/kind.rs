//! Kinds of trees, as a database takes them: their proofs, and how users write their keys.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use spinney_tree::binary::proof::KeysProof;
use spinney_tree::mpt::{self, Mpt};
use spinney_tree::pbt::Pbt;
use spinney_tree::sum::{self, Leaf, Proven, Sum, SumNode};
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{
    HashFunction, KeyProofs, KeysFault, Pending, Refused, Scheme, Snapshot, Tree, TreeError,
};

/// A kind of tree that a [`Database`](crate::Database) keeps: [`Mpt`], [`Ubt`], [`Pbt`], [`Sum`] or
/// [`Verkle`].
///
/// ```
/// use spinney::{Database, Leaf, Pbt, Sum, TreeKind, HashFunction::Sha256};
///
/// let db = Database::memory();
/// // A kind by itself has the hash that its specification names; another one is said.
/// let tree = db.tree_with("by SHA-256", Pbt { hash: Sha256 })?;
/// let pending = tree.batch().put(&[7; 34], &[1; 32]).prepare()?;
/// let proof = tree.at(&pending).prove([[7; 34]])?;
/// let verified = Pbt { hash: Sha256 }.check(&pending.root(), &proof)?;
/// assert_eq!(verified.get(&[7; 34])?, Some(&[1; 32][..]));
///
/// // The value of a sum tree is a leaf.
/// let sums = db.tree::<Sum>("sums")?;
/// let five = Leaf { value: b"five".into(), sum: 5 };
/// let pending = sums.batch().put(&[1; 32], &five.encode()).prepare()?;
/// assert_eq!(pending.root().node().sum, 5);
/// let proof = sums.at(&pending).prove([[1; 32], [2; 32]])?;
/// let verified = Sum::verify(&pending.root(), &proof)?;
/// assert_eq!(verified.get(&[1; 32])?.and_then(Leaf::decode), Some(five));
/// assert_eq!(verified.get(&[2; 32])?, None);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub trait TreeKind: Scheme + Clone + sealed::Sealed {
    /// A proof of keys, present or absent, as somebody sent it: nothing is known of it before it is
    /// [verified](Self::verify).
    type Proof: Clone + fmt::Debug + PartialEq + Send + Sync;

    /// The tree as its specification has it: UBT with SHA-256, as geth has it, PBT with BLAKE3, sum
    /// trees as Taproot Assets has them.
    fn standard() -> Self;

    /// Proves keys in a state of a tree, or in its last commit.
    #[doc(hidden)]
    fn prove_keys_in<N: Snapshot>(
        tree: &Tree<Self>,
        snapshot: &N,
        state: Option<&Pending<Self>>,
        keys: &[Vec<u8>],
    ) -> Result<Self::Proof, TreeError>;

    /// A key as the engine has it, and back.
    #[doc(hidden)]
    fn stored_key(key: &[u8]) -> Cow<'_, [u8]> {
        Cow::Borrowed(key)
    }

    /// Checks, without a store, that a tree of this kind with this root holds what the proof says.
    /// In a Verkle tree that holds of absent keys as far as
    /// [`Proof::unsure_stems`](spinney_tree::verkle::proof::Proof::unsure_stems) says.
    ///
    /// # Errors
    /// If the proof is malformed, or shows anything else.
    fn check(&self, root: &Self::Root, proof: &Self::Proof) -> Result<Verified, ProofFault>;

    /// [Checks](Self::check) a proof of the [standard](Self::standard) tree.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    fn verify(root: &Self::Root, proof: &Self::Proof) -> Result<Verified, ProofFault> {
        Self::standard().check(root, proof)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Mpt {}
    impl Sealed for super::Ubt {}
    impl Sealed for super::Pbt {}
    impl Sealed for super::Sum {}
    impl Sealed for super::Verkle {}
}

/// What a proof has shown of the keys that it was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    values: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Verified {
    /// The value of a key, or `None` where the tree does not hold it.
    ///
    /// # Errors
    /// If the proof was not made for the key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<&[u8]>, NotProven> {
        let key = key.as_ref();
        let value = self.values.get(key).ok_or_else(|| NotProven { key: key.to_vec() })?;
        Ok(value.as_deref())
    }

    /// The keys with their values, in order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.values.iter().map(|(key, value)| (&key[..], value.as_deref()))
    }
}

/// A proof says nothing of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the proof was not made for key 0x{}", hex(.key))]
pub struct NotProven {
    /// The key.
    pub key: Vec<u8>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Why a proof is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofFault {
    /// In a Merkle Patricia trie.
    #[error(transparent)]
    Mpt(#[from] mpt::proof::ProofError),
    /// In a binary tree or a Verkle tree.
    #[error(transparent)]
    Keys(#[from] KeysFault),
    /// In a sum tree.
    #[error("key 0x{}: {source}", hex(.key))]
    Sum {
        /// The key.
        key: [u8; 32],
        /// What does not hold.
        source: sum::ProofError,
    },
    /// A key comes twice, so that it could have two values.
    #[error("key 0x{} is claimed twice", hex(.key))]
    Twice {
        /// The key.
        key: [u8; 32],
    },
    /// No key is claimed.
    #[error("no key is claimed, so the proof says nothing")]
    Nothing,
}

/// Nodes of a Merkle Patricia trie, and the keys whose paths they are on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MptProof {
    /// The keys.
    pub keys: Vec<Vec<u8>>,
    /// The nodes in RLP, a parent before its children.
    pub nodes: Vec<Vec<u8>>,
}

impl TreeKind for Mpt {
    type Proof = MptProof;

    fn standard() -> Self {
        Self
    }

    fn prove_keys_in<N: Snapshot>(
        tree: &Tree<Self>,
        snapshot: &N,
        state: Option<&Pending<Self>>,
        keys: &[Vec<u8>],
    ) -> Result<MptProof, TreeError> {
        let nodes = tree.prove(snapshot, state, keys)?.into_nodes();
        Ok(MptProof { keys: keys.to_vec(), nodes })
    }

    fn check(&self, root: &[u8; 32], proof: &MptProof) -> Result<Verified, ProofFault> {
        let sent = mpt::proof::Proof::new(proof.nodes.clone());
        let shown = sent.verify(root, &proof.keys)?;
        let owned =
            |(key, value): (&[u8], Option<&[u8]>)| (key.to_vec(), value.map(<[u8]>::to_vec));
        Ok(Verified { values: shown.iter().map(owned).collect() })
    }
}

/// The trees whose values are words have proofs of one form.
macro_rules! words {
    ($tree:ty, $standard:expr) => {
        impl TreeKind for $tree {
            type Proof = KeysProof;

            fn standard() -> Self {
                $standard
            }

            fn prove_keys_in<N: Snapshot>(
                tree: &Tree<Self>,
                snapshot: &N,
                state: Option<&Pending<Self>>,
                keys: &[Vec<u8>],
            ) -> Result<KeysProof, TreeError> {
                Self::prove_keys(tree, snapshot, state, keys)
            }

            fn check(&self, root: &[u8; 32], proof: &KeysProof) -> Result<Verified, ProofFault> {
                let shown = self.verify_keys(root, proof)?;
                let owned = |(key, value): (&[u8], Option<&[u8; 32]>)| {
                    (key.to_vec(), value.map(|word| word.to_vec()))
                };
                Ok(Verified { values: shown.iter().map(owned).collect() })
            }
        }
    };
}
words!(Ubt, Self { hash: HashFunction::Sha256 });
words!(Pbt, Self { hash: HashFunction::Blake3 });
words!(Verkle, Self::shared());

impl TreeKind for Sum {
    type Proof = Vec<([u8; 32], Proven)>;

    fn standard() -> Self {
        Self::default()
    }

    fn prove_keys_in<N: Snapshot>(
        tree: &Tree<Self>,
        snapshot: &N,
        state: Option<&Pending<Self>>,
        keys: &[Vec<u8>],
    ) -> Result<Self::Proof, TreeError> {
        let whole = |key: &Vec<u8>| {
            <[u8; 32]>::try_from(&key[..]).map_err(|_| TreeError::Refused {
                key: key.clone(),
                source: Refused::KeyLength { got: key.len(), expected: "32" },
            })
        };
        let keys: Vec<[u8; 32]> = keys.iter().map(whole).collect::<Result<_, _>>()?;
        let proven = tree.prove_leaves(snapshot, state, &keys)?;
        Ok(keys.into_iter().zip(proven).collect())
    }

    fn stored_key(key: &[u8]) -> Cow<'_, [u8]> {
        Cow::Owned(key.iter().map(|byte| byte.reverse_bits()).collect())
    }

    fn check(&self, root: &Self::Root, proof: &Self::Proof) -> Result<Verified, ProofFault> {
        if proof.is_empty() {
            return Err(ProofFault::Nothing);
        }
        let (profile, root): (_, SumNode) = (self.profile, root.node());
        let mut values = BTreeMap::new();
        for (key, proven) in proof {
            let held = match &proven.leaf {
                Some(leaf) => proven.proof.verify_inclusion(profile, root, key, leaf).map(drop),
                None => proven.proof.verify_exclusion(profile, root, key).map(drop),
            };
            held.map_err(|source| ProofFault::Sum { key: *key, source })?;
            let value = proven.leaf.as_ref().map(Leaf::encode);
            if values.insert(key.to_vec(), value).is_some() {
                return Err(ProofFault::Twice { key: *key });
            }
        }
        Ok(Verified { values })
    }
}
