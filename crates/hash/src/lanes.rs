//! Fills lanes with inputs, for kernels that hash a few inputs side by side.
//!
//! Invariants:
//! - A kernel costs its longest input, so inputs share a pass only with inputs of about as many blocks:
//!   each waits in the queue of its class, and a full queue is a pass.
//! - What the queues hold at the end is at most a few passes, planned longest first.
//! - Queues are arrays of indices on the stack; nothing here allocates.

use crate::{Digest, Inputs};

/// Most lanes of any kernel.
pub(crate) const LANES_MAX: usize = 16;

/// The kernels of one hash function on one backend.
pub(crate) trait Kernel {
    /// The digest of one input.
    fn hash1(&self, input: &[u8]) -> Digest;

    /// The digests of at most [`Kernel::lanes`] inputs, by the best kernel for that many; `out` is as
    /// long as `inputs`.
    fn hash(&self, inputs: &[&[u8]], out: &mut [Digest]);

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
    let lanes = kernel.lanes();
    let mut rest = bytes;
    for out in out.chunks_mut(lanes) {
        let pass;
        (pass, rest) = rest.split_at(out.len() * len);
        if let [digest] = out {
            *digest = kernel.hash1(pass);
            continue;
        }
        let mut inputs = [&[][..]; LANES_MAX];
        let inputs = &mut inputs[..out.len()];
        for (i, input) in inputs.iter_mut().enumerate() {
            *input = &pass[i * len..][..len];
        }
        kernel.hash(inputs, out);
    }
}

/// The first inputs in an array for a kernel of `N` lanes; lanes without input get an empty one.
#[cfg(target_arch = "x86_64")]
pub(crate) fn padded<'a, const N: usize>(inputs: &[&'a [u8]]) -> [&'a [u8]; N] {
    let mut lanes = [&[][..]; N];
    lanes[..inputs.len()].copy_from_slice(inputs);
    lanes
}

/// Runs a kernel of `N` lanes over at most `N` inputs, straight into `out` if there are `N` of them.
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
    let mut digests = [[0; 32]; N];
    kernel(&padded(inputs), &mut digests);
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
    let mut queues = Queues::new(kernel.lanes());
    for (index, input) in inputs.iter().enumerate() {
        if let Some(pass) = queues.push(class(kernel.blocks(input.len())), index as u32) {
            hash_pass(kernel, inputs, pass, out);
        }
    }
    let mut pass = [0; LANES_MAX];
    loop {
        match queues.take(kernel.lanes_narrow(), &mut pass) {
            0 => return,
            taken => hash_pass(kernel, inputs, &pass[..taken], out),
        }
    }
}

fn hash_pass(kernel: &impl Kernel, inputs: Inputs<'_>, pass: &[u32], out: &mut [Digest]) {
    if let [index] = *pass {
        out[index as usize] = kernel.hash1(inputs.at(index as usize));
        return;
    }
    let mut lanes = [&[][..]; LANES_MAX];
    for (lane, &index) in lanes.iter_mut().zip(pass) {
        *lane = inputs.at(index as usize);
    }
    let mut digests = [[0; 32]; LANES_MAX];
    kernel.hash(&lanes[..pass.len()], &mut digests[..pass.len()]);
    for (digest, &index) in digests.iter().zip(pass) {
        out[index as usize] = *digest;
    }
}

/// One to eight blocks have a class each; above that there are two for each doubling, so that no lane
/// of a full pass idles for more than a third of it, up to 8,192 blocks.
const CLASSES: usize = 8 + 2 * 10;

fn class(blocks: usize) -> usize {
    if blocks <= 8 {
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
    /// A pass is wide if inputs of at least half the blocks of its longest one overfill a narrow one.
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
