//! The numbers and words that rows of the history are made of.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_primitives::U256;

/// Stands for a value that is absent.
pub(crate) const NO_VALUE: u8 = 0xff;

/// Why a row is none.
pub(crate) type Fault = String;

/// Appends a number as LEB128.
pub(crate) fn put_leb128(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a word: its length, with a mark in the bits that a length leaves, and so many bytes.
pub(crate) fn put_word(word: U256, mark: u8, out: &mut Vec<u8>) {
    let bytes: [u8; 32] = word.to_be_bytes();
    let zeros = word.leading_zeros() / 8;
    let bytes = bytes.get(zeros..).unwrap_or_default();
    out.push(bytes.len() as u8 | mark);
    out.extend_from_slice(bytes);
}

/// What of a row is not read yet.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// So many bytes, as somebody says who need not be right.
    pub(crate) fn take_len(&mut self, length: u64) -> Result<&'a [u8], Fault> {
        self.take(usize::try_from(length).unwrap_or(usize::MAX))
    }

    /// Bytes behind their number.
    pub(crate) fn counted(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.leb128()?;
        self.take_len(length)
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) =
            self.0.split_at_checked(length).ok_or_else(|| Fault::from("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) =
            self.0.split_first_chunk().ok_or_else(|| Fault::from("it ends too early"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Fault> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn leb128(&mut self) -> Result<u64, Fault> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part || (byte == 0 && shift > 0) {
                break;
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number is not written as it should be".into())
    }

    pub(crate) fn word(&mut self, length: u8) -> Result<U256, Fault> {
        let word = match length {
            0..=32 => self.take(length.into())?,
            _ => return Err(format!("a word of {length} bytes")),
        };
        if word.first() == Some(&0) {
            return Err("a word begins with zero".into());
        }
        Ok(U256::from_be_slice(word))
    }
}
