//! What goes to standard output: tables, CSV, the JSON envelope, bare lines.

use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clap::{ArgMatches, ValueEnum};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::{Value, json};

use crate::out_file::OutFile;
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

/// When there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

/// What was asked of the report, whichever the verb.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// How the verb is written, for hints: `db info`.
    pub(crate) verb: String,
    pub(crate) format: Option<Format>,
    /// Whether the verb reports, and so in an envelope also where it fails; bare documents have
    /// none.
    pub(crate) reports: bool,
    /// Whether the verb prints bare documents, of which --out takes no envelope.
    pub(crate) bare: bool,
    pub(crate) full: bool,
    pub(crate) out: Option<PathBuf>,
}

/// Verbs that print lines, as long as nobody asks for JSON.
const LINES: [&str; 5] = ["state-root", "verify", "witness check", "vectors", "demo"];

impl Asked {
    pub(crate) fn of(matches: &ArgMatches) -> Self {
        let (mut words, mut at) = (Vec::new(), matches);
        while let Some((word, below)) = at.subcommand() {
            words.push(word);
            at = below;
        }
        let verb = words.join(" ");
        // A verb has these, or it has not. That it has not is an error in debug builds alone.
        let given = |name| at.try_get_one::<bool>(name).ok().flatten().copied();
        let flag = |name| given(name).unwrap_or(false);
        let has_json = given("json").is_some();
        let asked = at.try_get_one("format").ok().flatten().copied();
        let json = flag("json") || flag("events");
        Self {
            format: if json { Some(Format::Json) } else { asked },
            reports: has_json && !LINES.contains(&&*verb),
            bare: !has_json && !json && asked.is_none(),
            verb,
            full: flag("full"),
            out: at.try_get_one("report_out").ok().flatten().cloned(),
        }
    }
}

/// Standard output, and how this run speaks.
#[derive(Debug)]
pub(crate) struct Output {
    asked: Asked,
    /// What is to be in the file of --out.
    kept: Mutex<Vec<u8>>,
    /// Whether an envelope was written: there is one a run.
    enveloped: AtomicBool,
    quiet: bool,
    colored: bool,
    warnings: Warnings,
}

impl Output {
    pub(crate) fn new(asked: Asked, quiet: bool, color: Color) -> Self {
        let colored = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                !refused && io::stderr().is_terminal()
            }
        };
        Self {
            asked,
            kept: Mutex::default(),
            enveloped: AtomicBool::new(false),
            quiet,
            colored,
            warnings: Warnings::default(),
        }
    }

    /// The format that was asked for.
    pub(crate) fn asked(&self) -> Option<Format> {
        self.asked.format.or(self.asked.out.is_some().then_some(Format::Json))
    }

    /// The format of a report: a table for people, JSON for programs, unless told.
    pub(crate) fn format(&self) -> Format {
        let fitting = if io::stdout().is_terminal() { Format::Table } else { Format::Json };
        self.asked().unwrap_or(fitting)
    }

    /// Whether the verb reports: in an envelope, if it is to be JSON.
    pub(crate) fn reports(&self) -> bool {
        self.asked.reports
    }

    /// Whether the verb prints bare documents: then an error is told on standard error alone, and a
    /// file of --out stays as it was.
    pub(crate) fn is_bare(&self) -> bool {
        self.asked.bare
    }

    /// How the verb is written.
    pub(crate) fn verb(&self) -> &str {
        &self.asked.verb
    }

    pub(crate) fn quiet(&self) -> bool {
        self.quiet
    }

    pub(crate) fn colored(&self) -> bool {
        self.colored
    }

    /// Writes bytes of the report: at once, or into the file of --out in the end.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> io::Result<()> {
        if self.asked.out.is_some() {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            return Ok(());
        }
        self.stream(bytes)
    }

    /// Ends: now the file of --out is there, if there is anything in it.
    pub(crate) fn finish(&self) -> anyhow::Result<()> {
        let kept = std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        if kept.is_empty() {
            return Ok(());
        }
        let mut file = OutFile::begin(self.asked.out.as_deref())?;
        file.write_all(&kept)?;
        Ok(file.finish()?)
    }

    /// Writes bytes to standard output.
    fn stream(&self, bytes: &[u8]) -> io::Result<()> {
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
        self.bytes(json_line(document)?.as_bytes())
    }

    /// Writes an event as a line of JSON, at once.
    pub(crate) fn event(&self, event: &Value) -> io::Result<()> {
        self.stream(json_line(event)?.as_bytes())
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
        self.enclose(data, errors, false)
    }

    /// Writes the envelope of a run that was interrupted, if none was written.
    pub(crate) fn interrupted(&self, data: &impl Serialize) -> io::Result<()> {
        if self.enveloped.load(Ordering::Relaxed) { Ok(()) } else { self.enclose(data, &[], true) }
    }

    fn enclose(&self, data: &impl Serialize, errors: &[Value], stopped: bool) -> io::Result<()> {
        self.enveloped.store(true, Ordering::Relaxed);
        let data = serde_json::to_value(data).map_err(io::Error::other)?;
        self.json(&envelope(&data, errors, &self.warnings.all(), stopped))
    }

    /// Writes a grid of cells as a table or as CSV.
    pub(crate) fn grid(&self, grid: &Grid) -> io::Result<()> {
        match self.format() {
            // A table for programs keeps what is there.
            Format::Csv => self.bytes(grid.csv(io::stdout().is_terminal()).as_bytes()),
            Format::Table | Format::Json if grid.rows.is_empty() => self.line("nothing"),
            Format::Table | Format::Json => {
                let width = if self.asked.full { usize::MAX } else { width() };
                self.bytes(format!("{}\n", grid.fit(width)).as_bytes())
            }
        }
    }
}

