//! Roots of leaves that come sorted: no tree, no pages.

use std::{
    hint::black_box,
    sync::{Mutex, PoisonError},
};

use rayon::prelude::*;

use crate::error::{Refused, TreeError};
use crate::grow::{NO_EDGE, Reducer, SortedItem, What, end_position};
use crate::image::Codec;
use crate::scheme::{KEY_BYTES_MAX, Scheme, VALUE_BYTES_MAX, Weights};
use spinney_proof::digits::Width;

/// How many leaves one thread reduces at a time: few enough that they stay in its cache.
const CHUNK_LEAVES: usize = 1_024;
/// How much a builder holds back before it is reduced.
const HELD_LEAVES_MAX: usize = 64 * CHUNK_LEAVES;
const HELD_BYTES_MAX: usize = 16 << 20;

/// The root of the tree of `leaves`: keys and values, sorted by key, each key once.
///
/// All threads of the current rayon pool take part. Beside the leaves it needs memory for one chunk
/// of them a thread.
///
/// ```
/// use spinney_tree::{bulk, mpt::Mpt};
///
/// let leaves = [("doe", "reindeer"), ("dog", "puppy"), ("dogglesworth", "cat")];
/// let root = bulk::root_of_sorted(&Mpt, &leaves)?;
/// assert_eq!(root[..4], [0x8a, 0xad, 0x78, 0x9d]);
/// # Ok::<_, spinney_tree::TreeError>(())
/// ```
///
/// # Errors
/// If the keys are not in order, or the tree takes no such key, value, or neighbours of keys.
pub fn root_of_sorted<S, K, V>(scheme: &S, leaves: &[(K, V)]) -> Result<S::Root, TreeError>
where
    S: Scheme,
    K: AsRef<[u8]> + Sync,
    V: AsRef<[u8]> + Sync,
{
    let leaf = |index: usize| (leaves[index].0.as_ref(), leaves[index].1.as_ref());
    if S::Weights::MAX.is_some() {
        let weight = |leaf: &(_, V)| u128::from(S::Weights::of_value(leaf.1.as_ref()));
        weigh::<S>(leaves.iter().map(weight).sum())?;
    }
    let left = reduce_leaves(scheme, CHUNK_LEAVES, leaves.len(), (None, None), leaf)?;
    Ok(finish(scheme, &left))
}

/// Reduces leaves in chunks, on all threads: those from 0 to `count`, between two other keys.
fn reduce_leaves<'a, S: Scheme>(
    scheme: &S,
    chunk_leaves: usize,
    count: usize,
    (before, behind): (Option<&[u8]>, Option<&[u8]>),
    leaf: impl Fn(usize) -> (&'a [u8], &'a [u8]) + Sync,
) -> Result<Vec<SortedItem<'a, S::Commit>>, TreeError> {
    let reducers = Mutex::new(Vec::new());
    let chunk = |index: usize| {
        let (from, to) = (index * chunk_leaves, count.min((index + 1) * chunk_leaves));
        let mut tools: (Reducer<S>, Vec<SortedItem<'a, S::Commit>>) =
            reducers.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let (reducer, items) = &mut tools;
        items.clear();
        touch((from..to).map(&leaf));
        let mut last = if from == 0 { before } else { Some(leaf(from - 1).0) };
        for index in from..to {
            let (key, value) = leaf(index);
            let edge = check(scheme, last, key, value)?;
            items.push(SortedItem { key, edge, what: What::Leaf(value) });
            last = Some(key);
        }
        let next = if to == count { behind } else { Some(leaf(to).0) };
        let edge = match (last, next) {
            (Some(last), Some(next)) => check_order::<S>(last, next)?,
            _ => NO_EDGE,
        };
        let mut left = Vec::new();
        reducer.reduce(scheme, items, edge, &mut left);
        reducers.lock().unwrap_or_else(PoisonError::into_inner).push(tools);
        Ok(left)
    };
    let parts: Result<Vec<_>, TreeError> =
        (0..count.div_ceil(chunk_leaves)).into_par_iter().map(chunk).collect();
    Ok(parts?.into_iter().flatten().collect())
}

/// Asks for the memory of all leaves at once, where they would be waited for one after another.
fn touch<'a>(leaves: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
    let ends = |bytes: &[u8]| match *bytes {
        [first, .., last] => first ^ last,
        _ => 0,
    };
    black_box(leaves.fold(0, |all, (key, value)| all ^ ends(key) ^ ends(value)));
}

/// Refuses leaves that weigh more than the tree takes.
pub(crate) const fn weigh<S: Scheme>(weight: u128) -> Result<(), TreeError> {
    match S::Weights::MAX {
        Some(limit) if weight > limit as u128 => {
            Err(TreeError::Overweight { batch: false, weight, limit })
        }
        _ => Ok(()),
    }
}

