//! Row keys of the page table.
//!
//! ```text
//! tree id (u32 BE) | generation (u32 BE) | kind (u8) | place
//! ```
//!
//! Invariants:
//! - a *place* is a path of bits, written as its bits, a one, and zeros up to a whole byte.
//!   Different paths give different keys, and all paths below a path lie strictly between two
//!   bounds, so a subtree is one key range ([`PageKey::below`]);
//! - a place of more than [`PLACE_BYTES_MAX`] bytes is its first [`PLACE_BYTES_KEPT`] bytes and the
//!   Keccak-256 digest of the whole, because PostgreSQL's keys end at 2,704 bytes. Below such a
//!   path there is no exact range, and `below` says so.

use smallvec::SmallVec;
use spinney_hash::keccak256;

use crate::TreeId;

/// The longest place that is written in full.
const PLACE_BYTES_MAX: usize = 1_024;
/// What is kept in full of a longer one.
const PLACE_BYTES_KEPT: usize = 1_000;
/// Tree id, generation, kind.
const HEAD_BYTES: usize = 9;

/// What a row of the page table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    /// A connected piece of the tree.
    Page = 0,
    /// A part of a value, key or prefix that is too large for its page.
    Overflow = 1,
}

/// The rows of one generation of one tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) tree: TreeId,
    pub(crate) generation: u32,
}

/// The key of a row.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PageKey(SmallVec<[u8; 44]>);

impl Clone for PageKey {
    fn clone(&self) -> Self {
        // In one piece: the derived one goes byte by byte.
        Self(SmallVec::from_slice(&self.0))
    }
}

impl PageKey {
    /// Bytes of memory beside its own.
    pub(crate) fn heap_bytes(&self) -> usize {
        if self.0.spilled() { self.0.capacity() } else { 0 }
    }

    /// The page at the first `bits` bits of `path`.
    pub(crate) fn page(space: Space, path: &[u8], bits: usize) -> Self {
        let mut key = Self::head(space, RowKind::Page);
        place(path, bits, &mut key.0);
        key
    }

    /// Part `index` of what overflowed at the first `bits` bits of `path`.
    pub(crate) fn overflow(space: Space, path: &[u8], bits: usize, index: u16) -> Self {
        let mut extended = path[..bits / 8].to_vec();
        let shift = bits % 8;
        let tail = if shift == 0 { 0 } else { path[bits / 8] & (0xff << (8 - shift)) };
        let joined = (u32::from(tail) << 16) | (u32::from(index) << (8 - shift));
        extended.extend_from_slice(&joined.to_be_bytes()[1..]);
        let mut key = Self::head(space, RowKind::Overflow);
        place(&extended, bits + 16, &mut key.0);
        key
    }

    /// Exclusive bounds of all rows of `kind` strictly below the first `bits` bits of `path`, or
    /// nothing where the path is too long for a range. The upper bound is open for the whole tree.
    pub(crate) fn below(
        space: Space,
        kind: RowKind,
        path: &[u8],
        bits: usize,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let bytes = bits.div_ceil(8);
        if bytes > PLACE_BYTES_KEPT {
            return None;
        }
        let mut low = Self::head(space, kind).0.to_vec();
        let base = low.len();
        low.extend_from_slice(&path[..bytes]);
        if !bits.is_multiple_of(8) {
            let last = low.len() - 1;
            low[last] &= 0xff << (8 - bits % 8);
        }
        let mut high = low.clone();
        // The next path of the same length; past the last one, the next kind.
        let step = if bits.is_multiple_of(8) { 1 } else { 1u8 << (8 - bits % 8) };
        let mut carry = true;
        for (i, byte) in high.iter_mut().enumerate().skip(base).rev() {
            let add = if i + 1 == base + bytes { step } else { 1 };
            let (sum, overflow) = byte.overflowing_add(add);
            *byte = sum;
            carry = overflow;
            if !carry {
                break;
            }
        }
        if carry {
            high.truncate(base);
            high[base - 1] += 1;
        }
        // An ancestor's key may be this bound without its trailing zeros.
        while high.len() > base && high.ends_with(&[0]) {
            high.pop();
        }
        Some((low, high))
    }

