//! Fills lanes with inputs, for kernels that hash a few inputs side by side.
//!
//! Invariants:
//! - A kernel costs its longest input, so inputs share a pass only with inputs of about as many
//!   blocks: each waits in the queue of its class, and a full queue is a pass.
//! - What the queues hold at the end is at most a few passes, planned longest first.
//! - Queues are arrays of indices on the stack; nothing here allocates.

use crate::{Digest, Inputs};

/// Most lanes of any kernel.
pub(crate) const LANES_MAX: usize = 16;

/// What is known of the inputs of a pass.
#[derive(Clone, Copy)]
pub(crate) enum Known {
    Nothing,
    /// All take the same number of blocks.
    Blocks,
    /// All are of this length.
    Len(usize),
}

/// The kernels of one hash function on one backend.
pub(crate) trait Kernel {
    /// The digest of one input.
    fn hash1(&self, input: &[u8]) -> Digest;

    /// The digests of at most [`Kernel::lanes`] inputs, by the best kernel for that many; `out` is
    /// as long as `inputs`.
    fn hash(&self, inputs: &[&[u8]], known: Known, out: &mut [Digest]);

    /// Hashes the first of many inputs of `len` bytes that lie end to end, where there is a shorter
    /// way than one pass after another; returns how many.
    fn hash_groups(&self, bytes: &[u8], len: usize, out: &mut [Digest]) -> usize {
        let _ = (bytes, len, out);
        0
    }

    /// The lanes of the widest kernel, at most [`LANES_MAX`].
    fn lanes(&self) -> usize;

    /// The lanes of the narrowest kernel with more than one lane, at most [`Kernel::lanes`].
    fn lanes_narrow(&self) -> usize;

    /// The number of blocks that an input of `len` bytes takes, at least 1.
    fn blocks(&self, len: usize) -> usize;
}

/// Hashes each `len` bytes of `bytes`.
pub(crate) fn hash_equal(kernel: &impl Kernel, bytes: &[u8], len: usize, out: &mut [Digest]) {
    assert_eq!(Some(bytes.len()), len.checked_mul(out.len()), "one digest per {len} bytes");
    let done = kernel.hash_groups(bytes, len, out);
    let (mut rest, out) = (&bytes[len * done..], &mut out[done..]);
    let mut inputs = [&[][..]; LANES_MAX];
    for out in out.chunks_mut(kernel.lanes()) {
        let inputs = &mut inputs[..out.len()];
        for input in &mut *inputs {
            (*input, rest) = rest.split_at(len);
        }
        match out {
            [digest] => *digest = kernel.hash1(inputs[0]),
            _ => kernel.hash(inputs, Known::Len(len), out),
        }
    }
}

/// Finds out what a kernel wants to know of its inputs.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn shape<const N: usize>(
    inputs: &[&[u8]; N],
    known: Known,
    blocks: fn(usize) -> usize,
) -> Shape<N> {
    let of_first = blocks(inputs[0].len());
    let even = |len| Shape { blocks: [0; N], longest: of_first, even: true, len };
    match known {
        Known::Len(len) => even(Some(len)),
        Known::Blocks => even(None),
        Known::Nothing => shape_of_any(inputs, blocks),
    }
}

/// Not inlined into kernels: where AVX-512 is enabled, the compiler turns such loops into gathers,
/// which cost more than the loops.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn shape_of_any<const N: usize>(inputs: &[&[u8]; N], blocks: fn(usize) -> usize) -> Shape<N> {
    let first = inputs[0].len();
    let len = inputs.iter().all(|input| input.len() == first).then_some(first);
    let blocks = inputs.map(|input| blocks(input.len()));
    let longest = blocks.iter().fold(0, |longest, &count| longest.max(count));
    Shape { blocks, longest, even: len.is_some(), len }
}

/// What a kernel wants to know of its inputs.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Shape<const N: usize> {
    /// The blocks of each input, where they are not as many.
    blocks: [usize; N],
    /// The most blocks of any input.
    pub(crate) longest: usize,
    /// Whether all inputs are known to have so many.
    even: bool,
    /// The length of all inputs, if there is one.
    pub(crate) len: Option<usize>,
}

