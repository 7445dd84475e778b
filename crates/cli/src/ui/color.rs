//! Colours on standard error.

use std::env;
use std::io::{self, IsTerminal as _};

use clap::ValueEnum;

/// When there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

/// The codes of the colours, or nothing where there are none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Colors {
    pub(crate) red: &'static str,
    pub(crate) cyan: &'static str,
    pub(crate) plain: &'static str,
}

impl Colors {
    pub(crate) fn of(when: Color) -> Self {
        let has_colors = match when {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                !refused && io::stderr().is_terminal()
            }
        };
        match has_colors {
            true => Self { red: "\x1b[1;31m", cyan: "\x1b[1;36m", plain: "\x1b[0m" },
            false => Self { red: "", cyan: "", plain: "" },
        }
    }
}
