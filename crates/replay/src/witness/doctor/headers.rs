//! The headers of a witness: the block's ancestors without a gap, the parent last.

use std::collections::HashMap;

use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, keccak256};

use super::findings::{FindingKind, Findings};
use crate::{
    evm::BlockHashes,
    witness::{Witness, check::WitnessAncestors},
};

/// The parent and those before it, as far as they follow one another.
pub(super) struct Lineage {
    parent: Header,
    parent_hash: B256,
    /// From the parent backwards, with the place in the witness.
    line: Vec<(u64, B256, usize)>,
}

impl Lineage {
    /// Finds the parent wherever it stands, and says what is wrong with the headers. `None` where
    /// there is no parent, without which nothing is known of the state.
    pub(super) fn of(
        witness: &Witness,
        parent_hash: B256,
        findings: &mut Findings,
    ) -> Option<Self> {
        let mut by_hash = HashMap::new();
        for (index, rlp) in witness.headers.iter().enumerate() {
            let Some(header) = decode(rlp) else {
                findings.say(FindingKind::Header, || {
                    format!("headers, entry {index}: it is not the RLP of a header")
                });
                continue;
            };
            let hash = keccak256(rlp);
            if let Some((first, _)) = by_hash.get(&hash) {
                findings.say(FindingKind::Double, || {
                    format!(
                        "headers, entry {index}: block {} is entry {first} already",
                        header.number
                    )
                });
                continue;
            }
            by_hash.insert(hash, (index, header));
        }
        let Some((_, parent)) = by_hash.get(&parent_hash) else {
            findings.say(FindingKind::Header, || {
                format!("headers: the parent of the block, {parent_hash}, is missing")
            });
            return None;
        };
        let parent = parent.clone();
        let (mut line, mut next) = (Vec::new(), parent_hash);
        // Each is taken out once, so that it ends.
        while let Some((index, header)) = by_hash.remove(&next) {
            line.push((header.number, next, index));
            next = header.parent_hash;
        }
        let descends = |pair: &&[(u64, B256, usize)]| pair[0].2 < pair[1].2;
        if let Some(pair) = line.windows(2).find(descends) {
            let (number, index) = (pair[0].0, pair[0].2);
            findings.say(FindingKind::Order, || {
                format!("headers, entry {index}: block {number} comes before block {}", number - 1)
            });
        }
        let mut strangers: Vec<_> = by_hash.into_values().collect();
        strangers.sort_unstable_by_key(|(index, _)| *index);
        for (index, header) in strangers {
            findings.say(FindingKind::Header, || {
                let what = "none of the ancestors that follow one another up to the parent";
                format!("headers, entry {index}: block {} is {what}", header.number)
            });
        }
        Some(Self { parent, parent_hash, line })
    }

    /// The root of the state before the block.
    pub(super) fn root(&self) -> B256 {
        self.parent.state_root
    }

    pub(super) fn ancestors(&self) -> WitnessAncestors {
        let mut hashes = BlockHashes::default();
        for (number, hash, _) in self.line.iter().rev() {
            hashes.push(*number, *hash);
        }
        WitnessAncestors {
            parent: self.parent.clone(),
            hash: self.parent_hash,
            hashes,
            count: self.line.len(),
        }
    }

    /// The headers that are needed, oldest first; those before the oldest block that was asked for
    /// are surplus.
    pub(super) fn needed(
        &self,
        witness: &Witness,
        oldest: Option<u64>,
        findings: &mut Findings,
    ) -> Vec<Bytes> {
        let oldest = oldest.map_or(self.parent.number, |oldest| oldest.min(self.parent.number));
        for (number, _, index) in self.line.iter().filter(|(number, ..)| *number < oldest) {
            findings.say(FindingKind::Header, || {
                format!(
                    "headers, entry {index}: block {number} is surplus, nothing asks for its hash"
                )
            });
        }
        let needed = self.line.iter().filter(|(number, ..)| *number >= oldest);
        let mut needed: Vec<_> =
            needed.filter_map(|(.., index)| witness.headers.get(*index).cloned()).collect();
        needed.reverse();
        needed
    }
}

fn decode(rlp: &[u8]) -> Option<Header> {
    alloy_rlp::decode_exact(rlp).ok()
}
