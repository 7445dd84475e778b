//! What was measured on.

use std::fs;

use serde::Serialize;

/// The machine, as far as the system tells.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: Option<String>,
    /// Threads that this process may use.
    pub(crate) threads: usize,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) system: String,
    pub(crate) hash_kernels: String,
}

impl Machine {
    pub(crate) fn this() -> Self {
        let processor = field("/proc/cpuinfo", "model name");
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            processor,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes(),
            system: format!("{} {}", std::env::consts::OS, release.trim()).trim().to_owned(),
            hash_kernels: spinney_hash::backends().to_string(),
        }
    }
}

/// The machine's memory, where the system tells.
#[must_use]
pub fn memory_bytes() -> Option<u64> {
    bytes("/proc/meminfo", "MemTotal")
}

/// The most memory that the process held so far, where the system tells.
#[must_use]
pub fn peak_memory() -> Option<u64> {
    bytes("/proc/self/status", "VmHWM")
}

/// A number of bytes that a file has as kibibytes.
fn bytes(file: &str, name: &str) -> Option<u64> {
    let text = field(file, name)?;
    text.split(' ').next()?.parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// A value of a file of `name: value` lines.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(found, _)| found.trim() == name)?;
    Some(value.trim().to_owned())
}
