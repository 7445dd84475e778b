//! A trie of which only some nodes are known, by the book: what is left of a state in a witness.
//!
//! Keys are 32 bytes, as digests are, so nothing here goes deeper than 64 digits, whatever the nodes
//! say; a node that would is malformed. A node is read when a path leads through it. What is not
//! touched stays what its parent holds of it.

use std::fmt;
use std::sync::Arc;

use super::proof::node::{NIBBLES, Node, read};
use super::{EMPTY_ROOT, NodeRef, Scratch};
use crate::digits::Run;
use crate::error::hex;

/// Digits of a key.
const DEPTH: usize = 64;

/// Where a partial trie's nodes come from.
pub trait NodeSource {
    /// The RLP of the node with this Keccak-256 digest, which lies at these digits (one a byte); `None`
    /// where it is not known.
    fn node(&self, digest: &[u8; 32], path: &[u8]) -> Option<Arc<[u8]>>;
}

/// A node is needed and not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node 0x{} at path {} is missing", hex(.digest), Digits(.path))]
pub struct MissingNode {
    /// The Keccak-256 digest of its RLP.
    pub digest: [u8; 32],
    /// The digits that lead to it, one a byte.
    pub path: Vec<u8>,
}

struct Digits<'a>(&'a [u8]);

impl fmt::Display for Digits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|digit| write!(f, "{digit:x}"))
    }
}

/// Why a partial trie cannot say or do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartialError {
    /// A node is needed and not known.
    #[error(transparent)]
    Missing(#[from] MissingNode),
    /// A node is none of such a trie.
    #[error("the node at path {} is malformed: {what}", Digits(.path))]
    Malformed {
        /// The digits that lead to it, one a byte.
        path: Vec<u8>,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// A trie over keys of 32 bytes of which only some nodes are known.
///
/// ```
/// use spinney_tree::mpt::partial::{NodeSource, PartialTrie};
///
/// struct Nothing;
/// impl NodeSource for Nothing {
///     fn node(&self, _: &[u8; 32], _: &[u8]) -> Option<std::sync::Arc<[u8]>> {
///         None
///     }
/// }
///
/// let mut trie = PartialTrie::default();
/// trie.put(&Nothing, &[7; 32], b"value")?;
/// assert_eq!(trie.get(&Nothing, &[7; 32])?, Some(b"value".to_vec()));
/// trie.delete(&Nothing, &[7; 32])?;
/// assert_eq!(trie.root(), spinney_tree::mpt::EMPTY_ROOT);
/// assert!(PartialTrie::new([1; 32]).get(&Nothing, &[7; 32]).is_err());
/// # Ok::<_, spinney_tree::mpt::partial::PartialError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PartialTrie {
    top: Tree,
}

/// A node and what hangs below it. Paths are digits, one a byte.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tree {
    Empty,
    /// Not looked into yet.
    Closed(NodeRef),
    Leaf(Vec<u8>, Vec<u8>),
    Extension(Vec<u8>, Box<Self>),
    Branch(Box<[Self; 16]>),
}

impl Default for PartialTrie {
    /// The empty trie.
    fn default() -> Self {
        Self { top: Tree::Empty }
    }
}

impl PartialTrie {
    /// The trie with this root. Its nodes are asked for as they are needed.
    pub fn new(root: [u8; 32]) -> Self {
        let top =
            if root == EMPTY_ROOT { Tree::Empty } else { Tree::Closed(NodeRef::hashed(root)) };
        Self { top }
    }

    /// The root, of all that was put and deleted.
    pub fn root(&self) -> [u8; 32] {
        match &self.top {
            Tree::Empty => EMPTY_ROOT,
            Tree::Closed(top) => top.digest(),
            top => spinney_hash::keccak256(&top.encode()),
        }
    }

    /// The value of a key, if the trie holds it.
    ///
    /// # Errors
    /// If a node on its path is missing or malformed.
    pub fn get(
        &self,
        source: &impl NodeSource,
        key: &[u8; 32],
    ) -> Result<Option<Vec<u8>>, PartialError> {
        self.top.get(source, &digits(key), 0)
    }

    /// Puts a value, which is not empty, under a key.
    ///
    /// # Errors
    /// If a node on its path is missing or malformed. Then the trie holds what it held.
    pub fn put(
        &mut self,
        source: &impl NodeSource,
        key: &[u8; 32],
        value: &[u8],
    ) -> Result<(), PartialError> {
        debug_assert!(!value.is_empty(), "an empty value is a deletion");
        self.top.put(source, &digits(key), 0, value)
    }

