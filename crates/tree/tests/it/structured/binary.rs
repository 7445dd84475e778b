//! Proofs of the binary trees: neighbours, and nodes as a tree.

use spinney_tree::binary::proof::{BinaryTree, KeysProof, Word};

use super::{Kind, pick, shuffle};
use crate::binary::{PBT, UBT};
use crate::binary_proofs::prove;
use crate::model::Entries;
use crate::mutations::Chance;

type Claim = (Vec<u8>, Option<Word>);

fn bit(key: &[u8], at: usize) -> u8 {
    key.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1)
}

#[derive(Clone)]
enum Node {
    /// The bits of the skip, whether they are told, and the sides.
    Fork(Vec<u8>, bool, Box<[Self; 2]>),
    Hash(Word),
    Leaf,
    Stem(Box<Self>),
}

/// A proof in its parts.
#[derive(Clone)]
struct Parts {
    claims: Vec<Claim>,
    neighbours: Vec<(Vec<u8>, Word)>,
    /// Nothing of an empty tree.
    node: Option<Node>,
}

/// Reads a proof that is known to be good.
struct Reader<'p> {
    bytes: &'p [u8],
    stems: bool,
}

impl Reader<'_> {
    fn take(&mut self, len: usize) -> Vec<u8> {
        let (part, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        part.to_vec()
    }

    fn number(&mut self) -> usize {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.take(1)[0];
            number |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    }

    /// A node to which these claims lead.
    fn node(&mut self, claims: &[Claim], depth: usize, within: bool) -> Node {
        let kind = self.take(1)[0];
        if kind == 2 {
            if !self.stems || within {
                return Node::Leaf;
            }
            let stem = claims.iter().find(|claim| claim.1.is_some()).unwrap().0[..31].to_vec();
            let claims: Vec<_> =
                claims.iter().filter(|claim| claim.0.starts_with(&stem)).cloned().collect();
            return Node::Stem(Box::new(self.node(&claims, 248, true)));
        }
        let skip = self.number();
        let told = kind == 1;
        let bits: Vec<u8> = if told {
            let packed = self.take(skip.div_ceil(8));
            (0..skip).map(|at| bit(&packed, at)).collect()
        } else {
            (depth..depth + skip).map(|at| bit(&claims[0].0, at)).collect()
        };
        let fork = depth + skip;
        let side = |claim: &Claim| {
            let below = bits.iter().zip(depth..).all(|(side, at)| bit(&claim.0, at) == *side);
            (below && 8 * claim.0.len() > fork).then(|| bit(&claim.0, fork))
        };
        let sides = [0, 1].map(|to| {
            let claims: Vec<_> =
                claims.iter().filter(|claim| side(claim) == Some(to)).cloned().collect();
            match claims.is_empty() {
                true => Node::Hash(self.take(32).try_into().unwrap()),
                false => self.node(&claims, fork + 1, within),
            }
        });
        Node::Fork(bits, told, Box::new(sides))
    }
}

fn put_number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

impl Node {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Fork(bits, told, sides) => {
                out.push(u8::from(*told));
                put_number(out, bits.len());
                if *told {
                    let pack = |bits: &[u8]| {
                        bits.iter().zip(0..).fold(0, |all, (bit, at)| all | bit << (7 - at))
                    };
                    out.extend(bits.chunks(8).map(pack));
                }
                sides.iter().for_each(|side| side.write(out));
            }
            Self::Hash(hash) => out.extend(hash),
            Self::Leaf => out.push(2),
            Self::Stem(below) => {
                out.push(2);
                below.write(out);
            }
        }
    }

    fn count(&self) -> usize {
        1 + match self {
            Self::Fork(_, _, sides) => sides.iter().map(Self::count).sum(),
            Self::Stem(below) => below.count(),
            _ => 0,
        }
    }

    /// The node that is `at`-th in order.
    fn at(&mut self, at: usize) -> &mut Self {
        if at == 0 {
            return self;
        }
        match self {
            Self::Fork(_, _, sides) => {
                let [left, right] = &mut **sides;
                let count = left.count();
                if at <= count { left.at(at - 1) } else { right.at(at - 1 - count) }
            }
            Self::Stem(below) => below.at(at - 1),
            _ => self,
        }
    }

    /// Changes this node; `foreign` is one of another proof.
    fn change(&mut self, chance: &mut Chance, foreign: &Self) {
        let draw = chance.below(9);
        match (self, draw) {
            (Self::Fork(_, _, sides), 0) => sides.swap(0, 1),
            (Self::Fork(_, _, sides), 1) => {
                let from = chance.below(2);
                sides[1 - from] = sides[from].clone();
            }
            // Deeper, higher, or along another way.
            (Self::Fork(bits, told, _), 2..=4) => {
                *told |= chance.below(2) == 0;
                let at = chance.below(bits.len());
                match chance.below(4) {
                    0 => bits.insert(at, chance.below(2) as u8),
                    1 if !bits.is_empty() => drop(bits.remove(at)),
                    2 if !bits.is_empty() => bits[at] ^= 1,
                    _ => bits.clear(),
                }
            }
            (Self::Fork(_, told, _), 5) => *told = !*told,
            (Self::Hash(hash), 0) => *hash = [0; 32],
            (Self::Hash(hash), 1) => hash[chance.below(32)] ^= 1 << chance.below(8),
            // Something else stands here.
            (node, 6) => {
                let stem = Self::Stem(Box::new(node.clone()));
                *node = match (chance.below(3), &*node) {
                    (0, Self::Stem(below)) => (**below).clone(),
                    (0 | 1, _) => stem,
                    _ => Self::Leaf,
                };
            }
            (node, 7) => {
                // An empty side beside it.
                let sides = [Self::Hash([0; 32]), node.clone()];
                *node = Self::Fork(Vec::new(), chance.below(2) == 0, Box::new(sides));
            }
            (node, _) => *node = foreign.clone(),
        }
    }
}

