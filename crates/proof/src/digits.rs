//! Digits of paths.
//!
//! A path is a string of bits, most significant first, read as digits of 1, 2, 4 or 8 bits. Keys
//! are whole bytes. A piece of a path (the prefix of a branch, the rest of a leaf's key) is a
//! [`Run`]: its bytes keep the alignment they have in the whole path, so that runs and keys compare
//! byte by byte and a run is copied without shifting wherever its node moves.

use alloc::vec::Vec;

/// The width of a digit in bits; divides 8. Kept as its logarithm, so that nothing is divided where
/// the width is known at run time only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Width(u32);

impl Width {
    /// # Panics
    /// If a digit has not 1, 2, 4 or 8 bits.
    #[inline]
    pub const fn new(bits: u8) -> Self {
        assert!(matches!(bits, 1 | 2 | 4 | 8), "a digit has 1, 2, 4 or 8 bits");
        Self(bits.trailing_zeros())
    }

    /// The bits of a digit.
    #[inline]
    pub const fn bits(self) -> usize {
        1 << self.0
    }

    /// How many digits a byte holds.
    #[inline]
    pub const fn per_byte(self) -> usize {
        1 << (3 - self.0)
    }

    /// How many digits `bytes` hold.
    #[inline]
    pub const fn count(self, bytes: &[u8]) -> usize {
        bytes.len() * self.per_byte()
    }

    /// The digit at `index`.
    #[inline]
    pub fn digit(self, bytes: &[u8], index: usize) -> u8 {
        let bit = index * self.bits();
        let below = 8 - self.bits() - bit % 8;
        (bytes[bit / 8] >> below) & self.mask()
    }

    /// The largest digit.
    #[inline]
    pub const fn mask(self) -> u8 {
        (0xff_u16 >> (8 - self.bits())) as u8
    }

    /// The first byte of the digit at `index`, and the digit's place within it.
    #[inline]
    pub const fn locate(self, index: usize) -> (usize, usize) {
        (index / self.per_byte(), index % self.per_byte())
    }

    /// How many bytes a run of `len` digits from `start` touches.
    #[inline]
    pub const fn span(self, start: usize, len: usize) -> usize {
        if len == 0 { 0 } else { (start % self.per_byte() + len).div_ceil(self.per_byte()) }
    }

    /// How many digits from `start` on, at most `limit` of them, are equal in `a` and `b`.
    #[inline]
    pub fn common(self, a: &[u8], b: &[u8], start: usize, limit: usize) -> usize {
        if limit == 0 {
            return 0;
        }
        let (first, within) = self.locate(start);
        let last = (start + limit).div_ceil(self.per_byte());
        let (a, b) = (&a[first..last], &b[first..last]);
        let head = (a[0] ^ b[0]) & (0xff_u8 >> (within * self.bits()));
        if head != 0 {
            return (head.leading_zeros() as usize / self.bits() - within).min(limit);
        }
        let same = 1 + same_bytes(&a[1..], &b[1..]);
        let rest = a.get(same).map_or(0, |x| (x ^ b[same]).leading_zeros() as usize / self.bits());
        (same * self.per_byte() - within + rest).min(limit)
    }

    /// Cuts a path off after `digits` digits; bits beyond them become zero.
    #[inline]
    pub fn truncate(self, path: &mut Vec<u8>, digits: usize) {
        let bits = digits * self.bits();
        path.truncate(bits.div_ceil(8));
        if !bits.is_multiple_of(8) {
            path[bits / 8] &= 0xff << (8 - bits % 8);
        }
    }

    /// Cuts a path off after `digits` digits and continues it with one more.
    #[inline]
    pub fn append(self, path: &mut Vec<u8>, digits: usize, digit: u8) {
        self.truncate(path, digits);
        let bit = digits * self.bits();
        if bit.is_multiple_of(8) {
            path.push(0);
        }
        path[bit / 8] |= digit << (8 - self.bits() - bit % 8);
    }
}

