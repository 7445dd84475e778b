//! A check of a block that did not hold.

use std::fmt::Display;

use crate::error::{BadBlock, Check};
use crate::source::ChainBlock;

/// A check that did not hold.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) what: Check,
    pub(crate) expected: String,
    pub(crate) got: String,
}

impl Failure {
    pub(crate) fn new(what: Check, expected: impl Display, got: impl Display) -> Self {
        Self { what, expected: expected.to_string(), got: got.to_string() }
    }

    /// Names the block that it is of.
    pub(crate) fn of(self, block: &ChainBlock) -> Box<BadBlock> {
        let Self { what, expected, got } = self;
        let (number, hash) = (block.block.header.number, block.hash);
        Box::new(BadBlock { number, hash, offset: block.offset, what, expected, got })
    }
}

/// Refuses `got` unless it is what is expected.
pub(crate) fn equal<T: PartialEq + Display>(
    what: Check,
    expected: T,
    got: T,
) -> Result<(), Failure> {
    if expected == got { Ok(()) } else { Err(Failure::new(what, expected, got)) }
}
