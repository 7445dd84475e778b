//! The last stage of the bucket method, one window in each lane.

use super::lanes::WIDTH;
use super::points::Points;
use crate::group::Element;

/// For every window of `len` buckets the sum of `(i + 1) * window[i]`.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn weighted_sums(buckets: &[Element], len: usize) -> Vec<Element> {
    let windows = buckets.len() / len;
    let mut sums = Vec::with_capacity(windows.next_multiple_of(WIDTH));
    for first in (0..windows).step_by(WIDTH) {
        let mut running = Points::identity();
        let mut weighted = Points::identity();
        for bucket in (0..len).rev() {
            let element = |lane: usize| {
                buckets.get((first + lane) * len + bucket).unwrap_or(&Element::IDENTITY)
            };
            running.add(&Points::load_loose(std::array::from_fn(element)));
            weighted.add(&running);
        }
        sums.extend(weighted.to_elements());
    }
    sums.truncate(windows);
    sums
}
