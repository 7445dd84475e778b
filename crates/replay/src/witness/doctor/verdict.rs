//! What an execution says of a witness.

use std::collections::BTreeSet;

use alloy_primitives::{
    B256, Bytes,
    map::{B256Map, B256Set, HashMap, HashSet},
};
use serde::Serialize;

use super::findings::{FindingKind, Findings};
use super::headers::Lineage;
use super::shape::{Below, NamedAddresses, Whereabouts, below, digits};
use crate::{
    error::ReplayError,
    source::ChainBlock,
    witness::{
        Witness, WitnessError, WitnessStateError,
        nodes::{Does, Need, Noted, digests},
        reads::Keys,
        state::Asked,
    },
};

/// How often each part of a witness was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PartCounts {
    /// Nodes on the path of something that is read, and nothing that is written.
    pub reads: usize,
    /// Nodes on the path of something that is written.
    pub writes: usize,
    /// Nodes that a deletion leaves alone.
    pub collapses: usize,
    /// Nodes that nothing needs.
    pub surplus: usize,
    /// Codes that are needed.
    pub codes: usize,
    /// Headers that are needed.
    pub headers: usize,
    /// Keys that are looked up.
    pub keys: usize,
}

/// An execution on a witness that ended, well or not.
pub(super) struct Ended<'a> {
    pub(super) witness: &'a Witness,
    /// The digests of its nodes.
    pub(super) nodes: &'a [B256],
    pub(super) root: B256,
    pub(super) noted: Noted,
    pub(super) asked: Asked,
    pub(super) known: NamedAddresses,
}

/// Why a node is needed, in words.
pub(super) fn reason(need: &Need) -> String {
    let place = &need.place;
    let what = match place.slot {
        None => format!("account {}", place.account),
        Some(slot) => format!("account {}, slot {slot}", place.account),
    };
    let path = digits(&need.path);
    match place.does {
        _ if need.is_survivor() => {
            format!("path {path} beside {what}, whose deletion leaves it alone")
        }
        Does::Write => format!("path {path}, written for {what}"),
        Does::Read => format!("path {path}, read for {what}"),
    }
}

