//! As much RLP as trie nodes need (Yellow Paper, appendices B and C).

mod read;

pub(crate) use read::{Item, take_integer, take_item, take_string};

use alloc::vec::Vec;

use crate::digits::Run;

/// The length of the head of a string or list of `len` bytes.
#[inline]
pub(crate) const fn head_len(len: usize) -> usize {
    match len {
        0..56 => 1,
        56..0x100 => 2,
        0x100..0x1_0000 => 3,
        0x1_0000..0x100_0000 => 4,
        _ => 5,
    }
}

/// Appends the head of a string (`base` 0x80) or list (0xc0) of `len` bytes.
///
/// # Panics
/// If the bytes are 4 GiB or more.
#[inline]
pub(crate) fn put_head(out: &mut Vec<u8>, base: u8, len: usize) {
    if len < 56 {
        out.push(base + len as u8);
        return;
    }
    let len = u64::from(u32::try_from(len).expect("values are bounded"));
    let used = head_len(len as usize);
    let head = u64::from(base + 54 + used as u8) << 56 | len << (64 - 8 * used);
    // Of one size, so that no call is needed to copy it.
    let end = out.len() + used;
    out.extend_from_slice(&head.to_be_bytes());
    out.truncate(end);
}

/// Appends bytes of which there are some dozens: in steps of one size, which need no call.
#[inline]
fn put_some(out: &mut Vec<u8>, bytes: &[u8]) {
    const STEP: usize = 32;
    let (Some(last), true) = (bytes.last_chunk::<STEP>(), bytes.len() <= 8 * STEP) else {
        return match (bytes.first_chunk::<16>(), bytes.last_chunk::<16>()) {
            (Some(first), Some(last)) if bytes.len() < STEP => {
                let end = out.len() + bytes.len();
                out.extend_from_slice(first);
                out.truncate(end - 16);
                out.extend_from_slice(last);
            }
            _ => out.extend_from_slice(bytes),
        };
    };
    let end = out.len() + bytes.len();
    for step in bytes.as_chunks::<STEP>().0 {
        out.extend_from_slice(step);
    }
    // The last step begins within the one before it.
    out.truncate(end - STEP);
    out.extend_from_slice(last);
}

/// How many bytes [`put_bytes`] appends.
#[inline]
pub(crate) fn bytes_len(bytes: &[u8]) -> usize {
    if matches!(bytes, [0..0x80]) { 1 } else { head_len(bytes.len()) + bytes.len() }
}

/// Appends a string.
#[inline]
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    if !matches!(bytes, [0..0x80]) {
        put_head(out, 0x80, bytes.len());
    }
    put_some(out, bytes);
}

/// Appends a big-endian integer without its leading zeros.
#[inline]
pub(crate) fn put_integer(out: &mut Vec<u8>, be: &[u8]) {
    let zeros = be.iter().take_while(|&&byte| byte == 0).count();
    put_bytes(out, &be[zeros..]);
}

/// How many bytes [`put_hex_prefix`] appends.
#[inline]
pub(crate) fn hex_prefix_len(path: Run<'_>) -> usize {
    let bytes = 1 + path.len() / 2;
    if bytes > 1 { head_len(bytes) + bytes } else { 1 }
}

/// Appends the RLP string of a hex-prefixed path.
///
/// The run is aligned as in the key, so where it ends at a whole byte (a leaf always does) its
/// bytes are copied as they stand.
#[inline]
pub(crate) fn put_hex_prefix(out: &mut Vec<u8>, path: Run<'_>, leaf: bool) {
    let flag = if leaf { 0x20 } else { 0 };
    let bytes = 1 + path.len() / 2;
    let odd = path.len() % 2 == 1;
    if bytes > 1 {
        put_head(out, 0x80, bytes);
    }
    // One byte below 0x80 is its own RLP.
    let from = usize::from(odd);
    if path.end().is_multiple_of(2) {
        let aligned = path.aligned();
        // No branch: as many paths are odd as even.
        let digit = 0x10 | aligned.first().map_or(0, |byte| byte & 0x0f);
        out.push(flag | if odd { digit } else { 0 });
        let rest = (path.len() - from) / 2;
        put_some(out, &aligned[aligned.len() - rest..]);
    } else {
        out.push(flag | if odd { 0x10 | path.digit(0) } else { 0 });
        let pair = |i: usize| path.digit(i) << 4 | path.digit(i + 1);
        out.extend((from..path.len()).step_by(2).map(pair));
    }
}
