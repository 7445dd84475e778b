//! What goes to standard output: tables, CSV, the JSON envelope, bare lines.

use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use clap::ValueEnum;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::Color;
use crate::terminal::{printable, printable_json, shown, tell};

/// The version of the envelope and of what verbs put into it.
const SCHEMA_VERSION: u32 = 1;

/// How a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Table,
    /// One envelope: `schema_version`, `success`, `data`, `errors`, `warnings`.
    Json,
    /// A header and a line an entry.
    Csv,
}

/// Standard output, and how this run speaks.
#[derive(Debug)]
pub(crate) struct Output {
    asked: Option<Format>,
    quiet: bool,
    colored: bool,
    warnings: Warnings,
}

impl Output {
    pub(crate) fn new(asked: Option<Format>, quiet: bool, color: Color) -> Self {
        let colored = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                !refused && io::stderr().is_terminal()
            }
        };
        Self { asked, quiet, colored, warnings: Warnings::default() }
    }

    /// The format that was asked for.
    pub(crate) fn asked(&self) -> Option<Format> {
        self.asked
    }

    /// The format of a report: a table for people, JSON for programs, unless told.
    pub(crate) fn format(&self) -> Format {
        let fitting = if io::stdout().is_terminal() { Format::Table } else { Format::Json };
        self.asked.unwrap_or(fitting)
    }

    pub(crate) fn quiet(&self) -> bool {
        self.quiet
    }

    pub(crate) fn colored(&self) -> bool {
        self.colored
    }

    /// Writes bytes, and does not keep them.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    }

    /// Writes a line for people.
    pub(crate) fn line(&self, line: &str) -> io::Result<()> {
        self.bytes(format!("{}\n", printable(line)).as_bytes())
    }

    /// Writes a document of JSON as a line.
    pub(crate) fn json(&self, document: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(document)?;
        self.bytes(format!("{}\n", printable_json(&text)).as_bytes())
    }

    /// Tells people something that is no error; the envelope repeats it.
    pub(crate) fn warn(&self, text: impl Into<String>) {
        self.warnings.add(&text.into());
    }

    /// What people are told that is no error, for those who tell it from elsewhere.
    pub(crate) fn warnings(&self) -> Warnings {
        self.warnings.clone()
    }

    /// Tells people something, unless they asked for quiet.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            self.tell(text);
        }
    }

    /// Tells people something that they need.
    pub(crate) fn tell(&self, text: &str) {
        tell(text);
    }

    /// Writes the envelope around a verb's data.
    pub(crate) fn envelope(&self, data: &impl Serialize, errors: &[Value]) -> io::Result<()> {
        let warnings: Vec<_> =
            self.warnings.all().iter().map(|text| json!({ "message": text })).collect();
        let envelope = json!({
            "schema_version": SCHEMA_VERSION,
            "success": errors.is_empty(),
            "data": serde_json::to_value(data).map_err(io::Error::other)?,
            "errors": errors,
            "warnings": warnings,
        });
        self.json(&envelope)
    }

    /// Writes a grid of cells as a table or as CSV.
    pub(crate) fn grid(&self, grid: &Grid) -> io::Result<()> {
        match self.format() {
            // A table for programs keeps what is there.
            Format::Csv => self.bytes(grid.csv(io::stdout().is_terminal()).as_bytes()),
            Format::Table | Format::Json => self.bytes(format!("{}\n", grid.table()).as_bytes()),
        }
    }
}

/// What people were told that is no error.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Tells it, if it was not told before.
    pub(crate) fn add(&self, text: &str) {
        let text = shown(text);
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.contains(&text) {
            tell(&format!("warning: {text}"));
            told.push(text);
        }
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Rows under a header. Columns that hold numbers are aligned to the right.
#[derive(Debug)]
pub(crate) struct Grid {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    pub(crate) fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED).set_header(&self.header);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.add_rows(self.rows.iter().map(|row| row.iter().map(|cell| printable(cell))));
        for (index, column) in table.column_iter_mut().enumerate() {
            let is_number =
                |row: &Vec<String>| row[index].starts_with(|c: char| c.is_ascii_digit());
            let plain = |row: &Vec<String>| !row[index].starts_with("0x") && is_number(row);
            if self.rows.iter().all(plain) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.trim_fmt()
    }

    fn csv(&self, for_people: bool) -> String {
        let header = self.header.iter().map(|cell| csv_cell(cell)).collect::<Vec<_>>().join(",");
        let mut text = header + "\n";
        let cell = |cell: &String| match for_people {
            true => csv_cell(&printable(cell)),
            false => csv_cell(cell),
        };
        for row in &self.rows {
            text += &row.iter().map(cell).collect::<Vec<_>>().join(",");
            text.push('\n');
        }
        text
    }
}

/// Quoted where RFC 4180 asks for it.
fn csv_cell(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

/// Bytes for people: binary units.
pub(crate) fn human_bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1 << 10 {
        return format!("{bytes} B");
    }
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::{Grid, csv_cell, human_bytes};

    #[test]
    fn bytes_are_scaled() {
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(3 << 40), "3.0 TiB");
    }

    #[test]
    fn what_others_named_moves_no_cursor() {
        let mut grid = Grid::new(&["name"]);
        grid.row(vec!["a\u{1b}[2J\n\u{9b}b, \"c\" \u{e9}".into()]);
        let table = grid.table();
        assert!(table.contains("a\\u{1b}[2J\\n\\u{9b}b, \"c\" \u{e9}"), "{table}");
        // A table for programs keeps what is there.
        assert!(grid.csv(false).contains('\u{1b}'));
        assert_eq!(grid.csv(true).matches(char::is_control).count(), 2);
    }

    #[test]
    fn cells_are_quoted_where_need_be() {
        assert_eq!(csv_cell("plain"), "plain");
        assert_eq!(csv_cell("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
