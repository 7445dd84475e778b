//! The input of the target `pages`: rows of a store without their checksums.
//!
//! ```text
//! root (32) | probe | (key, content)*           each but the root behind its length (u16 LE)
//! ```
//! What is cut short ends where the input does, so that nearly every input is one.

use spinney_tree::{RootRecord, TreeId};
use xxhash_rust::xxh3::Xxh3;

/// Bytes of a checksum.
pub(crate) const SUM_BYTES: usize = 8;
/// The root record of a tree of scheme MPT and Keccak-256, commit 1, without block: all before the
/// root.
const RECORD: [u8; 60] = {
    let mut head = [0; 60];
    head[1] = 1;
    head[3] = 1;
    head[17] = 1;
    head[59] = 32;
    head
};

/// Rows of a tree, and what else a run needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The root that the root record names.
    pub root: [u8; 32],
    /// A key to look for, to put and to clear.
    pub probe: Vec<u8>,
    /// Keys of rows, and what follows the checksum in each.
    pub pages: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Rows {
    /// Reads an input; `None` if it is shorter than a root.
    pub fn parse(input: &[u8]) -> Option<Self> {
        let (root, mut rest) = input.split_first_chunk::<32>()?;
        let probe = cut(&mut rest);
        let mut pages = Vec::new();
        while !rest.is_empty() {
            let key = cut(&mut rest);
            pages.push((key, cut(&mut rest)));
        }
        Some(Self { root: *root, probe, pages })
    }

    /// Writes an input.
    ///
    /// # Panics
    /// If a key or a row takes more than 65,535 bytes, which none does.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.root.to_vec();
        let pages = self.pages.iter().flat_map(|(key, content)| [key, content]);
        for bytes in [&self.probe].into_iter().chain(pages) {
            out.extend_from_slice(&u16::try_from(bytes.len()).expect("short").to_le_bytes());
            out.extend_from_slice(bytes);
        }
        out
    }

    /// A sound root record that names the root.
    pub fn record(&self, tree: TreeId) -> Vec<u8> {
        let row = [&RECORD[..], &self.root].concat();
        seal_behind(&RootRecord::key(tree), &row)
    }
}

/// Takes bytes behind their length.
fn cut(rest: &mut &[u8]) -> Vec<u8> {
    let (len, tail) = rest.split_at(2.min(rest.len()));
    let len = len.iter().rev().fold(0, |len, &byte| len << 8 | usize::from(byte));
    let (part, tail) = tail.split_at(len.min(tail.len()));
    *rest = tail;
    part.to_vec()
}

/// A page row: its checksum, then its content.
pub fn seal(key: &[u8], content: &[u8]) -> Vec<u8> {
    [&checksum(key, content)[..], content].concat()
}

/// A root record: its content, then its checksum.
pub(crate) fn seal_behind(key: &[u8], content: &[u8]) -> Vec<u8> {
    [content, &checksum(key, content)].concat()
}

fn checksum(key: &[u8], content: &[u8]) -> [u8; SUM_BYTES] {
    let mut hasher = Xxh3::new();
    hasher.update(key);
    hasher.update(content);
    hasher.digest().to_le_bytes()
}
