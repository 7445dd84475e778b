//! The tree over the engine.
//!
//! Digits are bits, and an engine key is the tree's own with the bits of each byte reversed, so that the
//! engine's order is the tree's. A commitment is the node at the depth at which it hangs: a lone leaf
//! has climbed there from depth 256, and so has a branch through the bits it skips.
//!
//! A climb is hundreds of hashes, so pages keep what came of it: each terminal its commitment and, where
//! it hangs above [`CHECKPOINT`], the hash it had there on its way up. A leaf that rises goes on from
//! where it hung; one that sinks because another moves in beside it starts over from the checkpoint.

use spinney_hash::{Digest, SumClimb, sha256, sha256_equal};

use super::leaves::LeafHashes;
use super::{DEPTH, Profile, SumNode};
use crate::scheme::{BranchJob, Owner, Refused, Scheme, SchemeId, TerminalJob, WasTerminal};

/// The depth at which a leaf on its way up leaves a hash: below where leaves of any tree that fits a disk
/// hang, if their keys are like digests. From there a leaf that sinks climbs some 25 levels, not 240.
const CHECKPOINT: u16 = 40;

/// How many bytes of a value are its sum.
const SUM_BYTES: usize = 8;

/// The Merkle-sum tree of a profile, as a scheme of the engine.
///
/// [`crate::Tree`] takes keys as [`path`] writes them, and values as [`Leaf::encode`](super::Leaf::encode)
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
/// assert_eq!(pending.root().node(), reference::root(Default::default(), &[([1; 32], leaf)].into())?);
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
    pub(super) node: SumNode,
    checkpoint: Option<Digest>,
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
pub struct Scratch {
    rises: Vec<SumClimb>,
    /// Where each rise ends, and the checkpoint that it has already.
    goals: Vec<(u16, Option<Digest>)>,
    /// Leaves that are hashed, and for which rises.
    leaves: LeafHashes,
    fresh: Vec<u32>,
    /// Branches that are hashed, and to what.
    bytes: Vec<u8>,
    digests: Vec<Digest>,
    key: Vec<u8>,
}

impl Scheme for Sum {
    const DIGIT_BITS: u8 = 1;
    const OWNER: Option<Owner> = None;
    const PREFIX_KEYS: bool = false;
    const KEEP_TERMINALS: bool = true;
    // A leaf costs what a hundred updates of other trees do.
    const SPLIT_OPS_MIN: usize = 64;
    const WEIGHT_MAX: Option<u64> = Some(u64::MAX);

    type Commit = SumCommit;
    type Root = SumRoot;
    type Scratch = Scratch;

    fn id(&self) -> SchemeId {
        let hash = match self.profile {
            Profile::Compatible => 0,
            Profile::Bound => 1,
        };
        SchemeId { tree: 5, hash }
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

    fn commit_terminals<'a>(
        &self,
        jobs: impl Iterator<Item = TerminalJob<'a, SumCommit>>,
        scratch: &mut Scratch,
        out: &mut Vec<SumCommit>,
    ) {
        scratch.clear();
        for job in jobs {
            scratch.terminal(self.profile, &job);
        }
        scratch.hash_fresh();
        // First to the checkpoint, those that start below it and end above it; the others all the way.
        for (rise, (goal, _)) in scratch.rises.iter_mut().zip(&scratch.goals) {
            rise.to = if rise.from > CHECKPOINT { CHECKPOINT.max(*goal) } else { rise.from };
        }
        scratch.climb(self.profile);
        for (rise, (goal, checkpoint)) in scratch.rises.iter_mut().zip(&mut scratch.goals) {
            if *goal >= CHECKPOINT {
                *checkpoint = None;
            } else if rise.from == CHECKPOINT {
                *checkpoint = Some(rise.hash);
            }
            rise.to = *goal;
        }
        scratch.climb(self.profile);
        let commits = scratch.nodes().zip(&scratch.goals);
        out.extend(
            commits.map(|(node, (_, checkpoint))| SumCommit { node, checkpoint: *checkpoint }),
        );
    }

    fn commit_branches<'a>(
        &self,
        jobs: impl Iterator<Item = BranchJob<'a, Self>>,
        scratch: &mut Scratch,
        out: &mut Vec<SumCommit>,
    ) {
        scratch.clear();
        for job in jobs {
            scratch.branch(self.profile, &job, depth_of(job.skip.start()));
        }
        scratch.hash_branches(self.profile);
        scratch.climb(self.profile);
        out.extend(scratch.nodes().map(|node| SumCommit { node, checkpoint: None }));
    }

    fn weight(&self, value: &[u8]) -> u64 {
        split_value(value).0
    }

    fn weight_below(&self, commit: &SumCommit) -> u64 {
        commit.node.sum
    }

    fn root(&self, top: Option<&SumCommit>) -> SumRoot {
        top.map_or_else(|| self.profile.empty_node(0), |top| top.node).into()
    }

    fn decode_root(&self, bytes: &[u8]) -> Option<SumRoot> {
        bytes.try_into().ok().map(SumRoot)
    }

    fn encode_commit(&self, commit: &SumCommit, out: &mut Vec<u8>) {
        out.push(u8::from(commit.checkpoint.is_some()));
        out.extend_from_slice(&commit.node.bytes());
        if let Some(checkpoint) = &commit.checkpoint {
            out.extend_from_slice(checkpoint);
        }
    }

    fn decode_commit(&self, bytes: &[u8]) -> Option<(SumCommit, usize)> {
        let len = self.commit_bytes(bytes)?;
        let node = SumNode::read(bytes[1..].first_chunk()?);
        let checkpoint =
            if len > BRANCH_BYTES { bytes[BRANCH_BYTES..].first_chunk() } else { None };
        Some((SumCommit { node, checkpoint: checkpoint.copied() }, len))
    }

    fn commit_bytes(&self, bytes: &[u8]) -> Option<usize> {
        let len = match bytes.first()? {
            0 => BRANCH_BYTES,
            1 => BRANCH_BYTES + 32,
            _ => return None,
        };
        (len <= bytes.len()).then_some(len)
    }
}

