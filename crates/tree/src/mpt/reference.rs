//! The trie from a sorted list of entries, by the book: no engine, no batching, no sharing.
//!
//! This is the oracle of the tests. It is as slow as it is plain.

use std::collections::BTreeMap;

use spinney_hash::keccak256;

/// The root of a trie that holds exactly these entries.
///
/// ```
/// use spinney_tree::mpt::reference;
///
/// let entries = [("doe", "reindeer"), ("dog", "puppy"), ("dogglesworth", "cat")];
/// let entries = entries.map(|(k, v)| (k.into(), v.into())).into();
/// assert_eq!(reference::root(&entries)[..4], [0x8a, 0xad, 0x78, 0x9d]);
/// ```
pub fn root(entries: &BTreeMap<Vec<u8>, Vec<u8>>) -> [u8; 32] {
    let nibbles: Vec<_> = entries.iter().map(|(key, value)| (unpack(key), value.clone())).collect();
    keccak256(&node(&nibbles, 0))
}

/// The nodes on the path of a key, root first, present or absent; a node that is embedded in its
/// parent is left out.
pub fn proof(entries: &BTreeMap<Vec<u8>, Vec<u8>>, key: &[u8]) -> Vec<Vec<u8>> {
    let mut below: Vec<_> =
        entries.iter().map(|(key, value)| (unpack(key), value.clone())).collect();
    let (key, mut depth) = (unpack(key), 0);
    let mut proof = Vec::new();
    while !below.is_empty() {
        let rlp = node(&below, depth);
        if proof.is_empty() || rlp.len() >= 32 {
            proof.push(rlp);
        }
        let shared = shared(&below, depth);
        if below.len() == 1 || !key[depth..].starts_with(&below[0].0[depth..depth + shared]) {
            break;
        }
        if shared == 0 {
            let Some(nibble) = key.get(depth) else { break };
            below.retain(|(key, _)| key.get(depth) == Some(nibble));
            depth += 1;
        }
        depth += shared;
    }
    proof
}

/// An account of the textbook state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The value as the engine keeps it: see [`account_value`](super::account_value).
    pub value: Vec<u8>,
    /// Slot digests and their RLP values.
    pub storage: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The root of a state: accounts by the digest of their address.
pub fn state_root(accounts: &BTreeMap<Vec<u8>, Account>) -> [u8; 32] {
    root(&account_entries(accounts))
}

/// The entries of the accounts' trie: accounts by the digest of their address, in RLP.
pub fn account_entries(accounts: &BTreeMap<Vec<u8>, Account>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let leaf = |account: &Account| {
        let (fields, code_hash) = account.value.split_at(account.value.len() - 32);
        let mut body = fields.to_vec();
        body.extend(string(&root(&account.storage)));
        body.extend(string(code_hash));
        list(&body)
    };
    accounts.iter().map(|(key, account)| (key.clone(), leaf(account))).collect()
}

fn unpack(key: &[u8]) -> Vec<u8> {
    key.iter().flat_map(|byte| [byte >> 4, byte & 15]).collect()
}

/// The RLP of the node that holds `entries`, which share their first `depth` nibbles.
fn node(entries: &[(Vec<u8>, Vec<u8>)], depth: usize) -> Vec<u8> {
    match entries {
        [] => return vec![0x80],
        [(key, value)] => {
            let mut body = string(&hex_prefix(&key[depth..], true));
            body.extend(string(value));
            return list(&body);
        }
        _ => {}
    }
    let shared = shared(entries, depth);
    if shared > 0 {
        let mut body = string(&hex_prefix(&entries[0].0[depth..depth + shared], false));
        body.extend(reference(&node(entries, depth + shared)));
        return list(&body);
    }
    let mut body = Vec::new();
    for nibble in 0..16 {
        let below: Vec<_> =
            entries.iter().filter(|(key, _)| key.get(depth) == Some(&nibble)).cloned().collect();
        body.extend(if below.is_empty() {
            vec![0x80]
        } else {
            reference(&node(&below, depth + 1))
        });
    }
    let value = entries.iter().find(|(key, _)| key.len() == depth);
    body.extend(value.map_or(vec![0x80], |(_, value)| string(value)));
    list(&body)
}

/// How many nibbles from `depth` on all keys share.
fn shared(entries: &[(Vec<u8>, Vec<u8>)], depth: usize) -> usize {
    let same = |i: &usize| {
        entries[0].0.get(*i).is_some_and(|n| entries.iter().all(|e| e.0.get(*i) == Some(n)))
    };
    (depth..).take_while(same).count()
}

fn reference(node: &[u8]) -> Vec<u8> {
    if node.len() < 32 { node.to_vec() } else { string(&keccak256(node)) }
}

fn hex_prefix(nibbles: &[u8], leaf: bool) -> Vec<u8> {
    let odd = nibbles.len() % 2 == 1;
    let flag = if leaf { 0x20 } else { 0 };
    let mut out = vec![if odd { flag | 0x10 | nibbles[0] } else { flag }];
    out.extend(nibbles[usize::from(odd)..].chunks(2).map(|pair| pair[0] << 4 | pair[1]));
    out
}

fn string(bytes: &[u8]) -> Vec<u8> {
    if let [byte @ 0..0x80] = bytes {
        return vec![*byte];
    }
    [head(0x80, bytes.len()), bytes.to_vec()].concat()
}

fn list(body: &[u8]) -> Vec<u8> {
    [head(0xc0, body.len()), body.to_vec()].concat()
}

fn head(base: u8, len: usize) -> Vec<u8> {
    if len < 56 {
        return vec![base + len as u8];
    }
    let be: Vec<u8> = len.to_be_bytes().into_iter().skip_while(|&byte| byte == 0).collect();
    [vec![base + 55 + be.len() as u8], be].concat()
}