impl Ended<'_> {
    pub(super) fn into_needs(self) -> B256Map<Need> {
        let nodes = self.nodes;
        let needs = self.noted.needs.into_iter();
        needs.filter_map(|(index, need)| Some((*nodes.get(index as usize)?, need))).collect()
    }

    /// Counts what was needed, names what was not, and makes the canonical witness.
    pub(super) fn well(
        &self,
        lineage: &Lineage,
        oldest: Option<u64>,
        parts: &mut PartCounts,
        findings: &mut Findings,
    ) -> Witness {
        let (state, witness) = (self.state(parts, findings), self.witness);
        let codes = self.codes(findings);
        let keys = match witness.keys.is_empty() {
            true => Vec::new(),
            false => self.keys(findings),
        };
        let headers = lineage.needed(witness, oldest, findings);
        (parts.codes, parts.headers, parts.keys) = (codes.len(), headers.len(), keys.len());
        Witness { state, codes, keys, headers }
    }

    fn state(&self, parts: &mut PartCounts, findings: &mut Findings) -> Vec<Bytes> {
        let (mut needed, mut surplus) = (Vec::new(), Vec::new());
        for (index, rlp) in (0_u32..).zip(&self.witness.state) {
            match self.noted.needs.get(&index) {
                Some(need) => {
                    needed.push(rlp.clone());
                    match need.place.does {
                        _ if need.is_survivor() => parts.collapses += 1,
                        _ if self.noted.written.contains(&index) => parts.writes += 1,
                        _ => parts.reads += 1,
                    }
                }
                None => surplus.push(index as usize),
            }
        }
        if !surplus.is_empty() {
            // Doubles of what is needed are named as such.
            let needed = self.noted.needs.keys().map(|index| self.nodes[*index as usize]);
            let needed: B256Set = needed.collect();
            surplus.retain(|index| !needed.contains(&self.nodes[*index]));
        }
        parts.surplus = surplus.len();
        if !surplus.is_empty() {
            let places = Whereabouts::of(&self.witness.state, self.nodes, self.root);
            for index in surplus {
                let digest = self.nodes[index];
                findings.say(FindingKind::Surplus, || {
                    let where_ = match places.get(&digest) {
                        Some(position) => {
                            format!("{}, and nothing needs it", self.known.say(position))
                        }
                        None => "and no node of the witness leads to it".to_owned(),
                    };
                    format!("state, entry {index}: node {digest} is {where_}")
                });
            }
        }
        needed.sort_unstable();
        needed
    }

    fn codes(&self, findings: &mut Findings) -> Vec<Bytes> {
        let wanted: HashMap<_, _> = self.asked.codes.wanted().collect();
        let made: BTreeSet<_> = self.asked.codes.others().collect();
        let mut needed = Vec::new();
        let all = digests(&self.witness.codes).into_iter().zip(&self.witness.codes);
        for (index, (hash, code)) in all.enumerate().filter(|(_, (_, code))| !code.is_empty()) {
            if wanted.contains_key(&hash) {
                needed.push(code.clone());
                continue;
            }
            findings.say(FindingKind::Code, || {
                let why = match made.contains(&hash) {
                    true => "no account that was read had it before the block",
                    false => "nothing reads it",
                };
                format!("codes, entry {index}: {hash} is surplus, {why}")
            });
        }
        needed.sort_unstable();
        needed.dedup();
        needed
    }

    fn keys(&self, findings: &mut Findings) -> Vec<Bytes> {
        let expected = self.asked.keys.sorted();
        let given: HashSet<_> = self.witness.keys.iter().collect();
        let lacks = |key: &[u8]| !given.contains(&Bytes::copy_from_slice(key));
        let Keys(accounts) = &self.asked.keys;
        let mut said = B256Set::default();
        for (address, slots) in accounts {
            if lacks(address.as_slice()) {
                findings.say(FindingKind::Key, || format!("keys: account {address} is missing"));
            }
            for slot in slots.iter().filter(|slot| lacks(slot.as_slice())) {
                if said.insert(*slot) {
                    findings.say(FindingKind::Key, || {
                        format!("keys: slot {slot} of account {address} is missing")
                    });
                }
            }
        }
        let wanted: HashSet<_> = expected.iter().collect();
        for (index, key) in self.witness.keys.iter().enumerate() {
            if !wanted.contains(key) && matches!(key.len(), 20 | 32) {
                findings.say(FindingKind::Key, || {
                    let what = if key.len() == 20 { "account" } else { "slot" };
                    format!("keys, entry {index}: {what} {key} is surplus, nothing looks it up")
                });
            }
        }
        expected
    }

    /// Says what the execution lacked, or what is wrong with the block. `header` is an ancestor
    /// whose header is missing, `more` what is missing beside.
    pub(super) fn ill(
        &self,
        block: &ChainBlock,
        error: &WitnessError,
        header: Option<u64>,
        more: &[(B256, Need)],
        findings: &mut Findings,
    ) {
        let number = block.block.header.number;
        let mut said = false;
        if let Some(missing) = header {
            said = true;
            findings.say(FindingKind::Header, || {
                format!(
                    "headers: block {number} asks for the hash of block {missing}, whose header is \
                     missing"
                )
            });
        }
        for hash in &self.asked.missing {
            said = true;
            findings.say(FindingKind::Code, || {
                let whose = self.asked.codes.account_of(hash);
                let whose =
                    whose.map_or_else(String::new, |address| format!(" of account {address}"));
                format!("codes: {hash}{whose} is missing")
            });
        }
        let mut missing: Vec<_> = self.noted.missing.iter().collect();
        for one in more {
            if missing.iter().all(|known| known.0 != one.0 || !known.1.is_same_node(&one.1)) {
                missing.push(one);
            }
        }
        self.name_missing(number, &missing, findings);
        said |= !missing.is_empty();
        if said {
            return;
        }
        let WitnessError::Check(inner) = error else {
            findings.say(FindingKind::Block, || error.to_string());
            return;
        };
        match &**inner {
            ReplayError::State { error, .. } if is_malformed(error) => {
                findings.say(FindingKind::Malformed, || format!("block {number}: {error}"));
            }
            other => findings.say(FindingKind::Block, || other.to_string()),
        }
    }

    fn name_missing(&self, number: u64, missing: &[&(B256, Need)], findings: &mut Findings) {
        if missing.is_empty() {
            return;
        }
        let mut referred = B256Set::from_iter([self.root]);
        for rlp in &self.witness.state {
            for (_, what) in below(rlp) {
                match what {
                    Below::Node(digest) => drop(referred.insert(digest)),
                    Below::Leaf(value) => {
                        if let Ok(account) =
                            alloy_rlp::decode_exact::<alloy_consensus::TrieAccount>(value)
                        {
                            referred.insert(account.storage_root);
                        }
                    }
                }
            }
        }
        let strays: Vec<usize> =
            (0..self.nodes.len()).filter(|index| !referred.contains(&self.nodes[*index])).collect();
        for (digest, need) in missing {
            let why = reason(need);
            findings
                .say(FindingKind::Missing, || format!("block {number}: node {digest} at {why}"));
            // One look at each stray for each that is missing: bounded by those that are kept.
            let kept = || strays.iter().take(STRAYS);
            let stale = kept().find(|index| self.is_leaf_of(**index, need));
            let stale = stale.or_else(|| kept().find(|index| self.stands_for(**index, need)));
            if let Some(index) = stale {
                let other = self.nodes[*index];
                findings.say(FindingKind::Stale, || {
                    format!(
                        "state, entry {index}: node {other} stands for {digest} at {why}: it is of \
                         another state"
                    )
                });
            }
        }
    }

    /// Whether a node is a leaf of the very key that was looked for, which no other stray can
    /// outdo.
    fn is_leaf_of(&self, index: usize, need: &Need) -> bool {
        let parts = self.witness.state.get(index).map(|rlp| below(rlp)).unwrap_or_default();
        let [(path, Below::Leaf(_))] = &parts[..] else { return false };
        let whole = [&need.path[..], path].concat();
        whole.len() == 64 && need.place.is_on_path(&whole)
    }

    /// Whether a node that nothing refers to looks like an older or newer one of the place: a leaf
    /// of its depth, or a node above nodes that are there.
    fn stands_for(&self, index: usize, need: &Need) -> bool {
        let Some(rlp) = self.witness.state.get(index) else { return false };
        let parts = below(rlp);
        match &parts[..] {
            // Children of a node that is missing lie deeper, so that their paths are shorter.
            [(path, Below::Leaf(_))] => need.path.len() + path.len() == 64,
            parts => parts.iter().any(|(_, what)| match what {
                Below::Node(child) => self.nodes.contains(child),
                Below::Leaf(_) => false,
            }),
        }
    }
}

/// Strays that are looked at for each node that is missing.
const STRAYS: usize = 64;

const fn is_malformed(error: &WitnessStateError) -> bool {
    matches!(error, WitnessStateError::Node { .. } | WitnessStateError::Leaf { .. })
}
