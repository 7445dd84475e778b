//! Sums of entries, one sum in each lane at a time.

use super::lanes::WIDTH;
use super::points::{Points, State, load_states, store_states};
use crate::group::Element;
use crate::kernel::prefetch::prefetch;
use crate::kernel::{Entry, Pick};

/// How many steps ahead entries are asked for: a step takes about as long as a read from memory.
const PREFETCH_STEPS: usize = 3;

/// What a lane is at.
#[derive(Clone, Copy)]
struct Progress {
    /// The sum that is being built, if any is left.
    task: Option<usize>,
    /// The next pick.
    next: usize,
    /// The end of the picks.
    end: usize,
}

#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn sum(entries: &[Entry], picks: &[Pick], ends: &[u32], sums: &mut [Element]) {
    let mut states = load_states(sums);
    let mut starts = [0].into_iter().chain(ends.iter().map(|&end| end as usize));
    let mut waiting = ends.iter().enumerate().filter_map(|(task, &end)| {
        let (next, end) = (starts.next()?, end as usize);
        (next < end).then_some(Progress { task: Some(task), next, end })
    });
    let mut lanes = [Progress::NONE; WIDTH];
    let mut points = Points::zero();
    loop {
        if lanes.iter().any(|progress| progress.task.is_some() && progress.next == progress.end) {
            let columns = points.to_columns();
            for (lane, progress) in lanes.iter_mut().enumerate() {
                if let Some(task) = progress.task.take_if(|_| progress.next == progress.end) {
                    states[task] = columns.map(|coordinate| coordinate.map(|column| column[lane]));
                }
            }
        }
        for (lane, progress) in lanes.iter_mut().enumerate().filter(|(_, p)| p.task.is_none()) {
            let Some(next) = waiting.next() else { break };
            *progress = next;
            points.set_lane(lane, next.task.map_or(&State::default(), |task| &states[task]));
        }
        let left = |progress: &Progress| progress.end - progress.next;
        let Some(steps) = lanes.iter().filter(|p| p.task.is_some()).map(left).min() else { break };
        run(&mut points, entries, picks, &lanes, steps);
        for progress in lanes.iter_mut().filter(|progress| progress.task.is_some()) {
            progress.next += steps;
        }
    }
    store_states(&states, sums);
}

/// Takes steps in all lanes. A lane without a task follows another one, and is not looked at.
#[target_feature(enable = "avx512f,avx512ifma")]
fn run(
    points: &mut Points,
    entries: &[Entry],
    picks: &[Pick],
    lanes: &[Progress; WIDTH],
    steps: usize,
) {
    let busy = lanes.iter().find(|progress| progress.task.is_some()).unwrap_or(&lanes[0]);
    let lanes: [&[Pick]; WIDTH] = std::array::from_fn(|lane| {
        let progress = if lanes[lane].task.is_some() { &lanes[lane] } else { busy };
        &picks[progress.next..progress.end]
    });
    for step in 0..steps {
        for ahead in lanes.iter().filter_map(|picks| picks.get(step + PREFETCH_STEPS)) {
            prefetch(&entries[ahead.index()]);
        }
        let current: [Pick; WIDTH] = std::array::from_fn(|lane| lanes[lane][step]);
        let negated =
            (0..WIDTH).fold(0, |set, lane| set | u8::from(current[lane].is_negated()) << lane);
        points.add_entries(current.map(|pick| &entries[pick.index()]), negated);
    }
}

impl Progress {
    const NONE: Self = Self { task: None, next: 0, end: 0 };
}