/// How many leading bytes of two slices of one length are equal.
#[inline]
fn same_bytes(a: &[u8], b: &[u8]) -> usize {
    let (wide_a, rest_a) = a.as_chunks::<8>();
    let (wide_b, rest_b) = b.as_chunks::<8>();
    for (index, (x, y)) in wide_a.iter().zip(wide_b).enumerate() {
        let differ = u64::from_be_bytes(*x) ^ u64::from_be_bytes(*y);
        if differ != 0 {
            return index * 8 + differ.leading_zeros() as usize / 8;
        }
    }
    wide_a.len() * 8 + rest_a.iter().zip(rest_b).take_while(|(x, y)| x == y).count()
}

/// A piece of a path: `len` digits from digit `start` on.
///
/// `bytes[0]` is the byte of the path that holds digit `start`; bits outside the run are of no
/// meaning.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    bytes: &'a [u8],
    start: usize,
    len: usize,
    width: Width,
}

impl<'a> Run<'a> {
    /// The digits from `start` to `end` of a path.
    #[inline]
    pub fn of(path: &'a [u8], start: usize, end: usize, width: Width) -> Self {
        let len = end - start;
        let first = start / width.per_byte();
        Self { bytes: &path[first..first + width.span(start, len)], start, len, width }
    }

    /// A run whose bytes were cut out of a path already.
    #[inline]
    pub fn cut(bytes: &'a [u8], start: usize, len: usize, width: Width) -> Self {
        debug_assert_eq!(bytes.len(), width.span(start, len));
        Self { bytes, start, len, width }
    }

    /// The number of digits.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no digits.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The index in the whole path of the first digit.
    #[inline]
    pub const fn start(&self) -> usize {
        self.start
    }

    /// The index in the whole path just past the last digit.
    #[inline]
    pub const fn end(&self) -> usize {
        self.start + self.len
    }

    /// Digit `index` of the run.
    #[inline]
    pub fn digit(&self, index: usize) -> u8 {
        assert!(index < self.len, "digit {index} of a run of {}", self.len);
        self.width.digit(self.bytes, self.start % self.width.per_byte() + index)
    }