fn finish<S: Scheme>(scheme: &S, items: &[SortedItem<'_, S::Commit>]) -> S::Root {
    let mut left = Vec::new();
    Reducer::<S>::default().reduce(scheme, items, NO_EDGE, &mut left);
    match &left[..] {
        [] => scheme.root(None),
        [SortedItem { what: What::Done(commit), .. }] => scheme.root(Some(commit)),
        _ => unreachable!("with nothing at either side all items reduce to one"),
    }
}

/// Checks a leaf and its place; answers its edge.
pub(crate) fn check<S: Scheme>(
    scheme: &S,
    before: Option<&[u8]>,
    key: &[u8],
    value: &[u8],
) -> Result<i32, TreeError> {
    if key.len() > KEY_BYTES_MAX {
        let (got, limit) = (key.len(), KEY_BYTES_MAX);
        return Err(TreeError::KeyTooLong { key: key.to_vec(), got, limit });
    }
    if value.len() > VALUE_BYTES_MAX {
        let (got, limit) = (value.len(), VALUE_BYTES_MAX);
        return Err(TreeError::ValueTooLong { key: key.to_vec(), got, limit });
    }
    let refused = |source| TreeError::Refused { key: key.to_vec(), source };
    if !scheme.admit(key, Some(value)).map_err(refused)? {
        return Err(refused(Refused::Value("it means a deletion, and there is nothing to delete")));
    }
    let edge = match before {
        Some(before) => check_order::<S>(before, key)?,
        None => NO_EDGE,
    };
    if let Some(owner) = S::LAYOUT.owner
        && !owner.implicit
        && key.len() > owner.bytes
        && edge < 2 * (owner.bytes * Codec::<S>::WIDTH.per_byte()) as i32 - 1
    {
        return Err(TreeError::Ownerless { key: key.to_vec(), owner_bytes: owner.bytes });
    }
    Ok(edge)
}

/// The edge between two keys that follow one another.
pub(crate) fn check_order<S: Scheme>(before: &[u8], key: &[u8]) -> Result<i32, TreeError> {
    let width: Width = Codec::<S>::WIDTH;
    // Keys like digests differ within eight bytes.
    if let (Some(a), Some(b)) = (before.first_chunk::<8>(), key.first_chunk::<8>()) {
        let (a, b) = (u64::from_be_bytes(*a), u64::from_be_bytes(*b));
        if a < b {
            return Ok(2 * ((a ^ b).leading_zeros() as usize / width.bits()) as i32);
        }
    }
    let (first, second) = (width.count(before), width.count(key));
    let shared = width.common(before, key, 0, first.min(second));
    let ordered = shared < second
        && (shared == first || width.digit(before, shared) < width.digit(key, shared));
    if !ordered {
        return Err(TreeError::Unsorted { before: before.to_vec(), key: key.to_vec() });
    }
    if shared < first {
        return Ok(2 * shared as i32);
    }
    if !S::LAYOUT.prefix_keys && S::LAYOUT.owner.is_none_or(|owner| owner.bytes != before.len()) {
        return Err(TreeError::PrefixKey { prefix: before.to_vec(), key: key.to_vec() });
    }
    Ok(end_position::<S>(before))
}

/// The root of leaves that come one by one, sorted by key, in bounded memory: however many there
/// are, it holds back 65,536 of them or 16 MiB, and what is open at the right edge of the tree.
///
/// ```
/// use spinney_tree::{bulk::RootBuilder, mpt::Mpt};
///
/// let mut builder = RootBuilder::new(Mpt);
/// for (key, value) in [("doe", "reindeer"), ("dog", "puppy"), ("dogglesworth", "cat")] {
///     builder.push(key.as_bytes(), value.as_bytes())?;
/// }
/// assert_eq!(builder.finish()?[..4], [0x8a, 0xad, 0x78, 0x9d]);
/// # Ok::<_, spinney_tree::TreeError>(())
/// ```
#[derive(Debug)]
pub struct RootBuilder<S: Scheme> {
    scheme: S,
    bytes: Vec<u8>,
    /// Where the key and the value of each leaf held back end in `bytes`.
    ends: Vec<(usize, usize)>,
    /// The key before those held back.
    before: Option<Vec<u8>>,
    left: Vec<Left<S::Commit>>,
    sizes: Sizes,
    /// How many items were left by the last reduction of `left` itself.
    left_least: usize,
    /// What the leaves so far weigh.
    weight: u128,
}

/// How much a builder takes at a time.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    held: usize,
    chunk: usize,
}

