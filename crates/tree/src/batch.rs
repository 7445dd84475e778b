//! Operations to apply as one.

use crate::error::TreeError;
use crate::scheme::{KEY_BYTES_MAX, Scheme, VALUE_BYTES_MAX};
use spinney_proof::digits::Width;

/// What a batch's keys and values may take together.
const BATCH_BYTES_MAX: usize = 1 << 31;

/// A stretch of bytes: of a batch's, or of an arena's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl Span {
    pub(crate) const EMPTY: Self = Self { at: 0, len: 0 };

    pub(crate) fn new(at: usize, len: usize) -> Self {
        let fit = |n| u32::try_from(n).expect("a batch's bytes are bounded below 4 GiB");
        Self { at: fit(at), len: fit(len) }
    }

    pub(crate) const fn range(self) -> std::ops::Range<usize> {
        self.at as usize..(self.at + self.len) as usize
    }
}

/// Puts, deletions and prefix deletions to apply as one, in any order: the engine sorts them.
///
/// Prefix deletions take effect first; puts under a deleted prefix then stand. Two operations on
/// one key are an error.
///
/// ```
/// let mut batch = spinney_tree::Batch::new();
/// batch.put(b"doe", b"reindeer");
/// batch.delete(b"dog");
/// batch.delete_prefix(b"cat");
/// assert_eq!(batch.len(), 3);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    ops: Vec<Op>,
}

/// An operation of a batch that was applied: see
/// [`Pending::operations`](crate::Pending::operations).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The key got the value.
    Put(&'a [u8], &'a [u8]),
    /// The key went, if it was there.
    Delete(&'a [u8]),
    /// All keys went that begin so.
    DeletePrefix(&'a [u8]),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    /// The first eight bytes of the key, zeros behind a shorter one: nearly always enough to sort
    /// by.
    first: u64,
    pub(crate) key: Span,
    pub(crate) kind: OpKind,
}

impl Op {
    /// The operation itself; `bytes` are those of the batch.
    pub(crate) fn show<'a>(&self, bytes: &'a [u8]) -> Operation<'a> {
        let key = &bytes[self.key.range()];
        match self.kind {
            OpKind::Clear => Operation::DeletePrefix(key),
            OpKind::Put(value) => Operation::Put(key, &bytes[value.range()]),
            OpKind::Delete => Operation::Delete(key),
        }
    }

    /// The digit of the key at `index`; `bytes` are those of the batch.
    pub(crate) fn digit(&self, bytes: &[u8], index: usize, width: Width) -> u8 {
        let bit = index * width.bits();
        if bit < 64 {
            // No way to the key itself.
            return (self.first >> (64 - width.bits() - bit)) as u8 & width.mask();
        }
        width.digit(&bytes[self.key.range()], index)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    /// Remove everything under the key.
    Clear,
    Put(Span),
    Delete,
}

