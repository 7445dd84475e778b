//! A trie of which only some nodes are known, by the book: what is left of a state in a witness.
//!
//! Keys are 32 bytes, as digests are, so nothing here goes deeper than 64 digits, whatever the
//! nodes say; a node that would is malformed. A node is read when a path leads through it. What is
//! not touched stays what its parent holds of it.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::node::{NIBBLES, Node, nibble, read};
use super::node_ref::NodeRef;
use super::value::EMPTY_ROOT;
use super::writer::NodeWriter;
use crate::digits::Run;
use crate::error::Hex;

/// Digits of a key.
const DEPTH: usize = 64;

/// Where a partial trie's nodes come from.
pub trait NodeSource {
    /// The RLP of a node.
    type Rlp: AsRef<[u8]>;

    /// The RLP of the node with this Keccak-256 digest, which lies at these digits (one a byte);
    /// `None` where it is not known.
    fn node(&self, digest: &[u8; 32], path: &[u8]) -> Option<Self::Rlp>;
}

/// A node is needed and not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingNode {
    /// The Keccak-256 digest of its RLP.
    pub digest: [u8; 32],
    /// The digits that lead to it, one a byte.
    pub path: Vec<u8>,
}

impl fmt::Display for MissingNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { digest, path } = self;
        write!(f, "node 0x{} at path {} is missing", Hex(digest), Digits(path))
    }
}

impl core::error::Error for MissingNode {}

struct Digits<'a>(&'a [u8]);

impl fmt::Display for Digits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|digit| write!(f, "{digit:x}"))
    }
}

/// Why a partial trie cannot say or do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartialError {
    /// A node is needed and not known.
    Missing(MissingNode),
    /// A node is none of such a trie.
    Malformed {
        /// The digits that lead to it, one a byte.
        path: Vec<u8>,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl From<MissingNode> for PartialError {
    fn from(missing: MissingNode) -> Self {
        Self::Missing(missing)
    }
}

impl fmt::Display for PartialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => missing.fmt(f),
            Self::Malformed { path, what } => {
                write!(f, "the node at path {} is malformed: {what}", Digits(path))
            }
        }
    }
}

impl core::error::Error for PartialError {}

/// A trie over keys of 32 bytes of which only some nodes are known.
///
/// ```
/// use spinney_proof::mpt::partial::{NodeSource, PartialTrie};
///
/// struct Nothing;
/// impl NodeSource for Nothing {
///     type Rlp = Vec<u8>;
///
///     fn node(&self, _: &[u8; 32], _: &[u8]) -> Option<Vec<u8>> {
///         None
///     }
/// }
///
/// let mut trie = PartialTrie::default();
/// trie.put(&Nothing, &[7; 32], b"value")?;
/// assert_eq!(trie.get(&Nothing, &[7; 32])?, Some(b"value".to_vec()));
/// trie.delete(&Nothing, &[7; 32])?;
/// assert_eq!(trie.root(), spinney_proof::mpt::EMPTY_ROOT);
/// assert!(PartialTrie::new([1; 32]).get(&Nothing, &[7; 32]).is_err());
/// # Ok::<_, spinney_proof::mpt::partial::PartialError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PartialTrie {
    top: Tree,
}

/// A node and what hangs below it. Paths are digits, one a byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Tree {
    #[default]
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
        Self { top: Tree::below(root) }
    }

    /// The root, of all that was put and deleted.
    pub fn root(&self) -> [u8; 32] {
        self.top.node_ref().map_or(EMPTY_ROOT, |top| top.digest())
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
    /// If a node on its path is missing or malformed, or the sibling that would be left alone is.
    /// Then the trie holds what it held.
    pub fn delete(&mut self, source: &impl NodeSource, key: &[u8; 32]) -> Result<(), PartialError> {
        self.top.delete(source, &digits(key), 0)
    }
}

impl Tree {
    /// All of the trie with this root.
    pub(super) fn below(root: [u8; 32]) -> Self {
        if root == EMPTY_ROOT { Self::Empty } else { Self::Closed(NodeRef::hashed(root)) }
    }

    fn get(
        &self,
        source: &impl NodeSource,
        key: &[u8; DEPTH],
        depth: usize,
    ) -> Result<Option<Vec<u8>>, PartialError> {
        let (_, rest) = cut(key, depth);
        match self {
            Self::Empty => Ok(None),
            Self::Closed(node) => look(source, *node, key, depth),
            Self::Leaf(path, value) => Ok((path == rest).then(|| value.clone())),
            Self::Extension(path, below) if rest.starts_with(path) => {
                below.get(source, key, depth.saturating_add(path.len()))
            }
            Self::Extension(..) => Ok(None),
            Self::Branch(children) => match rest.first().and_then(|at| child(children, *at)) {
                Some(child) => child.get(source, key, depth.saturating_add(1)),
                None => Ok(None),
            },
        }
    }