    /// Deletes a key; it need not be there.
    ///
    /// # Errors
    /// If a node on its path is missing or malformed, or the sibling that would be left alone is. Then
    /// the trie holds what it held.
    pub fn delete(&mut self, source: &impl NodeSource, key: &[u8; 32]) -> Result<(), PartialError> {
        self.top.delete(source, &digits(key), 0)
    }
}

impl Tree {
    fn get(
        &self,
        source: &impl NodeSource,
        key: &[u8; DEPTH],
        depth: usize,
    ) -> Result<Option<Vec<u8>>, PartialError> {
        match self {
            Self::Empty => Ok(None),
            Self::Closed(node) => read_node(source, node, &key[..depth])?.get(source, key, depth),
            Self::Leaf(path, value) => Ok((key[depth..] == path[..]).then(|| value.clone())),
            Self::Extension(path, below) if key[depth..].starts_with(path) => {
                below.get(source, key, depth + path.len())
            }
            Self::Extension(..) => Ok(None),
            Self::Branch(children) => children[usize::from(key[depth])].get(source, key, depth + 1),
        }
    }

    fn put(
        &mut self,
        source: &impl NodeSource,
        key: &[u8; DEPTH],
        depth: usize,
        value: &[u8],
    ) -> Result<(), PartialError> {
        self.open(source, &key[..depth])?;
        let rest = &key[depth..];
        match self {
            Self::Empty => *self = Self::Leaf(rest.to_vec(), value.to_vec()),
            Self::Leaf(path, old) if path == rest => *old = value.to_vec(),
            Self::Leaf(path, _) | Self::Extension(path, _) if !rest.starts_with(path) => {
                let common = path.iter().zip(rest).take_while(|(a, b)| a == b).count();
                self.split(common);
                return self.put(source, key, depth, value);
            }
            Self::Extension(path, below) => {
                below.open_fork(source, &key[..depth + path.len()])?;
                return below.put(source, key, depth + path.len(), value);
            }
            Self::Branch(children) => {
                return children[usize::from(rest[0])].put(source, key, depth + 1, value);
            }
            Self::Leaf(..) | Self::Closed(_) => unreachable!("a leaf ends where all keys do"),
        }
        Ok(())
    }

    /// Makes room in a leaf or an extension for a branch behind its first `common` digits. Until the
    /// branch has its second child the trie is none.
    fn split(&mut self, common: usize) {
        let mut children: Box<[Self; 16]> = Box::new([const { Self::Empty }; 16]);
        let (path, below) = match std::mem::replace(self, Self::Empty) {
            Self::Leaf(path, value) => {
                let rest = path[common + 1..].to_vec();
                (path, Self::Leaf(rest, value))
            }
            Self::Extension(path, below) if path.len() == common + 1 => (path, *below),
            Self::Extension(path, below) => {
                let rest = path[common + 1..].to_vec();
                (path, Self::Extension(rest, below))
            }
            _ => unreachable!("a leaf or an extension is split"),
        };
        children[usize::from(path[common])] = below;
        let branch = Self::Branch(children);
        *self = match common {
            0 => branch,
            _ => Self::Extension(path[..common].to_vec(), Box::new(branch)),
        };
    }

