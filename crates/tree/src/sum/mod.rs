//! The Merkle-sum sparse Merkle tree of Taproot Assets (bip-tap-ms-smt) over the engine.
//!
//! What its nodes hash to and its proofs are [`spinney_proof::sum`]'s; here are the scheme
//! ([`Sum`]), the textbook tree ([`mod@reference`]) and the making of proofs.
//!
//! ```
//! use spinney_tree::sum::{Leaf, Profile, Proof, reference};
//!
//! let leaf = |value: &str, sum| Leaf { value: value.into(), sum };
//! let five = leaf("five", 5);
//! let leaves = [([1; 32], five.clone()), ([2; 32], leaf("seven", 7))].into();
//! let (root, proofs) = reference::prove(Profile::Compatible, &leaves, &[[1; 32], [3; 32]])?;
//! assert_eq!(root.sum, 12);
//!
//! let proof = Proof::decode(&proofs[0].encode())?;
//! let found = proof.verify_inclusion(Profile::Compatible, root, &[1; 32], &five)?;
//! assert_eq!((found.key(), found.leaf().sum), (&[1; 32], 5));
//! proofs[1].verify_exclusion(Profile::Compatible, root, &[3; 32])?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! Digits are bits, and an engine key is the tree's own with the bits of each byte reversed, so
//! that the engine's order is the tree's. A commitment is the node at the depth at which it hangs:
//! a lone leaf has climbed there from depth 256, and a branch through the bits of its prefix.
//!
//! A climb is hundreds of hashes, so pages keep what came of it: each leaf its commitment and,
//! where it hangs above `CHECKPOINT`, the hash it had there on its way up. A leaf that rises goes
//! on from where it hung; one that sinks because another moves in beside it starts over from the
//! checkpoint. Older pages have checkpoints at `CHECKPOINT_BEFORE`: they are kept until their leaf
//! passes the new one.

mod prove;
pub mod reference;

pub use prove::Proven;
use spinney_hash::{Digest, SumClimb, sha256, sha256_equal};

use crate::error::Refused;
use crate::ids::SchemeId;
use crate::scheme::Engine;
use crate::scheme::{
    BranchJob, Children, Commitment, Layout, LeafJob, PreviousLeaf, Scheme, Weights,
};
use spinney_proof::sum::LeafHashes;
pub use spinney_proof::sum::{
    Claim, ClaimError, DEPTH, Excluded, Included, Leaf, Profile, Proof, ProofError, SumNode,
    SumOverflow, levels_climbed, verify_many,
};

/// The depth at which a leaf on its way up leaves a hash: below where leaves hang if their keys are
/// like digests, but for one in 2^32 / n of a tree of n. From there a leaf that sinks climbs some
/// 17 levels, not 240 (docs/decisions/2026-11-22-sum-checkpoints.md).
const CHECKPOINT: u16 = 32;
/// Where pages had them before: a flag of 1.
const CHECKPOINT_BEFORE: u16 = 40;

/// How many bytes of a value are its sum.
const SUM_BYTES: usize = 8;

/// The Merkle-sum tree of a profile, as a scheme of the engine.
///
/// [`crate::Tree`] takes keys as [`path`] writes them, and values as [`Leaf::encode`]
/// does. An empty leaf is a deletion.
///
/// ```
/// use spinney_tree::sum::{Leaf, Sum, path, reference};
/// use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeId};
///
/// let store = MemoryStore::new();
/// let mut tree = Tree::open(Sum::default(), TreeId(1), &store.snapshot()?, 1 << 20)?;
/// let leaf = Leaf { value: b"five".into(), sum: 5 };
/// let mut batch = Batch::new();
/// batch.put(&path(&[1; 32]), &leaf.encode());
/// let pending = tree.prepare(&store.snapshot()?, None, batch)?;
/// let expected = reference::root(Default::default(), &[([1; 32], leaf)].into())?;
/// assert_eq!(pending.root().node(), expected);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// What its branches bind.
    pub profile: Profile,
}

/// A key as the engine takes it, and back: the bits of each byte reversed.
pub fn path(key: &[u8; 32]) -> [u8; 32] {
    key.map(u8::reverse_bits)
}