impl Parts {
    fn of(proof: &KeysProof, stems: bool) -> Self {
        let mut claims = proof.entries.clone();
        claims.sort_unstable();
        if proof.proof.is_empty() {
            return Self { claims, neighbours: Vec::new(), node: None };
        }
        let mut reader = Reader { bytes: &proof.proof, stems };
        let neighbour = |reader: &mut Reader<'_>| {
            let len = reader.number();
            (reader.take(len), reader.take(32).try_into().unwrap())
        };
        let count = reader.number();
        let neighbours: Vec<(_, Word)> = (0..count).map(|_| neighbour(&mut reader)).collect();
        let mut all = claims.clone();
        all.extend(neighbours.iter().map(|(key, value)| (key.clone(), Some(*value))));
        all.sort_unstable();
        let node = Some(reader.node(&all, 0, false));
        let parts = Self { claims, neighbours, node };
        assert_eq!(parts.join().proof, proof.proof, "the parts are all of it");
        parts
    }

    fn join(&self) -> KeysProof {
        let mut proof = Vec::new();
        if let Some(node) = &self.node {
            put_number(&mut proof, self.neighbours.len());
            for (key, value) in &self.neighbours {
                put_number(&mut proof, key.len());
                proof.extend_from_slice(key);
                proof.extend_from_slice(value);
            }
            node.write(&mut proof);
        }
        KeysProof { entries: self.claims.clone(), proof }
    }

    fn change(&mut self, chance: &mut Chance, foreign: &Self, keys: &[Vec<u8>]) {
        let mut other = foreign.node.clone().unwrap_or(Node::Leaf);
        let other = other.at(chance.below(other.count())).clone();
        match chance.below(10) {
            0..=4 => match &mut self.node {
                Some(node) => {
                    let at = chance.below(node.count());
                    node.at(at).change(chance, &other);
                }
                node => *node = Some(other),
            },
            5 => {
                shuffle(chance, &mut self.neighbours, &foreign.neighbours);
                if chance.below(4) > 0 {
                    self.neighbours.sort_unstable();
                }
            }
            // A claim becomes a neighbour, or a neighbour a claim.
            6 => {
                let at = chance.below(self.claims.len() + self.neighbours.len());
                if at >= self.claims.len() {
                    if at - self.claims.len() < self.neighbours.len() {
                        let (key, value) = self.neighbours.remove(at - self.claims.len());
                        self.claims.push((key, Some(value).filter(|_| chance.below(2) == 0)));
                    }
                } else if let (key, Some(value)) = self.claims.remove(at) {
                    self.neighbours.push((key, value));
                    self.neighbours.sort_unstable();
                }
            }
            7 => shuffle(chance, &mut self.claims, &foreign.claims),
            8 => self.node = self.node.take().filter(|_| chance.below(4) > 0),
            _ => self.change_claim(chance, foreign, keys),
        }
    }

    fn change_claim(&mut self, chance: &mut Chance, foreign: &Self, keys: &[Vec<u8>]) {
        let at = chance.below(self.claims.len());
        let Some((key, value)) = self.claims.get_mut(at) else { return };
        let last = key.len().saturating_sub(1);
        match chance.below(6) {
            0 => *value = None,
            1 => *value = pick(chance, &foreign.claims).and_then(|claim| claim.1),
            2 if !key.is_empty() => key[chance.below(last + 1)] ^= 1 << chance.below(8),
            3 if !key.is_empty() => key[last] ^= 0x80 >> chance.below(8),
            4 => *key = pick(chance, keys).unwrap_or(key).clone(),
            _ => {
                let value = value.get_or_insert([0; 32]);
                value[chance.below(32)] ^= 1 << chance.below(8);
            }
        }
    }
}

