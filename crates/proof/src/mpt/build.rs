//! The top node of a trie from its sorted entries, in one pass with a stack of open forks.

use alloc::vec::Vec;

use super::node::{NIBBLES, nibble};
use super::writer::NodeWriter;
use crate::digits::Run;
use crate::mpt::NodeRef;

/// A key and its value.
pub(super) type Entry = (Vec<u8>, Vec<u8>);

/// A branch whose children are not all known yet.
#[derive(Debug)]
struct Open<'e> {
    fork: usize,
    children: Vec<(u8, NodeRef)>,
    value: Option<&'e [u8]>,
}

/// The RLP of the node that holds `entries`, whose keys strictly rise and share their first `depth`
/// digits; `None` for no entries.
pub(super) fn top_node(entries: &[Entry], depth: usize) -> Option<Vec<u8>> {
    let mut open: Vec<Open<'_>> = Vec::new();
    for (index, (key, value)) in entries.iter().enumerate() {
        let len = NIBBLES.count(key);
        let next = entries.get(index.saturating_add(1)).map(|(next, _)| {
            let have = len.min(NIBBLES.count(next));
            NIBBLES.common(key, next, depth, have.saturating_sub(depth)).saturating_add(depth)
        });
        if let Some(fork) = next
            && open.last().is_none_or(|last| last.fork < fork)
        {
            open.push(Open { fork, children: Vec::new(), value: None });
        }
        match open.last_mut() {
            Some(last) if last.fork == len => last.value = Some(value),
            Some(last) => {
                let suffix = Run::of(key, last.fork.saturating_add(1), len, NIBBLES);
                let leaf = encode(|out| out.leaf(suffix, value));
                last.children.push((nibble(key, last.fork), NodeRef::of(&leaf)));
            }
            None => {
                let suffix = Run::of(key, depth, len, NIBBLES);
                return Some(encode(|out| out.leaf(suffix, value)));
            }
        }
        // The forks that the next key does not reach are complete.
        while let Some(done) = open.pop_if(|last| next.is_none_or(|next| last.fork > next)) {
            if let Some(next) = next
                && open.last().is_none_or(|last| last.fork < next)
            {
                open.push(Open { fork: next, children: Vec::new(), value: None });
            }
            match open.last_mut() {
                Some(parent) => {
                    let node = done.encode(key, parent.fork.saturating_add(1));
                    parent.children.push((nibble(key, parent.fork), NodeRef::of(&node)));
                }
                None => return Some(done.encode(key, depth)),
            }
        }
    }
    None
}

impl Open<'_> {
    /// The RLP of the branch, or of the extension over it, whose digits begin at `start` of `key`.
    fn encode(self, key: &[u8], start: usize) -> Vec<u8> {
        let branch = encode(|out| out.branch(self.children.into_iter(), self.value));
        if start == self.fork {
            return branch;
        }
        let below = NodeRef::of(&branch);
        encode(|out| out.extension(Run::of(key, start, self.fork, NIBBLES), &below))
    }
}

fn encode(put: impl FnOnce(&mut NodeWriter)) -> Vec<u8> {
    let mut writer = NodeWriter::default();
    put(&mut writer);
    writer.into_bytes()
}