#[cfg(target_arch = "x86_64")]
impl<const N: usize> Shape<N> {
    /// Takes the digests of the inputs that end with block `block`; `squeeze` makes all digests.
    #[inline(always)]
    pub(crate) fn take_ended(
        &self,
        block: usize,
        digests: &mut [Digest; N],
        squeeze: impl FnOnce() -> [Digest; N],
    ) {
        if self.even {
            if block + 1 == self.longest {
                *digests = squeeze();
            }
        } else if self.ends(block) {
            self.copy_ended(block, &squeeze(), digests);
        }
    }

    #[inline(never)]
    fn ends(&self, block: usize) -> bool {
        self.blocks.contains(&(block + 1))
    }

    #[inline(never)]
    fn copy_ended(&self, block: usize, from: &[Digest; N], to: &mut [Digest; N]) {
        for lane in 0..N {
            if self.blocks[lane] == block + 1 {
                to[lane] = from[lane];
            }
        }
    }
}

/// Runs a kernel of `N` lanes over at most `N` inputs, straight into `out` if there are `N` of
/// them.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn run<const N: usize>(
    inputs: &[&[u8]],
    out: &mut [Digest],
    kernel: impl Fn(&[&[u8]; N], &mut [Digest; N]),
) {
    if let (Ok(inputs), Some(out)) = (inputs.try_into(), out.first_chunk_mut()) {
        return kernel(inputs, out);
    }
    // Lanes to spare repeat the first input, so that inputs of one length stay so.
    let mut lanes = [inputs[0]; N];
    lanes[..inputs.len()].copy_from_slice(inputs);
    let mut digests = [[0; 32]; N];
    kernel(&lanes, &mut digests);
    for (out, digest) in out.iter_mut().zip(digests) {
        *out = digest;
    }
}

/// Hashes inputs of any lengths.
pub(crate) fn hash_many(kernel: &impl Kernel, inputs: Inputs<'_>, out: &mut [Digest]) {
    assert_eq!(inputs.len(), out.len(), "one digest per input");
    if kernel.lanes() == 1 || inputs.len() == 1 {
        for (input, out) in inputs.iter().zip(out) {
            *out = kernel.hash1(input);
        }
        return;
    }
    if let Some(len) = inputs.len_of_each() {
        return hash_equal(kernel, inputs.bytes(), len, out);
    }
    let mut queues = Queues::new(kernel.lanes());
    let (mut lanes, mut classes) = ([&[][..]; LANES_MAX], [0; LANES_MAX]);
    let mut rest = inputs.iter();
    for start in (0..inputs.len()).step_by(kernel.lanes()) {
        let count = kernel.lanes().min(inputs.len() - start);
        let (lanes, classes) = (&mut lanes[..count], &mut classes[..count]);
        for ((lane, class_here), input) in lanes.iter_mut().zip(&mut *classes).zip(&mut rest) {
            (*lane, *class_here) = (input, class(kernel.blocks(input.len())));
        }
        if count == kernel.lanes() && classes.iter().all(|class| *class == classes[0]) {
            // Neighbours that need not wait for others.
            kernel.hash(lanes, known(classes[0]), &mut out[start..start + count]);
            continue;
        }
        for (index, &class) in (start as u32..).zip(&*classes) {
            if let Some(pass) = queues.push(class, index) {
                hash_pass(kernel, inputs, pass, known(class), out);
            }
        }
    }
    let mut pass = [0; LANES_MAX];
    loop {
        match queues.take(kernel.lanes_narrow(), &mut pass) {
            0 => return,
            taken => hash_pass(kernel, inputs, &pass[..taken], Known::Nothing, out),
        }
    }
}

