//! How long is waited, and how often is tried.

use std::time::Duration;

use object_store::{BackoffConfig, RetryConfig};

/// The slowest line that is waited for, in bytes a second.
const SLOWEST: u64 = 128 << 10;

/// How long a [`Remote`](crate::Remote) waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For a connection.
    pub connect: Duration,
    /// For an answer to one request, and for each piece of it; a second more for each 128 KiB that
    /// are sent.
    pub answer: Duration,
    /// For a call as a whole, with all of its retries; a second more for each 128 KiB that are
    /// carried.
    pub call: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let [connect, answer, call] = [5, 20, 120].map(Duration::from_secs);
        Self { connect, answer, call }
    }
}

impl Patience {
    /// What that many bytes take on the slowest line.
    pub(super) const fn to_carry(bytes: usize) -> Duration {
        Duration::from_secs(bytes as u64 / SLOWEST)
    }

    pub(super) fn retries(&self) -> RetryConfig {
        RetryConfig { backoff: backoff(), max_retries: 16, retry_timeout: self.call }
    }
}

/// The wait between two tries.
pub(super) const fn backoff() -> BackoffConfig {
    let init_backoff = Duration::from_millis(100);
    BackoffConfig { init_backoff, max_backoff: Duration::from_secs(4), base: 2.0 }
}