/// An item that outlives its leaves.
#[derive(Debug)]
struct Left<C> {
    key: Vec<u8>,
    edge: i32,
    what: Result<C, Vec<u8>>,
}

impl<S: Scheme> RootBuilder<S> {
    /// No leaves yet.
    pub fn new(scheme: S) -> Self {
        let (bytes, ends, left) = (Vec::new(), Vec::new(), Vec::new());
        let sizes = Sizes { held: HELD_LEAVES_MAX, chunk: CHUNK_LEAVES };
        Self { scheme, bytes, ends, before: None, left, sizes, left_least: 0, weight: 0 }
    }

    /// Takes the next leaf.
    ///
    /// # Errors
    /// If it is not behind the leaf before it, or the tree takes no such leaf. That may show only
    /// when later leaves come, or at the end; the builder is of no more use then.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        if self.ends.len() >= self.sizes.held || self.bytes.len() >= HELD_BYTES_MAX {
            self.reduce(Some(key))?;
        }
        self.weight += u128::from(S::Weights::of_value(value));
        weigh::<S>(self.weight)?;
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
        Ok(())
    }

    /// The root of all leaves.
    ///
    /// # Errors
    /// If the last leaves are out of order, or the tree takes no such leaves.
    pub fn finish(mut self) -> Result<S::Root, TreeError> {
        self.reduce(None)?;
        let items: Vec<_> = self.left.iter().map(Left::item).collect();
        Ok(finish(&self.scheme, &items))
    }

    fn leaf(&self, index: usize) -> (&[u8], &[u8]) {
        let from = if index == 0 { 0 } else { self.ends[index - 1].1 };
        let (key_end, end) = self.ends[index];
        (&self.bytes[from..key_end], &self.bytes[key_end..end])
    }

    /// Reduces the leaves held back; `next` is the key behind them.
    fn reduce(&mut self, next: Option<&[u8]>) -> Result<(), TreeError> {
        let Some(last) = self.ends.len().checked_sub(1) else { return Ok(()) };
        let before = self.before.as_deref();
        let items = reduce_leaves(
            &self.scheme,
            self.sizes.chunk,
            self.ends.len(),
            (before, next),
            |index| self.leaf(index),
        )?;
        let mut left: Vec<_> = items.iter().map(Left::of).collect();
        let last = self.leaf(last).0.to_vec();
        self.left.append(&mut left);
        if let Some(next) = next
            && self.left.len() > 2 * self.left_least + self.sizes.chunk
        {
            let edge = check_order::<S>(&last, next)?;
            let items: Vec<_> = self.left.iter().map(Left::item).collect();
            let mut fewer = Vec::new();
            Reducer::<S>::default().reduce(&self.scheme, &items, edge, &mut fewer);
            let fewer: Vec<_> = fewer.iter().map(Left::of).collect();
            self.left_least = fewer.len();
            self.left = fewer;
        }
        self.before = Some(last);
        self.bytes.clear();
        self.ends.clear();
        Ok(())
    }
}

impl<C: Copy> Left<C> {
    fn of(item: &SortedItem<'_, C>) -> Self {
        let what = match item.what {
            What::Leaf(value) => Err(value.to_vec()),
            What::Done(commit) => Ok(commit),
        };
        Self { key: item.key.to_vec(), edge: item.edge, what }
    }

    fn item(&self) -> SortedItem<'_, C> {
        let what = match &self.what {
            Err(value) => What::Leaf(value),
            Ok(commit) => What::Done(*commit),
        };
        SortedItem { key: &self.key, edge: self.edge, what }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::mpt::{Mpt, MptState, account_value, reference, slot_value};
    use crate::ubt::{self, Ubt};
    use crate::{Batch, HashFunction, MemoryStore, PageStore, Tree, TreeId};

    type Leaves = BTreeMap<Vec<u8>, Vec<u8>>;

    fn streamed<S: Scheme>(scheme: S, leaves: &Leaves, sizes: Sizes) -> S::Root {
        let mut builder = RootBuilder { sizes, ..RootBuilder::new(scheme) };
        for (key, value) in leaves {
            builder.push(key, value).unwrap();
        }
        builder.finish().unwrap()
    }

    fn whole<S: Scheme>(scheme: &S, leaves: &Leaves) -> S::Root {
        root_of_sorted(scheme, &leaves.iter().collect::<Vec<_>>()).unwrap()
    }

