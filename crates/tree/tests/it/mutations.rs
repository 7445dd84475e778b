//! Valid proofs, changed at random: what still holds says the truth.
//!
//! `SPINNEY_MUTATIONS` says how many changes are tried; the same number tries the same ones.

use std::collections::BTreeMap;

use spinney_hash::keccak256;
use spinney_tree::mpt::proof::{AccountFields, AccountProof, Proof, RangeProof};
use spinney_tree::mpt::{Mpt, MptState, account_value, slot_value};
use spinney_tree::{Batch, MemoryStore, PageStore as _, Tree, TreeId};

use crate::model::Entries;

/// How many changes are tried unless told otherwise.
const MUTATIONS: u64 = 50_000;

/// Chance from a seed (splitmix64).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Changes bytes in one of many ways.
    fn bytes(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        match self.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, self.next() as u8),
            2 => bytes.extend_from_slice(&[self.next() as u8]),
            3 if !bytes.is_empty() => drop(bytes.remove(at)),
            4 if !bytes.is_empty() => bytes[at] = self.next() as u8,
            _ if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
            _ => {}
        }
    }

    fn word(&mut self, word: &mut [u8]) {
        let at = self.below(word.len());
        word[at] ^= 1 << self.below(8);
    }

    /// Changes a list of nodes in one of many ways; `others` are nodes from elsewhere.
    fn nodes(&mut self, nodes: &mut Vec<Vec<u8>>, others: &[Vec<u8>]) {
        let (at, other) = (self.below(nodes.len()), self.below(nodes.len()));
        match self.below(9) {
            0 => nodes.truncate(at),
            1 if !nodes.is_empty() => drop(nodes.remove(at)),
            2 if !nodes.is_empty() => nodes.push(nodes[at].clone()),
            3 if !nodes.is_empty() => nodes.swap(at, other),
            4 => nodes.insert(at, others[self.below(others.len())].clone()),
            5 if !nodes.is_empty() => nodes[at] = others[self.below(others.len())].clone(),
            6 if at != other => {
                let from = nodes[other].clone();
                let cut = self.below(from.len().min(nodes[at].len()));
                nodes[at].splice(cut.., from[cut..].iter().copied());
            }
            _ if !nodes.is_empty() => self.bytes(&mut nodes[at]),
            _ => nodes.push(vec![self.next() as u8]),
        }
    }
}

type Slots = BTreeMap<[u8; 32], [u8; 32]>;

/// A proof and the whole truth.
pub(crate) struct Fixture {
    pub(crate) root: [u8; 32],
    pub(crate) entries: Entries,
    accounts: BTreeMap<[u8; 20], (AccountFields, Slots)>,
    pub(crate) proof: AnyProof,
}

#[derive(Clone, PartialEq)]
pub(crate) enum AnyProof {
    Keys(Vec<Vec<u8>>, Proof),
    Range(RangeProof),
    Account(AccountProof),
}

impl AnyProof {
    pub(crate) fn nodes(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Keys(_, proof) => proof.nodes().to_vec(),
            Self::Range(range) => range.nodes.clone(),
            Self::Account(account) => account.account_proof.nodes().to_vec(),
        }
    }

    fn mutate(&mut self, chance: &mut Chance, others: &[Vec<u8>]) {
        let change = |proof: &mut Proof, chance: &mut Chance| {
            let mut nodes = proof.nodes().to_vec();
            chance.nodes(&mut nodes, others);
            *proof = Proof::new(nodes);
        };
        match self {
            Self::Keys(keys, proof) => match chance.below(5) {
                0 if !keys.is_empty() => {
                    let at = chance.below(keys.len());
                    chance.bytes(&mut keys[at]);
                }
                _ => change(proof, chance),
            },
            Self::Range(range) => match chance.below(8) {
                0 => chance.bytes(&mut range.start),
                1 => match &mut range.end {
                    Some(end) => chance.bytes(end),
                    end => *end = range.entries.last().map(|entry| entry.0.clone()),
                },
                2 => range.end = None,
                3 | 4 if !range.entries.is_empty() => {
                    let at = chance.below(range.entries.len());
                    match chance.below(4) {
                        0 => drop(range.entries.remove(at)),
                        1 => range.entries.insert(at, range.entries[at].clone()),
                        2 => chance.bytes(&mut range.entries[at].0),
                        _ => chance.bytes(&mut range.entries[at].1),
                    }
                }
                _ => chance.nodes(&mut range.nodes, others),
            },
            Self::Account(account) => match (chance.below(8), &mut account.storage_proof[..]) {
                (0, _) => chance.word(&mut account.address),
                (1, _) => match chance.below(4) {
                    0 => account.fields.nonce ^= 1 << chance.below(64),
                    1 => chance.word(&mut account.fields.balance),
                    2 => chance.word(&mut account.fields.storage_hash),
                    _ => chance.word(&mut account.fields.code_hash),
                },
                (2 | 3, [slot, ..]) => change(&mut slot.proof, chance),
                (4, [slot, ..]) => chance.word(&mut slot.key),
                (5, [slot, ..]) => chance.word(&mut slot.value),
                (6, [one, .., other]) => std::mem::swap(&mut one.proof, &mut other.proof),
                _ => change(&mut account.account_proof, chance),
            },
        }
    }
}

