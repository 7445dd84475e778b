//! How the command speaks: tables and bars, colours, the JSON envelope, and how it ends.

mod answer;
mod color;
pub(crate) mod ending;
mod format;
mod grid;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod terminal;
pub(crate) mod usage;

pub(crate) use self::answer::{Answer, Speech};
pub(crate) use self::color::Color;
pub(crate) use self::format::Format;
pub(crate) use self::grid::{Grid, counted, human_bytes};
pub(crate) use self::output::Output;
