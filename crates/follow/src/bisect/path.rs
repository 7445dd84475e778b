//! Places in a trie: the first digits of hashed keys, one a byte.

use alloy_primitives::B256;

/// All digits of a key.
pub(crate) fn digits(key: B256) -> Vec<u8> {
    key.iter().flat_map(|byte| [byte >> 4, byte & 15]).collect()
}

/// The least key that begins with these digits.
pub(crate) fn least(path: &[u8]) -> B256 {
    let mut key = B256::ZERO;
    for (byte, pair) in key.iter_mut().zip(path.chunks(2)) {
        let digit = |at: usize| pair.get(at).copied().unwrap_or_default();
        *byte = digit(0) << 4 | digit(1);
    }
    key
}

/// Whether a key begins with these digits.
pub(crate) fn begins(key: &B256, path: &[u8]) -> bool {
    let digits = key.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    path.len() <= 64 && digits.zip(path).all(|(digit, wanted)| digit == *wanted)
}

/// The digits as text.
pub(crate) fn text(path: &[u8]) -> String {
    path.iter().fold(String::from("0x"), |text, digit| format!("{text}{digit:x}"))
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::{begins, digits, least, text};

    #[test]
    fn digits_are_those_of_keys() {
        let key = B256::repeat_byte(0xa5);
        assert_eq!(least(&digits(key)), key);
        for len in 0..=64 {
            let path = &digits(key)[..len];
            assert!(begins(&key, path) && begins(&least(path), path));
            assert_eq!(begins(&B256::ZERO, path), len == 0);
            assert_eq!(text(path), key.to_string()[..2 + len]);
        }
    }
}
