//! Where witnesses of others come from, and the blocks that they are of.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use alloy_primitives::U256;
use anyhow::Context as _;
use clap::Args;
use spinney_replay::{
    BlockFinder, ChainBlock, ChainReader, Genesis, GivenWitness, Witness, WitnessReader,
};

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

/// Opens the blocks of a file from their start.
type Opens = Box<dyn FnMut() -> anyhow::Result<ChainReader<'static>>>;

/// The chain, whose blocks are looked up by their parents.
pub(super) struct Chain {
    pub(super) genesis: Genesis,
    /// None where no blocks are given.
    blocks: Option<BlockFinder<Opens>>,
}

impl Chain {
    /// `None` where no genesis is given.
    pub(super) fn open(args: &ChainArgs) -> anyhow::Result<Option<Self>> {
        let Some(genesis) = &args.genesis else { return Ok(None) };
        let parsed = Genesis::parse(&stores::read_file(genesis)?);
        let genesis = parsed.with_context(|| format!("in {}", genesis.display()))?;
        let finder = |path: PathBuf| -> BlockFinder<Opens> {
            BlockFinder::new(Box::new(move || {
                let reader = ChainReader::new(stores::open_file(&path)?);
                reader.with_context(|| format!("reading {}", path.display()))
            }))
        };
        Ok(Some(Self { genesis, blocks: args.blocks.clone().map(finder) }))
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
        if let Some(blocks) = &mut self.blocks
            && let Some(block) = blocks.of_witness::<anyhow::Error>(&given.witness)?
        {
            return Ok(block);
        }
        Err(Failure::new("no block follows any header of the witness")
            .hint(match self.blocks {
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
