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
        let memory = field("/proc/meminfo", "MemTotal");
        let kibibytes = memory.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            processor,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kibibytes.map(|kibibytes| kibibytes << 10),
            system: format!("{} {}", std::env::consts::OS, release.trim()).trim().to_owned(),
            hash_kernels: spinney_hash::backends().to_string(),
        }
    }
}

/// A value of a file of `name: value` lines.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(found, _)| found.trim() == name)?;
    Some(value.trim().to_owned())
}
