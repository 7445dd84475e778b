//! A trie node, read strictly: canonical RLP, canonical hex prefix, a shape that a trie can have.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use crate::digits::Width;
use crate::mpt::NodeRef;
use crate::mpt::rlp::{Item, take_integer, take_item, take_string};

/// Digits of a Merkle Patricia trie.
pub(crate) const NIBBLES: Width = Width::new(4);

/// Digit `index` of a key; zero behind its end.
pub(crate) fn nibble(bytes: &[u8], index: usize) -> u8 {
    let byte = bytes.get(index / 2).copied().unwrap_or_default();
    if index.is_multiple_of(2) { byte >> 4 } else { byte & 15 }
}

/// A node, borrowed from its RLP.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, and a box would be an allocation each"
)]
pub(crate) enum Node<'a> {
    /// The rest of a key, and its value.
    Leaf {
        /// The digits.
        path: HexPath<'a>,
        /// The value, which is not empty.
        value: &'a [u8],
    },
    /// Digits that all keys below share.
    Extension {
        /// The digits.
        path: HexPath<'a>,
        /// The branch below.
        child: Below<'a>,
    },
    /// A fork.
    Branch {
        /// By digit.
        children: [Below<'a>; 16],
        /// The value of the key that ends here; empty where none does.
        value: &'a [u8],
    },
}

/// What a node holds of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Below<'a> {
    /// There is no child.
    Nothing,
    /// The child's Keccak-256 digest.
    Digest(&'a [u8; 32]),
    /// The child's RLP, shorter than 32 bytes.
    Embedded(&'a [u8]),
}

impl Below<'_> {
    /// The same with its bytes, or `None` where there is nothing.
    pub(crate) fn node_ref(&self) -> Option<NodeRef> {
        match self {
            Self::Nothing => None,
            Self::Digest(digest) => Some(NodeRef::hashed(**digest)),
            Self::Embedded(rlp) => Some(NodeRef::inline(rlp)),
        }
    }
}

/// The digits of a leaf or an extension, in their hex-prefixed bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HexPath<'a> {
    bytes: &'a [u8],
    /// Digits of the prefix: one or two.
    prefix: usize,
}

impl HexPath<'_> {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        NIBBLES.count(self.bytes).saturating_sub(self.prefix)
    }

    /// Digit `index`; zero behind the end.
    pub(crate) fn digit(&self, index: usize) -> u8 {
        nibble(self.bytes, self.prefix.saturating_add(index))
    }

    /// How many leading digits `key` has at digit `depth`.
    pub(crate) fn common(&self, key: &[u8], depth: usize) -> usize {
        let have = NIBBLES.count(key).saturating_sub(depth).min(self.len());
        let same = |&(i, at): &(usize, usize)| self.digit(i) == nibble(key, at);
        (0..have).zip(depth..).take_while(same).count()
    }

    /// The digits in order.
    pub(crate) fn digits(&self) -> impl Iterator<Item = u8> + '_ {
        (0..self.len()).map(|index| self.digit(index))
    }
}

/// Reads a node. What its children are is read when they are.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn read(rlp: &[u8]) -> Result<Node<'_>, &'static str> {
    let Some((Item::List { payload, .. }, [])) = take_item(rlp) else {
        return Err("it is not one RLP list");
    };
    let mut rest = payload;
    let mut items = [Item::String(&[]); 17];
    let mut slots = items.iter_mut();
    while !rest.is_empty() {
        let slot = slots.next().ok_or("it has more than 17 items")?;
        (*slot, rest) = take_item(rest).ok_or("an item is no canonical RLP")?;
    }
    match (slots.len(), items) {
        (15, [path, second, ..]) => short(path, second),
        (0, [children @ .., value]) => branch(&children, value),
        _ => Err("it has neither 2 nor 17 items"),
    }
}

fn short<'a>(path: Item<'a>, second: Item<'a>) -> Result<Node<'a>, &'static str> {
    const WHAT: &str = "its path is no hex prefix";
    let Item::String(bytes @ [first, ..]) = path else { return Err(WHAT) };
    let path = match first >> 4 {
        0 | 2 if first & 15 == 0 => HexPath { bytes, prefix: 2 },
        1 | 3 => HexPath { bytes, prefix: 1 },
        _ => return Err(WHAT),
    };
    if first & 0x20 != 0 {
        return match second {
            Item::String([]) => Err("a leaf has no value"),
            Item::String(value) => Ok(Node::Leaf { path, value }),
            Item::List { .. } => Err("a leaf's value is a list"),
        };
    }
    match below(second)? {
        _ if path.len() == 0 => Err("an extension has no digits"),
        Below::Nothing => Err("an extension leads nowhere"),
        child => Ok(Node::Extension { path, child }),
    }
}

fn branch<'a>(items: &[Item<'a>; 16], value: Item<'a>) -> Result<Node<'a>, &'static str> {
    let mut children = [Below::Nothing; 16];
    for (child, item) in children.iter_mut().zip(items) {
        *child = below(*item)?;
    }
    let Item::String(value) = value else { return Err("a branch's value is a list") };
    let held = children.iter().filter(|child| **child != Below::Nothing).count();
    if held.saturating_add(usize::from(!value.is_empty())) < 2 {
        return Err("a branch has fewer than two children");
    }
    Ok(Node::Branch { children, value })
}

fn below(item: Item<'_>) -> Result<Below<'_>, &'static str> {
    match item {
        Item::String([]) => Ok(Below::Nothing),
        Item::String(bytes) => {
            Ok(Below::Digest(bytes.try_into().map_err(|_| "a child is no digest")?))
        }
        Item::List { whole, .. } if whole.len() < 32 => Ok(Below::Embedded(whole)),
        Item::List { .. } => Err("a child of 32 bytes or more is embedded"),
    }
}

/// The value of a leaf, of its RLP; `None` if it is no leaf.
pub fn leaf_value(rlp: &[u8]) -> Option<&[u8]> {
    match read(rlp) {
        Ok(Node::Leaf { value, .. }) => Some(value),
        _ => None,
    }
}

/// An account as its leaf holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AccountLeaf {
    /// Transactions sent, or contracts made.
    pub(crate) nonce: u64,
    /// Big-endian.
    pub(crate) balance: [u8; 32],
    /// The root of the account's storage.
    pub(crate) storage_root: [u8; 32],
    /// The Keccak-256 digest of its code.
    pub(crate) code_hash: [u8; 32],
}

impl AccountLeaf {
    /// Reads the value of an account's leaf.
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn read(value: &[u8]) -> Result<Self, &'static str> {
        let read = || {
            let (Item::List { payload, .. }, []) = take_item(value)? else { return None };
            let (nonce, rest) = take_integer::<8>(payload)?;
            let (balance, rest) = take_integer::<32>(rest)?;
            let (storage_root, rest) = take_string(rest)?;
            let (code_hash, []) = take_string(rest)? else { return None };
            Some(Self {
                nonce: u64::from_be_bytes(nonce),
                balance,
                storage_root: storage_root.try_into().ok()?,
                code_hash: code_hash.try_into().ok()?,
            })
        };
        read().ok_or("an account's leaf is not nonce, balance, storage root and code hash")
    }
}
