//! Where the pieces of each row lie, in memory: an ordered map whose copies share what is the same.
//!
//! ```text
//! row of a leaf = key length (u16) | key | entry, as records
//!                 have it
//! ```
//!
//! A search in a leaf reads the heads of its keys, which lie side by side, and then mostly one row.
//!
//! Invariants:
//! - all keys of a leaf begin with the same `shared` bytes, and a head is the four behind those;
//! - a node is changed in place if nobody else holds it, else copied first: so a clone stays as it
//!   was;
//! - a branch has the least key of each child, or one that is lower;
//! - no node but the root is empty.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use spinney_hash::prefetch;

use crate::format::{Bytes, Entry, Held, put_entry};
use crate::key::Key;

/// A key, and where its row lies, as records have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) entry: &'a [u8],
}

impl Row<'_> {
    pub(crate) fn entry(&self) -> Entry {
        Bytes(self.entry).entry().expect("it was an entry when it was put in")
    }

    pub(crate) fn held(&self) -> Held<'_> {
        Bytes(self.entry).held().expect("it was an entry when it was put in")
    }
}

/// Entries of a leaf, or children of a branch, at most.
const WIDTH: usize = 64;
/// Room that a leaf takes for what may come.
const ROOM: usize = 256;
const LENGTH_BYTES: usize = size_of::<u16>();
/// So many keys ahead a leaf is asked for, what says where its rows are, and the row.
const LEAVES_AHEAD: usize = 6;
const PLACES_AHEAD: usize = 4;
const ROWS_AHEAD: usize = 2;

/// Rows in order of keys, one behind the other.
#[derive(Clone, Debug, Default)]
struct Leaf {
    places: Vec<Place>,
    bytes: Vec<u8>,
    /// So many bytes all keys begin with.
    shared: u16,
}

/// Where a row of a leaf begins, and what its key goes on with behind the shared bytes.
#[derive(Clone, Copy, Debug)]
struct Place {
    head: u32,
    start: u32,
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Leaf),
    Branch(Vec<(Key, Arc<Self>)>),
}

#[derive(Clone, Debug)]
pub(crate) struct Index {
    root: Arc<Node>,
    len: u64,
}

impl Default for Index {
    fn default() -> Self {
        Self { root: Arc::new(Node::Leaf(Leaf::default())), len: 0 }
    }
}

/// The child that a key is in.
fn child_of(children: &[(Key, Arc<Node>)], key: &[u8]) -> usize {
    children.partition_point(|(low, _)| order(low, key).is_le()).saturating_sub(1)
}

/// The order of two keys, which their first bytes mostly tell.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    match (first_bytes(a), first_bytes(b)) {
        (Some(first_a), Some(first_b)) if first_a != first_b => first_a.cmp(&first_b),
        _ => a.cmp(b),
    }
}

/// The first sixteen bytes of a key, zeros behind a shorter one; nothing of one of less than eight.
fn first_bytes(key: &[u8]) -> Option<u128> {
    if let Some(first) = key.first_chunk() {
        return Some(u128::from_be_bytes(*first));
    }
    let (first, last) = (key.first_chunk()?, key.last_chunk()?);
    let first = u128::from(u64::from_be_bytes(*first)) << 64;
    // The last eight, of which some are among the first eight.
    let rest = u128::from(u64::from_be_bytes(*last)) << (8 * (16 - key.len()));
    Some(first | rest & u128::from(u64::MAX))
}

/// The four bytes of a key from a place on, zeros behind its end.
fn head(key: &[u8], from: u16) -> u32 {
    let rest = key.get(from.into()..).unwrap_or_default();
    if let Some(head) = rest.first_chunk() {
        return u32::from_be_bytes(*head);
    }
    let mut head = [0; 4];
    head[..rest.len()].copy_from_slice(rest);
    u32::from_be_bytes(head)
}

/// How many bytes two keys begin with alike.
fn alike(a: &[u8], b: &[u8]) -> u16 {
    a.iter().zip(b).take_while(|(a, b)| a == b).count() as u16
}

