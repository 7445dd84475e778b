//! A note of every range that was begun: so the work that a crash undid is counted.
//!
//! One record a range: its number (u32) and its leaves (u64). It is not synced: a killed process
//! loses nothing of it, and after a power cut it only counts too little.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use crate::error::{PipelineError, at};
use crate::private;
use crate::record::{Fields, Kind, put, take};

const NAME: &str = "started";

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Leaves of all ranges begun so far.
    leaves: u64,
}

impl Journal {
    pub(crate) fn path(dir: &Path) -> PathBuf {
        dir.join(NAME)
    }

    pub(crate) fn open(dir: &Path) -> Result<Self, PipelineError> {
        let path = Self::path(dir);
        let mut leaves = 0u64;
        if path.exists() {
            let mut bytes = Vec::new();
            let read = private::open(&path).and_then(|mut file| file.read_to_end(&mut bytes));
            read.map_err(at(&path))?;
            let mut rest = &bytes[..];
            while let Ok((body, behind)) = take(Kind::Started, rest) {
                let mut fields = Fields(body);
                let (_, count) = (fields.u32(), fields.u64());
                leaves = leaves.saturating_add(count.unwrap_or(0));
                rest = behind;
            }
            if !rest.is_empty() {
                // The last record was cut off; it would hide those behind it.
                let whole = bytes.len().saturating_sub(rest.len()) as u64;
                let file = private::append(&path).map_err(at(&path))?;
                file.set_len(whole).map_err(at(&path))?;
            }
        }
        let file = private::append(&path).map_err(at(&path))?;
        Ok(Self { path, file, leaves })
    }

    pub(crate) fn start(&mut self, range: u32, leaves: u64) -> Result<(), PipelineError> {
        let mut record = Vec::new();
        put(
            Kind::Started,
            &[&range.to_be_bytes()[..], &leaves.to_be_bytes()].concat(),
            &mut record,
        );
        self.file.write_all(&record).map_err(at(&self.path))?;
        self.leaves = self.leaves.saturating_add(leaves);
        Ok(())
    }

    pub(crate) const fn leaves(&self) -> u64 {
        self.leaves
    }
}
