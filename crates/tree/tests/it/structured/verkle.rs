//! Proofs of the Verkle tree: other stems, statuses, commitments, a multiproof, and the values
//! told.

use spinney_tree::verkle::proof::{Proof, StateDiff, StemDiff, SuffixDiff};

use super::{Kind, pick, shuffle};
use crate::model::{Bench, Entries, Op};
use crate::mutations::Chance;
use crate::verkle::verkle;

/// A proof in its parts.
#[derive(Clone)]
struct Parts {
    others: Vec<[u8; 31]>,
    statuses: Vec<u8>,
    commitments: Vec<[u8; 32]>,
    multiproof: Vec<u8>,
    diff: StateDiff,
}

fn list<const N: usize>(bytes: &mut &[u8]) -> Vec<[u8; N]> {
    let (count, rest) = bytes.split_first_chunk().expect("a number");
    let (body, rest) = rest.split_at(u32::from_le_bytes(*count) as usize * N);
    *bytes = rest;
    body.as_chunks().0.to_vec()
}

impl Parts {
    fn of(proof: &Proof, diff: StateDiff) -> Self {
        let bytes = proof.to_bytes();
        let mut rest = &bytes[..];
        let others = list(&mut rest);
        let statuses = list::<1>(&mut rest).concat();
        let commitments = list(&mut rest);
        Self { others, statuses, commitments, multiproof: rest.to_vec(), diff }
    }

    fn join(&self) -> Vec<u8> {
        let count = |n: usize| (n as u32).to_le_bytes().to_vec();
        [
            count(self.others.len()),
            self.others.concat(),
            count(self.statuses.len()),
            self.statuses.clone(),
            count(self.commitments.len()),
            self.commitments.concat(),
            self.multiproof.clone(),
        ]
        .concat()
    }

    fn change(&mut self, chance: &mut Chance, foreign: &Self) {
        match chance.below(12) {
            0 => shuffle(chance, &mut self.others, &foreign.others),
            1 => {
                let stems: Vec<_> = self.diff.0.iter().map(|stem| stem.stem).collect();
                shuffle(chance, &mut self.others, &stems);
                self.others.sort_unstable();
            }
            2 => shuffle(chance, &mut self.commitments, &foreign.commitments),
            3 => shuffle(chance, &mut self.statuses, &foreign.statuses),
            // Another end, at the same depth or another one.
            4 | 5 if !self.statuses.is_empty() => {
                let at = chance.below(self.statuses.len());
                let status = &mut self.statuses[at];
                *status = match chance.below(3) {
                    0 => *status & !7 | chance.below(3) as u8,
                    1 => (*status & !7).wrapping_add(8) | *status & 7,
                    _ => (*status & !7).wrapping_sub(8) | chance.below(3) as u8,
                };
            }
            6 => self.multiproof = foreign.multiproof.clone(),
            7 => {
                let at = 32 * chance.below(self.multiproof.len() / 32);
                let from = 32 * chance.below(foreign.multiproof.len() / 32);
                self.multiproof[at..at + 32].copy_from_slice(&foreign.multiproof[from..from + 32]);
            }
            // A stem with its status goes or comes.
            8 => {
                let at = chance.below(self.diff.0.len().min(self.statuses.len()));
                if at < self.statuses.len() && at < self.diff.0.len() {
                    self.diff.0.remove(at);
                    self.statuses.remove(at);
                }
            }
            9 => {
                let Some(stem) = pick(chance, &foreign.diff.0).cloned() else { return };
                let at = self.diff.0.partition_point(|held| held.stem < stem.stem);
                let status = *pick(chance, &foreign.statuses).unwrap_or(&8);
                self.diff.0.insert(at, stem);
                self.statuses.insert(at.min(self.statuses.len()), status);
            }
            _ => self.change_values(chance, &foreign.diff),
        }
    }

    fn change_values(&mut self, chance: &mut Chance, foreign: &StateDiff) {
        let at = chance.below(self.diff.0.len());
        let Some(stem) = self.diff.0.get_mut(at) else { return };
        let others: Vec<SuffixDiff> = foreign.0.iter().flat_map(|s| s.suffixes.clone()).collect();
        let suffix = chance.below(stem.suffixes.len());
        match chance.below(6) {
            0 => {
                shuffle(chance, &mut stem.suffixes, &others);
                stem.suffixes.sort_unstable_by_key(|entry| entry.suffix);
            }
            1 => stem.stem[chance.below(31)] ^= 1 << chance.below(8),
            2 if !stem.suffixes.is_empty() => stem.suffixes[suffix].current = None,
            3 if !stem.suffixes.is_empty() => {
                stem.suffixes[suffix].current =
                    pick(chance, &others).and_then(|entry| entry.current);
            }
            4 if !stem.suffixes.is_empty() => {
                stem.suffixes[suffix].suffix ^= 1 << chance.below(8);
                stem.suffixes.sort_unstable_by_key(|entry| entry.suffix);
            }
            _ if !stem.suffixes.is_empty() => {
                let value = stem.suffixes[suffix].current.get_or_insert([0; 32]);
                value[chance.below(32)] ^= 1 << chance.below(8);
            }
            _ => {}
        }
    }
}

