//! Where two tries differ, found from their roots down while their nodes become known.
//!
//! Only nodes on paths to what differs are asked for: what both tries hold under one digest is
//! passed over. What differs comes in order of keys.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloc::vec::Vec;
use core::fmt;

use super::partial::{NodeSource, PartialError, Tree};

/// One of two tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there are two")]
pub enum Which {
    /// The first.
    Left,
    /// The second.
    Right,
}

/// A key under which two tries hold different values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a key and two values are all there is")]
pub struct Difference {
    /// The key.
    pub key: [u8; 32],
    /// What the first trie holds; `None` where it holds nothing.
    pub left: Option<Vec<u8>>,
    /// What the second holds.
    pub right: Option<Vec<u8>>,
}

/// Why two tries could not be compared any further.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a side and what is wrong there")]
pub struct SideError {
    /// The trie that has the node.
    pub side: Which,
    /// What is wrong with it.
    pub error: PartialError,
}

impl fmt::Display for SideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Which::Left => "first",
            Which::Right => "second",
        };
        write!(f, "the {side} trie: {}", self.error)
    }
}

impl core::error::Error for SideError {}

/// A comparison of two tries over keys of 32 bytes.
///
/// ```
/// use spinney_proof::mpt::differences::{Differences, Which};
/// use spinney_proof::mpt::EMPTY_ROOT;
/// use spinney_proof::mpt::partial::{NodeSource, PartialError};
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
/// let mut same = Differences::between([7; 32], [7; 32]);
/// assert_eq!(same.advance(&Nothing, &Nothing), Ok(None));
/// // Whoever compares gets the node that is missing, and goes on.
/// let mut others = Differences::between(EMPTY_ROOT, [7; 32]);
/// let error = others.advance(&Nothing, &Nothing).unwrap_err();
/// assert_eq!(error.side, Which::Right);
/// assert!(matches!(error.error, PartialError::Missing(node) if node.digest == [7; 32]));
/// assert_eq!(others.pass_over(), Some(vec![]));
/// ```
#[derive(Clone, Debug)]
pub struct Differences {
    /// Places that were not compared, the next one last.
    open: Vec<Pair>,
}

/// What both tries hold at the same digits.
#[derive(Clone, Debug)]
struct Pair {
    path: Vec<u8>,
    left: Tree,
    right: Tree,
}

impl Differences {
    /// Compares the tries with these roots.
    pub fn between(left: [u8; 32], right: [u8; 32]) -> Self {
        let (left, right) = (Tree::below(left), Tree::below(right));
        Self { open: [Pair { path: Vec::new(), left, right }].into() }
    }

    /// The next key under which the tries differ; `None` once there is no other.
    ///
    /// # Errors
    /// A node is missing, or malformed. The comparison stays where it is: it goes on as soon as
    /// the source has the node, or where the place is [passed over](Self::pass_over).
    pub fn advance(
        &mut self,
        left: &impl NodeSource,
        right: &impl NodeSource,
    ) -> Result<Option<Difference>, SideError> {
        while let Some(mut place) = self.open.pop() {
            if place.left == place.right {
                continue;
            }
            if let Err(error) = place.look(left, right) {
                self.open.push(place);
                return Err(error);
            }
            // Two nodes with different digests may hold the same only where one is malformed.
            if place.left == place.right {
                continue;
            }
            match place.leaf() {
                Some(found) => return Ok(Some(found)),
                None => place.split(&mut self.open),
            }
        }
        Ok(None)
    }

    /// Leaves out the place where a node is missing, and answers the digits that lead there, one a
    /// byte; `None` where nothing is left to compare.
    pub fn pass_over(&mut self) -> Option<Vec<u8>> {
        self.open.pop().map(|place| place.path)
    }
}

impl Pair {
    fn look(&mut self, left: &impl NodeSource, right: &impl NodeSource) -> Result<(), SideError> {
        let on = |side| move |error| SideError { side, error };
        self.left.open(left, &self.path).map_err(on(Which::Left))?;
        self.right.open(right, &self.path).map_err(on(Which::Right))
    }

