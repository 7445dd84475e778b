//! Time on the wall and on the processor.

use std::time::{Duration, Instant};

/// Both clocks since one moment.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall: Instant,
    cpu: Option<Duration>,
}

impl Clock {
    /// Now.
    #[must_use]
    pub fn start() -> Self {
        Self { wall: Instant::now(), cpu: processor_time() }
    }

    /// Time on the wall.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.wall.elapsed().as_secs_f64()
    }

    /// Time on all processors, where the system tells.
    #[must_use]
    pub fn cpu_seconds(&self) -> Option<f64> {
        Some(processor_time()?.saturating_sub(self.cpu?).as_secs_f64())
    }
}

#[cfg(unix)]
fn processor_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).ok()
}

#[cfg(not(unix))]
const fn processor_time() -> Option<Duration> {
    None
}