/// The envelope around a verb's data.
pub(crate) fn envelope(data: &Value, errors: &[Value], warned: &[String], stopped: bool) -> Value {
    let warnings: Vec<_> = warned.iter().map(|text| json!({ "message": text })).collect();
    json!({
        "schema_version": SCHEMA_VERSION,
        "success": errors.is_empty() && !stopped,
        "interrupted": stopped,
        "data": data,
        "errors": errors,
        "warnings": warnings,
    })
}

fn json_line(document: &impl Serialize) -> io::Result<String> {
    Ok(format!("{}\n", printable_json(&serde_json::to_string(document)?)))
}

/// Columns that a table may take: those of the terminal, or 80.
fn width() -> usize {
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

    /// The table in so many columns: as it is; with short hashes; a line a field; or, at worst,
    /// with cells of several lines.
    fn fit(&self, width: usize) -> String {
        let fits = |text: &str| text.lines().all(|line| line.chars().count() <= width);
        let cells = |row: &Vec<String>| row.iter().map(|cell| shortened(cell)).collect();
        let short =
            || Self { header: self.header.clone(), rows: self.rows.iter().map(cells).collect() };
        let plain = self.table(None);
        if fits(&plain) {
            return plain;
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
        table.load_style(presets::UTF8_FULL_CONDENSED).set_header(&self.header);
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
/// A value of a report's field: in a table for people bytes have units.
pub(crate) fn field(name: &str, value: &Value, format: Format) -> String {
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
            let table = grid.fit(width);
            assert!(table.lines().all(|line| line.chars().count() <= width), "{table}");
            assert!(table.contains("0xabababab..abababab") && table.contains("verkle"), "{table}");
        }
        assert_eq!(grid.fit(usize::MAX).lines().count(), 6);
        assert!(grid.fit(usize::MAX).contains(&hash));
        grid.rows.pop();
        assert_eq!(grid.fit(80).lines().count(), 5, "{}", grid.fit(80));
        assert!(grid.fit(120).contains(&hash));
    }

    #[test]
    fn cells_are_quoted_where_need_be() {
        assert_eq!(csv_cell("plain"), "plain");
        assert_eq!(csv_cell("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
