//! Test data that lies beside the repository, and is not part of it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use spinney_replay::{ChainBlock, ChainReader, Genesis};

/// A file of the shared data; where it is missing the test says so and is to return.
pub(crate) fn read(name: &str) -> Option<Vec<u8>> {
    let path = folder().join(name);
    match fs::read(&path) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            println!("skipped: {} cannot be read: {error}", path.display());
            None
        }
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data")
}

pub(crate) const ALL_FORKS: &str = "chains/all-forks";
pub(crate) const AMSTERDAM: &str = "chains/amsterdam";
pub(crate) const CHAIN_600: &str = "chain-600";

/// A chain of the shared data.
pub(crate) struct Chain {
    pub(crate) genesis: Genesis,
    pub(crate) rlp: Vec<u8>,
}

pub(crate) fn chain(name: &str) -> Option<Chain> {
    let genesis = read(&format!("{name}/genesis.json"))?;
    let rlp = read(&format!("{name}/chain.rlp"))?;
    Some(Chain { genesis: Genesis::parse(&genesis).expect("the genesis parses"), rlp })
}

impl Chain {
    pub(crate) fn blocks(&self) -> Vec<ChainBlock> {
        self.reader().collect::<Result<_, _>>().expect("the blocks are well formed")
    }

    pub(crate) fn reader(&self) -> ChainReader<'_> {
        ChainReader::new(self.rlp.as_slice()).expect("memory can be read")
    }
}