    fn delete(
        &mut self,
        source: &impl NodeSource,
        key: &[u8; DEPTH],
        depth: usize,
    ) -> Result<(), PartialError> {
        self.open(source, &key[..depth])?;
        let rest = &key[depth..];
        match self {
            Self::Leaf(path, _) if path == rest => *self = Self::Empty,
            Self::Extension(path, below) if rest.starts_with(path) => {
                below.open_fork(source, &key[..depth + path.len()])?;
                below.delete(source, key, depth + path.len())?;
                let below = std::mem::replace(&mut **below, Self::Empty);
                *self = below.below(path);
            }
            Self::Branch(children) => {
                let digit = usize::from(rest[0]);
                children[digit].open(source, &key[..=depth])?;
                let is_gone = matches!(&children[digit], Self::Leaf(path, _) if *path == rest[1..]);
                if !is_gone {
                    return children[digit].delete(source, key, depth + 1);
                }
                let others = (0..16).filter(|&other| other != digit);
                let mut others = others.filter(|&other| children[other] != Self::Empty);
                if let (Some(last), None) = (others.next(), others.next()) {
                    // What is left alone takes the branch's place, and has to be known for that.
                    let path = [&key[..depth], &[last as u8]].concat();
                    children[last].open(source, &path)?;
                    let last_child = std::mem::replace(&mut children[last], Self::Empty);
                    *self = last_child.below(&[last as u8]);
                } else {
                    children[digit] = Self::Empty;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The node that holds `self`, which is not closed, behind more digits.
    fn below(self, digits: &[u8]) -> Self {
        let join = |path: Vec<u8>| [digits, &path].concat();
        match self {
            Self::Leaf(path, value) => Self::Leaf(join(path), value),
            Self::Extension(path, below) => Self::Extension(join(path), below),
            other => Self::Extension(digits.to_vec(), Box::new(other)),
        }
    }

    /// Looks into the node, if nobody has.
    fn open(&mut self, source: &impl NodeSource, path: &[u8]) -> Result<(), PartialError> {
        if let Self::Closed(node) = self {
            *self = read_node(source, node, path)?;
        }
        Ok(())
    }

    /// Looks into the node below an extension, which is a branch.
    fn open_fork(&mut self, source: &impl NodeSource, path: &[u8]) -> Result<(), PartialError> {
        self.open(source, path)?;
        if matches!(self, Self::Branch(_)) {
            return Ok(());
        }
        let what = "it is no branch, and lies below an extension";
        Err(PartialError::Malformed { path: path.to_vec(), what })
    }

    /// What a parent holds of the node; `None` for nothing.
    fn node_ref(&self) -> Option<NodeRef> {
        match self {
            Self::Empty => None,
            Self::Closed(node) => Some(*node),
            open => Some(NodeRef::of(&open.encode())),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut scratch = Scratch::default();
        // Digits fill bytes from behind, as they do in a key.
        let pack = |path: &[u8]| -> Vec<u8> {
            let padded = [&[0][..usize::from(!path.len().is_multiple_of(2))], path].concat();
            padded.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
        };
        let run = |path: &[u8], packed| {
            let end = path.len().next_multiple_of(2);
            Run::of(packed, end - path.len(), end, NIBBLES)
        };
        match self {
            Self::Leaf(path, value) => {
                scratch.leaf(run(path, &pack(path)), value);
            }
            Self::Extension(path, below) => {
                let below = below.node_ref().expect("an extension leads to a branch");
                scratch.extension(run(path, &pack(path)), &below);
            }
            Self::Branch(children) => {
                let children = (0..16).zip(children.iter());
                let children: Vec<_> = children
                    .filter_map(|(digit, child)| Some((digit, child.node_ref()?)))
                    .collect();
                scratch.branch(children.into_iter(), None);
            }
            Self::Empty | Self::Closed(_) => unreachable!("nothing to encode"),
        }
        scratch.bytes
    }
}

/// Reads a node at `path`, its children closed.
fn read_node(source: &impl NodeSource, node: &NodeRef, path: &[u8]) -> Result<Tree, PartialError> {
    let malformed = |what| PartialError::Malformed { path: path.to_vec(), what };
    let fetched;
    let rlp = match node.inlined() {
        Some(rlp) => rlp,
        None => {
            let digest = node.digest();
            let missing = || MissingNode { digest, path: path.to_vec() };
            fetched = source.node(&digest, path).ok_or_else(missing)?;
            if fetched.len() < 32 && !path.is_empty() {
                return Err(malformed("it is short, and yet not embedded"));
            }
            &fetched
        }
    };
    let depth = path.len();
    match read(rlp).map_err(malformed)? {
        Node::Leaf { path, value } if depth + path.len() == DEPTH => {
            Ok(Tree::Leaf(path.digits().collect(), value.to_vec()))
        }
        Node::Extension { path, child } if depth + path.len() < DEPTH => {
            let child = child.node_ref().map_or(Tree::Empty, Tree::Closed);
            Ok(Tree::Extension(path.digits().collect(), Box::new(child)))
        }
        Node::Branch { children, value: [] } if depth < DEPTH => {
            let closed = children.map(|child| child.node_ref().map_or(Tree::Empty, Tree::Closed));
            Ok(Tree::Branch(Box::new(closed)))
        }
        _ => Err(malformed("keys of 32 bytes have no such node there")),
    }
}

fn digits(key: &[u8; 32]) -> [u8; DEPTH] {
    std::array::from_fn(|index| NIBBLES.digit(key, index))
}