    /// The key that is left to compare here, if it is only one.
    fn leaf(&self) -> Option<Difference> {
        let (rest, left, right) = match (&self.left, &self.right) {
            (Tree::Leaf(rest, left), Tree::Empty) => (rest, Some(left), None),
            (Tree::Empty, Tree::Leaf(rest, right)) => (rest, None, Some(right)),
            (Tree::Leaf(rest, left), Tree::Leaf(other, right)) if rest == other => {
                (rest, Some(left), Some(right))
            }
            _ => return None,
        };
        let digits = [&self.path[..], rest].concat();
        let mut key = [0; 32];
        for (byte, pair) in key.iter_mut().zip(digits.as_chunks::<2>().0) {
            let [high, low] = pair;
            *byte = high << 4 | low;
        }
        Some(Difference { key, left: left.cloned(), right: right.cloned() })
    }

    /// Puts the places one digit below on the list, those of low digits last.
    fn split(mut self, open: &mut Vec<Self>) {
        for digit in (0..16).rev() {
            let (left, right) = (below(&mut self.left, digit), below(&mut self.right, digit));
            if left != right {
                let path = [&self.path[..], &[digit]].concat();
                open.push(Self { path, left, right });
            }
        }
    }
}

/// Takes what a node that was looked into has below a digit.
fn below(node: &mut Tree, digit: u8) -> Tree {
    match node {
        Tree::Branch(children) => {
            children.get_mut(usize::from(digit)).map(core::mem::take).unwrap_or_default()
        }
        Tree::Leaf(rest, value) if rest.first() == Some(&digit) => {
            Tree::Leaf(rest.split_off(1), core::mem::take(value))
        }
        Tree::Extension(rest, child) if rest.first() == Some(&digit) => {
            let child = core::mem::take(&mut **child);
            match rest.split_off(1) {
                rest if rest.is_empty() => child,
                rest => Tree::Extension(rest, child.into()),
            }
        }
        _ => Tree::Empty,
    }
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "numbers of tests are small")]
mod tests {
    use alloc::collections::BTreeMap;
    use alloc::vec;
    use alloc::vec::Vec;
    use core::cell::Cell;

    use spinney_hash::keccak256;

    use super::super::build::top_node;
    use super::super::node::nibble;
    use super::{Difference, Differences, NodeSource, PartialError};
    use crate::mpt::EMPTY_ROOT;

    type Entries = BTreeMap<[u8; 32], Vec<u8>>;

    /// A trie whose nodes are made when they are asked for.
    struct Trie {
        entries: Entries,
        asked: Cell<usize>,
        /// Nothing is known below these digits.
        hidden: Option<Vec<u8>>,
    }

    impl Trie {
        fn of(entries: &Entries) -> Self {
            Self { entries: entries.clone(), asked: Cell::new(0), hidden: None }
        }

        fn top(&self, path: &[u8]) -> Option<Vec<u8>> {
            let lies_below =
                |key: &[u8]| (0..).zip(path).all(|(at, digit)| nibble(key, at) == *digit);
            let below = self.entries.iter().filter(|(key, _)| lies_below(&key[..]));
            let below: Vec<_> = below.map(|(key, value)| (key.to_vec(), value.clone())).collect();
            top_node(&below, path.len())
        }

        fn root(&self) -> [u8; 32] {
            self.top(&[]).map_or(EMPTY_ROOT, |top| keccak256(&top))
        }
    }

    impl NodeSource for Trie {
        type Rlp = Vec<u8>;

        fn node(&self, digest: &[u8; 32], path: &[u8]) -> Option<Vec<u8>> {
            if self.hidden.as_ref().is_some_and(|hidden| path.starts_with(hidden)) {
                return None;
            }
            self.asked.set(self.asked.get() + 1);
            self.top(path).filter(|node| keccak256(node) == *digest)
        }
    }

    fn differences(left: &Entries, right: &Entries) -> Vec<Difference> {
        let keys = left.keys().chain(right.keys());
        let mut keys: Vec<_> = keys.filter(|key| left.get(*key) != right.get(*key)).collect();
        keys.sort();
        keys.dedup();
        let difference = |key: &[u8; 32]| Difference {
            key: *key,
            left: left.get(key).cloned(),
            right: right.get(key).cloned(),
        };
        keys.into_iter().map(difference).collect()
    }