    fn put(
        &mut self,
        source: &impl NodeSource,
        key: &[u8; DEPTH],
        depth: usize,
        value: &[u8],
    ) -> Result<(), PartialError> {
        let (above, rest) = cut(key, depth);
        self.open(source, above)?;
        match self {
            Self::Empty => *self = Self::Leaf(rest.to_vec(), value.to_vec()),
            Self::Leaf(path, old) if path == rest => *old = value.to_vec(),
            Self::Leaf(path, _) | Self::Extension(path, _) if !rest.starts_with(path) => {
                let common = path.iter().zip(rest).take_while(|(a, b)| a == b).count();
                self.split(common, above)?;
                return self.put(source, key, depth, value);
            }
            Self::Extension(path, below) => {
                let depth = depth.saturating_add(path.len());
                below.open_fork(source, cut(key, depth).0)?;
                return below.put(source, key, depth, value);
            }
            Self::Branch(children) => {
                let child = rest.first().and_then(|at| child_mut(children, *at));
                let child = child.ok_or_else(|| misplaced(above))?;
                return child.put(source, key, depth.saturating_add(1), value);
            }
            // A leaf ends where all keys do.
            Self::Leaf(..) | Self::Closed(_) => return Err(misplaced(above)),
        }
        Ok(())
    }

    /// Makes room in a leaf or an extension, which lies at `above`, for a branch behind its first
    /// `common` digits. Until the branch has its second child the trie is none.
    fn split(&mut self, common: usize, above: &[u8]) -> Result<(), PartialError> {
        let (Self::Leaf(path, _) | Self::Extension(path, _)) = &*self else {
            return Err(misplaced(above));
        };
        let (head, tail) = path.split_at_checked(common).ok_or_else(|| misplaced(above))?;
        let (&digit, rest) = tail.split_first().ok_or_else(|| misplaced(above))?;
        let (head, rest) = (head.to_vec(), rest.to_vec());
        let below = match core::mem::replace(self, Self::Empty) {
            Self::Leaf(_, value) => Self::Leaf(rest, value),
            Self::Extension(_, below) if rest.is_empty() => *below,
            Self::Extension(_, below) => Self::Extension(rest, below),
            other => other,
        };
        let mut children: Box<[Self; 16]> = Box::new([const { Self::Empty }; 16]);
        *child_mut(&mut children, digit).ok_or_else(|| misplaced(above))? = below;
        let branch = Self::Branch(children);
        *self = match head.is_empty() {
            true => branch,
            false => Self::Extension(head, Box::new(branch)),
        };
        Ok(())
    }