impl Leaf {
    const fn len(&self) -> usize {
        self.places.len()
    }

    /// Where a row begins; the end of all behind the last one.
    fn start(&self, at: usize) -> usize {
        self.places.get(at).map_or(self.bytes.len(), |place| place.start as usize)
    }

    fn row(&self, at: usize) -> Row<'_> {
        let (length, rest) = self.bytes[self.start(at)..self.start(at + 1)]
            .split_first_chunk()
            .expect("a row begins with the length of its key");
        let (key, entry) = rest.split_at(u16::from_le_bytes(*length).into());
        Row { key, entry }
    }

    /// Where a key is, or would be.
    fn place_of(&self, key: &[u8]) -> Result<usize, usize> {
        let wanted = head(key, self.shared);
        let mut at = self.places.partition_point(|place| place.head < wanted);
        while self.places.get(at).is_some_and(|place| place.head == wanted) {
            match self.row(at).key.cmp(key) {
                Ordering::Less => at += 1,
                Ordering::Equal => return Ok(at),
                Ordering::Greater => break,
            }
        }
        if self.len() == 0 {
            return Err(0);
        }
        // Heads tell nothing of a key that does not begin as all do.
        let shared = usize::from(self.shared);
        match key[..shared.min(key.len())].cmp(&self.row(0).key[..shared]) {
            Ordering::Less => Err(0),
            Ordering::Equal => Err(at),
            Ordering::Greater => Err(self.len()),
        }
    }

    /// Asks for the row of a key.
    fn fetch(&self, key: &[u8]) {
        let wanted = head(key, self.shared);
        let at = self.places.partition_point(|place| place.head < wanted);
        prefetch(&self.bytes[self.start(at)..self.start(at + 1)]);
    }

    /// Has all heads begin where keys may differ.
    fn share(&mut self, bytes: u16) {
        self.shared = bytes;
        for at in 0..self.len() {
            self.places[at].head = head(self.row(at).key, bytes);
        }
    }

    /// The same for all bytes that the first and the last key begin with alike.
    fn share_all(&mut self) {
        if let Some(last) = self.len().checked_sub(1) {
            self.share(alike(self.row(0).key, self.row(last).key));
        }
    }

    /// Makes as much room at a row as a row takes, or none where it takes nothing, in the place of
    /// the rows up to another one.
    fn make_room(&mut self, at: usize, until: usize, bytes: usize) {
        let (from, end, len) = (self.start(at), self.start(until), self.bytes.len());
        let behind = from + bytes;
        if behind > end {
            let more = behind - end;
            if self.bytes.capacity() - len < more {
                self.bytes.reserve_exact(more + ROOM);
            }
            self.bytes.resize(len + more, 0);
            self.bytes.copy_within(end..len, behind);
        } else {
            self.bytes.copy_within(end..len, behind);
            self.bytes.truncate(len - (end - behind));
        }
        for place in &mut self.places[until..] {
            place.start = (place.start as usize + behind - end) as u32;
        }
    }

    /// Puts a row in where [`place_of`](Self::place_of) says.
    fn put(&mut self, place: Result<usize, usize>, row: Row<'_>) {
        let bytes = LENGTH_BYTES + row.key.len() + row.entry.len();
        let (Ok(at) | Err(at)) = place;
        if place.is_err() {
            let shared = match self.len() {
                0 => row.key.len() as u16,
                _ => self.shared.min(alike(self.row(0).key, row.key)),
            };
            if shared != self.shared {
                self.share(shared);
            }
        }
        let from = self.start(at);
        self.make_room(at, place.map_or(at, |at| at + 1), bytes);
        if place.is_err() {
            let (head, start) = (head(row.key, self.shared), from as u32);
            self.places.insert(at, Place { head, start });
        }
        let (length, rest) = self.bytes[from..from + bytes].split_at_mut(LENGTH_BYTES);
        length.copy_from_slice(&(row.key.len() as u16).to_le_bytes());
        rest[..row.key.len()].copy_from_slice(row.key);
        rest[row.key.len()..].copy_from_slice(row.entry);
    }

    fn remove(&mut self, at: usize) -> Entry {
        let old = self.row(at).entry();
        self.make_room(at, at + 1, 0);
        self.places.remove(at);
        old
    }

    /// The right part, if there are too many rows after one was put in at a place.
    fn split(&mut self, at: usize) -> Option<Self> {
        let mut places = split(&mut self.places, at)?;
        let from = places[0].start;
        places.iter_mut().for_each(|place| place.start -= from);
        let mut bytes = self.bytes.split_off(from as usize);
        bytes.reserve_exact(ROOM);
        self.bytes.shrink_to(self.bytes.len() + ROOM);
        let mut right = Self { places, bytes, shared: 0 };
        self.share_all();
        right.share_all();
        Some(right)
    }

    fn append(&mut self, right: &Self) {
        let from = self.bytes.len() as u32;
        let places = right.places.iter();
        self.places.extend(places.map(|place| Place { start: from + place.start, ..*place }));
        self.bytes.extend_from_slice(&right.bytes);
        self.share_all();
    }
}