impl Fixture {
    /// Whether a changed proof holds; if it does, it has to say the truth.
    pub(crate) fn holds(&self, root: &[u8; 32], proof: &AnyProof) -> bool {
        let right_root = *root == self.root;
        match proof {
            AnyProof::Keys(keys, proof) => {
                let Ok(verified) = proof.verify(root, keys) else { return false };
                for (key, value) in verified.iter() {
                    assert_eq!(value, self.entries.get(key).map(|value| &value[..]), "{key:02x?}");
                }
                assert!(right_root);
            }
            AnyProof::Range(range) => {
                let Ok(verified) = range.clone().verify(root) else { return false };
                assert!(right_root);
                let (start, end) = (&range.start, range.end.as_ref());
                let inside = |key: &Vec<u8>| key >= start && end.is_none_or(|end| key <= end);
                let expected = self.entries.iter().filter(|(key, _)| inside(key));
                assert!(verified.entries().iter().map(|(key, value)| (key, value)).eq(expected));
                let more = end.is_some_and(|end| self.entries.keys().any(|key| key > end));
                assert_eq!(verified.has_more(), more);
            }
            AnyProof::Account(proof) => {
                let Ok(verified) = proof.verify(root) else { return false };
                assert!(right_root);
                let truth = self.accounts.get(&proof.address);
                assert_eq!(verified.account(), truth.map(|(fields, _)| fields));
                for slot in &proof.storage_proof {
                    let value = truth.and_then(|(_, slots)| slots.get(&slot.key));
                    assert_eq!(verified.slot(&slot.key).unwrap(), *value.unwrap_or(&[0; 32]));
                    assert_eq!(slot.value, *value.unwrap_or(&[0; 32]));
                }
            }
        }
        true
    }
}

fn raw(entries: Entries, fixtures: &mut Vec<Fixture>) {
    let store = MemoryStore::new();
    let tree = Tree::open(Mpt, TreeId(1), &store.snapshot().unwrap(), 1 << 20).unwrap();
    let mut batch = Batch::new();
    entries.iter().for_each(|(key, value)| batch.put(key, value));
    let snapshot = store.snapshot().unwrap();
    let pending = tree.prepare(&snapshot, None, batch).unwrap();
    let root = pending.root();
    let mut add = |proof| {
        let (entries, accounts) = (entries.clone(), BTreeMap::new());
        fixtures.push(Fixture { root, entries, accounts, proof });
    };
    let mut wanted: Vec<_> = entries.keys().step_by(entries.len() / 3 + 1).cloned().collect();
    wanted.extend([vec![], vec![0x12], b"absent".to_vec(), keccak256(b"absent").to_vec()]);
    for key in &wanted {
        let proof = tree.prove(&snapshot, Some(&pending), &[key]).unwrap();
        add(AnyProof::Keys(vec![key.clone()], proof));
    }
    let proof = tree.prove(&snapshot, Some(&pending), &wanted).unwrap();
    add(AnyProof::Keys(wanted.clone(), proof));
    let (low, high) = (wanted.iter().min().unwrap(), wanted.iter().max().unwrap());
    let (first, last) = (wanted[0].clone(), high.clone());
    for (start, end, limit) in [
        (low, Some(&last), 20),
        (&first, None, 5),
        (&first, Some(&first), 9),
        (&vec![], Some(&last), 1_000),
        (&vec![0xff; 33], None, 10),
    ] {
        let end = end.map(|end| &end[..]);
        let range = tree.prove_range(&snapshot, Some(&pending), start, end, limit).unwrap();
        add(AnyProof::Range(range));
    }
}

