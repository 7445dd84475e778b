//! Proofs of the Merkle Patricia trie: nodes as lists of items, ranges, and accounts.

use spinney_hash::keccak256;
use spinney_tree::mpt::proof::{AccountProof, Proof, RangeProof};

use super::{Kind, pick, shuffle};
use crate::mutations::{AnyProof, Chance, Fixture, fixtures};

/// The items of a node, each with its head; nothing where it is no list.
fn items(rlp: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (head, len) = extent(rlp)?;
    let mut rest = rlp.get(head..head + len)?;
    let mut items = Vec::new();
    while !rest.is_empty() {
        let (head, len) = extent(rest)?;
        let (item, behind) = rest.split_at_checked(head + len)?;
        items.push(item.to_vec());
        rest = behind;
    }
    (rlp[0] >= 0xc0).then_some(items)
}

/// How long the head of an item is, and what is behind it.
fn extent(rlp: &[u8]) -> Option<(usize, usize)> {
    let first = *rlp.first()?;
    if first < 0x80 {
        return Some((0, 1));
    }
    match usize::from(first & 0x3f) {
        len @ 0..=55 => Some((1, len)),
        long => {
            let bytes = rlp.get(1..long - 54)?;
            Some((long - 54, bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte))))
        }
    }
}

fn join(base: u8, value: &[u8]) -> Vec<u8> {
    let len = value.len();
    let head = match len {
        0..=55 => vec![base + len as u8],
        56..=255 => vec![base + 56, len as u8],
        _ => vec![base + 57, (len >> 8) as u8, len as u8],
    };
    [&head[..], value].concat()
}

/// Changes one node as a list: its path, its children, its value.
fn change_node(chance: &mut Chance, node: &mut Vec<u8>, foreign: &[Vec<u8>]) {
    let Some(mut items) = items(node) else { return };
    let other = pick(chance, foreign).expect("there are nodes");
    let (at, to) = (chance.below(items.len()), chance.below(items.len()));
    match chance.below(8) {
        0 | 1 if !items.is_empty() => items.swap(at, to),
        2 if !items.is_empty() => items[at] = items[to].clone(),
        3 if !items.is_empty() => items[at] = vec![0x80],
        4 if !items.is_empty() => items[at] = join(0x80, &keccak256(other)),
        5 if !items.is_empty() => {
            if let Some(from) = self::items(other).filter(|from| !from.is_empty()) {
                items[at] = from[chance.below(from.len())].clone();
            }
        }
        // Another path: of a leaf or not, of more or fewer digits.
        6 | 7 if items.len() == 2 => {
            let (head, _) = extent(&items[0]).expect("it was read");
            let mut path = items[0][head..].to_vec();
            match chance.below(5) {
                0 if !path.is_empty() => path[0] ^= 0x20,
                1 if !path.is_empty() => path[0] ^= 0x10 | chance.below(16) as u8,
                2 => path.push(chance.next() as u8),
                3 => drop(path.pop()),
                _ if !path.is_empty() => {
                    let at = chance.below(path.len());
                    path[at] ^= 1 << chance.below(8);
                }
                _ => {}
            }
            items[0] = if path.len() == 1 && path[0] < 0x80 { path } else { join(0x80, &path) };
        }
        _ => shuffle(chance, &mut items, &[vec![0x80]]),
    }
    *node = join(0xc0, &items.concat());
}

/// Puts the new digest of a changed node in place of the old one in all nodes, and so on up.
fn follow(nodes: &mut [Vec<u8>], old: &[u8], new: &[u8]) {
    let mut changed = vec![(keccak256(old), keccak256(new))];
    for _ in 0..nodes.len() {
        let Some((from, to)) = changed.pop() else { return };
        for node in nodes.iter_mut() {
            let Some(at) = node.windows(32).position(|window| window == from) else { continue };
            let before = keccak256(node);
            node[at..at + 32].copy_from_slice(&to);
            changed.push((before, keccak256(node)));
        }
    }
}

fn change_nodes(chance: &mut Chance, nodes: &mut Vec<Vec<u8>>, foreign: &[Vec<u8>]) {
    let at = chance.below(nodes.len());
    if nodes.is_empty() || chance.below(3) == 0 {
        return shuffle(chance, nodes, foreign);
    }
    let old = nodes[at].clone();
    change_node(chance, &mut nodes[at], foreign);
    let new = nodes[at].clone();
    if chance.below(2) == 0 {
        follow(nodes, &old, &new);
    }
}

