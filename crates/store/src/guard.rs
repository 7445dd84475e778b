//! The boundary to redb: its panics and errors become [`StoreError`]s.
//!
//! redb trusts a file that was shut down cleanly and may panic on one that was damaged since. Such
//! a panic is the damage's fault and not the program's, so it ends here. Programs built with `panic
//! = "abort"` lose that.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::panic::{self, AssertUnwindSafe};

use spinney_tree::StoreError;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Keeps the panic hook silent about panics that this crate catches and reports as
/// [`StoreError::Corrupt`].
///
/// Rust's default hook prints a panic before anyone can catch it. A program that shows errors to
/// its user calls this once, after it has installed any hook of its own. The library does not do so
/// by itself, as the hook belongs to the program.
///
/// ```
/// spinney_store::quiet_panics();
/// ```
pub fn quiet_panics() {
    let loud = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !GUARDED.get() {
            loud(info);
        }
    }));
}

/// Runs redb code that may meet a damaged file. `place` names what it works on.
pub(crate) fn guarded<T, P: fmt::Display>(
    place: P,
    work: impl FnOnce() -> Result<T, redb::Error>,
) -> Result<T, StoreError> {
    let outer = GUARDED.replace(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    match outcome {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(translate(&place, error)),
        Err(panic) => Err(corrupt(place, message(&*panic))),
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("redb cannot make sense of it")
}

pub(crate) fn corrupt(place: impl fmt::Display, what: impl Into<String>) -> StoreError {
    StoreError::Corrupt { place: place.to_string(), what: what.into() }
}

pub(crate) fn foreign(place: impl fmt::Display, what: impl Into<String>) -> StoreError {
    StoreError::Foreign { place: place.to_string(), what: what.into() }
}

pub(crate) fn backend(
    place: impl fmt::Display,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::Backend { place: place.to_string(), source: source.into() }
}

fn translate(place: &impl fmt::Display, error: redb::Error) -> StoreError {
    use redb::Error;
    match error {
        Error::DatabaseAlreadyOpen | Error::LockProtocolMismatch => {
            StoreError::Busy { place: place.to_string() }
        }
        Error::Corrupted(what) => corrupt(place, what),
        Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            corrupt(place, "it ends before what it refers to")
        }
        Error::Io(error) => backend(place, error),
        Error::LockPoisoned(_) => corrupt(place, "damage that was found before stopped it"),
        Error::PreviousIo => {
            backend(place, "an earlier read or write failed; close the store and open it again")
        }
        Error::RepairAborted => backend(
            place,
            "its last writer was cut off; open it for writing once, which repairs it",
        ),
        Error::TableDoesNotExist(table) => corrupt(place, format!("its table {table} is missing")),
        error @ (Error::TableTypeMismatch { .. }
        | Error::TableIsMultimap(_)
        | Error::TypeDefinitionChanged { .. }) => corrupt(place, error.to_string()),
        Error::UpgradeRequired(version) => {
            foreign(place, format!("it has redb's old file format {version}"))
        }
        error => backend(place, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use spinney_tree::StoreError;

    use super::guarded;

    #[test]
    fn panics_become_damage_with_the_message_and_the_place() {
        let error = guarded("here", || -> Result<(), _> { panic!("page {} is odd", 7) });
        assert_eq!(error.unwrap_err().to_string(), "here is damaged: page 7 is odd");
        let error = guarded("here", || -> Result<(), _> { std::panic::panic_any(7) });
        assert_eq!(error.unwrap_err().to_string(), "here is damaged: redb cannot make sense of it");
    }

    #[test]
    fn a_full_disk_keeps_its_message() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = guarded("here", || -> Result<(), _> { Err(redb::Error::Io(full)) });
        assert!(matches!(&error, Err(StoreError::Backend { .. })));
        assert_eq!(error.unwrap_err().to_string(), "here: no storage space");
    }

    #[test]
    fn a_file_that_ends_early_is_damaged() {
        let end = io::Error::from(io::ErrorKind::UnexpectedEof);
        let error = guarded("here", || -> Result<(), _> { Err(redb::Error::Io(end)) });
        assert!(matches!(error, Err(StoreError::Corrupt { .. })));
    }
}