fn state(fixtures: &mut Vec<Fixture>) {
    let store = MemoryStore::new();
    let snapshot = store.snapshot().unwrap();
    let tree = Tree::open(MptState, TreeId(1), &snapshot, 1 << 20).unwrap();
    let mut batch = Batch::new();
    let mut slots = BTreeMap::new();
    for n in 0..40_u8 {
        let key = keccak256(&[n; 20]);
        batch.put(&key, &account_value(u64::from(n), &[n; 32], &[n; 32]));
        let storage: &mut Slots = slots.entry([n; 20]).or_default();
        for slot in 0..n % 8 * 5 {
            storage.insert([slot; 32], [slot | 1; 32]);
            let path = [key, keccak256(&[slot; 32])].concat();
            batch.put(&path, &slot_value(&[slot | 1; 32]));
        }
    }
    let pending = tree.prepare(&snapshot, None, batch).unwrap();
    let root = pending.root();
    let all: Vec<_> = (0..50).map(|n| ([n; 20], vec![[2; 32], [3; 32], [77; 32]])).collect();
    let proofs = tree.prove_accounts(&snapshot, Some(&pending), &all).unwrap();
    let accounts = proofs.iter().zip(slots);
    let accounts: BTreeMap<_, _> =
        accounts.map(|(proof, (address, slots))| (address, (proof.fields, slots))).collect();
    for proof in proofs {
        let (entries, accounts) = (Entries::new(), accounts.clone());
        fixtures.push(Fixture { root, entries, accounts, proof: AnyProof::Account(proof) });
    }
}

pub(crate) fn fixtures() -> Vec<Fixture> {
    let mut fixtures = Vec::new();
    let hashed = |n: u32| (keccak256(&n.to_be_bytes()).to_vec(), vec![n as u8 | 1; 40]);
    raw((0..300).map(hashed).collect(), &mut fixtures);
    raw((0..60_u8).map(|n| (vec![n; usize::from(n % 4)], vec![n | 1; 2])).collect(), &mut fixtures);
    raw((0..9_u8).map(|n| (vec![n << 4, n], vec![n | 1])).collect(), &mut fixtures);
    raw(Entries::from([(b"one".to_vec(), vec![1; 50])]), &mut fixtures);
    state(&mut fixtures);
    fixtures
}

/// Says which change it was, where one makes the test panic.
pub(crate) struct Named(pub(crate) u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("it was change {}", self.0);
        }
    }
}

/// How many changes are to be tried.
pub(crate) fn mutations(unless_told: u64) -> u64 {
    std::env::var("SPINNEY_MUTATIONS")
        .map_or(unless_told, |text| text.parse().expect("SPINNEY_MUTATIONS is a number"))
}

#[test]
fn a_changed_proof_is_refused_or_says_the_truth() {
    let count = mutations(MUTATIONS);
    let fixtures = fixtures();
    let others: Vec<_> = fixtures.iter().flat_map(|fixture| fixture.proof.nodes()).collect();
    for fixture in &fixtures {
        assert!(fixture.holds(&fixture.root, &fixture.proof), "a good proof holds");
    }
    let (mut refused, mut same) = (0_u64, 0_u64);
    for number in 0..count {
        let _named = Named(number);
        let mut chance = Chance(number);
        let fixture = &fixtures[chance.below(fixtures.len())];
        let (mut root, mut proof) = (fixture.root, fixture.proof.clone());
        if chance.below(12) == 0 {
            chance.word(&mut root);
        } else {
            for _ in 0..1 + chance.below(2) {
                proof.mutate(&mut chance, &others);
            }
        }
        if fixture.holds(&root, &proof) { same += 1 } else { refused += 1 }
    }
    println!("{count} changes: {refused} refused, {same} hold and say the truth");
    assert!(refused > same * 4, "{refused} refused, {same} hold");
}
