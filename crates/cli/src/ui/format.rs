//! In which forms there are reports.

use clap::ValueEnum;

/// How a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// One envelope: `schema_version`, `success`, `interrupted`, `data`, `errors`,
    /// `warnings`.
    Json,
    /// A header and a line an entry.
    Csv,
}
