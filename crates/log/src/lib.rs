//! An append-only store of rows, for those whose rows change a little at a time.
//!
//! A [`Log`] keeps rows, bytes by key, in a folder. A commit is one write and one sync: of each row
//! what changed, where the caller has the row before. Rows that are alive are moved out of the
//! oldest files, a part with each commit. Readers, in this process and others, see one commit and
//! hold what it needs.
//!
//! The format and the protocol are in docs/page-log.md.
//!
//! ```
//! use spinney_log::{Batch, Folder, Log, Options};
//!
//! let folder = tempfile::tempdir()?;
//! let log = Log::create(Folder::new(folder.path()), Options::default())?;
//! let (first, second) = ([7; 1_000], [[7; 500], [8; 500]].concat());
//! let mut batch = Batch::new();
//! batch.put(b"key", &first, None);
//! log.commit(&mut batch)?;
//! let old = log.snapshot()?;
//!
//! let mut batch = Batch::new();
//! batch.put(b"key", &second, Some(&first));
//! log.commit(&mut batch)?;
//! assert_eq!(old.get(b"key")?.unwrap(), first);
//! log.close()?;
//!
//! let log = Log::open_read_only(Folder::new(folder.path()))?;
//! assert_eq!(log.snapshot()?.get(b"key")?.unwrap(), second);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod batch;
mod clean;
pub mod delta;
mod disk;
mod encode;
mod error;
mod follow;
mod format;
mod index;
mod key;
mod log;
mod open;
mod options;
mod past;
mod replay;
mod ship;
mod victim;
mod view;
mod write;

pub use batch::Batch;
pub use disk::{Disk, DiskFile, Folder};
pub use error::LogError;
pub use format::{Bytes, put_number};
pub use key::Key;
pub use log::{Log, Stats};
pub use options::{Keep, Options};
pub use ship::Shipped;
pub use view::{Counts, Snapshot};
