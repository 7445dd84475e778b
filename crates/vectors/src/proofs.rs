//! Proofs in vectors: each has to hold, and ours has to have the same nodes.

use spinney_tree::mpt::proof::{Proof, ProofError, RangeProof};

use super::Outcome;
use super::hex::{Bytes, Hash};

/// What a list of nodes is to show.
pub(super) struct Expected<'v> {
    pub(super) root: [u8; 32],
    pub(super) key: &'v [u8],
    /// `None` where the key is absent.
    pub(super) value: Option<&'v [u8]>,
    /// The nodes, root first.
    pub(super) nodes: &'v [Bytes],
}

impl Outcome {
    /// Checks a proof of one key; `ours` is the proof that the engine makes.
    pub(super) fn proof(
        &mut self,
        what: impl Fn() -> String,
        expected: &Expected<'_>,
        ours: &[Vec<u8>],
    ) {
        let nodes: Vec<_> = expected.nodes.iter().map(|node| node.0.clone()).collect();
        self.same_nodes(|| format!("{}: our nodes", what()), ours, &nodes);
        let verified = Proof::new(nodes).verify(&expected.root, &[expected.key]);
        self.shown(what, verified, |verified| {
            verified.get(expected.key).is_ok_and(|value| value == expected.value)
        });
    }

    /// Checks a proof of a range, which ends with its last entry; `more` says whether others
    /// follow.
    pub(super) fn range_proof(
        &mut self,
        what: impl Fn() -> String,
        (root, more): (&Hash, bool),
        expected: RangeProof,
        mut ours: RangeProof,
    ) {
        // The order of a range's nodes is nobody's business.
        let mut nodes = expected.nodes.clone();
        nodes.sort_unstable();
        ours.nodes.sort_unstable();
        self.same_nodes(|| format!("{}: our nodes", what()), &ours.nodes, &nodes);
        self.shown(&what, expected.verify(&root.0), |range| range.has_more() == more);
        self.shown(
            || format!("{}: ours", what()),
            ours.verify(&root.0),
            |range| range.has_more() == more,
        );
    }

    fn same_nodes(&mut self, what: impl Fn() -> String, ours: &[Vec<u8>], expected: &[Vec<u8>]) {
        self.checks += 1;
        if ours != expected {
            let (ours, expected) = (ours.len(), expected.len());
            self.failures.push(format!("{} differ ({ours}, expected {expected})", what()));
        }
    }

    fn shown<T>(
        &mut self,
        what: impl Fn() -> String,
        verified: Result<T, ProofError>,
        is_expected: impl Fn(&T) -> bool,
    ) {
        self.checks += 1;
        match verified {
            Ok(verified) if is_expected(&verified) => {}
            Ok(_) => self.failures.push(format!("{}: it shows something else", what())),
            Err(error) => self.failures.push(format!("{}: {error}", what())),
        }
    }
}