    fn found(left: &Trie, right: &Trie) -> Vec<Difference> {
        let mut walk = Differences::between(left.root(), right.root());
        let next = || walk.advance(left, right).unwrap();
        core::iter::from_fn(next).collect()
    }

    /// Numbers as good as random ones.
    fn numbers(mut seed: u64) -> impl FnMut() -> u64 {
        move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        }
    }

    /// Keys that share few digits or many, values that are embedded and those that are not.
    fn entry(next: &mut impl FnMut() -> u64) -> ([u8; 32], Vec<u8>) {
        let mut key = [0; 32];
        let from = [0, 1, 2, 30, 31][(next() % 5) as usize];
        key[from..].fill_with(|| (next() % 3 * 17) as u8);
        let len = if next().is_multiple_of(2) { 1 } else { 40 };
        (key, vec![1 + (next() % 4) as u8; len])
    }

    #[test]
    fn all_differences_of_random_tries_are_found_in_order() {
        let mut next = numbers(0x5eed);
        let mut count = 0;
        for _ in 0..2_000 {
            let size = next() % 24;
            let left: Entries = (0..size).map(|_| entry(&mut next)).collect();
            let mut right = left.clone();
            for _ in 0..next() % 4 {
                let (key, value) = entry(&mut next);
                let old = left.keys().nth((next() % (size + 1)) as usize);
                match (next() % 3, old) {
                    (0, Some(old)) => drop(right.remove(old)),
                    (1, Some(old)) => drop(right.insert(*old, value)),
                    _ => drop(right.insert(key, value)),
                }
            }
            let expected = differences(&left, &right);
            count += expected.len();
            assert_eq!(found(&Trie::of(&left), &Trie::of(&right)), expected);
        }
        assert!(count > 1_000, "{count}");
    }

    #[test]
    fn what_is_the_same_is_not_asked_for() {
        let mut next = numbers(7);
        let key = |next: &mut dyn FnMut() -> u64| core::array::from_fn(|_| next() as u8);
        let left: Entries = (0..2_000).map(|_| (key(&mut next), vec![1; 40])).collect();
        let mut right = left.clone();
        *right.values_mut().nth(1_234).unwrap() = vec![2; 40];
        let (left, right) = (Trie::of(&left), Trie::of(&right));
        assert_eq!(found(&left, &right).len(), 1);
        assert!(left.asked.get() <= 6, "{}", left.asked.get());
        assert_eq!(left.asked, right.asked);
    }

    #[test]
    fn what_is_not_known_is_passed_over() {
        let left: Entries = (0..=255).map(|first| ([first; 32], vec![1; 40])).collect();
        let mut right = left.clone();
        for first in [0x12, 0x34, 0x35, 0x77] {
            right.insert([first; 32], vec![2; 40]);
        }
        let (left, mut right) = (Trie::of(&left), Trie::of(&right));
        right.hidden = Some(vec![3]);
        let mut walk = Differences::between(left.root(), right.root());
        let first = walk.advance(&left, &right).unwrap().unwrap();
        assert_eq!(first.key, [0x12; 32]);
        for _ in 0..2 {
            let error = walk.advance(&left, &right).unwrap_err();
            assert!(matches!(error.error, PartialError::Missing(node) if node.path == [3]));
        }
        assert_eq!(walk.pass_over(), Some(vec![3]));
        let last = walk.advance(&left, &right).unwrap().unwrap();
        assert_eq!(last.key, [0x77; 32]);
        assert_eq!(walk.advance(&left, &right), Ok(None));
        assert_eq!(walk.pass_over(), None);
    }

    #[test]
    fn nodes_that_no_trie_has_are_refused() {
        struct Says(&'static [u8]);
        impl NodeSource for Says {
            type Rlp = &'static [u8];

            fn node(&self, _: &[u8; 32], _: &[u8]) -> Option<&'static [u8]> {
                Some(self.0)
            }
        }
        for bytes in [&b""[..], &[0xc0], &[0x80], &[0xc2, 0x20, 1], &[0xff; 40]] {
            let mut walk = Differences::between([1; 32], EMPTY_ROOT);
            let error = walk.advance(&Says(bytes), &Says(bytes)).unwrap_err();
            assert!(matches!(error.error, PartialError::Malformed { .. }), "{error}");
        }
    }
}
