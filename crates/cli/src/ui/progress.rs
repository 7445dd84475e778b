//! How far a long run is: a bar on a terminal, a line every ten seconds elsewhere.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::grid::human_bytes;
use super::terminal::printable;

/// How often a line is written where there is no bar.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What is left is foretold from so long a time.
const PACE_OVER: Duration = Duration::from_secs(60);

/// How far apart moments are that the pace is taken from.
const PACE_EVERY: Duration = Duration::from_secs(1);

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
    pace: Pace,
    told: Instant,
    how: How,
}

/// How fast it goes, by the last minute.
#[derive(Debug, Default)]
struct Pace(VecDeque<(Instant, u64)>);

impl Pace {
    fn at(&mut self, now: Instant, done: u64) {
        if self.0.back().is_none_or(|(last, _)| now.duration_since(*last) >= PACE_EVERY) {
            self.0.push_back((now, done));
        }
        let is_old = |(moment, _): &(Instant, u64)| now.duration_since(*moment) > PACE_OVER;
        // One that is older says where the minute began.
        while self.0.get(1).is_some_and(is_old) {
            self.0.pop_front();
        }
    }

    /// How many a second, `done` being where it is now.
    fn rate(&self, now: Instant, done: u64) -> f64 {
        let Some((since, before)) = self.0.front() else { return 0.0 };
        let seconds = now.duration_since(*since).as_secs_f64().max(1e-9);
        done.saturating_sub(*before) as f64 / seconds
    }

    fn left(&self, now: Instant, done: u64, total: u64) -> Option<Duration> {
        let rate = self.rate(now, done);
        let seconds = total.saturating_sub(done) as f64 / rate;
        Duration::try_from_secs_f64(seconds).ok()
    }
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
        let mut pace = Pace::default();
        pace.at(now, 0);
        Self { what, unit, total, pace, told: now, how }
    }

    /// The run is at `done`; `at` says where that is.
    pub(crate) fn update(&mut self, done: u64, at: impl FnOnce() -> String) {
        if matches!(self.how, How::Silent) {
            return;
        }
        let now = Instant::now();
        self.pace.at(now, done);
        match &self.how {
            How::Silent => {}
            How::Bar(bar) => {
                bar.set_position(done);
                let left = self.total.and_then(|total| self.pace.left(now, done, total));
                let left = left.map(|left| format!("{} left", HumanDuration(left)));
                let said = [Some(at()).filter(|at| !at.is_empty()), left];
                let said: Vec<String> = said.into_iter().flatten().collect();
                bar.set_message(printable(&said.join(", ")));
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
        let now = Instant::now();
        let rate = self.pace.rate(now, done);
        let (number, unit) = match self.unit {
            Unit::Bytes => (human_bytes as fn(u64) -> String, ""),
            Unit::Blocks => ((|n| n.to_string()) as fn(u64) -> String, " blocks"),
            Unit::Keys => ((|n| n.to_string()) as fn(u64) -> String, " keys"),
        };
        let amount = |n: u64| number(n) + unit;
        let at = if at.is_empty() { String::new() } else { format!("{at}, ") };
        let total = self.total.filter(|total| *total > 0);
        let done_of = if total.is_some() { number(done) } else { amount(done) };
        let mut line = format!("{}: {at}{done_of}", self.what);
        if let Some(total) = total {
            let left = self.pace.left(now, done, total).unwrap_or(Duration::MAX);
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

/// Tells how far a run is that has several phases, a bar each.
#[derive(Debug)]
pub(crate) struct Phases<K> {
    quiet: bool,
    now: Option<(K, Progress)>,
}

impl<K: PartialEq> Phases<K> {
    pub(crate) const fn new(quiet: bool) -> Self {
        Self { quiet, now: None }
    }

    /// The run is in a phase, which has a verb, and a total of keys if that is known.
    pub(crate) fn update(
        &mut self,
        (phase, what, total): (K, &'static str, Option<u64>),
        done: u64,
        at: impl FnOnce() -> String,
    ) {
        if self.now.as_ref().is_none_or(|(known, _)| *known != phase) {
            let fresh = Progress::new(self.quiet, what, Unit::Keys, total);
            if let Some((_, old)) = self.now.replace((phase, fresh)) {
                old.finish();
            }
        }
        if let Some((_, progress)) = &mut self.now {
            progress.update(done, at);
        }
    }
}

impl<K> Drop for Phases<K> {
    fn drop(&mut self) {
        if let Some((_, progress)) = &self.now {
            progress.finish();
        }
    }
}

fn bar(what: &'static str, unit: Unit, total: Option<u64>) -> ProgressBar {
    let amounts = match unit {
        Unit::Bytes => "{bytes}/{total_bytes} ({bytes_per_sec})",
        Unit::Blocks | Unit::Keys => "{human_pos}/{human_len} ({rate})",
    };
    let template = match total {
        // `wide_msg` is cut off where the terminal ends. A bar of two lines would leave one behind
        // each time that it is drawn.
        Some(_) => format!("{what} [{{bar:20}}] {amounts} {{wide_msg}}"),
        None => format!("{what} {{spinner}} {{human_pos}} ({{rate}}) {{elapsed}} {{wide_msg}}"),
    };
    // The template is ours, so that a fault in it is one of ours: then the plain bar does.
    let style = ProgressStyle::with_template(&template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| {
            // Where it cannot be written there is no bar.
            let _ = write!(out, "{}", rate(state.per_sec()));
        })
        .progress_chars("=> ");
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    bar.with_style(style)
}

/// How many a second, with no more digits than tell anything.
fn rate(a_second: f64) -> String {
    let digits = if a_second < 10.0 { 1 } else { 0 };
    format!("{a_second:.digits$}/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_rates_say_nothing_twice() {
        assert_eq!([rate(678.6303), rate(0.4567), rate(12.0)], ["679/s", "0.5/s", "12/s"]);
        let made = Progress::new(true, "making a chain", Unit::Blocks, Some(3_000));
        let line = made.line(2_105, "");
        assert!(line.starts_with("making a chain: 2105 of 3000 blocks (70%), "), "{line}");
        let bytes =
            Progress::new(true, "replay", Unit::Bytes, Some(4 << 20)).line(1 << 20, "block 7");
        assert!(bytes.starts_with("replay: block 7, 1.0 MiB of 4.0 MiB (25%), "), "{bytes}");
        let keys = Progress::new(true, "load", Unit::Keys, None).line(5, "leaf 5");
        assert!(keys.starts_with("load: leaf 5, 5 keys, "), "{keys}");
    }

    #[test]
    fn what_is_left_follows_from_the_last_minute() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut pace = Pace::default();
        // An hour at one a second, then ten a second.
        for second in 0..=3_600 {
            pace.at(at(second), second);
        }
        for second in 1..=90 {
            pace.at(at(3_600 + second), 3_600 + 10 * second);
        }
        assert!((pace.rate(at(3_690), 4_500) - 10.0).abs() < 0.2);
        assert_eq!(pace.left(at(3_690), 4_500, 4_600).unwrap().as_secs(), 10);
        assert!(pace.0.len() < 70, "{} moments are kept", pace.0.len());
        // Nothing is foretold of what stands still.
        let mut still = Pace::default();
        still.at(start, 5);
        assert_eq!(still.left(at(9), 5, 10), None);
    }
}
