//! A log's segments in a second folder, which can be read while it grows.
//!
//! Invariants:
//! - what is there is always the beginning of the log: segments come in order, and the bytes of
//!   each in order;
//! - a segment is called by its number, and has no room beyond its records.

use crate::disk::Disk;
use crate::error::{LogError, corrupt, failed};
use crate::format::{BLOCK, format_file};
use crate::open::{FORMAT_FILE, Files, Needed, file_number, identify, segment_name};
use crate::past;
use crate::view::{Segment, View};

const PART: u64 = 1 << 20;

/// What was shipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shipped {
    /// The last commit that is there now.
    pub commit: u64,
    /// Bytes that were copied.
    pub bytes: u64,
    /// Segments that are there now.
    pub segments: u64,
}

/// Copies what the other folder lacks of a view, whose segments stay meanwhile.
pub(crate) fn ship(files: &Files, view: &View, to: &dyn Disk) -> Result<Shipped, LogError> {
    let place = to.place();
    match identify(to) {
        Ok(id) if id == files.id => {}
        Ok(_) => {
            return Err(LogError::Foreign { place, what: "it is a copy of another log".into() });
        }
        Err(LogError::Missing { .. }) => {
            let made = to.create(FORMAT_FILE).and_then(|file| {
                file.write_at(&format_file(files.id), 0)?;
                file.sync()?;
                to.sync_names()
            });
            made.map_err(failed(&place))?;
        }
        Err(error) => return Err(error),
    }
    let names = to.names().map_err(failed(&place))?;
    let newest = names.iter().filter_map(|name| file_number(name)).max().unwrap_or_default();
    let needed = past::needed(files, view)?;
    let mut shipped = Shipped { commit: view.commit, segments: needed.len() as u64, bytes: 0 };
    for one in &needed {
        let is_there = names.contains(&segment_name(one.segment.number.into()));
        // Only the newest one may have been cut off.
        let is_sure = u64::from(one.segment.number) < newest;
        shipped.bytes += copy(files, one, to, is_there, is_sure)?;
    }
    let oldest = needed.front().map_or(0, |needed| needed.segment.number.into());
    for name in names.iter().filter(|name| file_number(name).is_some_and(|n| n < oldest)) {
        let file = to.open(name, true).map_err(failed(&place))?;
        // Whoever reads one needs all after it, too.
        if !file.try_lock(false).map_err(failed(&place))? {
            break;
        }
        to.remove(name).map_err(failed(&place))?;
        file.unlock();
    }
    Ok(shipped)
}

/// Copies what is missing of a segment, and answers how many bytes that was.
fn copy(
    files: &Files,
    needed: &Needed,
    to: &dyn Disk,
    is_there: bool,
    is_sure: bool,
) -> Result<u64, LogError> {
    let from = &needed.segment;
    let name = segment_name(from.number.into());
    let place = format!("{}/{name}", to.place());
    let file = if is_there { to.open(&name, true) } else { to.create(&name) };
    let file = file.map_err(failed(&place))?;
    let meter = std::sync::Arc::clone(&files.meter);
    let target = Segment { number: from.number, name, place, file, meter };
    if is_sure && target.length()? >= needed.end {
        return Ok(0);
    }
    let start = sound_end(files, &target, needed)?;
    let mut at = start;
    while at < needed.end {
        let part = from.read(at, PART.min(needed.end - at) as usize)?;
        target.write(&part, at)?;
        at += part.len() as u64;
    }
    target.sync()?;
    if !is_there {
        to.sync_names().map_err(failed(&target.place))?;
    }
    Ok(at - start)
}

/// How far a copy has the same sound records.
fn sound_end(files: &Files, target: &Segment, needed: &Needed) -> Result<u64, LogError> {
    let mut at = 0;
    while at < needed.end {
        let here = target.header(at, files.id)?;
        let there = needed.segment.header(at, files.id)?;
        let Some(header) = there else {
            return Err(corrupt(&needed.segment.place, format!("there is no record at {at}")));
        };
        if here != Some(header) || !target.is_whole(at, &header)? {
            break;
        }
        at += header.len();
    }
    debug_assert_eq!(at % BLOCK, 0);
    Ok(at)
}
