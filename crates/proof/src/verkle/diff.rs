//! What a proof is about: values, and what becomes of them.

use alloc::vec;
use alloc::vec::Vec;

/// The values under some keys, and those that replace them, by stems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateDiff(pub Vec<StemDiff>);

/// The values of a stem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StemDiff {
    /// The first 31 bytes of the keys.
    pub stem: [u8; 31],
    /// The values, in order of suffixes.
    pub suffixes: Vec<SuffixDiff>,
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuffixDiff {
    /// The last byte of the key.
    pub suffix: u8,
    /// The value; `None` if the key is absent.
    pub current: Option<[u8; 32]>,
    /// What it becomes; `None` if it stays.
    pub new: Option<[u8; 32]>,
}

impl StateDiff {
    /// Values that stay, in any order. A key that comes twice makes a difference that no proof
    /// shows.
    ///
    /// ```
    /// use spinney_proof::verkle::StateDiff;
    ///
    /// let diff = StateDiff::of([([2; 32], None), ([1; 32], Some([7; 32]))]);
    /// assert_eq!(diff.get(&[1; 32]).unwrap().current, Some([7; 32]));
    /// assert_eq!(diff.entries().map(|(key, _)| key[0]).collect::<Vec<_>>(), [1, 2]);
    /// ```
    pub fn of(values: impl IntoIterator<Item = ([u8; 32], Option<[u8; 32]>)>) -> Self {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_unstable_by_key(|(key, _)| *key);
        let mut stems: Vec<StemDiff> = Vec::new();
        for ([stem @ .., suffix], current) in values {
            let entry = SuffixDiff { suffix, current, new: None };
            match stems.last_mut() {
                Some(last) if last.stem == stem => last.suffixes.push(entry),
                _ => stems.push(StemDiff { stem, suffixes: vec![entry] }),
            }
        }
        Self(stems)
    }

    /// The keys with their entries, in the order that they have here.
    pub fn entries(&self) -> impl Iterator<Item = ([u8; 32], &SuffixDiff)> {
        self.0.iter().flat_map(|stem| {
            stem.suffixes.iter().map(|entry| {
                let mut key = [entry.suffix; 32];
                key[..31].copy_from_slice(&stem.stem);
                (key, entry)
            })
        })
    }

    /// The entry of a key.
    pub fn get(&self, key: &[u8; 32]) -> Option<&SuffixDiff> {
        let stem = self.0.binary_search_by(|stem| stem.stem[..].cmp(&key[..31])).ok()?;
        let suffixes = &self.0.get(stem)?.suffixes;
        let at = suffixes.binary_search_by_key(&key[31], |entry| entry.suffix).ok()?;
        suffixes.get(at)
    }

    /// Says what becomes of a value. `false` if the key is not among those here.
    ///
    /// ```
    /// use spinney_proof::verkle::{StateDiff, StemDiff, SuffixDiff};
    ///
    /// let suffixes = vec![SuffixDiff { suffix: 7, current: None, new: None }];
    /// let mut diff = StateDiff(vec![StemDiff { stem: [1; 31], suffixes }]);
    /// let mut key = [1; 32];
    /// assert!(!diff.set_new(&key, [2; 32]));
    /// key[31] = 7;
    /// assert!(diff.set_new(&key, [2; 32]));
    /// assert_eq!(diff.get(&key).unwrap().new, Some([2; 32]));
    /// ```
    pub fn set_new(&mut self, key: &[u8; 32], value: [u8; 32]) -> bool {
        let found = self.0.iter_mut().find(|stem| stem.stem[..] == key[..31]);
        let suffixes = found.into_iter().flat_map(|stem| &mut stem.suffixes);
        match suffixes.into_iter().find(|entry| entry.suffix == key[31]) {
            Some(entry) => {
                entry.new = Some(value);
                true
            }
            None => false,
        }
    }

    /// Whether stems and suffixes strictly rise, and every stem has a suffix.
    pub(super) fn is_sorted(&self) -> bool {
        let suffixes = |stem: &StemDiff| {
            !stem.suffixes.is_empty() && stem.suffixes.is_sorted_by(|a, b| a.suffix < b.suffix)
        };
        self.0.is_sorted_by(|a, b| a.stem < b.stem) && self.0.iter().all(suffixes)
    }
}