/// A node where it hangs and, of a leaf, the hash that it had on its way there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumCommit {
    node: SumNode,
    checkpoint: Checkpoint,
}

/// A hash that a leaf had on its way up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Checkpoint {
    /// All zeros where there is none.
    hash: Digest,
    /// How deep that was: 0 if there is none.
    depth: u16,
}

impl Checkpoint {
    const NONE: Self = Self { hash: [0; 32], depth: 0 };

    /// Its depth as pages have it.
    const fn flag(self) -> u8 {
        match self.depth {
            CHECKPOINT_BEFORE => 1,
            depth => depth as u8,
        }
    }

    /// The depth of one with this flag; `None` if there is no such flag.
    const fn depth_of(flag: u8) -> Option<u16> {
        match flag {
            0 => Some(0),
            1 => Some(CHECKPOINT_BEFORE),
            _ if flag as u16 == CHECKPOINT => Some(CHECKPOINT),
            _ => None,
        }
    }
}

/// A root: the hash, then the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumRoot([u8; 40]);

impl SumRoot {
    /// The root as a node.
    pub fn node(&self) -> SumNode {
        SumNode::read(&self.0)
    }
}

impl From<SumNode> for SumRoot {
    fn from(node: SumNode) -> Self {
        Self(node.bytes())
    }
}

impl AsRef<[u8]> for SumRoot {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Buffers of the scheme.
#[derive(Debug, Default)]
pub struct SumScratch {
    rises: Vec<SumClimb>,
    /// Where each rise of a leaf ends, and the checkpoint that it has already.
    goals: Vec<(u16, Checkpoint)>,
    /// Leaves that are hashed, and for which rises.
    leaves: LeafHashes,
    fresh: Vec<u32>,
    /// What branches hash, and what they are: at their forks, until those that are to rise have
    /// risen.
    bytes: Vec<u8>,
    digests: Vec<Digest>,
    sums: Vec<u64>,
    /// The branches that rise.
    rising: Vec<u32>,
    key: Vec<u8>,
}

impl Scheme for Sum {
    const LAYOUT: Layout = Layout {
        keep_leaves: true,
        // A leaf costs what a hundred updates of other trees do.
        split_ops_min: 64,
        // Its leaves climb on sixteen lanes, and the last of a range's leave some of them empty.
        ranges_per_thread: 4,
        ..Layout::of_digits(1)
    };

    type Commit = SumCommit;
    type Root = SumRoot;
    type Scratch = SumScratch;
    type Differences = ();
    type Weights = Self;

    fn id(&self) -> SchemeId {
        let hash = match self.profile {
            Profile::Compatible => 0,
            Profile::Bound => 1,
        };
        SchemeId { tree: 5, hash }
    }

    #[inline(never)]
    fn engine() -> Engine<Self> {
        Engine::here()
    }

    fn admit(&self, key: &[u8], value: Option<&[u8]>) -> Result<bool, Refused> {
        if key.len() != 32 {
            return Err(Refused::KeyLength { got: key.len(), expected: "32 bytes" });
        }
        match value {
            Some(value) if value.len() < SUM_BYTES => Err(Refused::ValueLength {
                got: value.len(),
                expected: "8 bytes of its sum, and any others behind them",
            }),
            Some(value) => Ok(*value != [0; SUM_BYTES]),
            None => Ok(true),
        }
    }

    fn commit_leaves<'a>(
        &self,
        jobs: impl Iterator<Item = LeafJob<'a, SumCommit>>,
        scratch: &mut SumScratch,
        out: &mut Vec<SumCommit>,
    ) {
        scratch.clear();
        for job in jobs {
            scratch.leaf(self.profile, &job);
        }
        scratch.hash_fresh();
        // First to the checkpoint, those that start below it and end above it; the others all the
        // way.
        for (rise, (goal, _)) in scratch.rises.iter_mut().zip(&scratch.goals) {
            rise.to = if rise.from > CHECKPOINT { CHECKPOINT.max(*goal) } else { rise.from };
        }
        scratch.climb(self.profile);
        for (rise, (goal, checkpoint)) in scratch.rises.iter_mut().zip(&mut scratch.goals) {
            if *goal >= CHECKPOINT {
                *checkpoint = Checkpoint::NONE;
            } else if rise.from == CHECKPOINT {
                *checkpoint = Checkpoint { hash: rise.hash, depth: CHECKPOINT };
            }
            rise.to = *goal;
        }
        scratch.climb(self.profile);
        let commits = scratch.rises.iter().zip(&scratch.goals);
        out.extend(
            commits.map(|(rise, &(_, checkpoint))| SumCommit { node: node_of(rise), checkpoint }),
        );
    }

