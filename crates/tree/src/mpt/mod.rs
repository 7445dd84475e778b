//! Ethereum's Merkle Patricia trie (Yellow Paper, appendix D).
//!
//! Digits are nibbles. A branch with a prefix is an extension over a branch; a branch's value is
//! that of the key that ends at its fork. A node whose RLP is shorter than 32 bytes stands in its
//! parent as it is, else by its Keccak-256 digest; the root is always a digest.

mod prove;
pub mod reference;

pub use prove::{NodePlace, PathNodes};
use spinney_proof::digits::Run;
use spinney_proof::mpt::NodeWriter;
pub use spinney_proof::mpt::{
    EMPTY_CODE_HASH, EMPTY_ROOT, NodeRef, account_value, decode_account_value, decode_slot_value,
    partial, slot_value,
};

use crate::error::Refused;
use crate::ids::SchemeId;
use crate::scheme::Engine;
use crate::scheme::{BranchJob, Children, Commitment, Layout, LeafJob, Owner, Scheme};

/// Proofs of the trie: [`spinney_proof::mpt`].
pub mod proof {
    pub use spinney_proof::NotProven;
    pub use spinney_proof::mpt::{
        AccountFields, AccountProof, Proof, ProofError, RangeProof, SlotProof, VerifiedAccount,
        VerifiedProof, VerifiedRange,
    };
}

/// The trie over raw keys of any length, also one a prefix of another. An empty value is a
/// deletion.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mpt;

/// The trie of Ethereum's state as one path space: an account under the digest of its address (32
/// bytes), its slots under that and the digest of the slot (64 bytes).
///
/// An account's value is the RLP list payload of nonce and balance, and the code hash: see
/// [`account_value`]. The storage root is not part of it: the account owns the subtree of its slots
/// and commits to its root.
#[derive(Clone, Copy, Debug, Default)]
pub struct MptState;

/// Buffers of the Merkle Patricia schemes.
#[derive(Debug, Default)]
pub struct MptScratch {
    nodes: NodeWriter,
    /// The extensions over those branches of a level that have a prefix.
    extended: Vec<NodeRef>,
}

impl Commitment for NodeRef {
    fn encode(&self, out: &mut Vec<u8>) {
        Self::encode(self, out);
    }

    fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        Self::decode(bytes)
    }

    fn encoded_bytes(&self) -> usize {
        self.kept_bytes()
    }

    fn length(bytes: &[u8]) -> Option<usize> {
        Self::encoded_bytes(bytes)
    }
}

impl Scheme for Mpt {
    const LAYOUT: Layout = Layout { prefix_keys: true, ..Layout::of_digits(4) };

    type Commit = NodeRef;
    type Root = [u8; 32];
    type Scratch = MptScratch;
    type Differences = ();
    type Weights = ();

    fn id(&self) -> SchemeId {
        SchemeId { tree: 1, hash: 0 }
    }

    #[inline(never)]
    fn engine() -> Engine<Self> {
        Engine::here()
    }

    fn admit(&self, _: &[u8], value: Option<&[u8]>) -> Result<bool, Refused> {
        Ok(value.is_none_or(|value| !value.is_empty()))
    }

    fn commit_leaves<'a>(
        &self,
        jobs: impl Iterator<Item = LeafJob<'a, NodeRef>>,
        scratch: &mut MptScratch,
        out: &mut Vec<NodeRef>,
    ) {
        scratch.nodes.clear();
        for job in jobs {
            Self::put_leaf(&mut scratch.nodes, &job);
        }
        scratch.nodes.finish(out);
    }

    fn commit_branches<'a, B: Children<NodeRef>>(
        &self,
        jobs: impl Iterator<Item = BranchJob<'a, B>>,
        scratch: &mut MptScratch,
        out: &mut Vec<NodeRef>,
    ) {
        commit_branches(jobs, scratch, out);
    }

    fn root(&self, top: Option<&NodeRef>) -> [u8; 32] {
        top.map_or(EMPTY_ROOT, NodeRef::digest)
    }
}