    fn head(space: Space, kind: RowKind) -> Self {
        let mut key = SmallVec::new();
        key.extend_from_slice(&space.tree.0.to_be_bytes());
        key.extend_from_slice(&space.generation.to_be_bytes());
        key.push(kind as u8);
        debug_assert_eq!(key.len(), HEAD_BYTES);
        Self(key)
    }

    /// The key of these bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }

    /// The path that leads to a page, and how many bits that has; nothing if this is no page's key,
    /// or if its place is too long to say.
    pub(crate) fn path_of(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
        let (head, place) = bytes.split_at_checked(HEAD_BYTES)?;
        if head.last() != Some(&(RowKind::Page as u8)) || place.len() > PLACE_BYTES_KEPT {
            return None;
        }
        let (&last, whole) = place.split_last()?;
        if last == 0 {
            return None;
        }
        let rest = 7 - last.trailing_zeros() as usize;
        let mut path = whole.to_vec();
        if rest > 0 {
            path.push(last & (last - 1));
        }
        Some((path, whole.len() * 8 + rest))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::borrow::Borrow<[u8]> for PageKey {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// Whether a row of [`Table::Pages`](crate::Table::Pages), by its key, lies on the way from the
/// root of its tree to the keys that begin with some bytes, or below. What such keys hold and
/// commit to is read from these rows alone.
pub fn is_on_path(row: &[u8], prefix: &[u8]) -> bool {
    let Some((head, place)) = row.split_at_checked(HEAD_BYTES) else { return false };
    let Some((&last, whole)) = place.split_last() else { return false };
    if last == 0 || place.len() > PLACE_BYTES_MAX {
        return false;
    }
    let mut bits = whole.len() * 8 + 7 - last.trailing_zeros() as usize;
    if head.last() == Some(&(RowKind::Overflow as u8)) {
        // The part's number is behind the path.
        bits = bits.saturating_sub(16);
    }
    let same = place.iter().zip(prefix).take_while(|(a, b)| a == b).count();
    let differs = place.get(same).zip(prefix.get(same));
    let common = 8 * same + differs.map_or(0, |(a, b)| (a ^ b).leading_zeros() as usize);
    common >= bits.min(8 * prefix.len())
}

/// Bounds of the keys of a page and of all pages below it, the upper one exclusive. Nothing for a
/// row that is no page, or that lies too deep to have bounds.
pub fn pages_below(row: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (path, bits) = PageKey::path_of(row)?;
    let number = |at: usize| Some(u32::from_be_bytes(*row.get(at..)?.first_chunk()?));
    let space = Space { tree: TreeId(number(0)?), generation: number(4)? };
    PageKey::below(space, RowKind::Page, &path, bits)
}

/// The key of the page that a tree begins with, by the key of any of its rows of
/// [`Table::Pages`](crate::Table::Pages). Nothing for what is no such key.
pub fn root_page(row: &[u8]) -> Option<Vec<u8>> {
    let tree = row.get(..HEAD_BYTES - 1)?;
    Some([tree, &[RowKind::Page as u8, 0x80]].concat())
}

/// Names a row in an error: hex of tree, generation, kind and place.
pub(crate) fn describe(key: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    if key.len() < HEAD_BYTES {
        return format!("0x{}", hex(key));
    }
    let number = |at: usize| u32::from_be_bytes([key[at], key[at + 1], key[at + 2], key[at + 3]]);
    let kind = if key[8] == 0 { "page" } else { "overflow" };
    format!("{kind} 0x{} of tree {} generation {}", hex(&key[HEAD_BYTES..]), number(0), number(4))
}

/// All rows of a tree's generation: the lower bound is inclusive, the upper exclusive.
pub(crate) fn whole(space: Space) -> (Vec<u8>, Vec<u8>) {
    let mut low = space.tree.0.to_be_bytes().to_vec();
    low.extend_from_slice(&space.generation.to_be_bytes());
    let mut high = low.clone();
    high.push(0xff);
    (low, high)
}

fn place(path: &[u8], bits: usize, out: &mut SmallVec<[u8; 44]>) {
    let from = out.len();
    let whole = bits / 8;
    out.extend_from_slice(&path[..whole]);
    let rest = bits % 8;
    let tail = if rest == 0 { 0 } else { path[whole] & (0xff << (8 - rest)) };
    out.push(tail | (0x80 >> rest));
    if out.len() - from > PLACE_BYTES_MAX {
        let digest = keccak256(&out[from..]);
        out.truncate(from + PLACE_BYTES_KEPT);
        out.extend_from_slice(&digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: Space = Space { tree: TreeId(7), generation: 1 };

    /// All paths of up to ten bits, as (bytes, bits).
    fn paths() -> Vec<([u8; 2], usize)> {
        let all =
            |bits: usize| (0..1u16 << bits).map(move |p| ((p << (16 - bits)).to_be_bytes(), bits));
        (0..=10)
            .flat_map(|bits| if bits == 0 { vec![([0, 0], 0)] } else { all(bits).collect() })
            .collect()
    }

    #[test]
    fn a_subtree_is_exactly_one_range() {
        let paths = paths();
        let keys: Vec<_> = paths.iter().map(|(p, bits)| PageKey::page(SPACE, p, *bits)).collect();
        for (top, top_bits) in &paths {
            let (low, high) = PageKey::below(SPACE, RowKind::Page, top, *top_bits).unwrap();
            for ((path, bits), key) in paths.iter().zip(&keys) {
                let masked = |p: &[u8; 2]| u32::from(u16::from_be_bytes(*p)) >> (16 - top_bits);
                let under = bits > top_bits && masked(path) == masked(top);
                let itself = bits == top_bits && path == top;
                let inside = key.as_bytes() > &low[..] && key.as_bytes() < &high[..];
                assert_eq!(inside, under || itself, "{path:?}/{bits} below {top:?}/{top_bits}");
                let page = PageKey::page(SPACE, top, *top_bits);
                assert_eq!(pages_below(page.as_bytes()), Some((low.clone(), high.clone())));
            }
        }
    }

    #[test]
    fn a_path_is_what_leads_to_keys_and_what_lies_below() {
        for (prefix, _) in paths().into_iter().step_by(7) {
            for (path, bits) in paths() {
                for (len, prefix) in [(8, &prefix[..1]), (16, &prefix[..])] {
                    let shared = bits.min(len);
                    let leads = |bytes: &[u8]| {
                        let number = bytes.iter().fold(0, |all, byte| all << 8 | u32::from(*byte));
                        number >> (8 * bytes.len() - shared)
                    };
                    let is = shared == 0 || leads(&path[..prefix.len()]) == leads(prefix);
                    let page = PageKey::page(SPACE, &path, bits);
                    assert_eq!(
                        is_on_path(page.as_bytes(), prefix),
                        is,
                        "{path:?} {bits} {prefix:?}"
                    );
                    for index in [0, 1, 0x8000, u16::MAX] {
                        let part = PageKey::overflow(SPACE, &path, bits, index);
                        assert_eq!(is_on_path(part.as_bytes(), prefix), is, "{path:?} {bits}");
                    }
                }
            }
        }
    }

    #[test]
    fn keys_of_different_paths_differ() {
        let mut keys: Vec<_> = paths().iter().map(|(p, b)| PageKey::page(SPACE, p, *b)).collect();
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn overflow_parts_lie_below_their_place() {
        for (path, bits) in paths() {
            for index in [0, 1, 255, 256, u16::MAX] {
                let key = PageKey::overflow(SPACE, &path, bits, index);
                let (low, high) = PageKey::below(SPACE, RowKind::Overflow, &path, bits).unwrap();
                assert!(key.as_bytes() > &low[..] && key.as_bytes() < &high[..]);
            }
        }
    }

    #[test]
    fn long_places_are_bounded() {
        let path = vec![0xab; 8_192];
        let a = PageKey::page(SPACE, &path, 8_192 * 8);
        let b = PageKey::page(SPACE, &path, 8_191 * 8);
        assert_ne!(a, b);
        assert_eq!(a.as_bytes().len(), HEAD_BYTES + PLACE_BYTES_KEPT + 32);
        assert!(PageKey::below(SPACE, RowKind::Page, &path, 8_192 * 8).is_none());
    }
}