    fn commit_branches<'a, B: Children<SumCommit>>(
        &self,
        jobs: impl Iterator<Item = BranchJob<'a, B>>,
        scratch: &mut SumScratch,
        out: &mut Vec<SumCommit>,
    ) {
        scratch.clear();
        for job in jobs {
            scratch.branch(self.profile, &job, depth_of(job.prefix.start()));
        }
        let checkpoint = Checkpoint::NONE;
        out.extend(scratch.branches(self.profile).map(|node| SumCommit { node, checkpoint }));
    }

    fn root(&self, top: Option<&SumCommit>) -> SumRoot {
        top.map_or_else(|| self.profile.empty_node(0), |top| top.node).into()
    }
}

/// What values weigh is their sum.
impl Weights<SumCommit> for Sum {
    const MAX: Option<u64> = Some(u64::MAX);

    fn of_value(value: &[u8]) -> u64 {
        split_value(value).0
    }

    fn below(commit: &SumCommit) -> u64 {
        commit.node.sum
    }
}

impl Commitment for SumCommit {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.checkpoint.flag());
        out.extend_from_slice(&self.node.bytes());
        if self.checkpoint != Checkpoint::NONE {
            out.extend_from_slice(&self.checkpoint.hash);
        }
    }

    fn agrees(&self, other: &Self) -> bool {
        // Older pages have checkpoints elsewhere.
        self.node == other.node
    }

    fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let (node, rest) = bytes.split_first_chunk::<BRANCH_BYTES>()?;
        let (flag, node) = node.split_first()?;
        let (depth, node) = (Checkpoint::depth_of(*flag)?, SumNode::read(node.first_chunk()?));
        if depth == 0 {
            return Some((Self { node, checkpoint: Checkpoint::NONE }, BRANCH_BYTES));
        }
        let checkpoint = Checkpoint { hash: *rest.first_chunk()?, depth };
        Some((Self { node, checkpoint }, BRANCH_BYTES + 32))
    }

    #[inline]
    fn length(bytes: &[u8]) -> Option<usize> {
        let len = match Checkpoint::depth_of(*bytes.first()?)? {
            0 => BRANCH_BYTES,
            _ => BRANCH_BYTES + 32,
        };
        (len <= bytes.len()).then_some(len)
    }
}

/// A commitment without a checkpoint, as pages keep it.
const BRANCH_BYTES: usize = 1 + 40;

/// The node that a rise has come to.
const fn node_of(rise: &SumClimb) -> SumNode {
    SumNode { hash: rise.hash, sum: rise.sum }
}

/// The sum and the bytes of a value; a damaged page may hold anything.
fn split_value(value: &[u8]) -> (u64, &[u8]) {
    match value.split_first_chunk::<SUM_BYTES>() {
        Some((sum, value)) => (u64::from_be_bytes(*sum), value),
        None => (0, value),
    }
}

/// A depth that is none if a page is damaged.
fn depth_of(digits: usize) -> u16 {
    digits.min(DEPTH) as u16
}

/// The rise of a leaf from where it was committed to already, as near to `to` as may be, and the
/// checkpoint that it has; else `None`, from a hash that is to be computed at depth 256.
fn rise_of_leaf(
    path: [u8; 32],
    sum: u64,
    previous: Option<PreviousLeaf<SumCommit>>,
    to: u16,
) -> (SumClimb, Option<Checkpoint>) {
    let rise = |hash, from| SumClimb { hash, sum, path, from, to };
    match previous {
        Some(PreviousLeaf { depth, commit, .. }) if usize::from(to) <= depth => {
            (rise(commit.node.hash, depth_of(depth)), Some(commit.checkpoint))
        }
        // Where there is none its depth is 0, and no leaf sinks to that.
        Some(PreviousLeaf { commit: SumCommit { checkpoint, .. }, .. })
            if to <= checkpoint.depth =>
        {
            (rise(checkpoint.hash, checkpoint.depth), Some(checkpoint))
        }
        _ => (rise([0; 32], DEPTH as u16), None),
    }
}