impl Scheme for MptState {
    const LAYOUT: Layout =
        Layout { owner: Some(Owner { bytes: 32, implicit: false }), ..Layout::of_digits(4) };

    type Commit = NodeRef;
    type Root = [u8; 32];
    type Scratch = MptScratch;
    type Differences = ();
    type Weights = ();

    fn id(&self) -> SchemeId {
        SchemeId { tree: 2, hash: 0 }
    }

    #[inline(never)]
    fn engine() -> Engine<Self> {
        Engine::here()
    }

    fn admit(&self, key: &[u8], value: Option<&[u8]>) -> Result<bool, Refused> {
        match (key.len(), value) {
            (32, Some(value)) => match decode_account_value(value) {
                Some(_) => Ok(true),
                None => Err(Refused::Value("not nonce, balance and code hash of an account")),
            },
            (64, Some([])) => Ok(false),
            (64, Some(value)) => match decode_slot_value(value) {
                Some(_) => Ok(true),
                None => Err(Refused::Value("not the RLP of a slot's value")),
            },
            (32 | 64, None) => Ok(true),
            (got, _) => Err(Refused::KeyLength { got, expected: "32 (an account) or 64 (a slot)" }),
        }
    }

    fn commit_leaves<'a>(
        &self,
        jobs: impl Iterator<Item = LeafJob<'a, NodeRef>>,
        scratch: &mut MptScratch,
        out: &mut Vec<NodeRef>,
    ) {
        scratch.nodes.clear();
        for job in jobs {
            Self::put_leaf(&mut scratch.nodes, &job);
        }
        scratch.nodes.finish(out);
    }

    fn commit_branches<'a, B: Children<NodeRef>>(
        &self,
        jobs: impl Iterator<Item = BranchJob<'a, B>>,
        scratch: &mut MptScratch,
        out: &mut Vec<NodeRef>,
    ) {
        commit_branches(jobs, scratch, out);
    }

    fn root(&self, top: Option<&NodeRef>) -> [u8; 32] {
        Mpt.root(top)
    }
}

/// How the RLP of a scheme's leaves is written.
trait LeafRlp: Scheme<Commit = NodeRef> {
    /// Appends the RLP of a leaf.
    fn put_leaf(nodes: &mut NodeWriter, job: &LeafJob<'_, NodeRef>);
}

impl LeafRlp for Mpt {
    fn put_leaf(nodes: &mut NodeWriter, job: &LeafJob<'_, NodeRef>) {
        nodes.leaf(job.suffix, job.value);
    }
}

impl LeafRlp for MptState {
    fn put_leaf(nodes: &mut NodeWriter, job: &LeafJob<'_, NodeRef>) {
        if job.suffix.end() > 64 {
            return Mpt::put_leaf(nodes, job);
        }
        let storage_root = job.owned.map_or(EMPTY_ROOT, |top| top.commit().digest());
        nodes.account(job.suffix, job.value, &storage_root);
    }
}

fn commit_branches<'a, B: Children<NodeRef>>(
    jobs: impl Iterator<Item = BranchJob<'a, B>>,
    MptScratch { nodes, extended }: &mut MptScratch,
    out: &mut Vec<NodeRef>,
) {
    let first = out.len();
    let mut prefixes: smallvec::SmallVec<[(u32, Run<'a>); 8]> = smallvec::SmallVec::new();
    nodes.clear();
    for (index, job) in jobs.enumerate() {
        nodes.branch(job.children.iter(), job.value);
        if !job.prefix.is_empty() {
            prefixes.push((index as u32, job.prefix));
        }
    }
    nodes.finish(out);
    if prefixes.is_empty() {
        return;
    }
    nodes.clear();
    for (index, prefix) in &prefixes {
        let below = out[first + *index as usize];
        nodes.extension(*prefix, &below);
    }
    extended.clear();
    nodes.finish(extended);
    for ((index, _), extended) in prefixes.iter().zip(&*extended) {
        out[first + *index as usize] = *extended;
    }
}
