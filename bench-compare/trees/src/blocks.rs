//! The block workload: what a chain does to a tree. Each block reads the state that it stands on,
//! then changes it; each is prepared upon the pending one before, and after [`BLOCKS`] blocks one
//! commit writes all of them to a store in memory.
//!
//! Blocks are the same in every language. Block `b` of round `r` draws from the state `2,000,000 +
//! 64 r + b` (see `inputs`), for each of its changes: a kind (an output modulo 100), then
//! - below 70 an index of a live key (drawn again if it was drawn before) and a value of 78 bytes,
//! - below 85 an index and a value of 60 bytes,
//! - below 95 a new key of 32 bytes and a value of 78 bytes,
//! - else an index, whose key is deleted.
//!
//! Binary trees take values of 32 bytes; where one value lies at suffix 0 of each stem nothing is
//! deleted, and a value takes the place of one that would be. Reads are of all keys that the block
//! changes, and of as many live keys by index, drawn after the changes. Then new keys join the live
//! ones at the end, in their order, and the last live key takes the place of each that was deleted,
//! from the greatest index to the least.

use std::collections::HashSet;

use spinney_tree::{Pending, Scheme, TreeError};

use crate::inputs::{KEY_BYTES, Leaf, Random, VALUE_BYTES};
use crate::meter::{Cost, Meter};
use crate::ours::Live;

/// Blocks to a commit.
pub const BLOCKS: u64 = 64;
/// Bytes of a value that is shorter than the one before.
const SHORT_BYTES: usize = 60;

/// What a tree's blocks look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Values of any length, deletions.
    Keys,
    /// Values of 32 bytes, deletions.
    Bits,
    /// One value of 32 bytes a stem, at suffix 0; nothing is deleted.
    Stems,
}

/// One block.
pub struct Block {
    /// Keys in the order in which they are read.
    pub reads: Vec<[u8; KEY_BYTES]>,
    /// Keys and what becomes of them; `None` is deleted.
    pub changes: Vec<([u8; KEY_BYTES], Option<Vec<u8>>)>,
}

/// A live tree, the keys that it holds, and what reads cost meanwhile.
pub struct Chain<S: Scheme> {
    kind: Kind,
    keys: Vec<[u8; KEY_BYTES]>,
    live: Live<S>,
    reads: Cost,
}

impl<S: Scheme<Root = [u8; 32]> + Clone> Chain<S> {
    /// A tree that holds `leaves`, loaded and warm.
    pub fn new(kind: Kind, leaves: &[Leaf], live: Live<S>) -> Self {
        let keys = leaves.iter().map(|(key, _)| kind.key(*key)).collect();
        Self { kind, keys, live, reads: Cost::default() }
    }

    /// What the reads of the last round cost.
    pub fn reads(&self) -> Cost {
        self.reads.clone()
    }

    /// One round: roots of all blocks, and the commit of all of them.
    pub fn round(&mut self, meter: &Meter, size: usize, round: u64) -> Result<Cost, TreeError> {
        let mut total = Cost::default();
        self.reads = Cost::default();
        let mut last: Option<Pending<S>> = None;
        for number in 0..BLOCKS {
            let block = block(self.kind, &mut self.keys, size, round * BLOCKS + number);
            let (found, cost) = meter.run(|| self.live.read(last.as_ref(), &block.reads));
            std::hint::black_box(found?);
            self.reads += &cost;
            let (pending, cost) = meter.run(|| self.live.block(last.as_ref(), &block.changes));
            total += &cost;
            last = Some(pending?);
        }
        if let Some(pending) = last {
            let (done, cost) = meter.run(|| self.live.commit(&pending));
            done?;
            total += &cost;
            total.root = alloy_primitives::hex::encode(pending.root());
        }
        Ok(total)
    }
}

impl Kind {
    /// A leaf's key in such a tree.
    const fn key(self, mut key: [u8; KEY_BYTES]) -> [u8; KEY_BYTES] {
        if matches!(self, Self::Stems) {
            key[KEY_BYTES - 1] = 0;
        }
        key
    }

    fn value(self, random: &mut Random, bytes: usize) -> Vec<u8> {
        let value: [u8; VALUE_BYTES] = random.fill();
        value[..if self == Self::Keys { bytes } else { 32 }].to_vec()
    }
}

/// The block of this number, upon a state that holds `keys`, which become those after it.
fn block(kind: Kind, keys: &mut Vec<[u8; KEY_BYTES]>, size: usize, number: u64) -> Block {
    let mut random = Random(2_000_000 + number);
    let mut drawn = HashSet::with_capacity(size);
    let (mut changes, mut new, mut gone) = (Vec::with_capacity(size), Vec::new(), Vec::new());
    while changes.len() < size {
        let change = random.next() % 100;
        if (85..95).contains(&change) {
            let key = kind.key(random.fill());
            changes.push((key, Some(kind.value(&mut random, VALUE_BYTES))));
            new.push(key);
            continue;
        }
        let index = loop {
            let index = (random.next() % keys.len() as u64) as usize;
            if drawn.insert(index) {
                break index;
            }
        };
        let value = match change {
            0..70 => Some(kind.value(&mut random, VALUE_BYTES)),
            70..85 => Some(kind.value(&mut random, SHORT_BYTES)),
            _ if kind == Kind::Stems => Some(kind.value(&mut random, VALUE_BYTES)),
            _ => {
                gone.push(index);
                None
            }
        };
        changes.push((keys[index], value));
    }
    let mut reads: Vec<_> = changes.iter().map(|(key, _)| *key).collect();
    reads.extend((0..size).map(|_| keys[(random.next() % keys.len() as u64) as usize]));
    keys.append(&mut new);
    gone.sort_unstable_by(|one, other| other.cmp(one));
    for index in gone {
        keys.swap_remove(index);
    }
    Block { reads, changes }
}
