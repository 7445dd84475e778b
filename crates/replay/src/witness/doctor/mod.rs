//! The doctor: says which rules of the canonical form a witness breaks, and where.
//!
//! - A witness is foreign: whatever it holds gives findings, never a panic, and memory is bounded
//!   by the witness itself. Findings that are kept are bounded too; the others are counted.
//! - What is needed is found by executing the block on the witness. Where that ends early, only
//!   what is missing and what breaks the form is said: what is surplus nobody knows then.
//! - A witness without findings is the canonical one, byte for byte: that is compared in the end.

mod diff;
mod findings;
mod headers;
mod order;
mod shape;
mod verdict;

pub use self::{
    diff::witness_differences,
    findings::{Finding, FindingKind, Findings},
    verdict::PartCounts,
};

use alloy_primitives::{B256, U256, map::B256Map};
use spinney_state::StateRead as _;

use self::{headers::Lineage, shape::NamedAddresses, verdict::Ended};
use super::{
    Witness, WitnessState,
    check::execute,
    nodes::{Need, digests},
    reads::Keys,
};
use crate::{config::ChainConfig, source::ChainBlock};

/// What the doctor says of a witness.
#[derive(Debug)]
pub struct Diagnosis {
    /// The rules that are broken, and where.
    pub findings: Findings,
    /// How much of what there is; zeros where the block could not be executed.
    pub parts: PartCounts,
    /// The canonical witness, where the block could be executed. It has keys if the witness has.
    pub canonical: Option<Witness>,
    needs: B256Map<Need>,
}

impl Diagnosis {
    /// Whether the witness is the canonical one.
    pub fn is_canonical(&self) -> bool {
        self.findings.is_empty()
    }

    /// What a node of the witness is needed for, in words.
    pub fn why(&self, node: &B256) -> Option<String> {
        self.needs.get(node).map(verdict::reason)
    }
}

impl Witness {
    /// Looks at every part of a witness of `block`. `total_difficulty` as for
    /// [`check`](Self::check).
    ///
    /// ```
    /// use spinney_replay::{SampleChain, SampleOptions, TextbookState, WitnessMaker};
    /// use spinney_state::State;
    /// use spinney_tree::MemoryStore;
    ///
    /// let mut sample = SampleChain::new(SampleOptions::default(), TextbookState::new())?;
    /// let state = State::open(MemoryStore::new(), 1 << 20)?;
    /// let mut maker = WitnessMaker::start(sample.genesis(), state)?;
    /// let difficulty = maker.total_difficulty();
    /// let block = sample.next().unwrap()?;
    /// let mut witness = maker.witness(&block)?.unwrap().witness;
    /// let good = witness.clone();
    /// assert!(witness.examine(maker.config(), difficulty, &block).is_canonical());
    /// witness.state.reverse();
    /// let diagnosis = witness.examine(maker.config(), difficulty, &block);
    /// println!("{}", diagnosis.findings);
    /// assert_eq!(diagnosis.canonical, Some(good));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn examine(
        &self,
        config: &ChainConfig,
        total_difficulty: U256,
        block: &ChainBlock,
    ) -> Diagnosis {
        let mut findings = Findings::default();
        let nodes = digests(&self.state);
        order::check(self, &nodes, &mut findings);
        let mut diagnosis = Diagnosis {
            findings,
            parts: PartCounts::default(),
            canonical: None,
            needs: B256Map::default(),
        };
        let findings = &mut diagnosis.findings;
        let Some(lineage) = Lineage::of(self, block.block.header.parent_hash, findings) else {
            return diagnosis;
        };
        let root = lineage.root();
        let mut state = WitnessState::with_digests(self, root, &nodes);
        state.note();
        let done = execute(config, total_difficulty, block, state, lineage.ancestors());
        let (noted, asked) = done.state.take_noted();
        let mut known = NamedAddresses::default();
        known.keys(&asked.keys);
        let listed = listed_keys(block);
        known.keys(&listed);
        let ended = Ended { witness: self, nodes: &nodes, root, noted, asked, known };
        match done.report {
            Ok(_) => {
                diagnosis.canonical =
                    Some(ended.well(&lineage, done.oldest, &mut diagnosis.parts, findings));
                diagnosis.needs = ended.into_needs();
                if diagnosis.findings.is_empty() && diagnosis.canonical.as_ref() != Some(self) {
                    let what = "it is not the canonical one".to_owned();
                    diagnosis.findings.push(Finding::new(FindingKind::Form, what));
                }
            }
            Err(error) => {
                let more = explore(&done.state, &listed);
                ended.ill(block, &error, done.lacked, &more, findings);
            }
        }
        diagnosis
    }
}

/// Looks up keys that are known, so that all that is missing on their paths is found.
fn explore(state: &WitnessState, listed: &Keys) -> Vec<(B256, Need)> {
    for (address, slots) in &listed.0 {
        // What is missing is noted.
        let account = state.account(*address);
        if matches!(account, Ok(Some(_))) {
            for slot in slots {
                let _ = state.storage(*address, *slot);
            }
        }
    }
    state.take_noted().0.missing
}

/// The keys that the block's access list names.
fn listed_keys(block: &ChainBlock) -> Keys {
    let mut listed = Keys::default();
    for account in block.access_list.iter().flatten() {
        let slots = listed.0.entry(account.address).or_default();
        slots.extend(account.storage_reads.iter().map(|slot| B256::from(*slot)));
        slots.extend(account.storage_changes.iter().map(|slot| B256::from(slot.slot)));
    }
    listed
}
