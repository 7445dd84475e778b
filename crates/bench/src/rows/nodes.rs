//! The nodes of a tree, by its leaves, and what a commit does to their rows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use spinney_tree::Operation;

use super::key::{At, Key, Leaf, digest};
use super::layout::{Layout, Node};

/// The key of a row: a path in whole bytes, and one byte of how many bits of it count.
pub(super) type RowKey = Vec<u8>;

pub(super) fn row_key(key: &Key, bits: usize) -> RowKey {
    let mut row = key.bytes[..bits.div_ceil(8)].to_vec();
    if let Some(last) = row.last_mut().filter(|_| !bits.is_multiple_of(8)) {
        *last &= 0xff << (8 - bits % 8);
    }
    row.push((bits % 256) as u8);
    row
}

/// Rows of nodes: their keys, and how long the nodes are.
pub(super) type NodeRows = BTreeMap<RowKey, u32>;

/// What a commit does to the rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(super) put: NodeRows,
    pub(super) removed: Vec<RowKey>,
}

impl Step {
    /// Bytes of keys and nodes that are written.
    pub(super) fn bytes(&self) -> u64 {
        self.put.iter().map(|(key, len)| key.len() as u64 + u64::from(*len)).sum()
    }
}

/// The leaves of a tree, and so its nodes.
pub(super) struct Rows {
    pub(super) layout: Layout,
    /// In order of keys. Of a Merkle Patricia trie the accounts, and the slots of all accounts.
    tries: [Vec<Leaf>; 2],
}

impl Rows {
    pub(super) const fn new(layout: Layout) -> Self {
        Self { layout, tries: [Vec::new(), Vec::new()] }
    }

    /// Does what was done to the tree, and says nothing of rows.
    pub(super) fn fill(&mut self, operations: &mut dyn Iterator<Item = Operation<'_>>) {
        let changed = self.changed(operations);
        self.apply(&changed);
    }

    /// Does what was done to the tree in one commit.
    pub(super) fn step(&mut self, operations: &mut dyn Iterator<Item = Operation<'_>>) -> Step {
        let changed = self.changed(operations);
        let mut reached: BTreeSet<Key> = changed.keys().copied().collect();
        // An account's node holds the root of its slots.
        let accounts = reached.iter().filter_map(|key| Some(Key::of(self.layout.account_of(key)?)));
        reached.extend(accounts.collect::<Vec<_>>());
        let beside = self.beside(&reached);
        let mut before = BTreeMap::new();
        for key in reached.iter().chain(&beside) {
            self.walk(key, |row, node| {
                before.insert(row, node.stays);
            });
        }
        self.apply(&changed);
        let (mut after, mut put) = (BTreeSet::new(), NodeRows::new());
        let both =
            reached.iter().map(|key| (key, true)).chain(beside.iter().map(|key| (key, false)));
        for (key, is_reached) in both {
            self.walk(key, |row, node| {
                if is_reached && node.leads_on || before.get(&row) != Some(&node.stays) {
                    put.insert(row.clone(), node.stays.0);
                }
                after.insert(row);
            });
        }
        let removed = before.into_keys().filter(|row| !after.contains(row)).collect();
        Step { put, removed }
    }

    /// Shows all rows.
    pub(super) fn all(
        &self,
        visit: &mut dyn FnMut(RowKey, u32) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for trie in 0..self.tries.len() {
            let leaves = &self.tries[trie];
            let mut from = 0;
            while from < leaves.len() {
                let top = self.top(trie, &leaves[from].key);
                from = top.leaves.end;
                self.below(trie, &top, visit)?;
            }
        }
        Ok(())
    }

    fn below(
        &self,
        trie: usize,
        at: &At,
        visit: &mut dyn FnMut(RowKey, u32) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Some(node) = self.look(trie, at) else { return Ok(()) };
        let first = &self.tries[trie][at.leaves.start].key;
        for (bits, len) in node.rows.into_iter().flatten() {
            visit(row_key(first, bits), len)?;
        }
        let Some(digit) = node.digit else { return Ok(()) };
        let mut from = at.leaves.start;
        while from < at.leaves.end {
            let child = self.child(trie, from..at.leaves.end, node.run, digit);
            from = child.end;
            self.below(trie, &At { leaves: child, depth: node.run + digit }, visit)?;
        }
        Ok(())
    }

    /// What leaves are changed to: those that are not changed at all are left out.
    fn changed(
        &self,
        operations: &mut dyn Iterator<Item = Operation<'_>>,
    ) -> BTreeMap<Key, Option<Leaf>> {
        let mut changed: BTreeMap<Key, Option<Leaf>> = BTreeMap::new();
        for operation in operations {
            match operation {
                Operation::Put(key, value) => {
                    let key = Key::of(key);
                    let value_bytes = self.layout.value_bytes(&key, value);
                    changed.insert(key, Some(Leaf { key, value_bytes, digest: digest(value) }));
                }
                Operation::Delete(key) => drop(changed.insert(Key::of(key), None)),
                Operation::DeletePrefix(prefix) => {
                    let begins = |key: &Key| key.bytes().starts_with(prefix);
                    for leaves in &self.tries {
                        let from = leaves.partition_point(|leaf| leaf.key.bytes() < prefix);
                        let gone = leaves[from..].iter().take_while(|leaf| begins(&leaf.key));
                        changed.extend(gone.map(|leaf| (leaf.key, None)));
                    }
                    let later = changed.iter_mut().filter(|(key, _)| begins(key));
                    later.for_each(|(_, leaf)| *leaf = None);
                }
            }
        }
        changed.retain(|key, leaf| self.leaf(key) != leaf.as_ref());
        changed
    }