    /// Keys that share prefixes, and begin one another.
    fn raw() -> impl Strategy<Value = Leaves> {
        let byte = prop::sample::select(vec![0x00u8, 0x01, 0x10, 0x11, 0xff]);
        let key = prop_oneof![
            prop::collection::vec(byte.clone(), 0..5),
            (byte.clone(), byte).prop_map(|(a, b)| vec![a, 7, 7, 7, b]),
            any::<[u8; 4]>().prop_map(|key| key.to_vec()),
        ];
        let value = prop_oneof![Just(vec![1]), prop::collection::vec(any::<u8>(), 1..80)];
        prop::collection::btree_map(key, value, 0..60)
    }

    fn state() -> impl Strategy<Value = Leaves> {
        let digest =
            prop::sample::select(vec![0x00u8, 0x01, 0x10, 0x11, 0xff]).prop_flat_map(|a| {
                (any::<bool>(), 0u8..3).prop_map(move |(deep, b)| {
                    let mut key = [0x5a; 32];
                    (key[0], key[if deep { 31 } else { 1 }]) = (a, b);
                    key
                })
            });
        let slots = prop::collection::btree_map(digest.clone(), 1u8..9, 0..6);
        let accounts = prop::collection::btree_map(digest, (any::<u64>(), slots), 0..12);
        accounts.prop_map(|accounts| {
            let mut leaves = Leaves::new();
            for (key, (nonce, slots)) in accounts {
                leaves.insert(key.to_vec(), account_value(nonce, &[1; 32], &[2; 32]));
                for (slot, value) in slots {
                    let mut word = [0; 32];
                    word[31] = value;
                    leaves.insert([key, slot].concat(), slot_value(&word));
                }
            }
            leaves
        })
    }

    fn sizes() -> impl Strategy<Value = Sizes> {
        (1usize..40, 1usize..9).prop_map(|(held, chunk)| Sizes { held, chunk })
    }

    proptest! {
        #[test]
        fn any_leaves_have_the_textbooks_root(leaves in raw(), sizes in sizes()) {
            let expected = reference::root(&leaves);
            prop_assert_eq!(whole(&Mpt, &leaves), expected);
            prop_assert_eq!(streamed(Mpt, &leaves, sizes), expected);
        }

        #[test]
        fn any_state_has_the_trees_root(leaves in state(), sizes in sizes()) {
            let store = MemoryStore::new();
            let snapshot = store.snapshot().unwrap();
            let tree = Tree::open(MptState, TreeId(1), &snapshot, 1 << 20).unwrap();
            let mut batch = Batch::new();
            for (key, value) in &leaves {
                batch.put(key, value);
            }
            let expected = tree.prepare(&snapshot, None, batch).unwrap().root();
            prop_assert_eq!(whole(&MptState, &leaves), expected);
            prop_assert_eq!(streamed(MptState, &leaves, sizes), expected);
        }
    }

    /// Few stems, so that pieces end within them.
    fn stems() -> impl Strategy<Value = Leaves> {
        let stem = prop::sample::select(vec![0x00u8, 0x01, 0x10, 0x80]);
        let key = (stem.clone(), stem, any::<u8>()).prop_map(|(a, b, place)| {
            let mut key = vec![0x5a; 32];
            (key[0], key[30], key[31]) = (a, b, place);
            key
        });
        prop::collection::btree_map(key, any::<u8>().prop_map(|byte| vec![byte; 32]), 0..80)
    }

    proptest! {
        #[test]
        fn any_stems_have_the_textbooks_root(leaves in stems(), sizes in sizes()) {
            let ubt = Ubt { hash: HashFunction::Blake3 };
            let word = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).unwrap();
            let entries = leaves.iter().map(|(key, value)| (word(key), word(value))).collect();
            let expected = ubt::reference::root(ubt.hash, &entries);
            prop_assert_eq!(whole(&ubt, &leaves), expected);
            prop_assert_eq!(streamed(ubt, &leaves, sizes), expected);
        }
    }

    #[test]
    fn what_is_out_of_order_or_without_an_owner_is_refused() {
        let root = |keys: &[&str]| {
            root_of_sorted(&Mpt, &keys.iter().map(|key| (*key, "value")).collect::<Vec<_>>())
        };
        assert!(root(&["a", "ab", "b"]).is_ok());
        for keys in [&["b", "a"][..], &["a", "a"], &["ab", "a"]] {
            assert!(matches!(root(keys), Err(TreeError::Unsorted { .. })), "{keys:?}");
        }
        let slots = [(vec![7; 64], vec![1])];
        let lone = root_of_sorted(&MptState, &slots);
        assert!(matches!(lone, Err(TreeError::Ownerless { .. })));
        let empty = root_of_sorted(&Mpt, &[("a", "")]);
        assert!(matches!(empty, Err(TreeError::Refused { .. })));
    }
}
