//! The trees that there are, by the names that people give them.

use std::fmt;
use std::str::FromStr;

use alloy_primitives::B256;
use spinney_tree::mpt::Mpt;
use spinney_tree::pbt::Pbt;
use spinney_tree::sum::{Profile, Sum};
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{HashFunction, Scheme as _, SchemeId, TreeId};

use crate::embed::{PBT, UBT, VERKLE};
use crate::mpt_entries::MPT;

/// A tree of this version. Its name is what it is displayed as, and parsed from: `mpt`,
/// `ubt:sha256`, `pbt:blake3`, `verkle`, `sum:bound`.
///
/// ```
/// use spinney_state::TreeName;
///
/// let name: TreeName = "pbt:blake3".parse()?;
/// assert_eq!(name.to_string(), "pbt:blake3");
/// let error = "pbt".parse::<TreeName>().unwrap_err();
/// assert_eq!(error.like.len(), 3);
/// # Ok::<_, spinney_state::UnknownTree>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "who opens trees has to say what each of them is")]
pub enum TreeName {
    /// The Merkle Patricia trie.
    Mpt,
    /// The unified binary tree of EIP-7864.
    Ubt(HashFunction),
    /// The partitioned binary tree of EIP-8297.
    Pbt(HashFunction),
    /// The Verkle tree of EIP-6800.
    Verkle,
    /// A Merkle-sum tree, which holds leaves, and no accounts.
    Sum(Profile),
}

/// There is no tree of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no tree {name}")]
#[non_exhaustive]
pub struct UnknownTree {
    /// What was given.
    pub name: String,
    /// The trees whose names begin with it, and go on with a hash function.
    pub like: Vec<TreeName>,
}

impl TreeName {
    /// All that there are.
    pub const ALL: [Self; 10] = {
        use HashFunction::{Blake3, Keccak256, Sha256};
        [
            Self::Mpt,
            Self::Ubt(Sha256),
            Self::Ubt(Blake3),
            Self::Ubt(Keccak256),
            Self::Pbt(Blake3),
            Self::Pbt(Sha256),
            Self::Pbt(Keccak256),
            Self::Verkle,
            Self::Sum(Profile::Compatible),
            Self::Sum(Profile::Bound),
        ]
    };

    /// Its id in a store that holds a state; sum trees have names of their own.
    pub const fn id(self) -> Option<TreeId> {
        match self {
            Self::Mpt => Some(MPT),
            Self::Ubt(_) => Some(UBT),
            Self::Pbt(_) => Some(PBT),
            Self::Verkle => Some(VERKLE),
            Self::Sum(_) => None,
        }
    }

    /// Whether it can hold a state.
    pub const fn holds_accounts(self) -> bool {
        !matches!(self, Self::Sum(_))
    }

    /// The root by its other name, where the tree has two: the field element of a Verkle tree's.
    pub fn other_root(self, root: &B256) -> Option<B256> {
        match self {
            Self::Verkle => Verkle::root_hash(root).map(B256::from),
            _ => None,
        }
    }

    /// The root where it holds nothing, as a root record has it.
    pub fn empty_root(self) -> Vec<u8> {
        match self {
            Self::Mpt => Mpt.root(None).to_vec(),
            Self::Ubt(hash) => Ubt { hash }.root(None).to_vec(),
            Self::Pbt(hash) => Pbt { hash }.root(None).to_vec(),
            Self::Sum(profile) => Sum { profile }.root(None).as_ref().to_vec(),
            // It takes no points.
            Self::Verkle => vec![0; 32],
        }
    }

    /// The tree of a scheme that a store holds; both tries, of raw keys and of a state, are
    /// [`Mpt`](Self::Mpt).
    pub fn of(scheme: SchemeId) -> Option<Self> {
        let profiles = [Profile::Compatible, Profile::Bound];
        let sum = |profile: &Profile| Sum { profile: *profile }.id() == scheme;
        if let Some(profile) = profiles.into_iter().find(sum) {
            return Some(Self::Sum(profile));
        }
        let hash = match scheme.hash {
            0 if scheme.tree == 6 => return Some(Self::Verkle),
            0 => return matches!(scheme.tree, 1 | 2).then_some(Self::Mpt),
            1 => HashFunction::Keccak256,
            2 => HashFunction::Sha256,
            3 => HashFunction::Blake3,
            _ => return None,
        };
        match scheme.tree {
            3 => Some(Self::Ubt(hash)),
            4 => Some(Self::Pbt(hash)),
            _ => None,
        }
    }
}

impl FromStr for TreeName {
    type Err = UnknownTree;

    fn from_str(name: &str) -> Result<Self, UnknownTree> {
        let all = Self::ALL.map(|tree| (tree, tree.to_string()));
        if let Some((tree, _)) = all.iter().find(|(_, known)| known == name) {
            return Ok(*tree);
        }
        let is_like = |known: &str| known.strip_prefix(name).is_some_and(|it| it.starts_with(':'));
        let like = all.into_iter().filter(|(_, known)| is_like(known)).map(|(tree, _)| tree);
        Err(UnknownTree { name: name.to_owned(), like: like.collect() })
    }
}

impl fmt::Display for TreeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tree, hash) = match self {
            Self::Mpt => return f.write_str("mpt"),
            Self::Ubt(hash) => ("ubt", hash),
            Self::Pbt(hash) => ("pbt", hash),
            Self::Verkle => return f.write_str("verkle"),
            Self::Sum(Profile::Bound) => return f.write_str("sum:bound"),
            Self::Sum(_) => return f.write_str("sum"),
        };
        let hash = match hash {
            HashFunction::Keccak256 => "keccak",
            HashFunction::Sha256 => "sha256",
            HashFunction::Blake3 => "blake3",
        };
        write!(f, "{tree}:{hash}")
    }
}
