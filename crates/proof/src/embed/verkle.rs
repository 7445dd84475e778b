//! The embedding of EIP-6800.
//!
//! An account is the same sequence of positions as in [`ubt`]: only the hash of a stem is another,
//! a commitment, and leaves never go either. A stem is the first 31 bytes of `pedersen(32-byte
//! address | position / 256, 32 bytes little-endian)`.

use spinney_ipa::{Crs, Delta, Element, SignedScalar};

use super::{Address, Word, padded, ubt};

/// The part of an account's keys that its address fixes: each stem of it is two products more.
///
/// ```
/// use spinney_ipa::Crs;
/// use spinney_proof::embed::ubt::{BASIC_DATA, key, slot_position};
/// use spinney_proof::embed::verkle::AccountKeys;
///
/// let crs = Crs::new();
/// let account = AccountKeys::new(&crs, &[0; 20]);
/// let header = account.stem(&crs, &[0; 32]);
/// assert_eq!(key(header, BASIC_DATA)[..4], [0x1a, 0x10, 0x06, 0x84]);
/// // Where slots and code lie is as in the unified binary tree.
/// let (index, place) = slot_position(&core::array::from_fn(|at| if at == 31 { 64 } else { 0 }));
/// assert_ne!(account.stem(&crs, &index), header);
/// assert_eq!(place, 64);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AccountKeys {
    address: Element,
}

impl AccountKeys {
    /// The keys of an account.
    pub fn new(crs: &Crs, address: &Address) -> Self {
        Self::of_word(crs, &padded(address))
    }

    /// The keys of an address of 32 bytes.
    pub fn of_word(crs: &Crs, address: &Word) -> Self {
        let [low, high] = halves(address);
        let length = [2 + 256 * 64, 0, 0, 0];
        Self { address: sum(crs, Element::IDENTITY, [(0, length), (1, low), (2, high)]) }
    }

    /// The stem of `tree_index`, positions divided by 256, in 32 bytes big-endian.
    pub fn stem(&self, crs: &Crs, tree_index: &Word) -> [u8; 31] {
        let mut index = *tree_index;
        index.reverse();
        let [low, high] = halves(&index);
        let hash = sum(crs, self.address, [(3, low), (4, high)]).map_to_field().to_le_bytes();
        let [stem @ .., _] = hash;
        stem
    }
}

/// The limbs of the two parts of 16 bytes.
fn halves(word: &Word) -> [[u64; 4]; 2] {
    let mut halves = [[0; 4]; 2];
    for (index, bytes) in word.chunks_exact(8).enumerate() {
        let limb = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        halves[index / 2][index % 2] = limb;
    }
    halves
}

fn sum<const N: usize>(crs: &Crs, start: Element, terms: [(u8, [u64; 4]); N]) -> Element {
    let mut sum = [start];
    let delta =
        |(basis, new)| Delta { target: 0, basis, amount: SignedScalar::between([0; 4], new) };
    crs.add_deltas(&mut sum, &terms.map(delta));
    sum[0]
}

/// The key of a slot.
pub fn slot_key(crs: &Crs, keys: &AccountKeys, slot: &Word) -> Word {
    let (index, place) = ubt::slot_position(slot);
    ubt::key(keys.stem(crs, &index), place)
}
