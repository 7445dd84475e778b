//! Where the pieces of each row lie, in memory: an ordered map whose copies share what is the same.
//!
//! Invariants:
//! - a node is changed in place if nobody else holds it, else copied first: so a clone stays as it
//!   was;
//! - a branch has the least key of each child, or one that is lower;
//! - no node but the root is empty.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::key::Key;

/// Part of a row: all of it, or a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) segment: u32,
    pub(crate) at: u32,
    pub(crate) len: u32,
}

pub(crate) type Pieces = SmallVec<[Piece; 1]>;

/// Where a row lies: whole, and the deltas since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) hash: u64,
    pub(crate) pieces: Pieces,
}

/// Entries of a leaf, or children of a branch, at most.
const WIDTH: usize = 64;

#[derive(Clone, Debug)]
enum Node {
    Leaf(Vec<(Key, Entry)>),
    Branch(Vec<(Key, Arc<Self>)>),
}

#[derive(Clone, Debug)]
pub(crate) struct Index {
    root: Arc<Node>,
    len: u64,
}

impl Default for Index {
    fn default() -> Self {
        Self { root: Arc::new(Node::Leaf(Vec::new())), len: 0 }
    }
}

/// The child that a key is in.
fn child_of(children: &[(Key, Arc<Node>)], key: &[u8]) -> usize {
    children.partition_point(|(low, _)| &low[..] <= key).saturating_sub(1)
}

fn place_of(rows: &[(Key, Entry)], key: &[u8]) -> Result<usize, usize> {
    rows.binary_search_by(|(own, _)| own[..].cmp(key))
}

impl Index {
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Entry> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(rows) => return place_of(rows, key).ok().map(|at| &rows[at].1),
                Node::Branch(children) => node = &children[child_of(children, key)].1,
            }
        }
    }

    /// The entry of a key. The way to it is copied, even if it is absent.
    pub(crate) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let mut node = Arc::make_mut(&mut self.root);
        loop {
            match node {
                Node::Leaf(rows) => return place_of(rows, key).ok().map(|at| &mut rows[at].1),
                Node::Branch(children) => {
                    let at = child_of(children, key);
                    node = Arc::make_mut(&mut children[at].1);
                }
            }
        }
    }

    /// Puts a row in, and answers what was there.
    pub(crate) fn insert(&mut self, key: Key, entry: Entry) -> Option<Entry> {
        let mut old = None;
        if let Some(right) = Arc::make_mut(&mut self.root).insert(key, entry, &mut old) {
            let left = std::mem::replace(&mut self.root, Arc::new(Node::Branch(Vec::new())));
            self.root = Arc::new(Node::Branch(vec![(Key::new(), left), right]));
        }
        self.len += u64::from(old.is_none());
        old
    }

    /// Puts a row in as [`insert`](Self::insert) does, without a search where its key is the last
    /// one. An opening puts the rows of stretches in so: it has taken no key beyond them yet.
    pub(crate) fn append(&mut self, key: Key, entry: Entry) -> Option<Entry> {
        let mut node = &mut self.root;
        loop {
            match Arc::make_mut(node) {
                Node::Branch(children) => match children.last_mut() {
                    Some((_, last)) => node = last,
                    None => break,
                },
                Node::Leaf(rows) => {
                    let is_last = rows.last().is_some_and(|(last, _)| *last < key);
                    if is_last && rows.len() < WIDTH {
                        rows.push((key, entry));
                        self.len += 1;
                        return None;
                    }
                    break;
                }
            }
        }
        self.insert(key, entry)
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        self.get(key)?;
        let root = Arc::make_mut(&mut self.root);
        let old = root.remove(key);
        self.len -= u64::from(old.is_some());
        if let Node::Branch(children) = root
            && children.len() <= 1
        {
            self.root = children.pop().map_or_else(|| Self::default().root, |child| child.1);
        }
        old
    }

    /// The rows from a key on, that key included.
    pub(crate) fn from(&self, key: &[u8]) -> Rows<'_> {
        let mut rows = Rows { above: Vec::new(), leaf: &[] };
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(leaf) => {
                    rows.leaf = &leaf[place_of(leaf, key).unwrap_or_else(|at| at)..];
                    return rows;
                }
                Node::Branch(children) => {
                    let at = child_of(children, key);
                    rows.above.push(&children[at + 1..]);
                    node = &children[at].1;
                }
            }
        }
    }

    /// The keys between two, both excluded.
    pub(crate) fn between(&self, low: &[u8], high: &[u8]) -> Vec<Key> {
        let rows = self.from(low).skip_while(|(key, _)| &key[..] == low);
        rows.take_while(|(key, _)| &key[..] < high).map(|(key, _)| key.clone()).collect()
    }

    /// Bytes of memory, about.
    pub(crate) fn memory(&self) -> u64 {
        self.root.memory()
    }
}

impl Node {
    fn insert(
        &mut self,
        key: Key,
        entry: Entry,
        old: &mut Option<Entry>,
    ) -> Option<(Key, Arc<Self>)> {
        match self {
            Self::Leaf(rows) => {
                let at = place_of(rows, &key);
                match at {
                    Ok(at) => *old = Some(std::mem::replace(&mut rows[at].1, entry)),
                    Err(at) => rows.insert(at, (key, entry)),
                }
                split(rows, at.unwrap_or_else(|at| at))
                    .map(|right| (right[0].0.clone(), Arc::new(Self::Leaf(right))))
            }
            Self::Branch(children) => {
                let at = child_of(children, &key);
                let right = Arc::make_mut(&mut children[at].1).insert(key, entry, old)?;
                children.insert(at + 1, right);
                split(children, at + 1)
                    .map(|right| (right[0].0.clone(), Arc::new(Self::Branch(right))))
            }
        }
    }

    fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        match self {
            Self::Leaf(rows) => {
                let at = place_of(rows, key).ok()?;
                Some(rows.remove(at).1)
            }
            Self::Branch(children) => {
                let at = child_of(children, key);
                let child = Arc::make_mut(&mut children[at].1);
                let old = child.remove(key)?;
                if child.len() == 0 {
                    children.remove(at);
                } else if child.len() < WIDTH / 4 && children.len() > 1 {
                    merge(children, at.min(children.len() - 2));
                }
                Some(old)
            }
        }
    }

    const fn len(&self) -> usize {
        match self {
            Self::Leaf(rows) => rows.len(),
            Self::Branch(children) => children.len(),
        }
    }

    fn memory(&self) -> u64 {
        let node = size_of::<Self>() + 16;
        node as u64
            + match self {
                Self::Leaf(rows) => {
                    let heap = |(key, entry): &(Key, Entry)| {
                        let pieces =
                            if entry.pieces.spilled() { entry.pieces.capacity() } else { 0 };
                        (pieces * size_of::<Piece>() + key.heap_bytes()) as u64
                    };
                    let own = rows.capacity() * size_of::<(Key, Entry)>();
                    own as u64 + rows.iter().map(heap).sum::<u64>()
                }
                Self::Branch(children) => {
                    let own = children.capacity() * size_of::<(Key, Arc<Self>)>();
                    own as u64 + children.iter().map(|(_, child)| child.memory()).sum::<u64>()
                }
            }
    }
}

/// The right part of a node that is too wide, after something was put in. One that grows at its end
/// leaves a full one behind.
fn split<T>(all: &mut Vec<T>, at: usize) -> Option<Vec<T>> {
    (all.len() > WIDTH).then(|| {
        let half = if at == WIDTH { WIDTH } else { all.len() / 2 };
        let mut right = all.split_off(half);
        right.reserve(WIDTH + 1 - right.len());
        right
    })
}

/// Makes one child of two neighbours, if it is not too wide.
fn merge(children: &mut Vec<(Key, Arc<Node>)>, at: usize) {
    if children[at].1.len() + children[at + 1].1.len() > WIDTH * 3 / 4 {
        return;
    }
    let (_, right) = children.remove(at + 1);
    match (Arc::make_mut(&mut children[at].1), Arc::unwrap_or_clone(right)) {
        (Node::Leaf(left), Node::Leaf(right)) => left.extend(right),
        (Node::Branch(left), Node::Branch(right)) => left.extend(right),
        _ => unreachable!("neighbours are of one height"),
    }
}

/// Rows in order of keys.
#[derive(Clone, Debug)]
pub(crate) struct Rows<'a> {
    above: Vec<&'a [(Key, Arc<Node>)]>,
    leaf: &'a [(Key, Entry)],
}

impl<'a> Iterator for Rows<'a> {
    type Item = &'a (Key, Entry);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.leaf.split_off_first() {
                return Some(row);
            }
            let children = self.above.last_mut()?;
            match children.split_off_first().map(|(_, child)| &**child) {
                None => drop(self.above.pop()),
                Some(Node::Leaf(rows)) => self.leaf = rows,
                Some(Node::Branch(below)) => self.above.push(below),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::{Entry, Index, Piece, Pieces};
    use crate::key::Key;

    fn entry(at: u32) -> Entry {
        let piece = Piece { segment: 1, at, len: 1 };
        Entry { hash: 0, pieces: Pieces::from_elem(piece, 1) }
    }

    proptest! {
        #[test]
        fn an_index_is_a_map_and_its_clones_stay(
            steps in vec((any::<u16>(), 0..5_u8), 1..3_000),
            start in 0..20_000_u16,
        ) {
            let (mut index, mut model) = (Index::default(), BTreeMap::new());
            let mut kept = Vec::new();
            for at in 0..start {
                let key = Key::from_slice(&at.to_be_bytes());
                index.append(key.clone(), entry(0));
                model.insert(key, entry(0));
            }
            for (n, (number, what)) in steps.into_iter().enumerate() {
                let key = Key::from_slice(&(number % 20_000).to_be_bytes());
                match what {
                    0 => prop_assert_eq!(index.insert(key.clone(), entry(n as u32)), model.insert(key, entry(n as u32))),
                    1 => prop_assert_eq!(index.append(key.clone(), entry(n as u32)), model.insert(key, entry(n as u32))),
                    2 | 3 => prop_assert_eq!(index.remove(&key), model.remove(&key)),
                    _ => prop_assert_eq!(index.get_mut(&key), model.get_mut(&key)),
                }
                if n % 700 == 0 {
                    kept.push((index.clone(), model.clone()));
                }
            }
            kept.push((index, model));
            for (index, model) in &kept {
                prop_assert_eq!(index.len(), model.len() as u64);
                prop_assert!(index.from(&[]).map(|(k, e)| (k, e)).eq(model.iter()));
                let low = Key::from_slice(&[20, 7]);
                prop_assert!(index.from(&low).map(|(k, e)| (k, e)).eq(model.range(low.clone()..)));
                let high = Key::from_slice(&[21, 9]);
                let bounds = (std::ops::Bound::Excluded(low.clone()), std::ops::Bound::Excluded(high.clone()));
                prop_assert!(index.between(&low, &high).iter().eq(model.range::<Key, _>(bounds).map(|(k, _)| k)));
            }
        }
    }
}