impl SumScratch {
    fn clear(&mut self) {
        self.rises.clear();
        self.goals.clear();
        self.leaves.clear();
        self.fresh.clear();
        self.bytes.clear();
        self.digests.clear();
        self.sums.clear();
        self.rising.clear();
    }

    fn leaf(&mut self, profile: Profile, job: &LeafJob<'_, SumCommit>) {
        self.key.clear();
        job.put_key(&mut self.key);
        let goal = depth_of(job.suffix.start());
        self.take_up(profile, key_of(&self.key), job.value, job.previous, goal);
    }

    /// A leaf to take up to a depth; answers the number of its rise.
    fn take_up(
        &mut self,
        profile: Profile,
        key: [u8; 32],
        entry: &[u8],
        previous: Option<PreviousLeaf<SumCommit>>,
        goal: u16,
    ) -> u32 {
        let (sum, value) = split_value(entry);
        let (rise, known) = rise_of_leaf(key, sum, previous, goal);
        if known.is_none() {
            self.leaves.push(profile, value, sum);
            self.fresh.push(self.rises.len() as u32);
        }
        self.rises.push(rise);
        self.goals.push((goal, known.unwrap_or(Checkpoint::NONE)));
        self.rises.len() as u32 - 1
    }

    /// Takes leaves all the way up at once, and leaves no checkpoints.
    fn climb_to_goals(&mut self, profile: Profile) {
        for (rise, (goal, _)) in self.rises.iter_mut().zip(&self.goals) {
            rise.to = *goal;
        }
        self.climb(profile);
    }

    /// Hashes the leaves that are not known yet.
    fn hash_fresh(&mut self) {
        for (rise, hash) in self.fresh.iter().zip(self.leaves.finish()) {
            self.rises[*rise as usize].hash = *hash;
        }
    }

    /// The nodes of the leaves where they are.
    fn leaf_nodes(&self) -> impl Iterator<Item = SumNode> + '_ {
        self.rises.iter().map(node_of)
    }

    /// A branch to take up to a depth from what it hashes at its fork; answers its number.
    fn branch(
        &mut self,
        profile: Profile,
        job: &BranchJob<'_, impl Children<SumCommit>>,
        to: u16,
    ) -> u32 {
        let fork = depth_of(job.prefix.end());
        let mut sides = [None; 2];
        for (digit, commit) in job.children.iter() {
            sides[usize::from(digit)] = Some(commit.node);
        }
        // A damaged page may name one child.
        let empty = || profile.empty_node(DEPTH.min(usize::from(fork) + 1));
        let [left, right] = sides.map(|side| side.unwrap_or_else(empty));
        profile.put_branch((&left.hash, left.sum), (&right.hash, right.sum), &mut self.bytes);
        let (number, sum) = (self.sums.len() as u32, left.sum.wrapping_add(right.sum));
        self.sums.push(sum);
        // Most stay where they fork.
        if to < fork {
            let (mut path, first) = ([0; 32], job.prefix.start() / 8);
            for (to, from) in path.iter_mut().skip(first).zip(job.prefix.aligned()) {
                *to = from.reverse_bits();
            }
            self.rising.push(number);
            self.rises.push(SumClimb { hash: [0; 32], sum, path, from: fork, to });
        }
        number
    }

    /// The nodes of all branches where they are to be.
    fn branches(&mut self, profile: Profile) -> impl Iterator<Item = SumNode> + '_ {
        self.digests.resize(self.sums.len(), [0; 32]);
        match &mut self.digests[..] {
            [] => {}
            [one] => *one = sha256(&self.bytes),
            many => sha256_equal(&self.bytes, profile.branch_bytes(), many),
        }
        for (rise, branch) in self.rises.iter_mut().zip(&self.rising) {
            rise.hash = self.digests[*branch as usize];
        }
        self.climb(profile);
        for (rise, branch) in self.rises.iter().zip(&self.rising) {
            self.digests[*branch as usize] = rise.hash;
        }
        self.digests.iter().zip(&self.sums).map(|(&hash, &sum)| SumNode { hash, sum })
    }

    /// Takes all up to where they are to be.
    fn climb(&mut self, profile: Profile) {
        if !self.rises.is_empty() {
            profile.climb(&mut self.rises);
        }
    }
}

