//! Proofs of the sum tree: siblings and the bits that say which are empty.

use std::collections::BTreeMap;

use spinney_tree::sum::{Claim, Leaf, Profile, Proof, SumNode, reference, verify_many};

use super::{Kind, pick, shuffle};
use crate::mutations::Chance;

type Key = [u8; 32];

/// A proof in its parts.
#[derive(Clone)]
struct Parts {
    nodes: Vec<[u8; 40]>,
    empty: [u8; 32],
}

impl Parts {
    fn of(proof: &Proof) -> Self {
        let bytes = proof.encode();
        let (body, empty) = bytes[2..].split_last_chunk().expect("it ends with the bits");
        Self { nodes: body.as_chunks().0.to_vec(), empty: *empty }
    }

    fn join(&self) -> Vec<u8> {
        let count = (self.nodes.len() as u16).to_be_bytes();
        [&count[..], self.nodes.as_flattened(), &self.empty].concat()
    }

    fn change(&mut self, chance: &mut Chance, others: &[[u8; 40]]) {
        let nodes = self.nodes.len();
        let (at, bit) = (chance.below(nodes), chance.below(256));
        match chance.below(6) {
            0 => shuffle(chance, &mut self.nodes, others),
            // A sibling hangs elsewhere.
            1 => {
                self.empty[bit / 8] ^= 1 << (bit % 8);
                let bit = chance.below(256);
                self.empty[bit / 8] ^= 1 << (bit % 8);
            }
            // One more, or one less, and the bit with it.
            2 => {
                self.empty[bit / 8] ^= 1 << (bit % 8);
                match self.empty[bit / 8] >> (bit % 8) & 1 {
                    0 => self.nodes.insert(at, *pick(chance, others).unwrap_or(&[0; 40])),
                    _ if nodes > 0 => drop(self.nodes.remove(at)),
                    _ => {}
                }
            }
            // A sum, and the same taken from another one.
            3 if nodes > 0 => {
                let amount = chance.next() >> chance.below(64);
                let other = chance.below(nodes);
                add(&mut self.nodes[at], amount);
                if chance.below(2) == 0 {
                    add(&mut self.nodes[other], amount.wrapping_neg());
                }
            }
            _ if nodes > 0 => self.nodes[at][chance.below(40)] ^= 1 << chance.below(8),
            _ => {}
        }
    }
}

fn add(node: &mut [u8; 40], amount: u64) {
    let sum = u64::from_be_bytes(node[32..].try_into().unwrap()).wrapping_add(amount);
    node[32..].copy_from_slice(&sum.to_be_bytes());
}

struct Tree {
    profile: Profile,
    root: SumNode,
    leaves: BTreeMap<Key, Leaf>,
    proofs: Vec<(Key, Parts)>,
}

pub(super) struct Trees {
    trees: Vec<Tree>,
    /// Siblings of all proofs.
    others: Vec<[u8; 40]>,
}

impl Trees {
    pub(super) fn new() -> Self {
        let mut trees = Vec::new();
        for profile in [Profile::Compatible, Profile::Bound] {
            for (count, step) in [(1_u8, 1), (2, 128), (9, 1), (40, 5)] {
                let key = |n: u8| {
                    let mut key = [n; 32];
                    key[0] = n.wrapping_mul(step);
                    key
                };
                let leaf =
                    |n: u8| Leaf { value: vec![n; usize::from(n % 3) * 20], sum: u64::from(n) + 1 };
                let leaves: BTreeMap<Key, Leaf> = (0..count).map(|n| (key(n), leaf(n))).collect();
                let mut asked: Vec<Key> = leaves.keys().copied().collect();
                asked.extend([[0xee; 32], key(count), key(200)]);
                asked.dedup();
                let (root, proofs) = reference::prove(profile, &leaves, &asked).unwrap();
                let proofs = asked.into_iter().zip(proofs.iter().map(Parts::of)).collect();
                trees.push(Tree { profile, root, leaves, proofs });
            }
        }
        let parts = trees.iter().flat_map(|tree| &tree.proofs);
        let others = parts.flat_map(|(_, parts)| parts.nodes.clone()).collect();
        Self { trees, others }
    }
}

impl Tree {
    /// Whether a claim holds, alone and among others.
    fn holds(&self, root: SumNode, key: &Key, leaf: Option<&Leaf>, parts: &Parts) -> bool {
        let Ok(proof) = Proof::decode(&parts.join()) else { return false };
        let held = match leaf {
            Some(leaf) => proof.verify_inclusion(self.profile, root, key, leaf).is_ok(),
            None => proof.verify_exclusion(self.profile, root, key).is_ok(),
        };
        let (other, honest) = &self.proofs[0];
        let honest = Proof::decode(&honest.join()).unwrap();
        let claims = [
            Claim { key: other, leaf: self.leaves.get(other), proof: &honest },
            Claim { key, leaf, proof: &proof },
        ];
        let together = verify_many(self.profile, root, &claims).is_ok();
        assert_eq!(together, held && root == self.root, "one way to verify agrees with the other");
        held
    }
}

impl Kind for Trees {
    fn name(&self) -> (&'static str, usize) {
        ("sum trees", 24)
    }

    fn check_honest(&self) {
        for tree in &self.trees {
            for (key, parts) in &tree.proofs {
                assert!(tree.holds(tree.root, key, tree.leaves.get(key), parts));
            }
        }
    }

    fn try_change(&self, chance: &mut Chance) -> bool {
        let tree = pick(chance, &self.trees).expect("there are trees");
        let (mut key, mut parts) = pick(chance, &tree.proofs).expect("there are proofs").clone();
        let (mut root, mut leaf) = (tree.root, tree.leaves.get(&key).cloned());
        for _ in 0..1 + chance.below(3) {
            match chance.below(10) {
                0 => key[chance.below(32)] ^= 1 << chance.below(8),
                1 => key = *pick(chance, &tree.leaves.keys().copied().collect::<Vec<_>>()).unwrap(),
                2 => {
                    leaf =
                        pick(chance, &tree.leaves.values().collect::<Vec<_>>()).copied().cloned();
                }
                3 => leaf = None,
                // The sum of a leaf, and of what is above it.
                4 => {
                    let amount = chance.next() >> chance.below(64);
                    if let Some(leaf) = &mut leaf {
                        leaf.sum = leaf.sum.wrapping_add(amount);
                    }
                    match (chance.below(2), parts.nodes.is_empty()) {
                        (0, false) => {
                            let at = chance.below(parts.nodes.len());
                            add(&mut parts.nodes[at], amount.wrapping_neg());
                        }
                        _ => root.sum = root.sum.wrapping_add(amount),
                    }
                }
                5 => root = pick(chance, &self.trees).expect("there are trees").root,
                _ => parts.change(chance, &self.others),
            }
        }
        let held = tree.holds(root, &key, leaf.as_ref(), &parts);
        if held {
            let of = |of: &&Tree| (of.profile, of.root) == (tree.profile, root);
            let of = self.trees.iter().find(of).expect("it holds under the root of no tree");
            assert_eq!(leaf.as_ref(), of.leaves.get(&key), "a false claim of key {key:02x?}");
        }
        held
    }
}
