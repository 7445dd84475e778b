//! Hashes of a UBT read as those of every other tree: what a proof can make of them, it may not say
//! unless it is true.
//!
//! An adversary is taken to know the preimage of every hash, and to have chosen keys that are
//! hashes themselves. From them all proofs of a claim are written that lead to the root, whichever
//! nodes they take for stems and whichever for forks.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use spinney_hash::{Digest, sha256};
use spinney_tree::binary::proof::{KeysProof, Word};
use spinney_tree::ubt::reference;

use crate::binary::UBT;
use crate::binary_proofs::prove;
use crate::model::Entries;

const EMPTY: Digest = [0; 32];
const STEM_BITS: usize = 248;

type Key = [u8; 32];
type Leaf = (Key, Word);

fn bit(bytes: &[u8], at: usize) -> u8 {
    bytes[at / 8] >> (7 - at % 8) & 1
}

/// What hashes are of.
#[derive(Clone, Default)]
struct Known {
    pairs: HashMap<Digest, (Digest, Digest)>,
    values: HashMap<Digest, Word>,
}

impl Known {
    fn value(&mut self, value: &Word) -> Digest {
        let digest = sha256(value);
        self.values.insert(digest, *value);
        digest
    }

    fn pair(&mut self, left: Digest, right: Digest) -> Digest {
        if (left, right) == (EMPTY, EMPTY) {
            return EMPTY;
        }
        let digest = sha256([left, right].as_flattened());
        self.pairs.insert(digest, (left, right));
        digest
    }

    /// What the leaves of one stem, or of one part of a tree, hash to at a depth.
    fn tree(&mut self, leaves: &[Leaf], depth: usize, within: bool) -> Digest {
        let Some((first, value)) = leaves.first() else { return EMPTY };
        let last = leaves.last().unwrap_or(&leaves[0]).0;
        if !within && first[..31] == last[..31] {
            let held = self.tree(leaves, STEM_BITS, true);
            let mut stem = *first;
            stem[31] = 0;
            return self.pair(stem, held);
        }
        if depth == 256 {
            return self.value(value);
        }
        let (left, right) =
            leaves.split_at(leaves.partition_point(|(key, _)| bit(key, depth) == 0));
        let [left, right] = [left, right].map(|side| self.tree(side, depth + 1, within));
        self.pair(left, right)
    }

    /// Every leaf that some reading of a hash has, where `key` leads to it in its first `depth`
    /// bits.
    fn leaves(
        &self,
        hash: &Digest,
        key: Key,
        depth: usize,
        within: bool,
        out: &mut BTreeSet<Leaf>,
    ) {
        if depth == 256 {
            out.extend(self.values.get(hash).map(|value| (key, *value)));
            return;
        }
        let Some((left, right)) = self.pairs.get(hash) else { return };
        if !within && left[31] == 0 && (0..depth).all(|at| bit(left, at) == bit(&key, at)) {
            self.leaves(right, *left, STEM_BITS, true, out);
        }
        if within || depth < STEM_BITS {
            self.leaves(left, key, depth + 1, within, out);
            let mut key = key;
            key[depth / 8] |= 0x80 >> (depth % 8);
            self.leaves(right, key, depth + 1, within, out);
        }
    }

    /// Every way to write a node that has this hash for claims, in order, whose keys lead to it.
    fn write(&self, hash: &Digest, claims: &[Claim], depth: usize, within: bool) -> Vec<Vec<u8>> {
        let mut ways = Vec::new();
        let mut present = claims.iter().filter(|claim| claim.1.is_some());
        let first = present.next();
        if within {
            let leaf = first.filter(|_| present.next().is_none());
            let same = |(key, value): &&Claim| {
                let digest = sha256(&value.unwrap_or_default());
                *hash
                    == (depth..256).rev().fold(digest, |digest, at| match bit(key, at) {
                        0 => sha256([digest, EMPTY].as_flattened()),
                        _ => sha256([EMPTY, digest].as_flattened()),
                    })
            };
            ways.extend(leaf.filter(same).map(|_| vec![2]));
        } else if let (Some((key, _)), Some((stem, held))) = (first, self.pairs.get(hash))
            && *stem == [&key[..31], &[0]].concat()[..]
        {
            let of_stem = |claim: &&Claim| claim.0[..31] == stem[..31];
            let claims: Vec<_> = claims.iter().filter(of_stem).copied().collect();
            let below = self.write(held, &claims, STEM_BITS, true);
            ways.extend(below.into_iter().map(|below| [vec![2], below].concat()));
        }
        ways.extend(self.write_fork(hash, claims, depth, within));
        ways
    }