struct Tree {
    root: Word,
    entries: Entries,
    proofs: Vec<Parts>,
}

pub(super) struct Trees<S> {
    scheme: S,
    name: &'static str,
    trees: Vec<Tree>,
    /// Keys of all trees, and some of none.
    keys: Vec<Vec<u8>>,
}

impl Trees<spinney_tree::ubt::Ubt> {
    pub(super) fn ubt() -> Self {
        let key = |first: u8, rest: u8, place: u8| {
            let mut key = vec![rest; 32];
            (key[0], key[31]) = (first, place);
            key
        };
        let sets: [Vec<Vec<u8>>; 7] = [
            vec![],
            vec![key(0, 0, 0)],
            vec![key(0, 0, 0), key(0, 0, 0x80)],
            vec![key(0, 0, 0), key(0x80, 0, 0), key(0x40, 0, 7)],
            vec![key(0xc0, 9, 1), key(0xc0, 9, 2), key(0xc0, 8, 2), key(0, 0, 255)],
            (0..60).map(|n| key(n * 4, n % 3, n.wrapping_mul(7))).collect(),
            (0..40).map(|n| key(n % 4, n % 2, n * 6)).collect(),
        ];
        let absent =
            [key(0, 0, 1), key(0x20, 0, 0), key(0xc0, 9, 3), key(0xff, 9, 3), key(1, 1, 1)];
        Self::new(UBT, "UBT", &sets, &absent)
    }
}

impl Trees<spinney_tree::pbt::Pbt> {
    pub(super) fn pbt() -> Self {
        let key = |first: u8, len: usize, last: u8| {
            let mut key = vec![first; len];
            key[len - 1] = last;
            key
        };
        let sets: [Vec<Vec<u8>>; 5] = [
            vec![],
            vec![key(0, 31, 0)],
            vec![key(1, 31, 0), key(2, 66, 0), key(0x80, 2, 1)],
            (0..40).map(|n| key(n * 6, 34, n)).collect(),
            (0..40).map(|n| key(n % 5 + 1, 20, n)).collect(),
        ];
        let absent =
            [key(1, 34, 1), key(2, 20, 200), key(0, 31, 1), key(6, 34, 9), key(0x81, 1, 0x80)];
        Self::new(PBT, "PBT", &sets, &absent)
    }
}

impl<S: BinaryTree + Clone> Trees<S> {
    fn new(scheme: S, name: &'static str, sets: &[Vec<Vec<u8>>], absent: &[Vec<u8>]) -> Self {
        let tree = |keys: &Vec<Vec<u8>>| {
            let entries: Entries = keys
                .iter()
                .map(|key| (key.clone(), vec![key[0] ^ key[key.len() - 1] | 1; 32]))
                .collect();
            let mut asked: Vec<Vec<Vec<u8>>> = absent.iter().map(|key| vec![key.clone()]).collect();
            asked.extend(entries.keys().step_by(7).map(|key| vec![key.clone()]));
            asked.push(entries.keys().step_by(3).cloned().chain(absent.to_vec()).collect());
            let mut root = [0; 32];
            let mut parts = |keys: Vec<Vec<u8>>| {
                let (proof, of) = prove(&scheme, &entries, &keys);
                root = of;
                Parts::of(&proof, S::STEMS)
            };
            let proofs = asked.into_iter().map(&mut parts).collect();
            Tree { root, entries, proofs }
        };
        let trees = sets.iter().map(tree).collect();
        let keys = sets.iter().flatten().chain(absent).cloned().collect();
        Self { scheme, name, trees, keys }
    }

    fn holds(&self, tree: &Tree, parts: &Parts) -> bool {
        let Ok(verified) = parts.join().verify(&self.scheme, &tree.root) else { return false };
        for (key, value) in verified.iter() {
            let truth = tree.entries.get(key).map(|value| &value[..]);
            assert_eq!(value.map(|value| &value[..]), truth, "a false claim of key {key:02x?}");
        }
        true
    }
}

impl<S: BinaryTree + Clone> Kind for Trees<S> {
    fn name(&self) -> (&'static str, usize) {
        (self.name, 20)
    }

    fn check_honest(&self) {
        for tree in &self.trees {
            tree.proofs.iter().for_each(|parts| assert!(self.holds(tree, parts)));
        }
    }

    fn try_change(&self, chance: &mut Chance) -> bool {
        let [tree, other] = [0; 2].map(|_| pick(chance, &self.trees).expect("there are trees"));
        let mut parts = pick(chance, &tree.proofs).expect("there are proofs").clone();
        let foreign = pick(chance, &other.proofs).expect("there are proofs");
        for _ in 0..1 + chance.below(3) {
            parts.change(chance, foreign, &self.keys);
        }
        let of = if chance.below(20) == 0 { other } else { tree };
        self.holds(of, &parts)
    }
}
