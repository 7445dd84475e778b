//! Where witnesses of others come from, and the blocks that they are of.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use alloy_primitives::{B256, U256, keccak256};
use anyhow::Context as _;
use clap::Args;
use spinney_replay::{ChainBlock, ChainReader, Genesis, GivenWitness, Witness, WitnessReader};

use crate::failure::Failure;
use crate::stores;

/// The chain that witnesses are of.
#[derive(Clone, Debug, Args)]
pub(super) struct ChainArgs {
    /// The chain's genesis.json, as geth writes it: it says the rules.
    #[arg(long, value_name = "FILE")]
    pub(super) genesis: Option<PathBuf>,
    /// Blocks as `geth export` writes them, plain or zstd. The input of a guest (SSZ) brings its
    /// own.
    #[arg(long, value_name = "FILE", requires = "genesis")]
    pub(super) blocks: Option<PathBuf>,
}

/// The blocks of a chain, looked up by their parents. Witnesses come in the order of blocks most
/// often, so it reads on from where it is, and once more from the start where that leads to none.
pub(super) struct Chain {
    pub(super) genesis: Genesis,
    path: Option<PathBuf>,
    blocks: Option<ChainReader<'static>>,
    /// The last block that was read: several witnesses may be of it.
    last: Option<ChainBlock>,
}

impl Chain {
    /// `None` where no genesis is given.
    pub(super) fn open(args: &ChainArgs) -> anyhow::Result<Option<Self>> {
        let Some(genesis) = &args.genesis else { return Ok(None) };
        let parsed = Genesis::parse(&stores::read_file(genesis)?);
        let genesis = parsed.with_context(|| format!("in {}", genesis.display()))?;
        Ok(Some(Self { genesis, path: args.blocks.clone(), blocks: None, last: None }))
    }

    /// The block that follows this one.
    fn after(&mut self, parent: B256) -> anyhow::Result<Option<ChainBlock>> {
        let follows = |block: &ChainBlock| block.block.header.parent_hash == parent;
        if let Some(last) = self.last.as_ref().filter(|last| follows(last)) {
            return Ok(Some(last.clone()));
        }
        let Some(path) = self.path.clone() else { return Ok(None) };
        let goes_on = self.blocks.is_some();
        for again in [false, true] {
            if again && !goes_on {
                break;
            }
            if again || self.blocks.is_none() {
                let reader = ChainReader::new(stores::open_file(&path)?);
                let reader = reader.with_context(|| format!("reading {}", path.display()))?;
                self.blocks = Some(reader);
            }
            for block in self.blocks.iter_mut().flatten() {
                let block = block?;
                if follows(&block) {
                    self.last = Some(block.clone());
                    return Ok(Some(block));
                }
            }
        }
        Ok(None)
    }

    /// The block that a witness is of: its own, or that of the chain whose parent it has.
    pub(super) fn block_of(&mut self, given: &GivenWitness) -> anyhow::Result<ChainBlock> {
        if let Some(block) = &given.block {
            if let Some(id) = given.chain_id.filter(|id| *id != self.genesis.config.chain_id) {
                let own = self.genesis.config.chain_id;
                let what =
                    format!("the witness is of chain {id}, and the genesis of {own} (--genesis)");
                return Err(Failure::new(what).hint("give the genesis of that chain").into());
            }
            return Ok(block.clone());
        }
        // The parent is the last header; where they are in disorder, whichever has a child.
        for rlp in given.witness.headers.iter().rev() {
            if let Some(block) = self.after(keccak256(rlp))? {
                return Ok(block);
            }
        }
        Err(Failure::new("no block follows any header of the witness")
            .hint(match self.path {
                Some(_) => "it is of another chain, or of a block that --blocks does not have",
                None => {
                    "give the block's chain with --blocks; only the input of a guest brings \
                         its block"
                }
            })
            .exit(crate::failure::Exit::No)
            .into())
    }
}

/// The total difficulty before a block, as far as rules want to know.
pub(super) fn difficulty(block: &ChainBlock) -> U256 {
    if block.block.header.difficulty.is_zero() { U256::MAX } else { U256::ZERO }
}

/// Reads the witnesses of a file.
pub(super) fn witnesses(
    path: &Path,
) -> Result<WitnessReader<BufReader<Box<dyn Read + Send>>>, Failure> {
    Ok(WitnessReader::new(BufReader::with_capacity(1 << 18, stores::open_file(path)?)))
}

/// The only witness of a file, or the first.
pub(super) fn first(path: &Path) -> anyhow::Result<GivenWitness> {
    let read = witnesses(path)?.next().transpose();
    let read = read.with_context(|| format!("in {}", path.display()))?;
    let none = || Failure::new(format!("{} holds no witness", path.display()));
    Ok(read.ok_or_else(|| none().hint("spinney witness --block N makes one"))?)
}

/// Bytes of what a witness holds.
pub(super) fn bytes(witness: &Witness) -> usize {
    let lists = [&witness.state, &witness.codes, &witness.keys, &witness.headers];
    lists.into_iter().flatten().map(|entry| entry.len()).sum()
}