fn change_proof(chance: &mut Chance, proof: &mut Proof, foreign: &[Vec<u8>]) {
    let mut nodes = proof.nodes().to_vec();
    change_nodes(chance, &mut nodes, foreign);
    *proof = Proof::new(nodes);
}

fn change_range(chance: &mut Chance, range: &mut RangeProof, other: &Fixture, foreign: &[Vec<u8>]) {
    let (at, to) = (chance.below(range.entries.len()), chance.below(range.entries.len()));
    let held: Vec<_> =
        other.entries.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let key = pick(chance, &held).map(|entry| entry.0.clone()).unwrap_or_default();
    match chance.below(10) {
        0 => shuffle(chance, &mut range.entries, &held),
        1 => {
            shuffle(chance, &mut range.entries, &held);
            range.entries.sort_unstable();
        }
        2 if !range.entries.is_empty() => {
            let value = range.entries[to].1.clone();
            range.entries[at].1 = value;
        }
        3 => range.start = key,
        4 => range.end = Some(key),
        5 => {
            let end = range.end.replace(std::mem::take(&mut range.start));
            range.start = end.unwrap_or_default();
        }
        // The range up to one of its entries, with or without those behind.
        6 if !range.entries.is_empty() => {
            range.end = Some(range.entries[at].0.clone());
            range.entries.truncate(at + chance.below(2));
        }
        7 => range.end = None,
        _ => change_nodes(chance, &mut range.nodes, foreign),
    }
}

fn change_account(
    chance: &mut Chance,
    account: &mut AccountProof,
    other: &AccountProof,
    foreign: &[Vec<u8>],
) {
    let slots = account.storage_proof.len();
    let (at, to) = (chance.below(slots), chance.below(slots));
    match chance.below(11) {
        0 => account.address = other.address,
        1 => account.fields = other.fields,
        2 => account.fields.storage_hash = other.fields.storage_hash,
        3 => account.account_proof = other.account_proof.clone(),
        4 => account.storage_proof = other.storage_proof.clone(),
        5 => shuffle(chance, &mut account.storage_proof, &other.storage_proof),
        6 if slots > 0 => account.storage_proof[at].key = account.storage_proof[to].key,
        7 if slots > 0 => account.storage_proof[at].value = account.storage_proof[to].value,
        8 if slots > 0 => change_proof(chance, &mut account.storage_proof[at].proof, foreign),
        9 if slots > 0 => {
            account.storage_proof[at].proof = account.account_proof.clone();
        }
        _ => change_proof(chance, &mut account.account_proof, foreign),
    }
}

pub(super) struct Tries {
    fixtures: Vec<Fixture>,
    /// Nodes of all proofs.
    foreign: Vec<Vec<u8>>,
}

impl Tries {
    pub(super) fn new() -> Self {
        let fixtures = fixtures();
        let foreign = fixtures.iter().flat_map(|fixture| fixture.proof.nodes()).collect();
        Self { fixtures, foreign }
    }
}

impl Kind for Tries {
    fn name(&self) -> (&'static str, usize) {
        ("MPT", 29)
    }

    fn check_honest(&self) {
        for fixture in &self.fixtures {
            assert!(fixture.holds(&fixture.root, &fixture.proof));
        }
    }

    fn try_change(&self, chance: &mut Chance) -> bool {
        let [fixture, other] =
            [0; 2].map(|_| pick(chance, &self.fixtures).expect("there are some"));
        let mut proof = fixture.proof.clone();
        for _ in 0..1 + chance.below(3) {
            match (&mut proof, &other.proof) {
                (AnyProof::Keys(keys, _), AnyProof::Keys(others, _)) if chance.below(4) == 0 => {
                    shuffle(chance, keys, others);
                }
                (AnyProof::Keys(_, proof), _) => change_proof(chance, proof, &self.foreign),
                (AnyProof::Range(range), _) => change_range(chance, range, other, &self.foreign),
                (AnyProof::Account(account), AnyProof::Account(other)) => {
                    change_account(chance, account, other, &self.foreign);
                }
                (AnyProof::Account(account), _) => {
                    change_proof(chance, &mut account.account_proof, &self.foreign);
                }
            }
        }
        let of = if chance.below(20) == 0 { other } else { fixture };
        of.holds(&of.root, &proof)
    }
}
