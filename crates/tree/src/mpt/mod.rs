//! Ethereum's Merkle Patricia trie (Yellow Paper, appendix D).
//!
//! Digits are nibbles. A branch with a skip is an extension over a branch; a branch's value is the key
//! that ends at its fork. A node whose RLP is shorter than 32 bytes stands in its parent as it is, else
//! by its Keccak-256 digest; the root is always a digest.

mod node_ref;
pub mod partial;
pub mod proof;
pub mod reference;
mod rlp;

use spinney_hash::{Inputs, keccak256, keccak256_many};

pub use node_ref::NodeRef;

use crate::digits::Run;
use crate::scheme::{BranchJob, Owner, Refused, Scheme, SchemeId, TerminalJob};

/// The root of an empty trie: the Keccak-256 digest of the RLP of nothing, `0x80`.
pub const EMPTY_ROOT: [u8; 32] = [
    0x56, 0xe8, 0x1f, 0x17, 0x1b, 0xcc, 0x55, 0xa6, 0xff, 0x83, 0x45, 0xe6, 0x92, 0xc0, 0xf8, 0x6e,
    0x5b, 0x48, 0xe0, 0x1b, 0x99, 0x6c, 0xad, 0xc0, 0x01, 0x62, 0x2f, 0xb5, 0xe3, 0x63, 0xb4, 0x21,
];

/// The Keccak-256 digest of no code.
pub const EMPTY_CODE_HASH: [u8; 32] = [
    0xc5, 0xd2, 0x46, 0x01, 0x86, 0xf7, 0x23, 0x3c, 0x92, 0x7e, 0x7d, 0xb2, 0xdc, 0xc7, 0x03, 0xc0,
    0xe5, 0x00, 0xb6, 0x53, 0xca, 0x82, 0x27, 0x3b, 0x7b, 0xfa, 0xd8, 0x04, 0x5d, 0x85, 0xa4, 0x70,
];

/// The trie over raw keys of any length, also one a prefix of another. An empty value is a deletion.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mpt;

/// The trie of Ethereum's state as one path space: an account under the digest of its address (32
/// bytes), its slots under that and the digest of the slot (64 bytes).
///
/// An account's value is the RLP list payload of nonce and balance, and the code hash: see
/// [`account_value`]. The storage root is not part of it: the account owns the subtree of its slots and
/// commits to its root.
#[derive(Clone, Copy, Debug, Default)]
pub struct MptState;

/// Buffers of the Merkle Patricia schemes.
#[derive(Debug, Default)]
pub struct Scratch {
    /// RLP of nodes, end to end.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    digests: Vec<[u8; 32]>,
    /// The extensions over those branches of a level that have a skip.
    extended: Vec<NodeRef>,
}

/// The value of an account, as [`MptState`] keeps it: `nonce` and `balance` in RLP, then the code hash.
///
/// `balance` is big-endian; leading zeros are dropped.
pub fn account_value(nonce: u64, balance: &[u8; 32], code_hash: &[u8; 32]) -> Vec<u8> {
    let mut value = Vec::with_capacity(9 + 33 + 32);
    rlp::put_integer(&mut value, &nonce.to_be_bytes());
    rlp::put_integer(&mut value, balance);
    value.extend_from_slice(code_hash);
    value
}

/// Reads [`account_value`] back: nonce, balance and code hash; `None` if the bytes are none.
pub fn decode_account_value(value: &[u8]) -> Option<(u64, [u8; 32], [u8; 32])> {
    let (nonce, rest) = rlp::take_integer::<8>(value)?;
    let (balance, rest) = rlp::take_integer::<32>(rest)?;
    Some((u64::from_be_bytes(nonce), balance, rest.try_into().ok()?))
}