/// An engine key as users write it; one of a damaged page may have any length.
fn key_of(engine: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    for (to, from) in key.iter_mut().zip(engine) {
        *to = from.reverse_bits();
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::JobKey;
    use spinney_proof::digits::{Run, Width};

    const SUM: Sum = Sum { profile: Profile::Compatible };

    /// What a leaf commits to at a depth, if it committed to something before.
    fn commit(key: &[u8; 32], depth: usize, previous: Option<(usize, SumCommit)>) -> SumCommit {
        let engine = path(key);
        let job = LeafJob {
            key: JobKey::Whole(&engine),
            suffix: Run::of(&engine, depth, DEPTH, Width::new(1)),
            value: &[0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3],
            owned: None,
            previous: previous.map(|(depth, commit)| PreviousLeaf { commit, depth, owned: None }),
        };
        let mut out = Vec::new();
        SUM.commit_leaves(std::iter::once(job), &mut SumScratch::default(), &mut out);
        out[0]
    }

    fn encoded(commit: &SumCommit) -> Vec<u8> {
        let mut bytes = Vec::new();
        commit.encode(&mut bytes);
        assert_eq!(SumCommit::length(&bytes), Some(bytes.len()));
        assert_eq!(SumCommit::decode(&bytes), Some((*commit, bytes.len())));
        bytes
    }

    /// A leaf at `depth`, as pages had it that keep checkpoints at depth 40.
    fn old(key: &[u8; 32], depth: usize) -> SumCommit {
        let checkpoint = Checkpoint { hash: commit(key, 40, None).node.hash, depth: 40 };
        let commit = SumCommit { checkpoint, ..commit(key, depth, None) };
        assert_eq!(encoded(&commit)[0], 1);
        commit
    }

    #[test]
    fn leaves_go_on_from_where_they_were_as_they_would_from_the_bottom() {
        let key = [0x5b; 32];
        for from in [0, 3, 31, 32, 33, 39, 40, 41, 255] {
            let fresh = commit(&key, from, None);
            assert_eq!(encoded(&fresh)[0], if from < 32 { 32 } else { 0 });
            for to in [0, 2, 16, 31, 32, 33, 40, 41, 256] {
                assert_eq!(commit(&key, to, Some((from, fresh))), commit(&key, to, None));
            }
        }
    }

    #[test]
    fn checkpoints_of_older_pages_serve_until_their_leaf_passes_the_new_one() {
        let key = [0xc6; 32];
        for (from, to) in [(20, 10), (20, 20), (20, 30), (20, 32), (20, 36), (20, 41), (36, 20)] {
            let (then, fresh) =
                (commit(&key, to, Some((from, old(&key, from)))), commit(&key, to, None));
            assert_eq!(then.node, fresh.node, "{from} to {to}");
            // One that rises has its own still; it did not come by the new depth.
            let kept = from < 32 && to <= from;
            assert_eq!(then.checkpoint.depth, if kept { 40 } else { fresh.checkpoint.depth });
        }
    }

    #[test]
    fn commitments_of_no_known_flag_or_cut_off_are_refused() {
        let whole = encoded(&commit(&[7; 32], 4, None));
        assert_eq!(whole.len(), BRANCH_BYTES + 32);
        for flag in (0..=u8::MAX).filter(|flag| ![0, 1, 32].contains(flag)) {
            let bytes = [&[flag], &whole[1..]].concat();
            assert!(SumCommit::decode(&bytes).is_none() && SumCommit::length(&bytes).is_none());
        }
        for len in 0..whole.len() {
            assert!(SumCommit::decode(&whole[..len]).is_none());
            assert!(SumCommit::length(&whole[..len]).is_none());
        }
    }
}
