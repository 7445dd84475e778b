//! Rows under a header, as tables that fit where they are shown and as CSV.

use std::env;
use std::io::{self, IsTerminal as _};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::Value;
pub(crate) use spinney_bench::human_bytes;

use super::format::Format;
use super::terminal::printable;

/// So many of what has a name for one and a name for many.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Rows under a header. Columns that hold numbers are aligned to the right.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    pub(crate) fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new() }
    }

    pub(crate) const fn of(header: Vec<&'static str>, rows: Vec<Vec<String>>) -> Self {
        Self { header, rows }
    }

    /// A row a record: its fields of these names, which are written with spaces in a header.
    pub(crate) fn of_records<'v>(
        names: &[&'static str],
        records: impl IntoIterator<Item = &'v Value>,
    ) -> Self {
        let cell = |record: &Value, name: &str| match &record[name.replace(' ', "_")] {
            Value::Null => String::new(),
            value => field(name, value, Format::Csv),
        };
        let row = |record: &Value| names.iter().map(|name| cell(record, name)).collect();
        Self { header: names.to_vec(), rows: records.into_iter().map(row).collect() }
    }

    /// A row a field, whose parts have rows of their own.
    pub(crate) fn of_fields(data: &Value, format: Format) -> Self {
        let mut grid = Self::new(&["what", "is"]);
        let mut row = |name: &str, value: &Value| {
            grid.row(vec![name.replace('_', " "), field(name, value, format)]);
        };
        for (name, value) in data.as_object().into_iter().flatten() {
            match value.as_object() {
                None => row(name, value),
                Some(parts) => {
                    parts.iter().for_each(|(part, value)| row(&format!("{name} {part}"), value));
                }
            }
        }
        grid
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// The table in so many columns: as it is; with short hashes; a line a field; or, at worst,
    /// with cells of several lines. A full one is as it is, or has a line a field.
    pub(super) fn fit(&self, width: usize, is_full: bool) -> String {
        let fits = |text: &str| text.lines().all(|line| line.chars().count() <= width);
        let cells = |row: &Vec<String>| row.iter().map(|cell| shortened(cell)).collect();
        let short =
            || Self { header: self.header.clone(), rows: self.rows.iter().map(cells).collect() };
        let plain = self.table(None);
        if fits(&plain) {
            return plain;
        }
        if is_full {
            return self.vertical().table(None);
        }
        let short = short();
        let tries = [short.table(None), short.vertical().table(None)];
        let narrow = u16::try_from(width).unwrap_or(u16::MAX);
        tries
            .into_iter()
            .find(|text| fits(text))
            .unwrap_or_else(|| short.vertical().table(Some(narrow)))
    }

    /// Rows below each other, a line a field. What has two columns is that already.
    fn vertical(&self) -> Self {
        if self.header.len() <= 2 {
            return Self { header: self.header.clone(), rows: self.rows.clone() };
        }
        let mut grid = Self::new(&["", ""]);
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                grid.row(vec![String::new(), String::new()]);
            }
            for (name, cell) in self.header.iter().zip(row) {
                grid.row(vec![(*name).to_owned(), cell.clone()]);
            }
        }
        grid
    }

    fn table(&self, width: Option<u16>) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        // Rows below each other have no names above them.
        if self.header.iter().any(|name| !name.is_empty()) {
            table.set_header(&self.header);
        }
        table.set_content_arrangement(ContentArrangement::Disabled);
        if let Some(width) = width {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
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

    pub(super) fn csv(&self, for_people: bool) -> String {
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

/// A value of a report's field: in a table for people bytes have units.
fn field(name: &str, value: &Value, format: Format) -> String {
    match (value.as_u64(), value.as_str()) {
        (Some(bytes), _)
            if format == Format::Table && name.split(['_', ' ']).any(|it| it == "bytes") =>
        {
            human_bytes(bytes)
        }
        (_, Some(text)) => text.to_owned(),
        _ => value.to_string(),
    }
}

/// Columns that a table may take: those of the terminal, or 80.
pub(super) fn width() -> usize {
    let terminal = io::stdout().is_terminal().then(terminal_size).flatten();
    terminal.map_or(COLUMNS, |columns| columns.max(COLUMNS_MIN))
}

/// What a table takes where nobody says how much there is.
const COLUMNS: usize = 80;
/// Below this nothing is legible anyway.
const COLUMNS_MIN: usize = 40;
/// A hash has so many characters at least, its `0x` included.
const HASH_MIN: usize = 42;

fn terminal_size() -> Option<usize> {
    let told = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    told.or_else(|| Table::new().width().map(usize::from))
}

/// The hashes of a cell, each by its two ends.
fn shortened(cell: &str) -> String {
    let short = |word: &str| {
        let digits = word.strip_prefix("0x").unwrap_or_default();
        let is_hash = word.len() >= HASH_MIN && digits.bytes().all(|b| b.is_ascii_hexdigit());
        if is_hash { format!("{}..{}", &word[..10], &word[word.len() - 8..]) } else { word.into() }
    };
    cell.split(' ').map(short).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{Grid, csv_cell};

    #[test]
    fn what_others_named_moves_no_cursor() {
        let mut grid = Grid::new(&["name"]);
        grid.row(vec!["a\u{1b}[2J\n\u{9b}b, \"c\" \u{e9}".into()]);
        let table = grid.table(None);
        assert!(table.contains("a\\u{1b}[2J\\n\\u{9b}b, \"c\" \u{e9}"), "{table}");
        // A table for programs keeps what is there.
        assert!(grid.csv(false).contains('\u{1b}'));
        assert_eq!(grid.csv(true).matches(char::is_control).count(), 2);
    }

    #[test]
    fn tables_fit_where_they_are_shown() {
        let hash = format!("0x{}", "ab".repeat(32));
        let mut grid = Grid::new(&["tree", "block", "root", "place"]);
        grid.row(vec!["mpt".into(), "60".into(), hash.clone(), "a/place of some length".into()]);
        grid.row(vec!["verkle".into(), "60".into(), hash.clone(), "b ".repeat(70)]);
        for width in [60, 80, 200] {
            let table = grid.fit(width, false);
            assert!(table.lines().all(|line| line.chars().count() <= width), "{table}");
            assert!(table.contains("0xabababab..abababab") && table.contains("verkle"), "{table}");
        }
        assert_eq!(grid.fit(usize::MAX, false).lines().count(), 6);
        assert!(grid.fit(usize::MAX, false).contains(&hash));
        let full = grid.fit(80, true);
        assert!(full.contains(&hash) && !full.contains(".."), "{full}");
        assert_eq!(full.lines().count(), 2 + 2 * 4 + 1, "{full}");
        grid.rows.pop();
        assert_eq!(grid.fit(80, false).lines().count(), 5, "{}", grid.fit(80, false));
        assert!(grid.fit(120, false).contains(&hash));
    }

    #[test]
    fn cells_are_quoted_where_need_be() {
        assert_eq!(csv_cell("plain"), "plain");
        assert_eq!(csv_cell("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
