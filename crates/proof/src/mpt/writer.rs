//! The RLP of nodes, of many end to end: what is hashed of a level.

use alloc::vec::Vec;

use spinney_hash::{Inputs, keccak256, keccak256_many};

use super::node_ref::NodeRef;
use super::rlp;
use crate::digits::Run;

/// Writes nodes end to end, and hashes them together.
#[derive(Debug, Default)]
pub struct NodeWriter {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    digests: Vec<[u8; 32]>,
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

impl NodeWriter {
    /// The RLP of the nodes written, end to end.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Gives the RLP away.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Forgets what was written.
    pub fn clear(&mut self) {
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
    #[inline]
    pub fn leaf(&mut self, suffix: Run<'_>, value: &[u8]) {
        self.short(suffix, true, rlp::bytes_len(value), |out| rlp::put_bytes(out, value));
    }

    /// Appends the RLP of the leaf of an account, with its value as
    /// [`account_value`](super::account_value) writes it and the root of its storage.
    pub fn account(&mut self, suffix: Run<'_>, value: &[u8], storage_root: &[u8; 32]) {
        let put = |out: &mut Vec<u8>| put_account(out, value, storage_root);
        self.short(suffix, true, account_len(value), put);
    }

    /// Appends the RLP of an extension over `below`.
    #[inline]
    pub fn extension(&mut self, prefix: Run<'_>, below: &NodeRef) {
        self.short(prefix, false, below.rlp_bytes(), |out| below.put(out));
    }

    /// Appends the RLP of a branch with these children, in order of their digits.
    ///
    /// # Panics
    /// If a digit is over 15, or does not follow the one before it.
    #[inline]
    pub fn branch(&mut self, children: impl Iterator<Item = (u8, NodeRef)>, value: Option<&[u8]>) {
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

    #[inline]
    fn end(&mut self) {
        let end = u32::try_from(self.bytes.len()).expect("a level is split before it fills 4 GiB");
        self.ends.push(end);
    }

    /// Appends what their parents hold of the nodes.
    pub fn finish(&mut self, out: &mut Vec<NodeRef>) {
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