    fn delete(
        &mut self,
        source: &impl NodeSource,
        key: &[u8; DEPTH],
        depth: usize,
    ) -> Result<(), PartialError> {
        let (above, rest) = cut(key, depth);
        self.open(source, above)?;
        match self {
            Self::Leaf(path, _) if path == rest => *self = Self::Empty,
            Self::Extension(path, below) if rest.starts_with(path) => {
                let depth = depth.saturating_add(path.len());
                below.open_fork(source, cut(key, depth).0)?;
                below.delete(source, key, depth)?;
                let below = core::mem::replace(&mut **below, Self::Empty);
                *self = below.lower(path);
            }
            Self::Branch(children) => {
                let (&digit, rest) = rest.split_first().ok_or_else(|| misplaced(above))?;
                let below = depth.saturating_add(1);
                let child = child_mut(children, digit).ok_or_else(|| misplaced(above))?;
                child.open(source, cut(key, below).0)?;
                if !matches!(child, Self::Leaf(path, _) if path == rest) {
                    return child.delete(source, key, below);
                }
                if let Some((last, alone)) = only_other(children, digit) {
                    // What is left alone takes the branch's place, and has to be known for that.
                    alone.open(source, &[above, &[last]].concat())?;
                    let alone = core::mem::replace(alone, Self::Empty);
                    *self = alone.lower(&[last]);
                } else if let Some(child) = child_mut(children, digit) {
                    *child = Self::Empty;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The node that holds `self`, which is not closed, behind more digits.
    fn lower(self, digits: &[u8]) -> Self {
        let join = |path: Vec<u8>| [digits, &path].concat();
        match self {
            Self::Leaf(path, value) => Self::Leaf(join(path), value),
            Self::Extension(path, below) => Self::Extension(join(path), below),
            other => Self::Extension(digits.to_vec(), Box::new(other)),
        }
    }

    /// Looks into the node, if nobody has.
    pub(super) fn open(
        &mut self,
        source: &impl NodeSource,
        path: &[u8],
    ) -> Result<(), PartialError> {
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
        let mut writer = NodeWriter::default();
        // Digits fill bytes from behind, as they do in a key.
        let pack = |path: &[u8]| -> Vec<u8> {
            let padding = if path.len().is_multiple_of(2) { &[][..] } else { &[0] };
            let padded = [padding, path].concat();
            padded.as_chunks::<2>().0.iter().map(|&[high, low]| high << 4 | low).collect()
        };
        let run = |path: &[u8], packed| {
            let start = usize::from(!path.len().is_multiple_of(2));
            Run::of(packed, start, start.saturating_add(path.len()), NIBBLES)
        };
        match self {
            Self::Empty => return None,
            Self::Closed(node) => return Some(*node),
            Self::Leaf(path, value) => {
                writer.leaf(run(path, &pack(path)), value);
            }
            Self::Extension(path, below) => {
                writer.extension(run(path, &pack(path)), &below.node_ref()?);
            }
            Self::Branch(children) => {
                let children = (0..16).zip(children.iter());
                let children: Vec<_> = children
                    .filter_map(|(digit, child)| Some((digit, child.node_ref()?)))
                    .collect();
                writer.branch(children.into_iter(), None);
            }
        }
        Some(NodeRef::of(writer.bytes()))
    }
}

/// The first `depth` digits of a key, and the others.
fn cut(key: &[u8; DEPTH], depth: usize) -> (&[u8], &[u8]) {
    key.split_at_checked(depth).unwrap_or((key, &[]))
}

fn child(children: &[Tree; 16], digit: u8) -> Option<&Tree> {
    children.get(usize::from(digit))
}

fn child_mut(children: &mut [Tree; 16], digit: u8) -> Option<&mut Tree> {
    children.get_mut(usize::from(digit))
}

/// The child beside `digit`, if there is one only.
fn only_other(children: &mut [Tree; 16], digit: u8) -> Option<(u8, &mut Tree)> {
    let others = (0..16).zip(children.iter_mut());
    let mut others = others.filter(|(at, child)| *at != digit && **child != Tree::Empty);
    let first = others.next()?;
    if others.next().is_some() { None } else { Some(first) }
}

fn misplaced(path: &[u8]) -> PartialError {
    let what = "keys of 32 bytes have no such node there";
    PartialError::Malformed { path: path.to_vec(), what }
}

/// The value of a key below a node that nobody has looked into, and that stays so.
fn look(
    source: &impl NodeSource,
    mut node: NodeRef,
    key: &[u8; DEPTH],
    mut depth: usize,
) -> Result<Option<Vec<u8>>, PartialError> {
    loop {
        let (above, rest) = cut(key, depth);
        let below = with_node(source, &node, above, |node| match node {
            Node::Leaf { path, value } => {
                Err(path.digits().eq(rest.iter().copied()).then(|| value.to_vec()))
            }
            Node::Extension { path, child } => {
                let passes =
                    path.len() <= rest.len() && path.digits().zip(rest).all(|(a, b)| a == *b);
                let child = child.node_ref().filter(|_| passes).ok_or(None)?;
                Ok((child, depth.saturating_add(path.len())))
            }
            Node::Branch { children, .. } => {
                let child = rest.first().and_then(|at| children.get(usize::from(*at)));
                let child = child.and_then(|child| child.node_ref()).ok_or(None)?;
                Ok((child, depth.saturating_add(1)))
            }
        })?;
        match below {
            Ok(below) => (node, depth) = below,
            Err(value) => return Ok(value),
        }
    }
}

/// Reads a node at `path`, its children closed.
fn read_node(source: &impl NodeSource, node: &NodeRef, path: &[u8]) -> Result<Tree, PartialError> {
    with_node(source, node, path, |node| match node {
        Node::Leaf { path, value } => Tree::Leaf(path.digits().collect(), value.to_vec()),
        Node::Extension { path, child } => {
            let child = child.node_ref().map_or(Tree::Empty, Tree::Closed);
            Tree::Extension(path.digits().collect(), Box::new(child))
        }
        Node::Branch { children, .. } => {
            let closed = children.map(|child| child.node_ref().map_or(Tree::Empty, Tree::Closed));
            Tree::Branch(Box::new(closed))
        }
    })
}

/// Looks into the node at `path`, which is one that such a trie can have there.
fn with_node<T>(
    source: &impl NodeSource,
    node: &NodeRef,
    path: &[u8],
    look: impl FnOnce(Node<'_>) -> T,
) -> Result<T, PartialError> {
    let malformed = |what| PartialError::Malformed { path: path.to_vec(), what };
    let fetched;
    let rlp = match node.inlined() {
        Some(rlp) => rlp,
        None => {
            let digest = node.digest();
            let missing = || MissingNode { digest, path: path.to_vec() };
            fetched = source.node(&digest, path).ok_or_else(missing)?;
            if fetched.as_ref().len() < 32 && !path.is_empty() {
                return Err(malformed("it is short, and yet not embedded"));
            }
            fetched.as_ref()
        }
    };
    let (node, depth) = (read(rlp).map_err(malformed)?, path.len());
    let fits = match &node {
        Node::Leaf { path, .. } => depth.saturating_add(path.len()) == DEPTH,
        Node::Extension { path, .. } => depth.saturating_add(path.len()) < DEPTH,
        Node::Branch { value, .. } => value.is_empty() && depth < DEPTH,
    };
    if fits { Ok(look(node)) } else { Err(misplaced(path)) }
}

fn digits(key: &[u8; 32]) -> [u8; DEPTH] {
    core::array::from_fn(|index| nibble(key, index))
}
