//! What a verb answers, for programs and for people.

use serde::Serialize;
use serde_json::Value;

use super::format::Format;
use super::grid::Grid;
use crate::failure::Exit;
use crate::interrupt::this_command;

/// How a verb speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Speech {
    /// It reports: in an envelope, if it is to be JSON, and so also where it fails.
    #[default]
    Report,
    /// It prints lines as long as nobody asks for a format.
    Lines,
    /// It prints bare documents, or lines that are its work, as they come: there is no envelope,
    /// and an error is told on standard error alone.
    Documents,
}

/// What a verb answers. It is made of what programs read, so that no verb has tables alone; the
/// only others are of verbs that printed [documents](Speech::Documents) on their way, and of runs
/// that ended with nothing to tell.
#[derive(Debug)]
#[must_use = "nothing is printed before it is returned"]
pub(crate) struct Answer {
    pub(super) data: Data,
    /// The same for spreadsheets; where there are no entries, what people see.
    pub(super) csv: Option<Grid>,
    pub(super) shown: Vec<Part>,
    pub(super) exit: Exit,
    /// Whether the data are those of a run that was interrupted.
    pub(super) is_stopped: bool,
    /// What people are told behind it.
    pub(super) next: Option<String>,
}

/// What programs read.
#[derive(Debug)]
pub(super) enum Data {
    Report(Value),
    /// It was printed already.
    Documents,
    Nothing,
}

/// A part of what people see.
#[derive(Debug)]
pub(super) enum Part {
    Line(String),
    Table(Grid),
}

impl Answer {
    /// A report, by what is in its envelope.
    pub(crate) fn of(data: &impl Serialize) -> serde_json::Result<Self> {
        Ok(Self::new(Data::Report(serde_json::to_value(data)?), Exit::Ok))
    }

    /// Documents were printed.
    pub(crate) const fn documents(exit: Exit) -> Self {
        Self::new(Data::Documents, exit)
    }

    /// It was interrupted before there was anything to tell.
    pub(crate) const fn interrupted() -> Self {
        Self::new(Data::Nothing, Exit::Interrupted)
    }

    const fn new(data: Data, exit: Exit) -> Self {
        Self { data, csv: None, shown: Vec::new(), exit, is_stopped: false, next: None }
    }

    /// Another line for people.
    pub(crate) fn line(mut self, line: impl Into<String>) -> Self {
        self.shown.push(Part::Line(line.into()));
        self
    }

    pub(crate) fn lines(self, lines: impl IntoIterator<Item = String>) -> Self {
        lines.into_iter().fold(self, Self::line)
    }

    /// A table for people.
    pub(crate) fn table(mut self, grid: Grid) -> Self {
        self.shown.push(Part::Table(grid));
        self
    }

    /// The entries as CSV.
    pub(crate) fn csv(mut self, grid: Grid) -> Self {
        self.csv = Some(grid);
        self
    }

    /// The report as the one entry, by its fields of these names.
    pub(crate) fn row(self, names: &[&'static str]) -> Self {
        let Data::Report(data) = &self.data else { return self };
        let grid = Grid::of_records(names, [data]);
        self.csv(grid)
    }

    /// All fields of the report, a row each.
    pub(crate) fn fields(self) -> Self {
        let Data::Report(data) = &self.data else { return self };
        let grid = |format| Grid::of_fields(data, format);
        let (csv, table) = (grid(Format::Csv), grid(Format::Table));
        self.csv(csv).table(table)
    }

    /// The entries, as a table and as CSV.
    pub(crate) fn grid(self, grid: Grid) -> Self {
        self.csv(grid.clone()).table(grid)
    }

    pub(crate) fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// The report is that of a run that was interrupted.
    pub(crate) fn stopped(mut self, stopped: bool) -> Self {
        self.is_stopped = stopped;
        self
    }

    /// It was interrupted, and the same command goes on.
    pub(crate) fn goes_on(mut self) -> Self {
        self.next = Some(format!("continue with: {}", this_command()));
        self.exit(Exit::Interrupted)
    }
}