impl Index {
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Entry> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(rows) => return rows.place_of(key).ok().map(|at| rows.row(at).entry()),
                Node::Branch(children) => node = &children[child_of(children, key)].1,
            }
        }
    }

    /// What many keys lead to, one after the other. Leaves and rows come from memory, so those of
    /// the next keys are asked for ahead.
    pub(crate) fn get_each<'a, 'k, K: Iterator<Item = &'k [u8]>>(
        &'a self,
        keys: K,
    ) -> impl Iterator<Item = Option<Entry>> + use<'a, 'k, K> {
        let (mut keys, mut ahead) = (keys, VecDeque::with_capacity(LEAVES_AHEAD + 1));
        let height = self.height();
        std::iter::from_fn(move || {
            while ahead.len() <= LEAVES_AHEAD
                && let Some(key) = keys.next()
            {
                let leaf = self.leaf_of(key, height);
                prefetch(std::slice::from_ref(leaf));
                ahead.push_back((key, leaf));
            }
            if let Some((_, Node::Leaf(leaf))) = ahead.get(PLACES_AHEAD) {
                prefetch(&leaf.places);
            }
            if let Some((key, Node::Leaf(leaf))) = ahead.get(ROWS_AHEAD) {
                leaf.fetch(key);
            }
            let (key, leaf) = ahead.pop_front()?;
            let Node::Leaf(rows) = leaf else { unreachable!("all leaves are at one depth") };
            Some(rows.place_of(key).ok().map(|at| rows.row(at).entry()))
        })
    }

    /// How many branches are above each leaf.
    fn height(&self) -> usize {
        let (mut height, mut node) = (0, &*self.root);
        while let Node::Branch(children) = node {
            (height, node) = (height + 1, &*children[0].1);
        }
        height
    }

    /// The leaf of a key, which is not read, below so many branches.
    fn leaf_of(&self, key: &[u8], height: usize) -> &Node {
        let mut node = &*self.root;
        for _ in 0..height {
            let Node::Branch(children) = node else { unreachable!("all leaves are at one depth") };
            node = &*children[child_of(children, key)].1;
        }
        node
    }

    /// Puts a row in, and answers what was there.
    pub(crate) fn insert(&mut self, key: &[u8], entry: &Entry) -> Option<Entry> {
        let mut bytes = SmallVec::<[u8; 64]>::new();
        put_entry(&mut bytes, entry);
        self.put(Row { key, entry: &bytes })
    }

    fn put(&mut self, row: Row<'_>) -> Option<Entry> {
        let mut old = None;
        if let Some(right) = Arc::make_mut(&mut self.root).insert(row, &mut old) {
            let left = std::mem::replace(&mut self.root, Arc::new(Node::Branch(Vec::new())));
            self.root = Arc::new(Node::Branch(vec![(Key::new(), left), right]));
        }
        self.len += u64::from(old.is_none());
        old
    }

    /// Puts a row in as [`insert`](Self::insert) does, without a search where its key is the last
    /// one. An opening puts the rows of stretches in so: it has taken no key beyond them yet.
    pub(crate) fn append(&mut self, row: Row<'_>) -> Option<Entry> {
        let mut node = &mut self.root;
        loop {
            match Arc::make_mut(node) {
                Node::Branch(children) => match children.last_mut() {
                    Some((_, last)) => node = last,
                    None => break,
                },
                Node::Leaf(rows) => {
                    let len = rows.len();
                    if len > 0 && len < WIDTH && rows.row(len - 1).key < row.key {
                        rows.put(Err(len), row);
                        self.len += 1;
                        return None;
                    }
                    break;
                }
            }
        }
        self.put(row)
    }

    /// Changes where a row lies. Answers whether there is one.
    pub(crate) fn update(&mut self, key: &[u8], change: impl FnOnce(&mut Entry)) -> bool {
        let mut node = &mut self.root;
        loop {
            match Arc::make_mut(node) {
                Node::Branch(children) => {
                    let at = child_of(children, key);
                    node = &mut children[at].1;
                }
                Node::Leaf(rows) => {
                    let Ok(at) = rows.place_of(key) else { return false };
                    let (mut entry, mut bytes) =
                        (rows.row(at).entry(), SmallVec::<[u8; 64]>::new());
                    change(&mut entry);
                    put_entry(&mut bytes, &entry);
                    rows.put(Ok(at), Row { key, entry: &bytes });
                    return true;
                }
            }
        }
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
        let mut above = Vec::new();
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let (Ok(at) | Err(at)) = leaf.place_of(key);
                    return Rows { above, leaf, at };
                }
                Node::Branch(children) => {
                    let at = child_of(children, key);
                    above.push(&children[at + 1..]);
                    node = &children[at].1;
                }
            }
        }
    }

    /// The keys between two, both excluded.
    pub(crate) fn between(&self, low: &[u8], high: &[u8]) -> Vec<Key> {
        let rows = self.from(low).map(|row| row.key).skip_while(|key| *key == low);
        rows.take_while(|key| *key < high).map(Key::from_slice).collect()
    }

    /// Bytes of memory, about.
    pub(crate) fn memory(&self) -> u64 {
        self.root.memory()
    }
}

