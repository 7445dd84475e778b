//! From the root of a tree to its leaves, some thousand rows at a time.
//!
//! Invariants:
//! - the last places that were found are looked at first, so that few wait: at most a chunk's
//!   children a level;
//! - a place is looked into only if its row's hash is that of its content, so that no row leads
//!   back to one above it;
//! - a branch waits until the sums of both children are known, or one of them is damaged.

use std::fmt;

use spinney_hash::{SumClimb, sha256_sum_climb};
use spinney_tree::sum::{DEPTH, Leaf, Profile, SumNode};

use crate::source::{Content, Row, Source};
use crate::{TapdError, VALUE_BYTES_MAX};

/// Rows that are asked for at once.
const CHUNK: usize = 1_024;
/// Bytes of values that are held before they are verified.
const HELD_BYTES: usize = VALUE_BYTES_MAX;
/// Findings that are kept; the others are counted.
const DAMAGE_MAX: usize = 1_000;
/// Rows that stand for several nodes are rare. More nodes than this many for each row are refused.
const NODES_PER_ROW_MAX: u64 = 16;
const NODES_MIN: u64 = 4_096;
const HASHES: Profile = Profile::Compatible;

/// What takes the leaves of a tree.
pub type OnLeaf<'a, E> = dyn FnMut([u8; 32], Leaf) -> Result<(), E> + 'a;

/// What was read of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The root, unless its row is damaged.
    pub root: Option<SumNode>,
    /// Leaves that were handed on.
    pub leaves: u64,
    /// Nodes that were read; one row may stand for several.
    pub nodes: u64,
    /// Rows of the tree, those that nothing leads to included.
    pub rows: u64,
    /// The first thousand findings.
    pub damage: Vec<Damage>,
    /// All findings.
    pub damage_count: u64,
}

/// Something that is wrong at a place of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Levels below the root.
    pub depth: usize,
    /// The way there: the first `depth` bits count, those of each byte from the lowest up.
    pub path: [u8; 32],
    /// The hash that the row has, or should have.
    pub hash: Vec<u8>,
    /// What is wrong.
    pub flaw: Flaw,
}

/// What is wrong with a row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flaw {
    /// There is no such row, though the one above it, or the root, leads to it.
    Missing,
    /// Its content has another hash.
    Hash,
    /// A branch counts this, and its children that.
    Sum {
        /// What the branch says.
        says: u64,
        /// What its children have.
        children: u128,
    },
    /// It is neither a branch nor a leaf that belongs here.
    Malformed(String),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { depth, path, hash, flaw } = self;
        write!(f, "depth {depth}, path 0x")?;
        path[..depth.div_ceil(8)].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(", row ")?;
        hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        match flaw {
            Flaw::Missing => f.write_str(": the row is missing"),
            Flaw::Hash => f.write_str(": its content has another hash"),
            Flaw::Sum { says, children } => {
                write!(f, ": its sum is {says}, and that of its children {children}")
            }
            Flaw::Malformed(what) => write!(f, ": {what}"),
        }
    }
}

/// A node to be looked at.
#[derive(Clone, Debug)]
struct Slot {
    hash: [u8; 32],
    depth: usize,
    path: [u8; 32],
    /// The branch above, among those that wait.
    above: Option<usize>,
}

/// A branch whose children's sums are not known yet.
#[derive(Debug)]
struct Waiting {
    slot: Slot,
    says: u64,
    /// Of those known; `None` where one never will be.
    children: Option<u128>,
    unknown: u8,
}

/// A leaf whose hash is not verified yet.
#[derive(Debug)]
struct Held {
    slot: Slot,
    key: [u8; 32],
    leaf: Leaf,
}

/// A walk through a tree.
pub(crate) struct Walk<'s> {
    source: &'s mut dyn Source,
    namespace: &'s str,
    state: State,
}

#[derive(Debug, Default)]
struct State {
    report: Report,
    slots: Vec<Slot>,
    waiting: Vec<Option<Waiting>>,
    free: Vec<usize>,
    held: Vec<Held>,
    held_bytes: usize,
}

