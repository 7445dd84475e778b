//! Frames: lists of byte strings, each said by what differs from the one before.
//!
//! Invariants:
//! - what was read takes no more memory than its bytes;
//! - bytes are read that the writer makes, and no others.

use alloc::vec::Vec;

use super::error::{BadFrame, SpanError};

/// So many equal bytes between two patches, or fewer, are written again: they take no more bytes.
const GAP: usize = 2;

/// A list of byte strings, and for how many blocks it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// How many blocks.
    pub blocks: u64,
    /// The strings.
    pub items: Vec<Vec<u8>>,
}

/// Writes frames.
///
/// ```
/// use spinney_proof::span::{Frames, FramesWriter};
///
/// let mut writer = FramesWriter::new();
/// for root in [b"root one", b"root one", b"root two"] {
///     writer.push(&[root, b"the same"]);
/// }
/// let bytes = writer.finish();
/// let mut frames = Frames::new(&bytes);
/// assert_eq!(frames.next()?.map(|frame| frame.blocks), Some(2));
/// assert_eq!(frames.next()?.map(|frame| &frame.items[0][..]), Some(&b"root two"[..]));
/// assert_eq!(frames.next()?, None);
/// # Ok::<_, spinney_proof::span::BadFrame>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FramesWriter {
    /// The frames that are done.
    bytes: Vec<u8>,
    /// The last one, which may hold for one more block; none holds for no block.
    last: Frame,
    /// Its items, written.
    written: Vec<u8>,
}

impl FramesWriter {
    /// No frames.
    pub fn new() -> Self {
        Self::default()
    }

    /// The list of one more block.
    pub fn push<I: AsRef<[u8]>>(&mut self, items: &[I]) {
        let same = |(old, new): (&Vec<u8>, &I)| old == new.as_ref();
        let Frame { blocks, items: last } = &self.last;
        if *blocks > 0 && last.len() == items.len() && last.iter().zip(items).all(same) {
            self.last.blocks = blocks.saturating_add(1);
            return;
        }
        self.close();
        write_items(&self.last.items, items, &mut self.written);
        let items = items.iter().map(|item| item.as_ref().to_vec()).collect();
        self.last = Frame { blocks: 1, items };
    }

    fn close(&mut self) {
        if self.last.blocks > 0 {
            put_number(&mut self.bytes, self.last.blocks);
            self.bytes.append(&mut self.written);
        }
    }

    /// The bytes of all frames.
    pub fn finish(mut self) -> Vec<u8> {
        self.close();
        self.bytes
    }
}

/// Reads frames.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
    last: Frame,
    /// What the writer makes of a frame, to compare.
    written: Vec<u8>,
}

impl<'a> Frames<'a> {
    /// Those of some bytes, which are read as they are asked for.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, last: Frame::default(), written: Vec::new() }
    }

    /// The next frame.
    ///
    /// # Errors
    /// If the bytes are none that [`FramesWriter`] makes.
    #[expect(clippy::should_implement_trait, reason = "a frame is lent, and read with an error")]
    pub fn next(&mut self) -> Result<Option<&Frame>, BadFrame> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let start = self.at;
        match self.read() {
            Ok(frame) => {
                self.last = frame;
                Ok(Some(&self.last))
            }
            Err(error) => {
                // Who asks again is told again.
                self.at = start;
                Err(error)
            }
        }
    }

    fn read(&mut self) -> Result<Frame, BadFrame> {
        let start = self.at;
        let blocks = self.number()?;
        let from = self.at;
        let items = self.items()?;
        let is_first = start == 0;
        if blocks == 0 || (!is_first && items == self.last.items) {
            return Err(BadFrame { at: start, what: "the frame holds for no block of its own" });
        }
        self.written.clear();
        write_items(&self.last.items, &items, &mut self.written);
        if self.bytes.get(from..self.at) != Some(&self.written) {
            return Err(BadFrame { at: from, what: "the frame could be said in fewer bytes" });
        }
        Ok(Frame { blocks, items })
    }

    fn items(&mut self) -> Result<Vec<Vec<u8>>, BadFrame> {
        let count = self.size()?;
        // Each takes a byte or more.
        if count > self.left() {
            return self.malformed("there are fewer items than it says");
        }
        let mut items = Vec::with_capacity(count);
        for place in 0..count {
            items.push(self.item(place)?);
        }
        Ok(items)
    }

    fn item(&mut self, place: usize) -> Result<Vec<u8>, BadFrame> {
        let kind = self.size()?;
        if let Some(len) = kind.checked_sub(2) {
            return Ok(self.take(len)?.to_vec());
        }
        let Some(old) = self.last.items.get(place) else {
            return self.malformed("the frame before has no such item");
        };
        let mut item = old.clone();
        if kind == 1 {
            let mut at = 0_usize;
            for _ in 0..self.size()? {
                at = at.saturating_add(self.size()?);
                let len = self.size()?;
                let bytes = self.take(len)?;
                let end = at.saturating_add(len);
                match item.get_mut(at..end) {
                    Some(place) => place.copy_from_slice(bytes),
                    None => return self.malformed("a patch goes beyond its item"),
                }
                at = end;
            }
        }
        Ok(item)
    }

    fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], BadFrame> {
        let bytes: &'a [u8] = self.bytes;
        let end = self.at.saturating_add(len);
        match bytes.get(self.at..end) {
            Some(taken) => {
                self.at = end;
                Ok(taken)
            }
            None => self.malformed("it ends too early"),
        }
    }

    fn size(&mut self) -> Result<usize, BadFrame> {
        match usize::try_from(self.number()?) {
            Ok(size) => Ok(size),
            Err(_) => self.malformed("a number is out of bounds"),
        }
    }

    fn number(&mut self) -> Result<u64, BadFrame> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let Some(&[byte]) = self.take(1)?.first_chunk() else { break };
            let digits = u64::from(byte & 0x7f);
            if digits.leading_zeros() < shift {
                break;
            }
            number |= digits << shift;
            if byte < 0x80 {
                if byte == 0 && shift > 0 {
                    return self.malformed("a number is not in its shortest form");
                }
                return Ok(number);
            }
        }
        self.malformed("a number is out of bounds")
    }

    fn malformed<T>(&self, what: &'static str) -> Result<T, BadFrame> {
        Err(BadFrame { at: self.at, what })
    }
}

