//! Ctrl-C: the first one asks a run to end after the block it is at, the second one ends it at
//! once.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use spinney_postgres::masked;

/// What shells report of a process that Ctrl-C ended.
const KILLED_BY_INTERRUPT: i32 = 130;

/// Whether somebody wants the run to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Listens to Ctrl-C and to the signal that asks a process to end.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag still down.
            let asked = Arc::clone(&interrupt.asked);
            flag::register_conditional_shutdown(signal, KILLED_BY_INTERRUPT, asked)
                .context("listening to Ctrl-C")?;
            flag::register(signal, Arc::clone(&interrupt.asked)).context("listening to Ctrl-C")?;
        }
        Ok(interrupt)
    }

    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.asked
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether a run goes on, for those who ask it so.
    pub(crate) fn goes_on(&self) -> ControlFlow<()> {
        if self.is_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Ends the run as Ctrl-C would.
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }
}

/// This very command, as a shell takes it, but with `***` in place of passwords.
pub(crate) fn this_command() -> String {
    let words = std::env::args_os().skip(1).map(|word| quoted(&masked(&word.to_string_lossy())));
    ["spinney".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("--db=/tmp/x"), "--db=/tmp/x");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
