//! How a command ends: what is said of an error, and the exit code.

use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::panic;

use serde_json::json;

use super::color::Colors;
use super::format::Format;
use super::output::Output;
use super::terminal::{printable, shown};
use crate::failure::{Exit, Failure};
use crate::hints::{exit_of, hint_of};

/// What the user sees of an error.
struct ErrorReport {
    what: String,
    details: Vec<String>,
    causes: Vec<String>,
    hint: String,
    exit: Exit,
}

impl ErrorReport {
    fn of(error: &anyhow::Error, verb: &str) -> Self {
        let mut lines: Vec<String> = Vec::new();
        for cause in error.chain() {
            let line = shown(&cause.to_string());
            // Many errors end with the text of their cause.
            if !lines.last().is_some_and(|above| above.contains(&line)) {
                lines.push(line);
            }
        }
        let what = lines.remove(0);
        let hint = error.chain().find_map(hint_of);
        let hint = hint.unwrap_or_else(|| format!("spinney {verb} --help shows what it takes"));
        let exit = error.chain().find_map(exit_of).unwrap_or(Exit::Error);
        let failures = error.chain().filter_map(|cause| cause.downcast_ref::<Failure>());
        let details = failures.flat_map(|failure| &failure.details);
        let details = details.map(|line| shown(line)).collect();
        Self { what, details, causes: lines, hint: shown(&hint), exit }
    }
}

/// Says how the command ended, and answers with what.
pub(crate) fn finish(outcome: anyhow::Result<Exit>, output: &Output) -> Exit {
    let outcome = outcome.and_then(|exit| {
        if exit == Exit::Interrupted && output.reports() && output.format() == Format::Json {
            output.interrupted()?;
        }
        output.finish()?;
        Ok(exit)
    });
    let error = match outcome {
        Ok(exit) => return exit,
        Err(error) if is_broken_pipe(&error) => return Exit::Ok,
        Err(error) => error,
    };
    let mut report = ErrorReport::of(&error, output.verb());
    report.details.extend(of_environment(&report));
    let Colors { red, cyan, plain } = output.colors();
    let mut text = format!("{red}error:{plain} {}\n", report.what);
    for line in &report.details {
        text += &format!("  {line}\n");
    }
    for cause in &report.causes {
        text += &format!("  because: {cause}\n");
    }
    text += &format!("{cyan}hint:{plain} {}\n", report.hint);
    // Where nobody listens there is nobody to tell.
    let _ = io::stderr().write_all(text.as_bytes());
    // Verbs that report do so in an envelope also when they fail; bare documents have none.
    let fitting = if output.reports() { Some(output.format()) } else { None };
    if !output.is_bare() && output.asked().or(fitting) == Some(Format::Json) {
        let ErrorReport { what, details, causes, hint, .. } = &report;
        let error = json!({ "message": what, "details": details, "causes": causes, "hint": hint });
        let _ = match report.exit {
            Exit::Interrupted => output.interrupted(),
            _ => output.failed(error),
        };
        let _ = output.finish();
    }
    report.exit
}

/// What the environment said that an error names, and no word of the command does.
fn of_environment(report: &ErrorReport) -> Option<String> {
    let words: Vec<_> = std::env::args().collect();
    let said = std::env::vars().filter(|(name, value)| {
        // A word of its own that is long enough to be meant.
        name.starts_with("SPINNEY_") && value.len() > 2 && !words.iter().any(|w| w.contains(value))
    });
    let texts: Vec<_> = [&report.what].into_iter().chain(&report.causes).collect();
    let mut named =
        said.filter(|(_, value)| texts.iter().any(|text| text.contains(value.as_str())));
    named.next().map(|(name, value)| shown(&format!("the environment says {name}={value}")))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let kind = match (cause.downcast_ref::<io::Error>(), cause.downcast_ref()) {
            (Some(error), _) => Some(error.kind()),
            // JSON that is streamed wraps what the stream says.
            (None, Some(error)) => serde_json::Error::io_error_kind(error),
            (None, None) => None,
        };
        kind == Some(ErrorKind::BrokenPipe)
    })
}

/// A panic is a bug, and says so in the words of this program. Those that the store catches from a
/// damaged file are silent.
pub(crate) fn quieten_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let what = printable(info.payload_as_str().unwrap_or("no message"));
        let bold = if io::stderr().is_terminal() { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
        let text = format!(
            "{}error:{} a bug in spinney: {what} ({place})\nhint: please report it with the \
             command \
             that led to it\n",
            bold.0, bold.1
        );
        let _ = io::stderr().write_all(text.as_bytes());
    }));
    spinney_store::quiet_panics();
}
