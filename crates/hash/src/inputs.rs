//! How inputs are handed over.

/// A 32-byte digest.
pub type Digest = [u8; 32];

/// Many inputs laid end to end: input `i` is `bytes[ends[i - 1]..ends[i]]`, the first one starts at
/// 0.
///
/// ```
/// use spinney_hash::Inputs;
///
/// let inputs = Inputs::new(b"doedog", &[3, 3, 6]);
/// assert!(inputs.iter().eq([&b"doe"[..], b"", b"dog"]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    bytes: &'a [u8],
    ends: &'a [u32],
}

impl<'a> Inputs<'a> {
    /// Wraps a buffer and the end offset of each input.
    ///
    /// # Panics
    /// If `ends` decreases, or if its last entry is not the length of `bytes`.
    pub fn new(bytes: &'a [u8], ends: &'a [u32]) -> Self {
        assert!(ends.is_sorted(), "input ends decrease");
        assert_eq!(
            ends.last().map_or(0, |&end| end as usize),
            bytes.len(),
            "inputs do not fill the buffer"
        );
        Self { bytes, ends }
    }

    /// The number of inputs.
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no input at all.
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Each input in turn.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (bytes, mut start) = (self.bytes, 0);
        self.ends.iter().map(move |&end| {
            let input = &bytes[start..end as usize];
            start = end as usize;
            input
        })
    }

    /// The bytes that all inputs lie in.
    pub(crate) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The length of every input, if all are of one length.
    pub(crate) fn len_of_each(&self) -> Option<usize> {
        let len = *self.ends.first()?;
        let mut start = 0;
        let equal = self.ends.iter().all(|&end| end - core::mem::replace(&mut start, end) == len);
        equal.then_some(len as usize)
    }

    /// Input `index`.
    ///
    /// # Panics
    /// If there are not that many.
    pub(crate) fn at(&self, index: usize) -> &'a [u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.bytes[start..self.ends[index] as usize]
    }
}
