//! Proofs that a range of keys holds these entries and no others.
//!
//! Only the nodes on the paths of the range's ends are sent; what lies between is built from the
//! entries, and has to be what those nodes hold of it.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

use super::build::{Entry, top_node};
use super::error::ProofError;
use super::node::{Below, HexPath, NIBBLES, Node, nibble};
use super::nodes::{Found, Nodes};
use crate::mpt::{EMPTY_ROOT, NodeRef};

/// The entries of a range of keys, and the nodes on the paths of its ends, as somebody sent them:
/// nothing is known of them yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeProof {
    /// The first key of the range, whether the trie holds it or not; empty for the first of all.
    pub start: Vec<u8>,
    /// The last key of the range, whether the trie holds it or not; `None` for the last of all.
    pub end: Option<Vec<u8>>,
    /// All entries of the range, in order of keys.
    pub entries: Vec<Entry>,
    /// The nodes on the paths of `start` and `end` in RLP, each once.
    pub nodes: Vec<Vec<u8>>,
}

/// A range whose entries are known to be those of the trie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedRange {
    entries: Vec<Entry>,
    more: bool,
}

impl VerifiedRange {
    /// All entries of the range, in order of keys.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Gives the entries away.
    pub fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    /// Whether the trie holds keys beyond the range's end.
    pub const fn has_more(&self) -> bool {
        self.more
    }
}

/// How all that begins with a path lies to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    /// The path begins the bound: some of it lies before, some behind.
    On,
    Behind,
}

/// A node on the path of one of the ends, or of both.
#[derive(Debug)]
struct Edge<'p> {
    found: Found<'p>,
    depth: usize,
    /// The entries that begin with the node's path.
    entries: Range<usize>,
    on_start: bool,
    on_end: bool,
}

impl RangeProof {
    /// Checks that the trie with this root holds these entries between `start` and `end`, both
    /// included, and no others.
    ///
    /// # Errors
    /// If the range ends before it starts, if entries are out of order, out of the range or empty,
    /// if they are not those of the trie, or if a node is missing, malformed or on the path of
    /// neither end.
    pub fn verify(self, root: &[u8; 32]) -> Result<VerifiedRange, ProofError> {
        if let Some(end) = self.end.as_ref().filter(|end| **end < self.start) {
            return Err(ProofError::Bounds { start: self.start, end: end.clone() });
        }
        self.check_order()?;
        let mut nodes = Nodes::new(&self.nodes);
        let more = Check { proof: &self, more: false, edges: Vec::new() }.run(&mut nodes, root)?;
        nodes.finish()?;
        Ok(VerifiedRange { entries: self.entries, more })
    }

    fn check_order(&self) -> Result<(), ProofError> {
        let end = self.end.as_deref();
        let mut last: Option<&Vec<u8>> = None;
        for (index, (key, value)) in self.entries.iter().enumerate() {
            let what = if value.is_empty() {
                "it has no value"
            } else if key < &self.start || end.is_some_and(|end| &key[..] > end) {
                "its key is outside of the range"
            } else if last.replace(key).is_some_and(|last| last >= key) {
                "its key does not follow the one before it"
            } else {
                continue;
            };
            return Err(ProofError::Entry { index, what });
        }
        Ok(())
    }
}

struct Check<'p> {
    proof: &'p RangeProof,
    more: bool,
    edges: Vec<Edge<'p>>,
}

impl<'p> Check<'p> {
    /// Follows both ends; answers whether there is more behind the range.
    fn run(mut self, nodes: &mut Nodes<'p>, root: &[u8; 32]) -> Result<bool, ProofError> {
        let all = 0..self.proof.entries.len();
        let (on_start, on_end) = (!self.proof.start.is_empty(), self.proof.end.is_some());
        if !on_start && !on_end {
            let top = top_node(&self.proof.entries, 0);
            let built = top.map_or(EMPTY_ROOT, |top| NodeRef::of(&top).digest());
            return if built == *root { Ok(false) } else { Err(self.differs(&all, 0)) };
        }
        match nodes.top(root)? {
            Some(found) => {
                self.edges.push(Edge { found, depth: 0, entries: all, on_start, on_end });
            }
            None => self.none(&all, 0)?,
        }
        while let Some(edge) = self.edges.pop() {
            match edge.found.node {
                Node::Leaf { path, value } => self.leaf(&edge, path, value)?,
                Node::Extension { path, child } => self.extension(nodes, edge, path, child)?,
                Node::Branch { children, value } => self.branch(nodes, &edge, &children, value)?,
            }
        }
        Ok(self.more)
    }

    fn leaf(&mut self, edge: &Edge<'p>, path: HexPath<'_>, value: &[u8]) -> Result<(), ProofError> {
        let Edge { depth, ref entries, .. } = *edge;
        let before = edge.on_start && order(path, &self.proof.start, depth) == Ordering::Less;
        let end = self.proof.end.as_deref().filter(|_| edge.on_end);
        let behind = end.is_some_and(|end| order(path, end, depth) == Ordering::Greater);
        self.more |= behind;
        if before || behind {
            return self.none(entries, depth);
        }
        match self.claimed(entries) {
            [(key, claimed)] if order(path, key, depth) == Ordering::Equal && claimed == value => {
                Ok(())
            }
            _ => Err(self.differs(entries, depth)),
        }
    }

