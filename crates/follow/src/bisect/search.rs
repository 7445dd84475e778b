//! Bytes whose hash begins with given digits.

use alloy_primitives::B256;
use spinney_hash::keccak256_equal;

use super::budget::Budget;
use super::path::begins;

/// So many are hashed at once.
const AT_ONCE: u64 = 1_024;
/// A search of so many times the hashes that one takes on average fails once in thousands.
const PATIENCE: u64 = 8;

/// Finds `N` bytes whose Keccak-256 digest begins with these digits, if as many hashes as that
/// takes may be made.
pub(crate) fn bytes_under<const N: usize>(path: &[u8], budget: &Budget) -> Option<[u8; N]> {
    let on_average = 1_u64.checked_shl(u32::try_from(path.len().saturating_mul(4)).ok()?)?;
    // A shift by 64 and more is none; so is one that leaves nothing.
    if on_average == 0 || !budget.has_hashes(on_average) {
        return None;
    }
    let most = on_average.saturating_mul(PATIENCE).max(AT_ONCE);
    let mut inputs = vec![0; N * AT_ONCE as usize];
    let mut digests = vec![[0; 32]; AT_ONCE as usize];
    let mut next = 0_u64;
    while next < most && budget.takes_hashes(AT_ONCE) {
        for (input, number) in inputs.chunks_exact_mut(N).zip(next..) {
            let (_, end) = input.split_at_mut(N.saturating_sub(8));
            end.copy_from_slice(&number.to_be_bytes());
        }
        keccak256_equal(&inputs, N, &mut digests);
        let found = digests.iter().position(|digest| begins(&B256::from(*digest), path));
        if let Some(bytes) = found.and_then(|at| inputs.chunks_exact(N).nth(at)) {
            return bytes.try_into().ok();
        }
        next = next.saturating_add(AT_ONCE);
    }
    None
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{Address, keccak256};

    use super::bytes_under;
    use crate::bisect::budget::Budget;
    use crate::bisect::path::begins;

    #[test]
    fn bytes_are_found_under_short_paths_only() {
        let budget = Budget::new(0, 1 << 22, None);
        for path in [&[][..], &[15], &[0, 0, 7], &[1, 2, 3, 4]] {
            let bytes: [u8; 20] = bytes_under(path, &budget).unwrap();
            assert!(begins(&keccak256(Address::from(bytes)), path));
            let bytes: [u8; 32] = bytes_under(path, &budget).unwrap();
            assert!(begins(&keccak256(bytes), path));
        }
        for len in [8, 15, 16, 17, 63, 64, 1_000] {
            assert_eq!(bytes_under::<20>(&vec![0; len], &budget), None);
        }
        let little = Budget::new(0, 100, None);
        assert_eq!(bytes_under::<20>(&[1, 2, 3], &little), None);
    }
}
