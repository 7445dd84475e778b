//! What a foreign node refers to, and where it hangs.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::VecDeque;
use std::fmt::Write as _;

use alloy_consensus::TrieAccount;
use alloy_primitives::{Address, B256, Bytes, keccak256, map::B256Map};
use alloy_rlp::Header;

use super::super::reads::Keys;

/// Digits of a key.
const DEPTH: usize = 64;

/// What hangs below a node, with the digits that lead there.
pub(super) enum Below<'a> {
    Node(B256),
    Leaf(&'a [u8]),
}

/// Reads what a node refers to; nothing of what is no node.
pub(super) fn below(rlp: &[u8]) -> Vec<(Vec<u8>, Below<'_>)> {
    let mut found = Vec::new();
    let _ = read(rlp, &mut Vec::new(), &mut found);
    found
}

/// The only place that recurses: embedded nodes are shorter than 32 bytes, each than the one around
/// it.
fn read<'a>(
    rlp: &'a [u8],
    path: &mut Vec<u8>,
    found: &mut Vec<(Vec<u8>, Below<'a>)>,
) -> Option<()> {
    let mut items = Vec::with_capacity(17);
    let mut rest = Header::decode_bytes(&mut { rlp }, true).ok()?;
    while !rest.is_empty() && items.len() < 17 {
        let whole = rest;
        let header = Header::decode(&mut rest).ok()?;
        let (payload, behind) = rest.split_at_checked(header.payload_length)?;
        rest = behind;
        let taken = whole.len().checked_sub(behind.len())?;
        items.push((header.list, payload, whole.get(..taken)?));
    }
    let mut child = |item: &(bool, &'a [u8], &'a [u8]), path: &mut Vec<u8>| match item {
        (true, _, whole) if whole.len() < 32 && path.len() <= DEPTH => read(whole, path, found),
        (false, payload, _) => {
            let digest = B256::try_from(*payload).ok()?;
            found.push((path.clone(), Below::Node(digest)));
            Some(())
        }
        _ => None,
    };
    match &items[..] {
        [(false, packed, _), below] => {
            let (first, bytes) = packed.split_first()?;
            let before = path.len();
            if first & 0x10 != 0 {
                path.push(first & 15);
            }
            path.extend(bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]));
            if first & 0x20 != 0 {
                found.push((path.clone(), Below::Leaf(below.1)));
            } else {
                child(below, path)?;
            }
            path.truncate(before);
        }
        branch if branch.len() == 17 => {
            for (digit, item) in (0..16).zip(branch) {
                path.push(digit);
                child(item, path);
                path.pop();
            }
        }
        _ => return None,
    }
    Some(())
}

/// Where a node lies: the account whose storage it is in, by its digest, and the digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) account: Option<B256>,
    pub(super) path: Vec<u8>,
}

/// Where the nodes of a witness lie, by walking from a root. Each node is walked once, so that it
/// ends whatever refers to what.
#[derive(Debug, Default)]
pub(super) struct Whereabouts {
    found: B256Map<Position>,
}

impl Whereabouts {
    pub(super) fn of(state: &[Bytes], digests: &[B256], root: B256) -> Self {
        let nodes: B256Map<_> = digests.iter().copied().zip(state).collect();
        let mut found = B256Map::default();
        let start = Position { account: None, path: Vec::new() };
        let mut queue = VecDeque::from([(root, start)]);
        while let Some((digest, position)) = queue.pop_front() {
            let Some(rlp) = nodes.get(&digest) else { continue };
            if found.contains_key(&digest) {
                continue;
            }
            for (digits, what) in below(rlp) {
                let path = [&position.path[..], &digits].concat();
                let account = position.account;
                match what {
                    Below::Node(child) if path.len() < DEPTH => {
                        queue.push_back((child, Position { account, path }));
                    }
                    Below::Leaf(value) if account.is_none() && path.len() == DEPTH => {
                        let leaf = alloy_rlp::decode_exact::<TrieAccount>(value);
                        if let (Ok(leaf), Some(key)) = (leaf, packed(&path)) {
                            let inside = Position { account: Some(key), path: Vec::new() };
                            queue.push_back((leaf.storage_root, inside));
                        }
                    }
                    _ => {}
                }
            }
            found.insert(digest, position);
        }
        Self { found }
    }

    pub(super) fn get(&self, digest: &B256) -> Option<&Position> {
        self.found.get(digest)
    }
}

/// Digits as the digest that they are.
fn packed(path: &[u8]) -> Option<B256> {
    let (pairs, rest) = path.as_chunks::<2>();
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| (high << 4) | (low & 15)).collect();
    if rest.is_empty() { B256::try_from(&bytes[..]).ok() } else { None }
}

/// Addresses by their digests, as far as somebody named them.
#[derive(Debug, Default)]
pub(super) struct NamedAddresses(B256Map<Address>);

impl NamedAddresses {
    pub(super) fn keys(&mut self, keys: &Keys) {
        self.0.extend(keys.0.keys().map(|address| (keccak256(address), *address)));
    }

    /// Says where a node lies.
    pub(super) fn say(&self, position: &Position) -> String {
        let path = digits(&position.path);
        match position.account {
            None => format!("at path {path} of the accounts"),
            Some(key) => match self.0.get(&key) {
                Some(address) => format!("at path {path} in the storage of account {address}"),
                None => format!("at path {path} in the storage of the account with digest {key}"),
            },
        }
    }
}

/// Digits, one a byte, in hex.
pub(super) fn digits(path: &[u8]) -> String {
    let mut text = "0x".to_owned();
    for digit in path {
        // A text takes all that is written.
        let _ = write!(text, "{digit:x}");
    }
    text
}
