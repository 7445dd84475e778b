//! How far a long run is: a bar on a terminal, a line every ten seconds elsewhere.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::human_bytes;
use crate::terminal::printable;

/// How often a line is written where there is no bar.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Blocks,
    Bytes,
    Keys,
}

/// Tells on standard error how far a run is.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    unit: Unit,
    total: Option<u64>,
    started: Instant,
    told: Instant,
    how: How,
}

#[derive(Debug)]
enum How {
    Silent,
    Bar(ProgressBar),
    Lines,
}

impl Progress {
    /// `what` is the verb of the bar, `total` how many there are, if that is known.
    pub(crate) fn new(quiet: bool, what: &'static str, unit: Unit, total: Option<u64>) -> Self {
        let how = if quiet {
            How::Silent
        } else if io::stderr().is_terminal() {
            How::Bar(bar(what, unit, total))
        } else {
            How::Lines
        };
        let now = Instant::now();
        Self { what, unit, total, started: now, told: now, how }
    }

    /// The run is at `done`; `at` says where that is.
    pub(crate) fn update(&mut self, done: u64, at: impl FnOnce() -> String) {
        match &self.how {
            How::Silent => {}
            How::Bar(bar) => {
                bar.set_position(done);
                bar.set_message(printable(&at()));
            }
            How::Lines if self.told.elapsed() < LINE_EVERY => {}
            How::Lines => {
                self.told = Instant::now();
                let line = self.line(done, &printable(&at()));
                // Where nobody listens there is nobody to tell.
                let _ = writeln!(io::stderr(), "{line}");
            }
        }
    }

    fn line(&self, done: u64, at: &str) -> String {
        let seconds = self.started.elapsed().as_secs_f64().max(1e-9);
        let rate = done as f64 / seconds;
        let amount = |n: u64| match self.unit {
            Unit::Bytes => human_bytes(n),
            Unit::Blocks => format!("{n} blocks"),
            Unit::Keys => format!("{n} keys"),
        };
        let mut line = format!("{}: {at}, {}", self.what, amount(done));
        if let Some(total) = self.total.filter(|total| *total > 0) {
            let left = total.saturating_sub(done) as f64 / rate.max(1e-9);
            let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
            line += &format!(" of {} ({:.0}%)", amount(total), 100.0 * done as f64 / total as f64);
            line += &format!(", {}/s, {} left", amount(rate as u64), HumanDuration(left));
        } else {
            line += &format!(", {}/s", amount(rate as u64));
        }
        line
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        if let How::Bar(bar) = &self.how {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &'static str, unit: Unit, total: Option<u64>) -> ProgressBar {
    let amounts = match unit {
        Unit::Bytes => "{bytes}/{total_bytes} ({bytes_per_sec})",
        Unit::Blocks | Unit::Keys => "{human_pos}/{human_len} ({per_sec})",
    };
    let template = match total {
        Some(_) => format!("{what} [{{bar:30}}] {amounts} {{msg}} ETA {{eta}}"),
        None => format!("{what} {{spinner}} {{human_pos}} ({{per_sec}}) {{msg}} {{elapsed}}"),
    };
    // The template is ours, so that a fault in it is one of ours: then the plain bar does.
    let style = ProgressStyle::with_template(&template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    bar.with_style(style)
}