    fn write_fork(
        &self,
        hash: &Digest,
        claims: &[Claim],
        depth: usize,
        within: bool,
    ) -> Vec<Vec<u8>> {
        let (mut hash, mut skip) = (*hash, Vec::new());
        let (left, right) = loop {
            match self.pairs.get(&hash) {
                None => return Vec::new(),
                Some((EMPTY, right)) => (skip.push(1), hash = *right).1,
                Some((left, EMPTY)) => (skip.push(0), hash = *left).1,
                Some(sides) => break sides,
            }
        };
        let fork = depth + skip.len();
        if fork >= if within { 256 } else { STEM_BITS } {
            return Vec::new();
        }
        let on =
            |claim: &&Claim| skip.iter().zip(depth..).all(|(side, at)| bit(&claim.0, at) == *side);
        let below: Vec<Claim> = claims.iter().filter(on).copied().collect();
        let mut head = vec![u8::from(below.len() < claims.len()), skip.len() as u8 & 0x7f];
        if skip.len() > 0x7f {
            head[1] |= 0x80;
            head.push((skip.len() >> 7) as u8);
        }
        if head[0] == 1 {
            let pack = |bits: &[u8]| {
                bits.iter().zip(0..).fold(0, |byte, (bit, at)| byte | bit << (7 - at))
            };
            head.extend(skip.chunks(8).map(pack));
        }
        let sides = below.split_at(below.partition_point(|claim| bit(&claim.0, fork) == 0));
        let [lefts, rights] = [(left, sides.0), (right, sides.1)].map(|(hash, claims)| {
            if claims.is_empty() {
                vec![hash.to_vec()]
            } else {
                self.write(hash, claims, fork + 1, within)
            }
        });
        let join = |left: &Vec<u8>| {
            rights.iter().map(|right| [&head[..], left, right].concat()).collect::<Vec<_>>()
        };
        lefts.iter().flat_map(join).collect()
    }

    /// Every proof of a claim that leads to a root, with up to two neighbours of those that some
    /// reading has.
    fn proofs(&self, root: &Digest, claim: Claim, leaves: &[Leaf]) -> Vec<Vec<u8>> {
        let others: Vec<_> = leaves.iter().filter(|leaf| leaf.0 != claim.0).collect();
        let mut sets: Vec<Vec<&Leaf>> = vec![vec![]];
        for (index, one) in others.iter().enumerate() {
            sets.push(vec![*one]);
            let more = others[..index].iter().filter(|other| other.0 != one.0);
            sets.extend(more.map(|other| vec![*other, *one]));
        }
        let mut proofs = Vec::new();
        for neighbours in sets {
            let mut claims: Vec<Claim> =
                neighbours.iter().map(|(key, value)| (*key, Some(*value))).chain([claim]).collect();
            claims.sort_unstable();
            let mut head = vec![neighbours.len() as u8];
            for (key, value) in neighbours {
                head.push(32);
                head.extend([*key, *value].as_flattened());
            }
            let nodes = self.write(root, &claims, 0, false);
            proofs.extend(nodes.into_iter().map(|node| [&head[..], &node].concat()));
        }
        proofs
    }
}

type Claim = (Key, Option<Word>);

/// A digest that ends in zero, of all that `make` makes of numbers.
fn ends_in_zero(mut make: impl FnMut(u64) -> Digest) -> Digest {
    (0..).map(&mut make).find(|digest| digest[31] == 0).expect("one of 256 does")
}

fn numbered(number: u64) -> Word {
    let mut word = [0x77; 32];
    word[..8].copy_from_slice(&number.to_be_bytes());
    word
}

fn key(first: u8, rest: u8, place: u8) -> Key {
    let mut key = [rest; 32];
    (key[0], key[31]) = (first, place);
    key
}

/// Keys that an adversary would choose: the stem of zeros, its neighbours, and stems that are, with
/// the zero behind them, hashes of something. What these are of is put among what is known.
fn chosen(known: &mut Known) -> Vec<Key> {
    // A stem with a leaf that is in no tree.
    let fork = ends_in_zero(|n| known.tree(&[(key(0x12, 3, 9), numbered(n))], 1, false));
    // The same on the other side, and a leaf under seven of the eight levels of a stem.
    let held = ends_in_zero(|n| {
        let side = known.tree(&[(key(0, 0, 0), numbered(n))], STEM_BITS + 1, true);
        // It has to hang on the right.
        if side[0] < 0x80 { [1; 32] } else { side }
    });
    let mut keys = vec![key(0, 0, 0), key(0, 0, 0x80), key(0, 0, 0x41)];
    keys.extend([key(0x40, 0, 0), key(0x80, 0, 0), key(0xc0, 5, 0x81)]);
    for stem in [fork, held] {
        for place in [0, 0x80] {
            let mut key: Key = stem;
            key[31] = place;
            keys.push(key);
        }
    }
    keys
}