impl Node {
    fn insert(&mut self, row: Row<'_>, old: &mut Option<Entry>) -> Option<(Key, Arc<Self>)> {
        match self {
            Self::Leaf(rows) => {
                let place = rows.place_of(row.key);
                *old = place.ok().map(|at| rows.row(at).entry());
                rows.put(place, row);
                let (Ok(at) | Err(at)) = place;
                let right = rows.split(at)?;
                Some((Key::from_slice(right.row(0).key), Arc::new(Self::Leaf(right))))
            }
            Self::Branch(children) => {
                let at = child_of(children, row.key);
                let right = Arc::make_mut(&mut children[at].1).insert(row, old)?;
                children.insert(at + 1, right);
                split(children, at + 1)
                    .map(|right| (right[0].0.clone(), Arc::new(Self::Branch(right))))
            }
        }
    }

    fn remove(&mut self, key: &[u8]) -> Option<Entry> {
        match self {
            Self::Leaf(rows) => {
                let at = rows.place_of(key).ok()?;
                Some(rows.remove(at))
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
                    (rows.places.capacity() * size_of::<Place>() + rows.bytes.capacity()) as u64
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
        (Node::Leaf(left), Node::Leaf(right)) => left.append(&right),
        (Node::Branch(left), Node::Branch(right)) => left.extend(right),
        _ => unreachable!("neighbours are of one height"),
    }
}

/// Rows in order of keys.
#[derive(Clone, Debug)]
pub(crate) struct Rows<'a> {
    above: Vec<&'a [(Key, Arc<Node>)]>,
    leaf: &'a Leaf,
    at: usize,
}

impl<'a> Iterator for Rows<'a> {
    type Item = Row<'a>;