/// The RLP of a slot's value, as [`MptState`] keeps it; empty for zero, which is a deletion.
pub fn slot_value(value: &[u8; 32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(33);
    if value.iter().any(|&byte| byte != 0) {
        rlp::put_integer(&mut out, value);
    }
    out
}

/// Reads [`slot_value`] back; `None` if the bytes are none.
pub fn decode_slot_value(value: &[u8]) -> Option<[u8; 32]> {
    match rlp::take_integer::<32>(value)? {
        (word, []) => Some(word),
        _ => None,
    }
}

impl Scheme for Mpt {
    const DIGIT_BITS: u8 = 4;
    const OWNER: Option<Owner> = None;
    const PREFIX_KEYS: bool = true;
    const COMMIT_BYTES: Option<usize> = Some(NodeRef::DIGEST_BYTES);

    type Commit = NodeRef;
    type Root = [u8; 32];
    type Scratch = Scratch;

    fn id(&self) -> SchemeId {
        SchemeId { tree: 1, hash: 0 }
    }

    fn admit(&self, _: &[u8], value: Option<&[u8]>) -> Result<bool, Refused> {
        Ok(value.is_none_or(|value| !value.is_empty()))
    }

    fn commit_terminals<'a>(
        &self,
        jobs: impl Iterator<Item = TerminalJob<'a, NodeRef>>,
        scratch: &mut Scratch,
        out: &mut Vec<NodeRef>,
    ) {
        scratch.start();
        for job in jobs {
            Self::put_leaf(scratch, &job);
        }
        scratch.finish(out);
    }

    fn commit_branches<'a>(
        &self,
        jobs: impl Iterator<Item = BranchJob<'a, Self>>,
        scratch: &mut Scratch,
        out: &mut Vec<NodeRef>,
    ) {
        commit_branches(jobs, scratch, out);
    }

    fn root(&self, top: Option<&NodeRef>) -> [u8; 32] {
        top.map_or(EMPTY_ROOT, NodeRef::digest)
    }

    fn decode_root(&self, bytes: &[u8]) -> Option<[u8; 32]> {
        bytes.try_into().ok()
    }

    fn encode_commit(&self, commit: &NodeRef, out: &mut Vec<u8>) {
        commit.encode(out);
    }

    fn encoded_bytes(&self, commit: &NodeRef) -> usize {
        commit.kept_bytes()
    }

    fn decode_commit(&self, bytes: &[u8]) -> Option<(NodeRef, usize)> {
        NodeRef::decode(bytes)
    }

    fn commit_bytes(&self, bytes: &[u8]) -> Option<usize> {
        NodeRef::encoded_bytes(bytes)
    }
}

impl Scheme for MptState {
    const DIGIT_BITS: u8 = 4;
    const OWNER: Option<Owner> = Some(Owner { bytes: 32, implicit: false });
    const PREFIX_KEYS: bool = false;
    const COMMIT_BYTES: Option<usize> = Some(NodeRef::DIGEST_BYTES);

    type Commit = NodeRef;
    type Root = [u8; 32];
    type Scratch = Scratch;

    fn id(&self) -> SchemeId {
        SchemeId { tree: 2, hash: 0 }
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

    fn commit_terminals<'a>(
        &self,
        jobs: impl Iterator<Item = TerminalJob<'a, NodeRef>>,
        scratch: &mut Scratch,
        out: &mut Vec<NodeRef>,
    ) {
        scratch.start();
        for job in jobs {
            Self::put_leaf(scratch, &job);
        }
        scratch.finish(out);
    }

    fn commit_branches<'a>(
        &self,
        jobs: impl Iterator<Item = BranchJob<'a, Self>>,
        scratch: &mut Scratch,
        out: &mut Vec<NodeRef>,
    ) {
        commit_branches(jobs, scratch, out);
    }

    fn root(&self, top: Option<&NodeRef>) -> [u8; 32] {
        Mpt.root(top)
    }

    fn decode_root(&self, bytes: &[u8]) -> Option<[u8; 32]> {
        Mpt.decode_root(bytes)
    }

    fn encode_commit(&self, commit: &NodeRef, out: &mut Vec<u8>) {
        commit.encode(out);
    }

    fn encoded_bytes(&self, commit: &NodeRef) -> usize {
        commit.kept_bytes()
    }

    fn decode_commit(&self, bytes: &[u8]) -> Option<(NodeRef, usize)> {
        NodeRef::decode(bytes)
    }

    fn commit_bytes(&self, bytes: &[u8]) -> Option<usize> {
        NodeRef::encoded_bytes(bytes)
    }
}

/// Bytes within the RLP list of an account.
const fn account_list(value: &[u8]) -> usize {
    value.len().saturating_sub(32) + 33 + 33
}

/// Bytes of what [`put_account`] writes.
fn account_len(value: &[u8]) -> usize {
    let list = account_list(value);
    let string = rlp::head_len(list) + list;
    rlp::head_len(string) + string
}

