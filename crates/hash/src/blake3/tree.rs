//! Inputs longer than a chunk: a binary tree whose left subtrees are full (BLAKE3 paper, section
//! 2.1).
//!
//! Invariant: before chunk `n` is added, `stack` holds the roots of the full subtrees that the
//! binary digits of `n` stand for, largest first. The last chunk is added only after all merges
//! that a further chunk would bring, because the last merge of all is the root and has a flag of
//! its own.

use super::{Blake3, CHUNK, CHUNK_END, CHUNK_START, Node, PARENT, ROOT};
use crate::{
    Digest,
    lanes::{Kernel, Known, LANES_MAX},
};

/// As many full subtrees as an input of 2^64 bytes has.
const DEPTH_MAX: usize = 54;

impl Blake3 {
    /// The digest of an input of more than a chunk.
    pub(super) fn hash_tree(&self, input: &[u8]) -> Digest {
        let mut stack = [[0; 32]; DEPTH_MAX];
        let mut height = 0;
        let mut chunks: u64 = 0;
        for group in input.chunks(CHUNK * self.lanes()) {
            let mut inputs = [&[][..]; LANES_MAX];
            let mut values = [[0; 32]; LANES_MAX];
            let mut count = 0;
            for (slot, chunk) in inputs.iter_mut().zip(group.chunks(CHUNK)) {
                *slot = chunk;
                count += 1;
            }
            let node =
                Node { counter: chunks, successive: true, first: CHUNK_START, last: CHUNK_END };
            self.hash_nodes(&inputs[..count], Known::Nothing, node, &mut values[..count]);
            for value in &values[..count] {
                // The chunks so far are full subtrees; merge those that are complete at last.
                while height > chunks.count_ones() as usize {
                    height -= 1;
                    stack[height - 1] = self.parent(&stack[height - 1], &stack[height], 0);
                }
                stack[height] = *value;
                height += 1;
                chunks += 1;
            }
        }
        while height > 2 {
            height -= 1;
            stack[height - 1] = self.parent(&stack[height - 1], &stack[height], 0);
        }
        self.parent(&stack[0], &stack[1], ROOT)
    }

    fn parent(&self, left: &Digest, right: &Digest, root: u32) -> Digest {
        let mut children = [0; 64];
        children[..32].copy_from_slice(left);
        children[32..].copy_from_slice(right);
        let node = Node { counter: 0, successive: false, first: PARENT, last: root };
        let mut value = [[0; 32]];
        self.hash_nodes(&[&children], Known::Len(64), node, &mut value);
        value[0]
    }
}
