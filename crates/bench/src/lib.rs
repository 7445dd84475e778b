//! Trees measured side by side: the same blocks into every tree and store that is asked for, and
//! what that cost.
//!
//! Blocks are executed once ([`record`]), read as state differences ([`differences`]) or made up
//! ([`WorkloadSize::input`]). Each tree goes alone into a new store ([`measure`]), and all of it
//! into a [`Report`], which can be shown as a table, as CSV, as JSON and as a page ([`html`]).
#![forbid(unsafe_code)]

mod clock;
mod error;
mod found;
mod input;
mod machine;
mod measure;
mod page;
mod plot;
mod report;
mod rows;
mod stages;
mod subject;
mod workload;

pub use self::clock::Clock;
pub use self::error::BenchError;
pub use self::input::{Input, differences, record};
pub use self::machine::{memory_bytes, peak_memory};
pub use self::measure::{Cell, Settings, Site, measure};
pub use self::page::html;
pub use self::report::{Listing, Report, human_bytes};
pub use self::stages::{Stages, replay_staged};
pub use self::subject::StateTree;
pub use self::workload::{Workload, WorkloadSize};
