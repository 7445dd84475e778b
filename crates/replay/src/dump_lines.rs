//! Dumps of raw trees and of sum trees: one entry a line, in the order of the tree.

use std::fmt::Display;
use std::io::{self, BufRead};

use alloy_primitives::B256;
use serde::Deserialize;
use spinney_tree::sum::{Leaf, path};

use crate::batch_line::{BatchLines, HexText};
use crate::sum_line::SumTotal;

/// Why a line of a dump was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpLineError {
    /// The dump could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The line is none of a dump.
    #[error("line {line}: {what}")]
    Line {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
}

fn refuse<R: BufRead>(lines: &BatchLines<R>, what: impl Display) -> DumpLineError {
    DumpLineError::Line { line: lines.number(), what: what.to_string() }
}

fn parse<T: for<'de> Deserialize<'de>, R: BufRead>(
    lines: &mut BatchLines<R>,
) -> Result<Option<T>, DumpLineError> {
    let parsed = lines.next_line()?.map(serde_json::from_slice).transpose();
    parsed.map_err(|error| refuse(lines, error))
}

/// A key and a value.
pub type DumpedEntry = (Vec<u8>, Vec<u8>);

/// The entries of a raw tree, as a dump has them: `{"key": "0x..", "value": "0x.."}` a line, in
/// order of their keys.
#[derive(Debug)]
pub struct EntryLines<R> {
    lines: BatchLines<R>,
    last: Option<Vec<u8>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryLine {
    key: HexText,
    value: HexText,
}

impl<R: BufRead> EntryLines<R> {
    /// Reads from the start of `input`.
    pub const fn new(input: R) -> Self {
        Self { lines: BatchLines::new(input), last: None }
    }

    /// The number of the line that was read last, from 1.
    pub const fn line(&self) -> u64 {
        self.lines.number()
    }

    /// The key and the value of the next entry.
    ///
    /// # Errors
    /// If the input cannot be read, or the line is none, or out of order.
    pub fn next_entry(&mut self) -> Result<Option<DumpedEntry>, DumpLineError> {
        let Some(EntryLine { key, value }) = parse(&mut self.lines)? else { return Ok(None) };
        if self.last.as_ref().is_some_and(|last| *last >= key.0) {
            return Err(refuse(&self.lines, "its key does not come after the one before"));
        }
        if value.0.is_empty() {
            return Err(refuse(&self.lines, "its value is empty"));
        }
        self.last = Some(key.0.clone());
        Ok(Some((key.0, value.0)))
    }
}

/// The leaves of a sum tree, as a dump has them: `{"key": "0x..", "value": "0x..", "sum": "5"}` a
/// line, in the order of the tree.
#[derive(Debug)]
pub struct LeafLines<R> {
    lines: BatchLines<R>,
    last: Option<[u8; 32]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeafLine {
    key: B256,
    value: HexText,
    sum: SumTotal,
}

impl<R: BufRead> LeafLines<R> {
    /// Reads from the start of `input`.
    pub const fn new(input: R) -> Self {
        Self { lines: BatchLines::new(input), last: None }
    }

    /// Reads to the end, and refuses what no tree would take.
    ///
    /// # Errors
    /// If the input cannot be read, a line is none, or out of order, or the sums overflow.
    pub fn check(mut self) -> Result<(), DumpLineError> {
        let mut sum = 0_u64;
        while let Some((_, leaf)) = self.leaf()? {
            let what = "integer overflow: with its leaf the sums come to more than 2^64 - 1";
            sum = sum.checked_add(leaf.sum).ok_or_else(|| refuse(&self.lines, what))?;
        }
        Ok(())
    }

    fn leaf(&mut self) -> Result<Option<([u8; 32], Leaf)>, DumpLineError> {
        let Some(LeafLine { key, value, sum }) = parse(&mut self.lines)? else { return Ok(None) };
        let leaf = Leaf { value: value.0, sum: sum.0 };
        if leaf.is_empty() {
            return Err(refuse(&self.lines, "its leaf is empty"));
        }
        let at = path(&key);
        if self.last.is_some_and(|last| last >= at) {
            let what = "its key does not come after the one before, in the order of the tree";
            return Err(refuse(&self.lines, what));
        }
        self.last = Some(at);
        Ok(Some((key.0, leaf)))
    }
}

impl<R: BufRead> Iterator for LeafLines<R> {
    type Item = Result<([u8; 32], Leaf), DumpLineError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.leaf().transpose()
    }
}