/// Shows all frames of some bytes, with the blocks from the first to the last for which each holds.
/// They are to hold for all blocks of a range.
pub(super) fn each<E>(
    part: &'static str,
    bytes: &[u8],
    (first, last): (u64, u64),
    mut visit: impl FnMut((u64, u64), &[Vec<u8>]) -> Result<(), SpanError<E>>,
) -> Result<(), SpanError<E>> {
    let of_range = last.checked_sub(first).and_then(|more| more.checked_add(1));
    let blocks = of_range.ok_or(SpanError::Range)?;
    let mut frames = Frames::new(bytes);
    let mut done = 0_u64;
    let malformed = |error| SpanError::Frames { part, error };
    while let Some(frame) = frames.next().map_err(malformed)? {
        let from = first.saturating_add(done);
        done = done.saturating_add(frame.blocks);
        if done > blocks {
            return Err(SpanError::Blocks { part, blocks, found: done });
        }
        let to = from.saturating_add(frame.blocks.saturating_sub(1));
        visit((from, to), &frame.items)?;
    }
    match done == blocks {
        true => Ok(()),
        false => Err(SpanError::Blocks { part, blocks, found: done }),
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn write_items<I: AsRef<[u8]>>(before: &[Vec<u8>], items: &[I], out: &mut Vec<u8>) {
    put_number(out, items.len() as u64);
    let before = before.iter().map(|item| Some(&item[..])).chain(core::iter::repeat(None));
    for (item, old) in items.iter().zip(before) {
        let item = item.as_ref();
        let whole = item.len().saturating_add(1);
        match old {
            Some(old) if old == item => out.push(0),
            Some(old) if old.len() == item.len() && patch(old, item, whole, out) => {}
            _ => {
                put_number(out, (item.len() as u64).saturating_add(2));
                out.extend_from_slice(item);
            }
        }
    }
}

/// Appends the patches between two strings of one length. Answers `false`, and leaves `out` as it
/// was, if these take `limit` bytes or more.
fn patch(old: &[u8], new: &[u8], limit: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let places = patches(old, new);
    put_number(out, 1);
    put_number(out, places.len() as u64);
    let mut at = 0;
    for (from, end) in places {
        put_number(out, (from as u64).saturating_sub(at));
        let bytes = new.get(from..end).unwrap_or_default();
        put_number(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
        at = end as u64;
    }
    let fits = out.len().saturating_sub(start) < limit;
    if !fits {
        out.truncate(start);
    }
    fits
}

/// Where two strings of one length differ: from and to.
fn patches(old: &[u8], new: &[u8]) -> Vec<(usize, usize)> {
    let mut places: Vec<(usize, usize)> = Vec::new();
    let differ = old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new);
    for (at, _) in differ {
        let end = at.saturating_add(1);
        match places.last_mut() {
            Some((_, last)) if at.saturating_sub(*last) <= GAP => *last = end,
            _ => places.push((at, end)),
        }
    }
    places
}