impl<'s> Walk<'s> {
    pub(crate) fn new(source: &'s mut dyn Source, namespace: &'s str) -> Result<Self, TapdError> {
        let Some((root, rows)) = source.root(namespace)? else {
            let has: Vec<_> = source.namespaces()?.into_iter().map(|tree| tree.name).collect();
            let has = match &has[..] {
                [] => "none".into(),
                [some @ .., _] if some.len() >= 5 => {
                    format!("\"{}\" and {} others", some[..5].join("\", \""), has.len() - 5)
                }
                all => format!("\"{}\"", all.join("\", \"")),
            };
            let (place, namespace) = (source.place().to_owned(), namespace.to_owned());
            return Err(TapdError::NoTree { place, namespace, has });
        };
        let mut state = State::default();
        state.report.rows = rows;
        let top = Slot { hash: [0; 32], depth: 0, path: [0; 32], above: None };
        match <[u8; 32]>::try_from(&root[..]) {
            Ok(hash) => state.enter(Slot { hash, ..top }),
            Err(_) => {
                let flaw = Flaw::Malformed(format!("the root's hash has {} bytes", root.len()));
                state.report.found(&top, &root, flaw);
            }
        }
        Ok(Self { source, namespace, state })
    }

    pub(crate) fn run<E: From<TapdError>>(self, leaf: &mut OnLeaf<'_, E>) -> Result<Report, E> {
        let Self { source, namespace, mut state } = self;
        while !state.slots.is_empty() {
            let rows = state.report.rows;
            let most = rows.saturating_mul(NODES_PER_ROW_MAX).saturating_add(NODES_MIN);
            if state.report.nodes > most {
                let namespace = namespace.to_owned();
                return Err(TapdError::Shared { namespace, rows, nodes: most }.into());
            }
            let mut chunk = state.slots.split_off(state.slots.len().saturating_sub(CHUNK));
            chunk.sort_unstable_by_key(|slot| slot.hash);
            let mut hashes: Vec<&[u8]> = chunk.iter().map(|slot| &slot.hash[..]).collect();
            hashes.dedup();
            let mut seen = vec![false; chunk.len()];
            let mut outcome = Ok(());
            source.rows(namespace, &hashes, &mut |row| {
                let first = chunk.partition_point(|slot| slot.hash[..] < row.hash[..]);
                let equal = chunk[first..].partition_point(|slot| slot.hash[..] == row.hash[..]);
                for at in first..first + equal {
                    if outcome.is_ok() && !std::mem::replace(&mut seen[at], true) {
                        state.take(&chunk[at], &row);
                        if state.held_bytes > HELD_BYTES {
                            outcome = state.hand_on(leaf);
                        }
                    }
                }
            })?;
            outcome?;
            for (slot, _) in chunk.iter().zip(seen).filter(|(_, seen)| !seen) {
                state.damaged(slot, Flaw::Missing);
            }
            state.hand_on(leaf)?;
        }
        Ok(state.report)
    }
}

impl Report {
    fn found(&mut self, slot: &Slot, hash: &[u8], flaw: Flaw) {
        self.damage_count += 1;
        if self.damage.len() < DAMAGE_MAX {
            let hash = hash.to_vec();
            self.damage.push(Damage { depth: slot.depth, path: slot.path, hash, flaw });
        }
    }
}

impl State {
    /// A place to be looked at, unless its hash says that it is empty.
    fn enter(&mut self, slot: Slot) {
        if slot.hash == HASHES.empty()[slot.depth] {
            self.count(&slot, Some(0));
        } else {
            self.slots.push(slot);
        }
    }

    /// A row that is there.
    fn take(&mut self, slot: &Slot, row: &Row) {
        self.report.nodes += 1;
        match &row.content {
            Content::Branch { left, right } => self.branch(slot, left, right, row.sum),
            Content::Leaf { key, value } => {
                let leaf = Leaf { value: value.clone(), sum: row.sum };
                match full_key(slot, key.as_deref()) {
                    Ok(key) => {
                        self.held_bytes += leaf.value.len();
                        self.held.push(Held { slot: slot.clone(), key, leaf });
                    }
                    Err(what) => self.damaged(slot, Flaw::Malformed(what)),
                }
            }
            Content::TooLong => {
                let what = format!("its value is longer than {VALUE_BYTES_MAX} bytes");
                self.damaged(slot, Flaw::Malformed(what));
            }
            Content::Malformed(what) => self.damaged(slot, Flaw::Malformed(what.clone())),
        }
    }

