//! What goes to standard output: tables, CSV, the JSON envelope, bare lines.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clap::ArgMatches;
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::{Answer, Data, Part, Speech};
use super::color::{Color, Colors};
use super::format::Format;
use super::grid::{Grid, width};
use super::terminal::{printable, printable_json, shown, tell};
use crate::failure::Exit;
use crate::out_file::OutFile;

/// The version of the envelope and of what verbs put into it.
const SCHEMA_VERSION: u32 = 1;

/// What was asked of the report, whichever the verb.
#[derive(Debug, Default)]
pub(crate) struct Request {
    /// How the verb is written, for hints: `db info`.
    pub(crate) verb: String,
    pub(crate) format: Option<Format>,
    /// Whether the verb takes --format at all.
    has_format: bool,
    pub(crate) full: bool,
    pub(crate) out: Option<PathBuf>,
}

impl Request {
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
            has_format: has_json,
            verb,
            full: flag("full"),
            out: at.try_get_one("report_out").ok().flatten().cloned(),
        }
    }
}

/// Standard output, and how this run speaks.
#[derive(Debug)]
pub(crate) struct Output {
    asked: Request,
    speech: Speech,
    /// What is to be in the file of --out.
    kept: Mutex<Vec<u8>>,
    /// Whether an envelope was written: there is one a run.
    enveloped: AtomicBool,
    quiet: bool,
    colors: Colors,
    warnings: Warnings,
    /// The whole command line.
    command: fn() -> clap::Command,
}

impl Output {
    pub(crate) fn new(
        asked: Request,
        speech: Speech,
        (quiet, color): (bool, Color),
        command: fn() -> clap::Command,
    ) -> Self {
        debug_assert_eq!(
            asked.has_format,
            speech != Speech::Documents,
            "--format is of all that do not print documents"
        );
        Self {
            asked,
            speech,
            kept: Mutex::default(),
            enveloped: AtomicBool::new(false),
            quiet,
            colors: Colors::of(color),
            warnings: Warnings::default(),
            command,
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
        self.speech == Speech::Report
    }

    /// Whether the verb prints bare documents: then an error is told on standard error alone, and a
    /// file of --out stays as it was.
    pub(crate) fn is_bare(&self) -> bool {
        self.speech == Speech::Documents
    }

    /// The whole command line, for verbs that write about it.
    pub(crate) fn command(&self) -> clap::Command {
        (self.command)()
    }

    /// How the verb is written.
    pub(crate) fn verb(&self) -> &str {
        &self.asked.verb
    }

    pub(crate) fn quiet(&self) -> bool {
        self.quiet
    }

    /// The colours of what is said of errors.
    pub(crate) fn colors(&self) -> Colors {
        self.colors
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

    /// Prints what a verb answers, in the form that was asked for.
    pub(crate) fn answer(&self, answer: Answer) -> anyhow::Result<Exit> {
        let Answer { data, csv, shown, exit, is_stopped, next } = answer;
        let format = match self.speech {
            Speech::Lines => self.asked().unwrap_or(Format::Table),
            Speech::Report | Speech::Documents => self.format(),
        };
        match (data, format, csv) {
            (Data::Nothing, ..) => {}
            (Data::Documents, ..) => {
                debug_assert!(!self.reports(), "a verb that reports has an envelope");
            }
            (Data::Report(data), Format::Json, _) => self.enclose(&data, &[], is_stopped)?,
            (Data::Report(_), Format::Csv, Some(csv)) => self.grid(&csv)?,
            (Data::Report(_), ..) => {
                for part in &shown {
                    match part {
                        Part::Line(line) => self.line(line)?,
                        Part::Table(grid) => self.grid(grid)?,
                    }
                }
            }
        }
        next.iter().for_each(|next| self.tell(next));
        Ok(exit)
    }

    /// Writes the envelope of a run that failed.
    pub(crate) fn failed(&self, error: Value) -> io::Result<()> {
        self.enclose(&Value::Null, &[error], false)
    }

    /// Writes the envelope of a run that was interrupted, if none was written.
    pub(crate) fn interrupted(&self) -> io::Result<()> {
        match self.enveloped.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.enclose(&Value::Null, &[], true),
        }
    }

    fn enclose(&self, data: &Value, errors: &[Value], stopped: bool) -> io::Result<()> {
        self.enveloped.store(true, Ordering::Relaxed);
        self.json(&envelope(data, errors, &self.warnings.all(), stopped))
    }

    /// Writes a grid of cells as a table or as CSV.
    pub(crate) fn grid(&self, grid: &Grid) -> io::Result<()> {
        match self.format() {
            // A table for programs keeps what is there.
            Format::Csv => self.bytes(grid.csv(io::stdout().is_terminal()).as_bytes()),
            Format::Table | Format::Json if grid.is_empty() => self.line("nothing"),
            Format::Table | Format::Json => {
                self.bytes(format!("{}\n", grid.fit(width(), self.asked.full)).as_bytes())
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