    fn next(&mut self) -> Option<Row<'a>> {
        loop {
            if self.at < self.leaf.len() {
                self.at += 1;
                return Some(self.leaf.row(self.at - 1));
            }
            let children = self.above.last_mut()?;
            match children.split_off_first().map(|(_, child)| &**child) {
                None => drop(self.above.pop()),
                Some(Node::Leaf(leaf)) => (self.leaf, self.at) = (leaf, 0),
                Some(Node::Branch(below)) => self.above.push(below),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::{Index, Row};
    use crate::format::{Entry, Piece, Pieces, put_entry};

    /// Entries of one piece and of many, so that rows are of several lengths.
    fn entry(at: u32) -> Entry {
        let piece = Piece { segment: at / 3, at, len: 1 << (at % 20) };
        Entry { hash: at.into(), pieces: Pieces::from_elem(piece, 1 + at as usize % 9) }
    }

    fn append(index: &mut Index, key: &[u8], entry: &Entry) -> Option<Entry> {
        let mut bytes = Vec::new();
        put_entry(&mut bytes, entry);
        index.append(Row { key, entry: &bytes })
    }

    /// Keys of which eight begin one another, half of them behind a stretch that all share.
    fn key_of(number: u16) -> Vec<u8> {
        let (group, rest) = (number / 8, [7; 40]);
        let shared = [20; 9];
        let shared = if group % 256 < 128 { &shared[..] } else { &[] };
        [shared, &group.to_be_bytes(), &rest[..usize::from(number % 8) * 5]].concat()
    }

    proptest! {
        #[test]
        fn an_index_is_a_map_and_its_clones_stay(
            steps in vec((any::<u16>(), 0..6_u8), 1..3_000),
            start in 0..20_000_u16,
        ) {
            let (mut index, mut model) = (Index::default(), BTreeMap::new());
            let mut kept = Vec::new();
            for at in 0..start {
                append(&mut index, &key_of(at), &entry(0));
                model.insert(key_of(at), entry(0));
            }
            for (n, (number, what)) in steps.into_iter().enumerate() {
                let (key, new) = (key_of(number % 20_000), entry(n as u32));
                match what {
                    0 => prop_assert_eq!(index.insert(&key, &new), model.insert(key, new)),
                    1 => prop_assert_eq!(append(&mut index, &key, &new), model.insert(key, new)),
                    2 | 3 => prop_assert_eq!(index.remove(&key), model.remove(&key)),
                    4 => {
                        let change = |entry: &mut Entry| entry.pieces.extend(new.pieces);
                        let changed = model.get_mut(&key).map(change.clone());
                        prop_assert_eq!(index.update(&key, change), changed.is_some());
                    }
                    _ => prop_assert_eq!(index.get(&key), model.get(&key).cloned()),
                }
                if n % 700 == 0 {
                    kept.push((index.clone(), model.clone()));
                }
            }
            kept.push((index, model));
            let row = |row: Row<'_>| (row.key.to_vec(), row.entry());
            let cloned = |(key, entry): (&Vec<u8>, &Entry)| (key.clone(), entry.clone());
            for (index, model) in &kept {
                prop_assert_eq!(index.len(), model.len() as u64);
                prop_assert!(index.from(&[]).map(row).eq(model.iter().map(cloned)));
                let keys: Vec<_> = (0..20_000).step_by(7).map(key_of).collect();
                let expected = keys.iter().map(|key| model.get(key).cloned());
                prop_assert!(index.get_each(keys.iter().map(|key| &key[..])).eq(expected));
                let low = [&[20; 9][..], &[2]].concat();
                let since = model.range(low.clone()..).map(cloned);
                prop_assert!(index.from(&low).map(row).eq(since));
                let high = [&[20; 9][..], &[8]].concat();
                let bounds = (Bound::Excluded(low.clone()), Bound::Excluded(high.clone()));
                let between = index.between(&low, &high);
                let expected = model.range::<Vec<u8>, _>(bounds).map(|(key, _)| &key[..]);
                prop_assert!(between.iter().map(|key| &key[..]).eq(expected));
            }
        }
    }
}
