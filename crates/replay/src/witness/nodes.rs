use std::cell::RefCell;

use alloy_primitives::{
    Address, B256, Bytes, keccak256,
    map::{B256Map, HashMap, HashSet},
};
use spinney_hash::{Inputs, keccak256_many};
use spinney_tree::mpt::partial::{NodeSource, PartialError};

use super::WitnessStateError;

/// Bytes that are hashed in one call.
const HASHED_TOGETHER: usize = 1 << 18;

/// What a node is asked for: an account, or a slot in the storage of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) account: Address,
    pub(super) slot: Option<B256>,
    /// The digest of the account or the slot: the key in its trie.
    pub(super) key: B256,
    pub(super) does: Does,
}

/// What is done with the entry that a node is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Read,
    Write,
}

impl Place {
    pub(super) fn of(account: Address, slot: Option<B256>, does: Does) -> Self {
        let key = slot.map_or_else(|| keccak256(account), keccak256);
        Self { account, slot, key, does }
    }

    /// Whether the digits lead to the key.
    pub(super) fn is_on_path(&self, path: &[u8]) -> bool {
        let digit = |index: usize| {
            let byte = self.key.0.get(index / 2)?;
            Some(if index.is_multiple_of(2) { byte >> 4 } else { byte & 15 })
        };
        path.iter().enumerate().all(|(index, found)| digit(index) == Some(*found))
    }

    pub(super) fn failed(&self, source: PartialError) -> WitnessStateError {
        WitnessStateError::Node { account: self.account, slot: self.slot, source }
    }
}

/// Where the nodes of a state come from.
pub(super) trait StateNodes {
    /// The node with this digest, which lies at these digits of the trie that the place is in.
    fn node(&self, place: &Place, digest: &[u8; 32], path: &[u8]) -> Option<Bytes>;

    /// Whether a write that lacks a node is noted and passed over, so that all that is lacked is
    /// found.
    fn goes_on(&self) -> bool {
        false
    }
}

/// The nodes of one trie of a state.
pub(super) struct TrieNodes<'a, N> {
    pub(super) nodes: &'a N,
    pub(super) place: Place,
}

impl<N: StateNodes> NodeSource for TrieNodes<'_, N> {
    type Rlp = Bytes;

    fn node(&self, digest: &[u8; 32], path: &[u8]) -> Option<Bytes> {
        self.nodes.node(&self.place, digest, path)
    }
}

/// Why a node of a witness was needed, by the first who needed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) place: Place,
    pub(super) path: Vec<u8>,
}

impl Need {
    /// Whether both are of one place in one trie.
    pub(super) fn is_same_node(&self, other: &Self) -> bool {
        let trie = |place: &Place| place.slot.map(|_| place.account);
        self.path == other.path && trie(&self.place) == trie(&other.place)
    }

    /// Whether it is the node that a deletion leaves alone.
    pub(super) fn is_survivor(&self) -> bool {
        !self.place.is_on_path(&self.path)
    }
}

/// The nodes of a witness by their digests, and who needed each.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    known: B256Map<(u32, Bytes)>,
    noted: Option<RefCell<Noted>>,
}

/// What was asked of nodes.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// By the node's place in the witness.
    pub(super) needs: HashMap<u32, Need>,
    /// Those that lie on the path of something that is written.
    pub(super) written: HashSet<u32>,
    pub(super) missing: Vec<(B256, Need)>,
}

impl Nodes {
    /// Nodes with their digests.
    pub(super) fn new(nodes: &[Bytes], digests: &[B256]) -> Self {
        let mut all = Self::default();
        all.known.reserve(nodes.len());
        all.add(nodes, digests);
        all
    }

    /// Adds nodes with their digests.
    pub(super) fn add(&mut self, nodes: &[Bytes], digests: &[B256]) {
        let first = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        for ((index, rlp), digest) in (first..).zip(nodes).zip(digests) {
            self.known.entry(*digest).or_insert_with(|| (index, rlp.clone()));
        }
    }

    pub(super) fn has(&self, digest: B256) -> bool {
        self.known.contains_key(&digest)
    }

    /// From here on notes what is asked, and goes on where a write lacks a node.
    pub(super) fn note(&mut self) {
        self.noted = Some(RefCell::default());
    }

    pub(super) fn take_noted(&self) -> Noted {
        self.noted.as_ref().map(RefCell::take).unwrap_or_default()
    }
}

impl StateNodes for Nodes {
    fn node(&self, place: &Place, digest: &[u8; 32], path: &[u8]) -> Option<Bytes> {
        let found = self.known.get(&B256::from(*digest));
        if let Some(noted) = &self.noted {
            let mut noted = noted.borrow_mut();
            let need = || Need { place: *place, path: path.to_vec() };
            match found {
                Some((index, _)) => {
                    noted.needs.entry(*index).or_insert_with(need);
                    if place.does == Does::Write {
                        noted.written.insert(*index);
                    }
                }
                None => {
                    let need = need();
                    let digest = B256::from(*digest);
                    let is_new = |(other, known): &(B256, Need)| {
                        *other != digest || !known.is_same_node(&need)
                    };
                    if noted.missing.iter().all(is_new) {
                        noted.missing.push((digest, need));
                    }
                }
            }
        }
        found.map(|(_, rlp)| rlp.clone())
    }

    fn goes_on(&self) -> bool {
        self.noted.is_some()
    }
}

/// The digests of many inputs, in their order.
pub(super) fn digests<B: AsRef<[u8]>>(all: &[B]) -> Vec<B256> {
    let mut digests = vec![[0; 32]; all.len()];
    let (mut bytes, mut ends, mut first) = (Vec::new(), Vec::new(), 0);
    let mut hash = |bytes: &mut Vec<u8>, ends: &mut Vec<u32>, range: std::ops::Range<usize>| {
        keccak256_many(Inputs::new(bytes, ends), &mut digests[range]);
        bytes.clear();
        ends.clear();
    };
    for (index, one) in all.iter().enumerate() {
        let one = one.as_ref();
        if one.len() > HASHED_TOGETHER - bytes.len().min(HASHED_TOGETHER) {
            hash(&mut bytes, &mut ends, first..index);
            first = index;
        }
        bytes.extend_from_slice(one);
        // No witness is read whose entries are longer.
        ends.push(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    }
    hash(&mut bytes, &mut ends, first..all.len());
    digests.into_iter().map(B256::from).collect()
}