impl Batch {
    /// A batch without operations.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), ops: Vec::new() }
    }

    /// Sets a key. Where the tree says so, an empty value deletes it.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        let span = self.push(key);
        let value = self.push(value);
        self.ops.push(Op { first: first(key), key: span, kind: OpKind::Put(value) });
    }

    /// Removes a key; one that is absent is no error.
    pub fn delete(&mut self, key: &[u8]) {
        let span = self.push(key);
        self.ops.push(Op { first: first(key), key: span, kind: OpKind::Delete });
    }

    /// Removes all keys that begin with `prefix`, the key `prefix` itself included.
    pub fn delete_prefix(&mut self, prefix: &[u8]) {
        let span = self.push(prefix);
        self.ops.push(Op { first: first(prefix), key: span, kind: OpKind::Clear });
    }

    /// The number of operations.
    pub const fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there are no operations.
    pub const fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Forgets the operations and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ops.clear();
    }

    fn push(&mut self, bytes: &[u8]) -> Span {
        // Saturating: what does not fit is refused as a whole in `sort`.
        let at = self.bytes.len();
        if at <= BATCH_BYTES_MAX {
            self.bytes.extend_from_slice(bytes);
        }
        Span::new(at.min(BATCH_BYTES_MAX), bytes.len().min(BATCH_BYTES_MAX))
    }

    /// Checks the operations against the scheme and sorts them by path.
    pub(crate) fn sort<S: Scheme>(&mut self, scheme: &S) -> Result<(), TreeError> {
        if self.bytes.len() > BATCH_BYTES_MAX {
            return Err(TreeError::BatchTooLarge { got: self.bytes.len(), limit: BATCH_BYTES_MAX });
        }
        let bytes = &self.bytes;
        for op in &mut self.ops {
            admit(scheme, bytes, op)?;
        }
        // A prefix sorts before what it begins; clears of a key go first.
        let rest = |op: &Op| (&bytes[op.key.range()], op.kind != OpKind::Clear);
        let order = |a: &Op, b: &Op| a.first.cmp(&b.first).then_with(|| rest(a).cmp(&rest(b)));
        if !self.ops.is_sorted_by(|a, b| order(a, b).is_lt()) {
            self.ops.sort_unstable_by_key(|op| op.first);
            for alike in self.ops.chunk_by_mut(|a, b| a.first == b.first) {
                sort_alike(alike, bytes);
            }
            let same = |pair: &&[Op]| order(&pair[0], &pair[1]).is_eq();
            if let Some(pair) = self.ops.windows(2).find(same) {
                return Err(TreeError::Duplicate { key: bytes[pair[0].key.range()].to_vec() });
            }
        }
        Ok(())
    }

    /// Hands over bytes and operations, for other memory to be used from now on.
    pub(crate) fn swap(&mut self, bytes: &mut Vec<u8>, ops: &mut Vec<Op>) {
        std::mem::swap(&mut self.bytes, bytes);
        std::mem::swap(&mut self.ops, ops);
    }
}

/// Sorts operations whose keys begin alike: those of an account's slots have its path in common.
/// Where they are many, the bytes behind that are taken out of the keys once, and not whenever two
/// are compared.
fn sort_alike(ops: &mut [Op], bytes: &[u8]) {
    /// So many are sorted by their whole keys.
    const FEW: usize = 16;
    let key = |op: &Op| &bytes[op.key.range()];
    let [head, tail @ ..] = &*ops else { return };
    if tail.len() < FEW {
        return ops.sort_unstable_by_key(|op| (key(op), op.kind != OpKind::Clear));
    }
    let common = tail.iter().fold(key(head).len(), |common, op| {
        let pairs = key(head)[..common].iter().zip(key(op));
        pairs.take_while(|(a, b)| a == b).count()
    });
    let saved = head.first;
    for op in &mut *ops {
        op.first = first(&bytes[op.key.range()][common..]);
    }
    let rest = |op: &Op| (&bytes[op.key.range()], op.kind != OpKind::Clear);
    ops.sort_unstable_by(|a, b| a.first.cmp(&b.first).then_with(|| rest(a).cmp(&rest(b))));
    ops.iter_mut().for_each(|op| op.first = saved);
}

fn first(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut first = [0; 8];
            first[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(first)
        }
    }
}

fn admit<S: Scheme>(scheme: &S, bytes: &[u8], op: &mut Op) -> Result<(), TreeError> {
    let key = &bytes[op.key.range()];
    if key.len() > KEY_BYTES_MAX {
        let (got, limit) = (key.len(), KEY_BYTES_MAX);
        return Err(TreeError::KeyTooLong { key: key.to_vec(), got, limit });
    }
    let value = match op.kind {
        OpKind::Clear => return Ok(()),
        OpKind::Put(value) => Some(&bytes[value.range()]),
        OpKind::Delete => None,
    };
    if let Some(value) = value
        && value.len() > VALUE_BYTES_MAX
    {
        let (got, limit) = (value.len(), VALUE_BYTES_MAX);
        return Err(TreeError::ValueTooLong { key: key.to_vec(), got, limit });
    }
    match scheme.admit(key, value) {
        Ok(true) => {}
        Ok(false) => op.kind = OpKind::Delete,
        Err(source) => return Err(TreeError::Refused { key: key.to_vec(), source }),
    }
    Ok(())
}
