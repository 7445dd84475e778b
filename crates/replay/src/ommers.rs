//! Ommers: which blocks a block of proof of work may name as such.
//!
//! A block names at most two, each of them once. An ommer is a child of one of the block's
//! ancestors, from the second to the seventh generation before it; it is no ancestor itself, and no
//! block since named it. Its header has to be what its parent and the rules ask for; its seal is
//! not checked, and what it says of its body neither.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::VecDeque;

use alloy_consensus::Header;
use alloy_primitives::B256;

use crate::{
    config::ChainConfig,
    error::Check,
    rules::{Failure, check_fields, check_header, equal},
    source::ChainBlock,
};

const OMMER_COUNT_MAX: usize = 2;
const OMMER_DEPTH_MAX: u64 = 6;
/// How far back the parent of an ommer can be.
const GENERATIONS: usize = 7;

/// The newest blocks of proof of work, for the ommers of those that follow.
#[derive(Clone, Debug)]
pub(crate) enum Ancestors {
    /// Only hashes are known of them: then it is just the numbers of ommers that are checked.
    Hashes,
    /// These are known.
    Blocks(Blocks),
}

/// Blocks in order, as many as are needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    newest: VecDeque<Ancestor>,
    /// Whether the chain before them is not known, though it is there.
    begin_later: bool,
}

#[derive(Clone, Debug)]
struct Ancestor {
    header: Header,
    hash: B256,
    /// The hashes of its ommers.
    ommers: Vec<B256>,
}

/// Why ommers are not taken.
#[derive(Debug)]
pub(crate) enum Refusal {
    Bad(Failure),
    /// Their parents may lie before the first block that is known.
    Unknown,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Bad(failure)
    }
}

impl Ancestors {
    /// Those of the first block.
    pub(crate) fn genesis(header: &Header, hash: B256) -> Self {
        let mut blocks = Blocks::default();
        blocks.push(header, hash, &[]);
        Self::Blocks(blocks)
    }

    /// Those of a block that comes from the middle of a chain.
    pub(crate) fn later() -> Self {
        Self::Blocks(Blocks { newest: VecDeque::new(), begin_later: true })
    }

    /// Goes past a block.
    pub(crate) fn push(&mut self, block: &ChainBlock) {
        let header = &block.block.header;
        // Blocks of proof of stake have no ommers.
        if let Self::Blocks(blocks) = self
            && !header.difficulty.is_zero()
        {
            blocks.push(header, block.hash, &block.block.body.ommers);
        }
    }

    /// Refuses a block whose ommers are not what they should be.
    pub(crate) fn check(&self, config: &ChainConfig, block: &ChainBlock) -> Result<(), Refusal> {
        let (header, ommers) = (&block.block.header, &block.block.body.ommers);
        if ommers.len() > OMMER_COUNT_MAX {
            let expected = format!("at most {OMMER_COUNT_MAX}");
            return Err(Failure::new(Check::Ommers, expected, ommers.len()).into());
        }
        let mut before = Vec::with_capacity(ommers.len());
        for (index, ommer) in ommers.iter().enumerate() {
            check_depth(header, ommer)?;
            let hash = ommer.hash_slow();
            if before.contains(&hash) {
                return Err(named_twice(hash).into());
            }
            before.push(hash);
            if let Self::Blocks(blocks) = self {
                let parent = blocks.parent_of(ommer, hash, header)?;
                check_as_child(config, parent, ommer).map_err(|failure| Failure {
                    what: Check::Ommers,
                    expected: format!("ommer {index}: {}: {}", failure.what, failure.expected),
                    got: failure.got,
                })?;
            }
        }
        Ok(())
    }
}

impl Blocks {
    fn push(&mut self, header: &Header, hash: B256, ommers: &[Header]) {
        if self.newest.len() == GENERATIONS {
            self.newest.pop_front();
        }
        let ommers = ommers.iter().map(Header::hash_slow).collect();
        self.newest.push_back(Ancestor { header: header.clone(), hash, ommers });
    }

    /// The parent of an ommer that is kin and new.
    fn parent_of(&self, ommer: &Header, hash: B256, header: &Header) -> Result<&Header, Refusal> {
        if self.newest.iter().any(|ancestor| ancestor.hash == hash) {
            let got = format!("{hash}, an ancestor");
            return Err(Failure::new(Check::Ommers, "no ancestor", got).into());
        }
        if self.newest.iter().any(|ancestor| ancestor.ommers.contains(&hash)) {
            return Err(named_twice(hash).into());
        }
        let parent = self.newest.iter().find(|ancestor| ancestor.hash == ommer.parent_hash);
        match parent {
            Some(parent) if parent.hash != header.parent_hash => Ok(&parent.header),
            None if self.begin_later && self.newest.len() < GENERATIONS => Err(Refusal::Unknown),
            _ => {
                let expected = "a child of an ancestor before the parent";
                let got = format!("{hash}, a child of {}", ommer.parent_hash);
                Err(Failure::new(Check::Ommers, expected, got).into())
            }
        }
    }
}

fn named_twice(hash: B256) -> Failure {
    Failure::new(Check::Ommers, "each of them named once", format!("{hash} named again"))
}

/// Ommers are paid by how old they are.
fn check_depth(header: &Header, ommer: &Header) -> Result<(), Failure> {
    let depth = header.number.checked_sub(ommer.number);
    if depth.is_some_and(|depth| (1..=OMMER_DEPTH_MAX).contains(&depth)) {
        return Ok(());
    }
    let expected = format!("one of the {OMMER_DEPTH_MAX} numbers before");
    Err(Failure::new(Check::Ommers, expected, ommer.number))
}

fn check_as_child(config: &ChainConfig, parent: &Header, ommer: &Header) -> Result<(), Failure> {
    equal(Check::Number, parent.number.saturating_add(1), ommer.number)?;
    let fork = config.fork_by_number(ommer.number);
    check_fields(fork, ommer)?;
    check_header(config, fork, parent, ommer)
}