    fn leaf(&self, key: &Key) -> Option<&Leaf> {
        let leaves = &self.tries[self.layout.trie_of(key)];
        leaves.binary_search_by(|leaf| leaf.key.cmp(key)).ok().map(|at| &leaves[at])
    }

    /// The leaves next to those that are reached: nodes beside a path may move.
    fn beside(&self, reached: &BTreeSet<Key>) -> BTreeSet<Key> {
        let mut beside = BTreeSet::new();
        for key in reached {
            let leaves = &self.tries[self.layout.trie_of(key)];
            let at = leaves.partition_point(|leaf| leaf.key < *key);
            let behind = at + usize::from(leaves.get(at).is_some_and(|leaf| leaf.key == *key));
            let next = [at.checked_sub(1), Some(behind)].into_iter().flatten();
            let next = next.filter_map(|at| leaves.get(at)).map(|leaf| leaf.key);
            beside.extend(next.filter(|next| !reached.contains(next)));
        }
        beside
    }

    fn apply(&mut self, changed: &BTreeMap<Key, Option<Leaf>>) {
        for (index, leaves) in self.tries.iter_mut().enumerate() {
            let layout = self.layout;
            let here = changed.iter().filter(|(key, _)| layout.trie_of(key) == index);
            let old = std::mem::take(leaves);
            leaves.reserve(old.len() + here.clone().count());
            let mut from = 0;
            for (key, leaf) in here {
                let upto = from + old[from..].partition_point(|leaf| leaf.key < *key);
                leaves.extend_from_slice(&old[from..upto]);
                leaves.extend(leaf);
                from = upto + usize::from(old.get(upto).is_some_and(|leaf| leaf.key == *key));
            }
            leaves.extend_from_slice(&old[from..]);
        }
    }

    /// Shows all rows of nodes on the way to a key.
    pub(super) fn walk(&self, key: &Key, mut visit: impl FnMut(RowKey, Passed)) {
        let trie = self.layout.trie_of(key);
        let mut at = self.top(trie, key);
        while let Some(node) = self.look(trie, &at) {
            let first = &self.tries[trie][at.leaves.start].key;
            let leads_on = key.shared(first) >= node.run;
            for (bits, len) in node.rows.into_iter().flatten() {
                visit(row_key(first, bits), Passed { stays: (len, node.run), leads_on });
            }
            let Some(digit) = node.digit.filter(|_| leads_on) else { return };
            let leaves = &self.tries[trie][at.leaves.clone()];
            let place = key.digit(node.run, digit);
            let before = leaves.partition_point(|leaf| leaf.key.digit(node.run, digit) < place);
            let rest = at.leaves.start + before..at.leaves.end;
            let child = self.child(trie, rest, node.run, digit);
            let other = |at: usize| self.tries[trie][at].key.digit(node.run, digit) != place;
            if child.is_empty() || other(child.start) {
                return;
            }
            at = At { leaves: child, depth: node.run + digit };
        }
    }

    /// The topmost node of the trie in which a key is.
    fn top(&self, trie: usize, key: &Key) -> At {
        let leaves = &self.tries[trie];
        let owner = &key.bytes()[..self.layout.owner_bytes(trie)];
        let start = leaves.partition_point(|leaf| &leaf.key.bytes()[..owner.len()] < owner);
        let len = leaves[start..].partition_point(|leaf| leaf.key.bytes().starts_with(owner));
        At { leaves: start..start + len, depth: 8 * owner.len() }
    }

    /// The first of some leaves, and those that have its digit.
    fn child(&self, trie: usize, leaves: Range<usize>, from: usize, digit: usize) -> Range<usize> {
        let Some(first) = self.tries[trie][leaves.clone()].first() else { return leaves };
        let place = first.key.digit(from, digit);
        let same = |leaf: &Leaf| leaf.key.digit(from, digit) == place;
        let len = self.tries[trie][leaves.clone()].partition_point(same);
        leaves.start..leaves.start + len
    }

    fn look(&self, trie: usize, at: &At) -> Option<Node> {
        let leaves = &self.tries[trie];
        (!at.leaves.is_empty()).then(|| self.layout.node(leaves, at))
    }
}

/// A node on the way to a key.
pub(super) struct Passed {
    /// Its bytes, and where its children part: another node if these are others.
    pub(super) stays: (u32, usize),
    /// Whether the way goes on below it, or ends with it.
    pub(super) leads_on: bool,
}
