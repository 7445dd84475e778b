//! The checksum at the end of each stored row.
//!
//! redb has a checksum over every page of its file, but reads none of them back when a row is read.
//! So a row carries its own, over its table, key and value:
//!
//! ```text
//! stored row = value | checksum (8, LE)
//! checksum   = xxh3-64 of the value, seeded with the xxh3-64 of the key, seeded with the table
//! ```
//!
//! What it cannot show is a row that damage made unfindable:
//! [`RedbStore::check`](crate::RedbStore::check) does.
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What a seal adds to a row.
pub(crate) const SEAL_BYTES: usize = 8;

fn seal(table: u64, key: &[u8], value: &[u8]) -> [u8; SEAL_BYTES] {
    xxh3_64_with_seed(value, xxh3_64_with_seed(key, table)).to_le_bytes()
}

/// Writes a row as it is stored. `out` has room for exactly that.
pub(crate) fn write(table: u64, key: &[u8], value: &[u8], out: &mut [u8]) {
    let (body, end) = out.split_at_mut(value.len());
    body.copy_from_slice(value);
    end.copy_from_slice(&seal(table, key, value));
}

/// The value in a stored row, if its seal holds.
pub(crate) fn read<'r>(table: u64, key: &[u8], stored: &'r [u8]) -> Option<&'r [u8]> {
    let (value, end) = stored.split_last_chunk::<SEAL_BYTES>()?;
    (seal(table, key, value) == *end).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::{SEAL_BYTES, read, write};

    fn sealed(table: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut out = vec![0; value.len() + SEAL_BYTES];
        write(table, key, value, &mut out);
        out
    }

    /// Stored rows outlive the program that wrote them: these bytes may never change. They were
    /// checked against another implementation of xxh3.
    #[test]
    fn the_stored_bytes_of_a_row_are_fixed() {
        let row = sealed(4, b"head", &[1, 2, 3]);
        assert_eq!(row, [1, 2, 3, 223, 241, 76, 155, 17, 55, 118, 107]);
        assert_eq!(read(4, b"head", &row), Some(&[1, 2, 3][..]));
    }

    #[test]
    fn every_changed_bit_of_a_row_shows() {
        let row = sealed(0, b"key", b"a value");
        for bit in 0..row.len() * 8 {
            let mut damaged = row.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(0, b"key", &damaged), None, "bit {bit}");
        }
        assert_eq!(read(1, b"key", &row), None, "another table");
        assert_eq!(read(0, b"kez", &row), None, "another key");
        for length in 0..row.len() {
            assert_eq!(read(0, b"key", &row[..length]), None, "cut to {length}");
        }
    }
}