struct Tree {
    root: [u8; 32],
    entries: Entries,
    proofs: Vec<Parts>,
}

pub(super) struct Trees(Vec<Tree>);

impl Trees {
    pub(super) fn new() -> Self {
        let key = |a: u8, b: u8, c: u8, suffix: u8| {
            let mut key = vec![c; 32];
            (key[0], key[1], key[31]) = (a, b, suffix);
            key
        };
        let dense = (0..60_u8).map(|n| key(n % 3, n % 5, n % 2, n.wrapping_mul(5)));
        let sparse = (0..20_u8).map(|n| key(n * 11, n, n, 255 - n));
        let one = [key(1, 3, 7, 5)];
        let few = [key(1, 3, 7, 5), key(1, 3, 7, 200), key(1, 4, 9, 0)];
        let trees: [Vec<Vec<u8>>; 5] =
            [vec![], dense.collect(), sparse.collect(), one.to_vec(), few.to_vec()];
        Self(trees.into_iter().map(|keys| Tree::new(&keys, &key)).collect())
    }
}

impl Tree {
    fn new(keys: &[Vec<u8>], key: &impl Fn(u8, u8, u8, u8) -> Vec<u8>) -> Self {
        let mut bench = Bench::new(verkle(), 1 << 20);
        let value = |key: &Vec<u8>| vec![key[0] ^ key[31] | 1; 32];
        let entries: Entries = keys.iter().map(|key| (key.clone(), value(key))).collect();
        let puts: Vec<_> = entries.iter().map(|(k, v)| Op::Put(k.clone(), v.clone())).collect();
        let pending = bench.prepare(None, &puts);
        bench.tree.commit(&bench.store, &pending, None).unwrap();
        let absent = [key(1, 2, 7, 5), key(1, 3, 8, 5), key(9, 9, 9, 9), key(0, 0, 0, 3)];
        let mut asked: Vec<Vec<Vec<u8>>> = absent.iter().map(|key| vec![key.clone()]).collect();
        asked.extend(entries.keys().step_by(9).map(|key| vec![key.clone()]));
        asked.push(entries.keys().step_by(4).cloned().chain(absent.clone()).collect());
        asked.push(vec![absent[0].clone(), absent[1].clone(), key(1, 3, 7, 6), key(1, 3, 7, 201)]);
        let prove = |keys: Vec<Vec<u8>>| {
            let (proof, diff) = bench.tree.prove(&bench.snapshot(), None, &keys).unwrap();
            Parts::of(&proof, diff)
        };
        Self { root: bench.tree.root(), proofs: asked.into_iter().map(prove).collect(), entries }
    }

    fn holds(&self, parts: &Parts) -> bool {
        let Ok(proof) = Proof::from_bytes(&parts.join()) else { return false };
        let Ok(verified) = proof.verify(verkle().crs(), &self.root, &parts.diff) else {
            return false;
        };
        for (key, entry) in parts.diff.entries() {
            let truth = self.entries.get(&key[..]).map(|value| value[..].try_into().unwrap());
            assert_eq!(entry.current, truth, "a false claim of key {key:02x?}");
            assert_eq!(verified.get(&key), Some(truth));
        }
        verified.post_root(verkle().crs()).unwrap();
        true
    }
}

impl Kind for Trees {
    fn name(&self) -> (&'static str, usize) {
        ("Verkle trees", 7)
    }

    fn check_honest(&self) {
        for tree in &self.0 {
            tree.proofs.iter().for_each(|parts| assert!(tree.holds(parts)));
        }
    }

    fn try_change(&self, chance: &mut Chance) -> bool {
        let [tree, other] = [0; 2].map(|_| pick(chance, &self.0).expect("there are trees"));
        let mut parts = pick(chance, &tree.proofs).expect("there are proofs").clone();
        let foreign = pick(chance, &other.proofs).expect("there are proofs");
        for _ in 0..1 + chance.below(3) {
            parts.change(chance, foreign);
        }
        if chance.below(4) == 0 {
            let new = Some([chance.next() as u8; 32]);
            let suffixes =
                parts.diff.0.iter_mut().flat_map(|stem: &mut StemDiff| &mut stem.suffixes);
            suffixes.step_by(2).for_each(|entry| entry.new = new);
        }
        let of = if chance.below(20) == 0 { other } else { tree };
        of.holds(&parts)
    }
}