fn hash_pass(
    kernel: &impl Kernel,
    inputs: Inputs<'_>,
    pass: &[u32],
    known: Known,
    out: &mut [Digest],
) {
    if let [index] = *pass {
        out[index as usize] = kernel.hash1(inputs.at(index as usize));
        return;
    }
    let mut lanes = [&[][..]; LANES_MAX];
    for (lane, &index) in lanes.iter_mut().zip(pass) {
        *lane = inputs.at(index as usize);
    }
    let mut digests = [[0; 32]; LANES_MAX];
    kernel.hash(&lanes[..pass.len()], known, &mut digests[..pass.len()]);
    for (digest, &index) in digests.iter().zip(pass) {
        out[index as usize] = *digest;
    }
}

/// What is known of inputs of one class.
const fn known(class: usize) -> Known {
    if class < BLOCKS_WITH_CLASS { Known::Blocks } else { Known::Nothing }
}

/// Up to so many blocks have a class each; above that there are two for each doubling, so that no
/// lane of a full pass idles for more than a third of it, up to 8,192 blocks.
const BLOCKS_WITH_CLASS: usize = 8;
const CLASSES: usize = BLOCKS_WITH_CLASS + 2 * 10;

fn class(blocks: usize) -> usize {
    if blocks <= BLOCKS_WITH_CLASS {
        return blocks - 1;
    }
    let doublings = blocks.ilog2() as usize;
    let half = (blocks >> (doublings - 1)) & 1;
    (8 + 2 * (doublings - 3) + half).min(CLASSES - 1)
}

/// The indices of inputs that wait for a pass, by class.
struct Queues {
    lanes: usize,
    waiting: [[u32; LANES_MAX]; CLASSES],
    counts: [u8; CLASSES],
}

impl Queues {
    fn new(lanes: usize) -> Self {
        Self { lanes, waiting: [[0; LANES_MAX]; CLASSES], counts: [0; CLASSES] }
    }

    /// Adds an input, and takes the pass that it completes.
    fn push(&mut self, class: usize, index: u32) -> Option<&[u32]> {
        let count = &mut self.counts[class];
        self.waiting[class][usize::from(*count)] = index;
        *count += 1;
        if usize::from(*count) < self.lanes {
            return None;
        }
        *count = 0;
        Some(&self.waiting[class][..self.lanes])
    }

    /// Takes the inputs of the next pass, those with the most blocks first; returns their number.
    ///
    /// A pass is wide if inputs of at least half the blocks of its longest one overfill a narrow
    /// one.
    fn take(&mut self, lanes_narrow: usize, pass: &mut [u32; LANES_MAX]) -> usize {
        let Some(longest) = self.counts.iter().rposition(|&count| count > 0) else { return 0 };
        let near = if longest < 8 { longest / 2 } else { longest - 2 };
        let filled: u8 = self.counts[near..=longest].iter().sum();
        let width = if usize::from(filled) > lanes_narrow { self.lanes } else { lanes_narrow };
        let mut taken = 0;
        for class in (0..=longest).rev() {
            while self.counts[class] > 0 && taken < width {
                self.counts[class] -= 1;
                pass[taken] = self.waiting[class][usize::from(self.counts[class])];
                taken += 1;
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_grow_with_blocks() {
        let classes: Vec<_> = (1..20_000).map(class).collect();
        assert!(classes.is_sorted());
        assert_eq!(classes[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((class(8), class(9), class(11), class(12), class(16)), (7, 8, 8, 9, 10));
        assert_eq!(classes[19_998], CLASSES - 1);
    }

    #[test]
    fn a_pass_takes_the_longest_and_stays_narrow_when_the_others_are_short() {
        let mut queues = Queues::new(8);
        let mut pass = [0; LANES_MAX];
        for (index, blocks) in [1, 1, 1, 1, 90, 2, 1].into_iter().enumerate() {
            assert_eq!(queues.push(class(blocks), index as u32), None);
        }
        assert_eq!(queues.take(4, &mut pass), 4);
        assert_eq!(pass[..2], [4, 5]);
        assert_eq!(queues.take(4, &mut pass), 3);
        assert_eq!(queues.take(4, &mut pass), 0);
    }
}