#[derive(Debug, Default)]
struct Counts {
    trees: usize,
    proofs: usize,
    /// Proofs that lead to the root and claim what is false: with a key that is present, and with a
    /// leaf.
    false_absent: usize,
    false_present: usize,
}

/// Checks every proof that can be written of one tree, and that the true ones can be made.
fn check(leaves: &[Leaf], known: &Known, counts: &mut Counts) {
    let mut known = known.clone();
    let root = known.tree(leaves, 0, false);
    let truth: BTreeMap<Key, Word> = leaves.iter().copied().collect();
    assert_eq!(root, reference::root(UBT.hash, &truth), "the hashes are those of the tree");
    let mut read = BTreeSet::new();
    known.leaves(&root, EMPTY, 0, false, &mut read);
    assert!(leaves.iter().all(|leaf| read.contains(leaf)));
    let read: Vec<Leaf> = read.into_iter().collect();
    let mut keys: BTreeSet<Key> = read.iter().map(|leaf| leaf.0).collect();
    for at in [0, 1, 248, 255] {
        let flipped = |leaf: &Leaf| {
            let mut key = leaf.0;
            key[at / 8] ^= 0x80 >> (at % 8);
            key
        };
        keys.extend(read.iter().map(flipped).collect::<Vec<_>>());
    }
    let absent = keys.iter().map(|key| (*key, None));
    let claims = absent.chain(read.iter().map(|(key, value)| (*key, Some(*value))));
    for claim in claims {
        let is_true = truth.get(&claim.0).copied() == claim.1;
        for proof in known.proofs(&root, claim, &read) {
            let entries = vec![(claim.0.to_vec(), claim.1)];
            let held = KeysProof { entries, proof: proof.clone() }.verify(&UBT, &root).is_ok();
            assert!(is_true || !held, "{claim:02x?} of {leaves:02x?} by {proof:02x?}");
            counts.proofs += 1;
            counts.false_absent += usize::from(!is_true && claim.1.is_none());
            counts.false_present += usize::from(!is_true && claim.1.is_some());
        }
    }
    let entries: Entries =
        leaves.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    for key in &keys {
        let _ = prove(&UBT, &entries, &[key.to_vec()]);
    }
    let _ = prove(&UBT, &entries, &keys.iter().map(|key| key.to_vec()).collect::<Vec<_>>());
    counts.trees += 1;
}

/// The same leaves, the first with another value, so that the root's left side ends in a zero.
fn ground(leaves: &[Leaf]) -> Option<Vec<Leaf>> {
    let left = leaves.partition_point(|(key, _)| key[0] < 0x80);
    if left == 0 || left == leaves.len() {
        return None;
    }
    let mut leaves = leaves.to_vec();
    ends_in_zero(|n| {
        leaves[0].1 = numbered(n);
        Known::default().tree(&leaves[..left], 1, false)
    });
    Some(leaves)
}

#[test]
fn no_reading_of_the_hashes_of_a_small_tree_shows_what_is_false() {
    let mut known = Known::default();
    let keys = chosen(&mut known);
    let mut counts = Counts::default();
    for set in 1_u32..1 << keys.len() {
        if set.count_ones() > 3 {
            continue;
        }
        let mut leaves: Vec<Leaf> = (0..keys.len())
            .filter(|at| set >> at & 1 == 1)
            .map(|at| (keys[at], [at as u8 + 1; 32]))
            .collect();
        leaves.sort_unstable();
        check(&leaves, &known, &mut counts);
        if let Some(leaves) = ground(&leaves) {
            check(&leaves, &known, &mut counts);
        }
    }
    println!("{counts:?}");
    // The adversary has something to say.
    assert!(counts.false_absent > 100 && counts.false_present > 100, "{counts:?}");
}

/// The tree of the keys 0x00..00 and 0x00..80: both were shown absent under its root.
#[test]
fn the_stem_of_zeros_is_not_taken_for_an_empty_side() {
    let entries = Entries::from([
        (vec![0; 32], vec![1; 32]),
        ([&[0; 31][..], &[0x80]].concat(), vec![2; 32]),
    ]);
    let (_, root) = prove(&UBT, &entries, &[vec![0; 32]]);
    let side = |value: u8| {
        let up = |digest, _| sha256([digest, EMPTY].as_flattened());
        (0..7).fold(sha256(&[value; 32]), up)
    };
    for key in entries.keys() {
        // No neighbour; a fork behind one bit, 1, where the key leaves: the sides of what the stem
        // holds.
        let proof = [&[0, 1, 1, 0x80][..], &side(1), &side(2)].concat();
        let forged = KeysProof { entries: vec![(key.clone(), None)], proof };
        let refused = forged.verify(&UBT, &root).unwrap_err().to_string();
        assert!(refused.contains("reads as a stem"), "{refused}");
    }
}