/// How a scheme's terminals are written as leaves.
trait Leaves: Scheme<Commit = NodeRef> {
    /// Appends the RLP of the leaf that a terminal is.
    fn put_leaf(scratch: &mut Scratch, job: &TerminalJob<'_, NodeRef>);
}

impl Leaves for Mpt {
    fn put_leaf(scratch: &mut Scratch, job: &TerminalJob<'_, NodeRef>) {
        scratch.leaf(job.suffix, job.payload);
    }
}

impl Leaves for MptState {
    fn put_leaf(scratch: &mut Scratch, job: &TerminalJob<'_, NodeRef>) {
        if job.suffix.end() > 64 {
            return Mpt::put_leaf(scratch, job);
        }
        let storage_root = job.owned.map_or(EMPTY_ROOT, |top| top.commit().digest());
        let len = account_len(job.payload);
        let put = |out: &mut Vec<u8>| put_account(out, job.payload, &storage_root);
        scratch.short(job.suffix, true, len, put);
    }
}

/// The RLP string that holds the RLP list of an account.
fn put_account(out: &mut Vec<u8>, value: &[u8], storage_root: &[u8; 32]) {
    // Shorter ones are admitted nowhere, but a forged page may hold one: its root will be wrong.
    let (fields, code_hash) = value.split_at(value.len().saturating_sub(32));
    let list = account_list(value);
    rlp::put_head(out, 0x80, rlp::head_len(list) + list);
    rlp::put_head(out, 0xc0, list);
    out.extend_from_slice(fields);
    rlp::put_bytes(out, storage_root);
    rlp::put_bytes(out, code_hash);
}

fn commit_branches<'a, S: Scheme<Commit = NodeRef>>(
    jobs: impl Iterator<Item = BranchJob<'a, S>>,
    scratch: &mut Scratch,
    out: &mut Vec<NodeRef>,
) {
    let first = out.len();
    let mut skips: smallvec::SmallVec<[(u32, Run<'a>); 8]> = smallvec::SmallVec::new();
    scratch.start();
    for (index, job) in jobs.enumerate() {
        scratch.branch(job.children.iter(), job.value);
        if !job.skip.is_empty() {
            skips.push((index as u32, job.skip));
        }
    }
    scratch.finish(out);
    if skips.is_empty() {
        return;
    }
    scratch.start();
    for (index, skip) in &skips {
        let below = out[first + *index as usize];
        scratch.extension(*skip, &below);
    }
    let mut extended = std::mem::take(&mut scratch.extended);
    extended.clear();
    scratch.finish(&mut extended);
    for ((index, _), extended) in skips.iter().zip(&extended) {
        out[first + *index as usize] = *extended;
    }
    scratch.extended = extended;
}

impl Scratch {
    fn start(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Appends the RLP of a leaf or an extension: a list of a hex-prefixed path and one item, which
    /// `put` writes in `len` bytes.
    #[inline]
    fn short(&mut self, path: Run<'_>, leaf: bool, len: usize, put: impl FnOnce(&mut Vec<u8>)) {
        rlp::put_head(&mut self.bytes, 0xc0, rlp::hex_prefix_len(path) + len);
        rlp::put_hex_prefix(&mut self.bytes, path, leaf);
        put(&mut self.bytes);
        self.end();
    }

    /// Appends the RLP of a leaf with this value.
    fn leaf(&mut self, suffix: Run<'_>, value: &[u8]) {
        self.short(suffix, true, rlp::bytes_len(value), |out| rlp::put_bytes(out, value));
    }

    /// Appends the RLP of an extension over `below`.
    fn extension(&mut self, skip: Run<'_>, below: &NodeRef) {
        self.short(skip, false, below.rlp_bytes(), |out| below.put(out));
    }

    /// Appends the RLP of a branch with these children, in order of their digits.
    fn branch(&mut self, children: impl Iterator<Item = (u8, NodeRef)>, value: Option<&[u8]>) {
        // Where no child is, 0x80 stands for nothing.
        let mut items = [0x80; 16 * NodeRef::RLP_BYTES_MAX];
        let (mut at, mut next) = (0, 0);
        children.for_each(|(digit, child)| {
            at += usize::from(digit - next);
            at += child.lay(&mut items[at..]);
            next = digit + 1;
        });
        at += usize::from(16 - next);
        let value = value.unwrap_or_default();
        rlp::put_head(&mut self.bytes, 0xc0, at + rlp::bytes_len(value));
        self.bytes.extend_from_slice(&items[..at]);
        rlp::put_bytes(&mut self.bytes, value);
        self.end();
    }

    fn end(&mut self) {
        let end = u32::try_from(self.bytes.len()).expect("a level is split before it fills 4 GiB");
        self.ends.push(end);
    }

    /// Turns the nodes into what their parents hold of them.
    fn finish(&mut self, out: &mut Vec<NodeRef>) {
        self.digests.clear();
        self.digests.resize(self.ends.len(), [0; 32]);
        if let [_] = self.ends[..] {
            // Lone nodes on the way up: no need to set up lanes.
            if self.bytes.len() >= 32 {
                self.digests[0] = keccak256(&self.bytes);
            }
        } else {
            keccak256_many(Inputs::new(&self.bytes, &self.ends), &mut self.digests);
        }
        let mut from = 0;
        for (&end, digest) in self.ends.iter().zip(&self.digests) {
            let node = &self.bytes[from..end as usize];
            out.push(if node.len() < 32 {
                NodeRef::inline(node)
            } else {
                NodeRef::hashed(*digest)
            });
            from = end as usize;
        }
    }
}
