//! Reading RLP, in its only canonical form.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

/// Reads an integer of at most `N` bytes off the front, in its only canonical form.
pub(crate) fn take_integer<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
    let (digits, rest) = take_string(bytes)?;
    if digits.starts_with(&[0]) || digits.len() > N {
        return None;
    }
    let mut be = [0; N];
    for (byte, digit) in be.iter_mut().rev().zip(digits.iter().rev()) {
        *byte = *digit;
    }
    Some((be, rest))
}

/// An RLP item, as it lies in the bytes that it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// A string without its head.
    String(&'a [u8]),
    /// A list with its head, and what is in it.
    List {
        /// All of it.
        whole: &'a [u8],
        /// What follows the head.
        payload: &'a [u8],
    },
}

/// Reads an item off the front, in its only canonical form.
pub(crate) fn take_item(bytes: &[u8]) -> Option<(Item<'_>, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        let (byte, rest) = bytes.split_at_checked(1)?;
        return Some((Item::String(byte), rest));
    }
    let is_list = first >= 0xc0;
    let (len, rest) = match usize::from(first & 0x3f) {
        short @ 0..56 => (short, rest),
        long => take_length(rest, long.checked_sub(55)?)?,
    };
    let (payload, after) = rest.split_at_checked(len)?;
    let item = match (is_list, payload) {
        (true, _) => {
            let (whole, _) = bytes.split_at_checked(bytes.len().checked_sub(after.len())?)?;
            Item::List { whole, payload }
        }
        // One byte below 0x80 is its own RLP.
        (false, [0..0x80]) => return None,
        (false, _) => Item::String(payload),
    };
    Some((item, after))
}

/// Reads an item that has to be a string.
pub(crate) fn take_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    match take_item(bytes)? {
        (Item::String(string), rest) => Some((string, rest)),
        (Item::List { .. }, _) => None,
    }
}

/// Reads the length of a long item, which has `count` bytes, 8 at most.
fn take_length(bytes: &[u8], count: usize) -> Option<(usize, &[u8])> {
    let (be, rest) = bytes.split_at_checked(count)?;
    let len = be.iter().fold(0, |len: u64, &byte| len << 8 | u64::from(byte));
    let canonical = !be.starts_with(&[0]) && len >= 56;
    canonical.then_some((usize::try_from(len).ok()?, rest))
}