    fn branch(&mut self, slot: &Slot, left: &[u8], right: &[u8], sum: u64) {
        let (Ok(left), Ok(right)) = (left.try_into(), right.try_into()) else {
            let what = "the hash of a child is not 32 bytes".into();
            return self.damaged(slot, Flaw::Malformed(what));
        };
        if slot.depth == DEPTH {
            return self.damaged(slot, Flaw::Malformed("a branch where only leaves are".into()));
        }
        // The total is the one that counts here; how it is split is looked at below.
        let (left, right) = (SumNode { hash: left, sum: 0 }, SumNode { hash: right, sum });
        if HASHES.branch(left, right).is_ok_and(|node| node.hash != slot.hash) {
            return self.damaged(slot, Flaw::Hash);
        }
        if slot.above.is_none() {
            self.report.root = Some(SumNode { hash: slot.hash, sum });
        }
        self.count(slot, Some(sum));
        let at = self.free.pop().unwrap_or(self.waiting.len());
        if at == self.waiting.len() {
            self.waiting.push(None);
        }
        self.waiting[at] =
            Some(Waiting { slot: slot.clone(), says: sum, children: Some(0), unknown: 2 });
        let mut path = slot.path;
        let depth = slot.depth + 1;
        self.enter(Slot { hash: left.hash, depth, path, above: Some(at) });
        path[slot.depth / 8] |= 1 << (slot.depth % 8);
        self.enter(Slot { hash: right.hash, depth, path, above: Some(at) });
    }

    /// Counts the sum of a node for the branch above it; `None` if it is not known, nor will be.
    fn count(&mut self, slot: &Slot, sum: Option<u64>) {
        let Some(at) = slot.above else { return };
        let Some(waiting) = &mut self.waiting[at] else { return };
        waiting.children = waiting.children.zip(sum).map(|(total, sum)| total + u128::from(sum));
        waiting.unknown -= 1;
        if waiting.unknown == 0
            && let Some(Waiting { slot, says, children, .. }) = self.waiting[at].take()
        {
            self.free.push(at);
            if let Some(children) = children
                && children != u128::from(says)
            {
                self.report.found(&slot, &slot.hash, Flaw::Sum { says, children });
            }
        }
    }

    fn damaged(&mut self, slot: &Slot, flaw: Flaw) {
        self.count(slot, None);
        self.report.found(slot, &slot.hash, flaw);
    }

    /// Verifies the leaves that are held, and hands on those that hold.
    fn hand_on<E>(&mut self, on_leaf: &mut OnLeaf<'_, E>) -> Result<(), E> {
        self.held_bytes = 0;
        let held = std::mem::take(&mut self.held);
        let climbs = held.iter().map(|Held { slot, key, leaf }| SumClimb {
            hash: HASHES.leaf(leaf).hash,
            sum: leaf.sum,
            path: *key,
            from: DEPTH as u16,
            to: slot.depth as u16,
        });
        let mut climbs: Vec<_> = climbs.collect();
        sha256_sum_climb(&mut climbs, &*HASHES.empty());
        let hashes: Vec<_> = climbs.into_iter().map(|climb| climb.hash).collect();
        for (Held { slot, key, leaf }, hash) in held.into_iter().zip(hashes) {
            if hash != slot.hash {
                self.damaged(&slot, Flaw::Hash);
                continue;
            }
            if slot.above.is_none() {
                self.report.root = Some(SumNode { hash, sum: leaf.sum });
            }
            self.count(&slot, Some(leaf.sum));
            self.report.leaves += 1;
            on_leaf(key, leaf)?;
        }
        Ok(())
    }
}

/// The key of a leaf: the way to its row, and what the row says of the bits below it.
///
/// The row's own bits above are not looked at: equal subtrees share a row, and it has one of their
/// keys.
fn full_key(slot: &Slot, key: Option<&[u8]>) -> Result<[u8; 32], String> {
    let Some(key) = key else {
        return match slot.depth {
            DEPTH => Ok(slot.path),
            _ => Err("neither a branch nor a leaf with a key".into()),
        };
    };
    let Ok(mut full) = <[u8; 32]>::try_from(key) else {
        return Err(format!("its key has {} bytes", key.len()));
    };
    for depth in 0..slot.depth {
        let (byte, bit) = (depth / 8, 1 << (depth % 8));
        full[byte] = full[byte] & !bit | slot.path[byte] & bit;
    }
    Ok(full)
}