    /// The digits in order.
    #[inline]
    pub fn digits(&self) -> impl DoubleEndedIterator<Item = u8> + '_ {
        (0..self.len).map(|index| self.digit(index))
    }

    /// The bytes that the run touches, aligned as in the whole path; bits outside the run are
    /// noise.
    #[inline]
    pub const fn aligned(&self) -> &'a [u8] {
        self.bytes
    }

    /// How many leading digits of the run `path` has at the same place.
    #[inline]
    pub fn common(&self, path: &[u8]) -> usize {
        let have = self.width.count(path).saturating_sub(self.start);
        let first = self.start / self.width.per_byte();
        self.width.common(
            self.bytes,
            path.get(first..).unwrap_or_default(),
            self.start % self.width.per_byte(),
            self.len.min(have),
        )
    }

    /// Appends the bytes of the run with the bits outside of it zeroed.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        let from = out.len();
        out.extend_from_slice(self.bytes);
        let bits = self.width.bits();
        if let Some(first) = out.get_mut(from) {
            *first &= 0xff >> (self.start % self.width.per_byte() * bits);
        }
        let tail = self.end() * bits % 8;
        if tail != 0 && self.len > 0 {
            let last = out.len() - 1;
            out[last] &= 0xff << (8 - tail);
        }
    }

    /// Appends the digits' bits from the first one on, with zeros to a whole byte.
    #[inline]
    pub fn put_packed(&self, out: &mut Vec<u8>) {
        let bits = self.width.bits();
        let shift = self.start * bits % 8;
        let end = out.len() + (self.len * bits).div_ceil(8);
        for (index, byte) in self.bytes.iter().enumerate() {
            let next = self.bytes.get(index + 1).copied().unwrap_or(0);
            out.push((u16::from_be_bytes([*byte, next]) >> (8 - shift)) as u8);
        }
        out.truncate(end);
        let tail = self.len * bits % 8;
        if let Some(last) = out.last_mut().filter(|_| tail != 0) {
            *last &= 0xff << (8 - tail);
        }
    }

    /// Appends the path that ends with the run: `fork` digits of `path`, one more, if any, and the
    /// run.
    #[inline]
    pub fn put_path(&self, path: &[u8], fork: usize, digit: Option<u8>, out: &mut Vec<u8>) {
        let (base, bit) = (out.len(), fork * self.width.bits());
        out.extend_from_slice(&path[..bit.div_ceil(8)]);
        if !bit.is_multiple_of(8) {
            out[base + bit / 8] &= 0xff << (8 - bit % 8);
        }
        if let Some(digit) = digit {
            if bit.is_multiple_of(8) {
                out.push(0);
            }
            out[base + bit / 8] |= digit << (8 - self.width.bits() - bit % 8);
        }
        self.extend(out, base);
    }

    /// Extends a path that ends where the run starts: `out[base..]` holds the whole bytes of the
    /// path so far, the last one zero beyond it.
    #[inline]
    pub fn extend(&self, out: &mut Vec<u8>, base: usize) {
        if self.len == 0 {
            return;
        }
        let shared = !self.start.is_multiple_of(self.width.per_byte());
        let from = out.len();
        self.write(out);
        if shared {
            // The first byte continues one that the path already has.
            let joined = out[from];
            debug_assert!(from > base);
            out[from - 1] |= joined;
            out.remove(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn digits_of_every_width() {
        let bytes = [0b1011_0001, 0xf7];
        let all = |bits| -> Vec<u8> {
            let width = Width::new(bits);
            (0..width.count(&bytes)).map(|i| width.digit(&bytes, i)).collect()
        };
        assert_eq!(all(8), [0xb1, 0xf7]);
        assert_eq!(all(4), [0xb, 1, 0xf, 7]);
        assert_eq!(all(2), [2, 3, 0, 1, 3, 3, 1, 3]);
        assert_eq!(all(1), [1, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1]);
    }

    #[test]
    fn common_agrees_with_a_loop() {
        let a = [0x12, 0x34, 0x56, 0x78, 0x9a];
        for bits in [1, 2, 4, 8] {
            let width = Width::new(bits);
            for flip in 0..40 {
                let mut b = a;
                b[flip / 8] ^= 0x80 >> (flip % 8);
                for start in 0..width.count(&a) {
                    for limit in 0..=width.count(&a) - start {
                        let slow = (start..start + limit)
                            .take_while(|&i| width.digit(&a, i) == width.digit(&b, i))
                            .count();
                        assert_eq!(width.common(&a, &b, start, limit), slow);
                    }
                }
            }
        }
    }

    #[test]
    fn runs_are_cut_and_joined() {
        let path = [0x12, 0x34, 0x56, 0x78];
        let width = Width::new(4);
        for start in 0..=8 {
            for end in start..=8 {
                let mut written = Vec::new();
                Run::of(&path, start, end, width).write(&mut written);
                let run = Run::cut(&written, start, end - start, width);
                assert!(run.digits().eq((start..end).map(|i| width.digit(&path, i))));
                assert_eq!(run.common(&path), end - start);
                let mut packed = Vec::new();
                Run::of(&path, start, end, width).put_packed(&mut packed);
                let packed = Run::of(&packed, 0, end - start, width);
                assert!(packed.digits().eq(run.digits()));
                assert!(
                    packed
                        .aligned()
                        .last()
                        .is_none_or(|last| run.len().is_multiple_of(2) || last & 15 == 0)
                );
                if start > 0 {
                    let mut key = vec![0xee];
                    let before = [&path[..], &[0xff]].concat();
                    let digit = width.digit(&path, start - 1);
                    run.put_path(&before, start - 1, Some(digit), &mut key);
                    let mut expected = vec![0xee];
                    Run::of(&path, 0, end, width).write(&mut expected);
                    assert_eq!(key, expected);
                    key.truncate(1);
                    run.put_path(&before, start, None, &mut key);
                    assert_eq!(key, expected);
                }
                let mut whole = Vec::new();
                Run::of(&path, 0, start, width).extend(&mut whole, 0);
                run.extend(&mut whole, 0);
                let mut expected = Vec::new();
                Run::of(&path, 0, end, width).write(&mut expected);
                assert_eq!(whole, expected);
            }
        }
    }
}