    fn extension(
        &mut self,
        nodes: &mut Nodes<'p>,
        edge: Edge<'p>,
        path: HexPath<'_>,
        child: Below<'p>,
    ) -> Result<(), ProofError> {
        let Edge { found, depth, entries, on_start, on_end } = edge;
        let start = if on_start { side(path, &self.proof.start, depth) } else { Side::Behind };
        let end = self.proof.end.as_deref().filter(|_| on_end);
        let end = end.map_or(Side::Before, |end| side(path, end, depth));
        self.more |= end == Side::Behind;
        if start == Side::Before || end == Side::Behind {
            return self.none(&entries, depth);
        }
        let (on_start, on_end) = (start == Side::On, end == Side::On);
        if !on_start && !on_end {
            let built = top_node(self.claimed(&entries), depth);
            let same = built.as_deref() == Some(found.rlp);
            return if same { Ok(()) } else { Err(self.differs(&entries, depth)) };
        }
        // Entries that leave the path are not those of the trie.
        let strays = |(key, _): &&Entry| path.common(key, depth) < path.len();
        if self.claimed(&entries).iter().find(strays).is_some() {
            return Err(self.differs(&entries, depth));
        }
        let found = nodes.fork(found.index, child)?;
        let depth = depth.saturating_add(path.len());
        self.edges.push(Edge { found, depth, entries, on_start, on_end });
        Ok(())
    }

    fn branch(
        &mut self,
        nodes: &mut Nodes<'p>,
        edge: &Edge<'p>,
        children: &[Below<'p>; 16],
        value: &[u8],
    ) -> Result<(), ProofError> {
        let (depth, below) = (edge.depth, edge.depth.saturating_add(1));
        let digit = |bound: &[u8]| (depth < NIBBLES.count(bound)).then(|| nibble(bound, depth));
        // Where the start goes on, what ends here lies before it; where it ends, all lies behind.
        let start = if edge.on_start { digit(&self.proof.start) } else { None };
        let end = self.proof.end.as_deref().filter(|_| edge.on_end).map(digit);
        let all = self.claimed(&edge.entries);
        let here = all.first().filter(|(key, _)| NIBBLES.count(key) == depth);
        let claimed = here.map(|(_, value)| &value[..]);
        let mut next = all.iter().skip(usize::from(here.is_some())).peekable();
        let mut from = edge.entries.start.saturating_add(usize::from(here.is_some()));
        if start.is_none() && claimed.unwrap_or_default() != value {
            return Err(self.differs(&edge.entries, depth));
        }
        for (slot, &child) in (0..16).zip(children) {
            let mut entries = from..from;
            while next.next_if(|(key, _)| nibble(key, depth) == slot).is_some() {
                entries.end = entries.end.saturating_add(1);
            }
            from = entries.end;
            let behind = end.is_some_and(|end| end.is_none_or(|end| slot > end));
            self.more |= behind && child != Below::Nothing;
            if behind || start.is_some_and(|start| slot < start) {
                self.none(&entries, below)?;
                continue;
            }
            let (on_start, on_end) = (start == Some(slot), end == Some(Some(slot)));
            if !on_start && !on_end {
                let built = top_node(self.claimed(&entries), below);
                if built.map(|rlp| NodeRef::of(&rlp)) != child.node_ref() {
                    return Err(self.differs(&entries, below));
                }
                continue;
            }
            match nodes.child(edge.found.index, child)? {
                Some(found) => {
                    self.edges.push(Edge { found, depth: below, entries, on_start, on_end });
                }
                None => self.none(&entries, below)?,
            }
        }
        Ok(())
    }

    /// Demands that there are no entries where the trie has none.
    fn none(&self, entries: &Range<usize>, depth: usize) -> Result<(), ProofError> {
        if entries.is_empty() { Ok(()) } else { Err(self.differs(entries, depth)) }
    }

    fn differs(&self, entries: &Range<usize>, depth: usize) -> ProofError {
        let key = self.proof.entries.get(entries.start).map_or(&self.proof.start, |entry| &entry.0);
        ProofError::Range { prefix: key.iter().take(depth.div_ceil(2)).copied().collect() }
    }

    /// The entries of a range of them.
    fn claimed(&self, entries: &Range<usize>) -> &'p [Entry] {
        self.proof.entries.get(entries.clone()).unwrap_or_default()
    }
}

/// How all that begins with `path`, which starts at digit `depth`, lies to `bound`.
fn side(path: HexPath<'_>, bound: &[u8], depth: usize) -> Side {
    let common = path.common(bound, depth);
    if common == path.len() {
        return Side::On;
    }
    match order_at(path, bound, depth, common) {
        Ordering::Less => Side::Before,
        _ => Side::Behind,
    }
}

/// How the key that ends with `path`, which starts at digit `depth`, compares with `bound`.
fn order(path: HexPath<'_>, bound: &[u8], depth: usize) -> Ordering {
    order_at(path, bound, depth, path.common(bound, depth))
}

/// The same, where the first `common` digits are equal and the next ones are not.
fn order_at(path: HexPath<'_>, bound: &[u8], depth: usize, common: usize) -> Ordering {
    let left = (common < path.len()).then(|| path.digit(common));
    let at = depth.saturating_add(common);
    let right = (at < NIBBLES.count(bound)).then(|| nibble(bound, at));
    left.cmp(&right)
}