/// A commitment without a checkpoint, as pages keep it.
const BRANCH_BYTES: usize = 1 + 40;

/// The sum and the bytes of a value; a damaged page may hold anything.
pub(super) fn split_value(value: &[u8]) -> (u64, &[u8]) {
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
    was: Option<WasTerminal<SumCommit>>,
    to: u16,
) -> (SumClimb, Option<Option<Digest>>) {
    let rise = |hash, from| SumClimb { hash, sum, path, from, to };
    match was {
        Some(WasTerminal { depth, commit, .. }) if usize::from(to) <= depth => {
            (rise(commit.node.hash, depth_of(depth)), Some(commit.checkpoint))
        }
        Some(WasTerminal { commit: SumCommit { checkpoint: Some(hash), .. }, .. })
            if to <= CHECKPOINT =>
        {
            (rise(hash, CHECKPOINT), Some(Some(hash)))
        }
        _ => (rise([0; 32], DEPTH as u16), None),
    }
}

impl Scratch {
    pub(super) fn clear(&mut self) {
        self.rises.clear();
        self.goals.clear();
        self.leaves.clear();
        self.fresh.clear();
        self.bytes.clear();
        self.digests.clear();
    }

    fn terminal(&mut self, profile: Profile, job: &TerminalJob<'_, SumCommit>) {
        self.key.clear();
        job.put_key(&mut self.key);
        let goal = depth_of(job.suffix.start());
        self.leaf(profile, key_of(&self.key), job.payload, job.was, goal);
    }

    /// A leaf to take up to a depth; answers the number of its rise.
    pub(super) fn leaf(
        &mut self,
        profile: Profile,
        key: [u8; 32],
        payload: &[u8],
        was: Option<WasTerminal<SumCommit>>,
        goal: u16,
    ) -> u32 {
        let (sum, value) = split_value(payload);
        let (rise, known) = rise_of_leaf(key, sum, was, goal);
        if known.is_none() {
            self.leaves.push(profile, value, sum);
            self.fresh.push(self.rises.len() as u32);
        }
        self.rises.push(rise);
        self.goals.push((goal, known.flatten()));
        self.rises.len() as u32 - 1
    }

    /// Takes leaves all the way up at once, and leaves no checkpoints.
    pub(super) fn climb_to_goals(&mut self, profile: Profile) {
        for (rise, (goal, _)) in self.rises.iter_mut().zip(&self.goals) {
            rise.to = *goal;
        }
        self.climb(profile);
    }

    /// Hashes the leaves that are not known yet.
    pub(super) fn hash_fresh(&mut self) {
        for (rise, hash) in self.fresh.iter().zip(self.leaves.finish()) {
            self.rises[*rise as usize].hash = *hash;
        }
    }

    /// A branch to take up to a depth from what it hashes at its fork; answers the number of its rise.
    pub(super) fn branch(&mut self, profile: Profile, job: &BranchJob<'_, Sum>, to: u16) -> u32 {
        let fork = depth_of(job.skip.end());
        let mut sides = [profile.empty_node(DEPTH.min(usize::from(fork) + 1)); 2];
        for (digit, commit) in job.children.iter() {
            sides[usize::from(digit)] = commit.node;
        }
        let [left, right] = &sides;
        profile.put_branch((&left.hash, left.sum), (&right.hash, right.sum), &mut self.bytes);
        let mut path = [0; 32];
        // Most stay where they fork.
        if !job.skip.is_empty() {
            let first = job.skip.start() / 8;
            for (to, from) in path.iter_mut().skip(first).zip(job.skip.aligned()) {
                *to = from.reverse_bits();
            }
        }
        let sum = left.sum.wrapping_add(right.sum);
        self.rises.push(SumClimb { hash: [0; 32], sum, path, from: fork, to: to.min(fork) });
        self.rises.len() as u32 - 1
    }

    /// Hashes all branches at their forks.
    pub(super) fn hash_branches(&mut self, profile: Profile) {
        self.digests.resize(self.rises.len(), [0; 32]);
        match &mut self.digests[..] {
            [] => {}
            [one] => *one = sha256(&self.bytes),
            many => sha256_equal(&self.bytes, profile.branch_bytes(), many),
        }
        for (rise, hash) in self.rises.iter_mut().zip(&self.digests) {
            rise.hash = *hash;
        }
    }

    /// Takes all up to where they are to be.
    pub(super) fn climb(&mut self, profile: Profile) {
        profile.climb(&mut self.rises);
    }

    /// The nodes where they are.
    pub(super) fn nodes(&self) -> impl Iterator<Item = SumNode> + '_ {
        self.rises.iter().map(|rise| SumNode { hash: rise.hash, sum: rise.sum })
    }
}

/// An engine key as users write it; one of a damaged page may have any length.
pub(super) fn key_of(engine: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    for (to, from) in key.iter_mut().zip(engine) {
        *to = from.reverse_bits();
    }
    key
}
