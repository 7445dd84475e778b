//! One contender in a process of its own: filled when it starts, then a commit for each line that
//! it reads.

use std::io::{BufRead, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use spinney_store::{AnyStore, LogStore, RedbStore};
use spinney_tree::{Batch, HashFunction, PageStore, Scheme, Tree, TreeId, mpt::Mpt, pbt::Pbt};

use crate::Error;
use crate::inputs::{self, Leaf};
use crate::meter::{Cost, Meter};

/// Memory for pages: half of it is the store's, where that keeps its own.
const CACHE_MIB: usize = 512;
/// Leaves that are put in at once.
const BATCH: usize = 100_000;
const TREE: TreeId = TreeId(1);

/// Who measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    Mpt,
    MptLog,
    Pbt,
    PbtLog,
    #[cfg(feature = "commonware")]
    Commonware,
    Nomt,
}

impl Contender {
    /// Ratios are to the last one.
    pub const ALL: &[Self] = &[
        Self::Mpt,
        Self::MptLog,
        Self::Pbt,
        Self::PbtLog,
        #[cfg(feature = "commonware")]
        Self::Commonware,
        Self::Nomt,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Mpt => "mpt over redb",
            Self::MptLog => "mpt over the log",
            Self::Pbt => "pbt:blake3 over redb",
            Self::PbtLog => "pbt:blake3 over the log",
            #[cfg(feature = "commonware")]
            Self::Commonware => {
                "commonware (current ordered, blake3; its root depends on the order of operations)"
            }
            Self::Nomt => "nomt",
        }
    }

    pub const fn word(self) -> &'static str {
        match self {
            Self::Mpt => "mpt",
            Self::MptLog => "mpt-log",
            Self::Pbt => "pbt",
            Self::PbtLog => "pbt-log",
            #[cfg(feature = "commonware")]
            Self::Commonware => "commonware",
            Self::Nomt => "nomt",
        }
    }

    /// Bytes of a value: those of the binary tree have 32, and peers are asked for both.
    pub const fn takes(self, value_bytes: usize) -> bool {
        match self {
            Self::Mpt | Self::MptLog => value_bytes == inputs::VALUE_BYTES,
            Self::Pbt | Self::PbtLog => value_bytes == 32,
            #[cfg(feature = "commonware")]
            Self::Commonware => true,
            Self::Nomt => true,
        }
    }
}

/// What a commit cost, and what the system was given to write.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Answer {
    pub cost: Cost,
    /// What the storage layer was told to write (`write_bytes` of /proc/self/io).
    pub written: u64,
}

/// A set of keys and values that commits are made to.
pub(crate) trait Subject {
    /// Changes values, and returns once that is durable.
    fn commit(&mut self, changes: &[Leaf]) -> Result<(), Error>;
    fn value(&self, key: &[u8; 32]) -> Result<Option<Vec<u8>>, Error>;
}

/// Fills a new store in a folder, says so by a line, and answers: a round is a commit of `size`
/// changes. At the end it reads every hundredth change again.
pub fn serve(
    contender: Contender,
    folder: &Path,
    (leaves, size, value_bytes): (usize, usize, usize),
) -> Result<(), Error> {
    let leaves = inputs::leaves(leaves);
    let mut subject = open(contender, folder, (leaves.len(), value_bytes))?;
    leaves.chunks(BATCH).try_for_each(|part| subject.commit(part))?;
    let meter = Meter::new();
    let mut out = std::io::stdout().lock();
    writeln!(out, "filled")?;
    for line in std::io::stdin().lock().lines() {
        let changes = inputs::changes(&leaves, size, line?.trim().parse()?);
        let before = written();
        let (done, cost) = meter.run(|| subject.commit(&changes));
        done?;
        let answer = Answer { cost, written: written() - before };
        for (key, value) in changes.iter().step_by(100) {
            if subject.value(key)?.as_deref() != Some(&value[..value_bytes]) {
                return Err(format!("{} does not hold what it committed", contender.name()).into());
            }
        }
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    }
    Ok(())
}

fn open(
    contender: Contender,
    folder: &Path,
    (leaves, value_bytes): (usize, usize),
) -> Result<Box<dyn Subject>, Error> {
    let pbt = Pbt { hash: HashFunction::Blake3 };
    Ok(match contender {
        Contender::Mpt => Box::new(Ours::open(Mpt, redb(folder)?, value_bytes)?),
        Contender::MptLog => Box::new(Ours::open(Mpt, log(folder)?, value_bytes)?),
        Contender::Pbt => Box::new(Ours::open(pbt, redb(folder)?, value_bytes)?),
        Contender::PbtLog => Box::new(Ours::open(pbt, log(folder)?, value_bytes)?),
        #[cfg(feature = "commonware")]
        Contender::Commonware => {
            Box::new(crate::commonware_side::Commonware::open(folder, CACHE_MIB, value_bytes)?)
        }
        Contender::Nomt => {
            Box::new(crate::nomt_side::Nomt::open(folder, CACHE_MIB, (leaves, value_bytes))?)
        }
    })
}

fn redb(folder: &Path) -> Result<AnyStore, Error> {
    Ok(RedbStore::create(folder, (CACHE_MIB / 2) << 20)?.into())
}

fn log(folder: &Path) -> Result<AnyStore, Error> {
    Ok(LogStore::create(folder)?.into())
}

struct Ours<S: Scheme> {
    store: AnyStore,
    tree: Tree<S>,
    value_bytes: usize,
}

impl<S: Scheme> Ours<S> {
    fn open(scheme: S, store: AnyStore, value_bytes: usize) -> Result<Self, Error> {
        let cache = (CACHE_MIB / 2) << 20;
        let tree = Tree::open(scheme, TREE, &store.snapshot()?, cache)?;
        Ok(Self { store, tree, value_bytes })
    }
}

impl<S: Scheme> Subject for Ours<S> {
    fn commit(&mut self, changes: &[Leaf]) -> Result<(), Error> {
        let mut batch = Batch::new();
        for (key, value) in changes {
            batch.put(key, &value[..self.value_bytes]);
        }
        let pending = self.tree.prepare(&self.store.snapshot()?, None, batch)?;
        self.tree.commit(&self.store, &pending, None)?;
        Ok(())
    }

    fn value(&self, key: &[u8; 32]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.tree.get(&self.store.snapshot()?, None, key)?.map(|value| value.to_vec()))
    }
}

/// A line of /proc/self/io; 0 where there is no such file.
fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let field = io.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    field.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
}
