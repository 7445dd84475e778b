//! What a piece of work costs: the unit in which workers answer, in any language.

use std::{fs, time::Duration, time::Instant};

use cpu_time::ProcessTime;
use serde::{Deserialize, Serialize};

use crate::allocator;

/// What one run of a case took, and what came out.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Cost {
    /// The root after it, in hex, or nothing: workers that name one must name the same.
    #[serde(default)]
    pub root: String,
    /// User and system time of the whole process, garbage collection included.
    pub cpu_ns: u64,
    /// Time by the clock.
    pub wall_ns: u64,
    /// Calls of the allocator.
    pub allocs: u64,
    /// Bytes asked of it.
    pub alloc_bytes: u64,
    /// The most memory that was resident, beyond what was when the inputs had been made.
    pub peak_bytes: u64,
}

impl std::ops::AddAssign<&Self> for Cost {
    /// Takes in what a further piece of the same work cost.
    fn add_assign(&mut self, other: &Self) {
        self.cpu_ns += other.cpu_ns;
        self.wall_ns += other.wall_ns;
        self.allocs += other.allocs;
        self.alloc_bytes += other.alloc_bytes;
        self.peak_bytes = self.peak_bytes.max(other.peak_bytes);
    }
}

/// Measures pieces of work in this process.
pub struct Meter {
    inputs_bytes: u64,
}

impl Meter {
    /// Takes what is resident now, the inputs, as the ground above which memory counts.
    pub fn new() -> Self {
        Self { inputs_bytes: status_bytes("VmRSS:") }
    }

    /// Runs `work` and says what it cost; dropping what it hands back is not counted.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> (T, Cost) {
        // Resets the peak; where that is forbidden, the peak is that of the process so far.
        drop(fs::write("/proc/self/clear_refs", "5"));
        let before = allocator::counts();
        let (cpu, wall) = (ProcessTime::now(), Instant::now());
        let done = work();
        let (cpu, wall): (Duration, Duration) = (cpu.elapsed(), wall.elapsed());
        let after = allocator::counts();
        let cost = Cost {
            root: String::new(),
            cpu_ns: cpu.as_nanos() as u64,
            wall_ns: wall.as_nanos() as u64,
            allocs: after.0 - before.0,
            alloc_bytes: after.1 - before.1,
            peak_bytes: status_bytes("VmHWM:").saturating_sub(self.inputs_bytes),
        };
        (done, cost)
    }
}

/// A line of `/proc/self/status`, in bytes; 0 where there is no such file.
fn status_bytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    let kib: u64 = line.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
    kib * 1024
}
