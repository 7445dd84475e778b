//! What `prove` takes, and what it proves from.

use std::path::PathBuf;

use alloy_primitives::{Address, B256, Bytes, U256};
use clap::Args;
use spinney_document::Asked;
use spinney_follow::{BlockName, Url};
use spinney_tree::PageStore;

use crate::args::{FromArgs, ReadFrom, address, digest};
use crate::commands::sums::NamespaceArgs;
use crate::failure::Failure;
use crate::trees::{self, Name};

/// Prove keys, or an account and its slots, present or absent.
///
/// Prints one JSON document: for raw keys of a store that `root` filled, the nodes on their paths;
/// for an address in a store of Ethereum's state, the EIP-1186 object. Of a binary or a Verkle
/// tree, one proof of any of its keys, or of those that hold an account. With --from and --to, one
/// proof of all these blocks that says each node once. `spinney verify` checks it without a store.
// Fields: one an option.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    spinney prove --db state.db --address 0x00000000219ab540356cbb839cbe05303d7705fa --slot 0x0\n  \
    spinney prove --db state.db --tree pbt:blake3 --address \
    0x00000000219ab540356cbb839cbe05303d7705fa --chunk 0\n  \
    spinney prove --state-from http://127.0.0.1:8545 --block finalized --address \
    0x00000000219ab540356cbb839cbe05303d7705fa\n  \
    spinney prove --archive s3://bucket/mainnet --from 1 --to 1000 --address \
    0x00000000219ab540356cbb839cbe05303d7705fa --slot 0x0\n  \
    spinney prove --db raw.db 0x646f65 | spinney verify -")]
pub(crate) struct ProveArgs {
    /// Raw keys in hex; several give one document with the union of their nodes.
    #[arg(
        value_name = "KEY",
        required_unless_present_any = ["address", "slots", "chunks", "all"],
        conflicts_with_all = ["address", "all"],
    )]
    pub(super) keys: Vec<Bytes>,
    /// The account to prove.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(super) address: Option<Address>,
    /// A slot of the account; may be given again.
    #[arg(long = "slot", value_name = "SLOT", requires = "address")]
    pub(super) slots: Vec<U256>,
    /// A chunk of the account's code, in a binary or a Verkle tree: 31 bytes each; may be given
    /// again.
    #[arg(long = "chunk", value_name = "INDEX", requires = "address")]
    pub(super) chunks: Vec<u32>,
    /// Prove the Keccak-256 digests of the keys, as `root --hash-keys` puts them.
    #[arg(long, conflicts_with = "address")]
    pub(super) hash_keys: bool,
    /// Read from a node instead of a store, over JSON-RPC: what it answers is proven under the
    /// state root in the header of the block. https is not spoken.
    #[arg(long, value_name = "URL", conflicts_with_all = ["all", "namespace"])]
    state_from: Option<Url>,
    /// The state root that is trusted: a block of the node's with another one is refused.
    #[arg(long, value_name = "ROOT", value_parser = digest, requires = "state_from")]
    pub(super) root: Option<B256>,
    /// The block whose state is proven: any that the store keeps. Without it, the last one. With
    /// --state-from a number, a hash, latest, safe, finalized or earliest; a hash pins the block.
    #[arg(long, value_name = "BLOCK")]
    pub(super) block: Option<BlockName>,
    /// The first of the blocks that one proof is of: each as --block takes it, from a commit that a
    /// log keeps, or by the history of the next one that there is. Of many blocks an archive makes
    /// it faster.
    #[arg(long, value_name = "N", conflicts_with_all = ["block", "state_from", "all", "chunks"])]
    pub(super) from: Option<u64>,
    /// The last of these blocks. Without it, the last one that is kept.
    #[arg(long, value_name = "N", requires = "from")]
    pub(super) to: Option<u64>,
    /// Verify each document, without the store, under the root that the store names, before it is
    /// printed: what old or forged rows made does not hold.
    #[arg(long, conflicts_with = "all")]
    pub(super) verify: bool,
    /// Prove every leaf of a sum tree, a document a line.
    #[arg(long, conflicts_with = "address")]
    pub(super) all: bool,
    /// Write what is proven to a file, whole or not at all.
    #[arg(long = "out", id = "report_out", value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
    #[command(flatten)]
    places: FromArgs,
    /// The tree: mpt, ubt:sha256, ubt:blake3, ubt:keccak, pbt with one of these hashes, verkle,
    /// sum or sum:bound. Without it, that of --namespace, or what the store holds, mpt before
    /// others.
    #[arg(long, value_name = "TREE", env = "SPINNEY_TREE")]
    pub(super) tree: Option<String>,
    #[command(flatten)]
    pub(super) namespace: NamespaceArgs,
}

/// Of keys that may be those of slots and chunks.
pub(super) const ONCE_HINT: &str = "give each key, slot and chunk once";

/// Where a state is that is proven.
pub(super) enum ProofSource {
    Here(ReadFrom),
    Node(Url),
}

/// A store that is proven from: one commit of it, or a block of an archive.
pub(super) struct Held<'a, P> {
    pub(super) store: &'a P,
    /// Where it is.
    pub(super) name: String,
    /// Memory for pages.
    pub(super) cache_bytes: usize,
}

impl ProveArgs {
    /// Where the state is: in a store, in an archive, or at a node.
    pub(super) fn source(&self) -> Result<ProofSource, Failure> {
        match (&self.state_from, self.places.place(self.state_from.is_some())?) {
            (None, Some(here)) => Ok(ProofSource::Here(here)),
            (Some(url), None) => Ok(ProofSource::Node(url.clone())),
            (Some(_), Some(here)) => {
                let (what, flag) = match here {
                    ReadFrom::Store(_) => ("a store", "--db"),
                    ReadFrom::Archive(_) => ("an archive", "--archive"),
                };
                Err(Failure::new(format!("both {what} and a node ({flag}, --state-from)"))
                    .hint("name the one to read from"))
            }
            (None, None) => Err(Failure::new("no store is named (--db)")
                .hint("give --db, an archive by --archive, or a node by --state-from")),
        }
    }

    /// The blocks of a proof over time.
    pub(super) fn span(&self, last: u64) -> Result<Option<(u64, u64)>, Failure> {
        let Some(from) = self.from else { return Ok(None) };
        let to = self.to.unwrap_or(last);
        if from <= to {
            return Ok(Some((from, to)));
        }
        let what = format!("block {from} is behind block {to} (--from, --to)");
        Err(Failure::new(what).hint("a proof is of blocks that follow each other"))
    }

    /// Memory for pages.
    pub(super) const fn cache_bytes(&self) -> usize {
        self.places.cache()
    }

    /// The number of the block whose state is proven; none for the last one.
    pub(super) fn number(&self) -> Result<Option<u64>, Failure> {
        match self.block {
            None | Some(BlockName::Tag("latest")) => Ok(None),
            Some(BlockName::Number(number)) => Ok(Some(number)),
            Some(block) => {
                let what = format!("a store is not asked for a block as {block} (--block)");
                Err(Failure::new(what).hint("give its number; db info shows the last one"))
            }
        }
    }

    /// The slots of the account.
    pub(super) fn slots(&self) -> Vec<B256> {
        self.slots.iter().map(|slot| B256::from(*slot)).collect()
    }

    /// Raw keys that are asked for.
    pub(super) fn raw_keys(&self) -> Vec<Vec<u8>> {
        self.keys.iter().map(|key| key.to_vec()).collect()
    }

    /// Refuses to prove all keys of a tree that is no sum tree.
    pub(super) fn check_not_all(&self, name: Name) -> Result<(), Failure> {
        match self.all {
            true => Err(Failure::new(format!("--all is for sum trees, not for {name}"))
                .hint("give keys, or --address")),
            false => Ok(()),
        }
    }

    /// Refuses keys that are to be hashed, in a tree that has none.
    pub(super) fn check_not_hashed(&self, name: Name) -> Result<(), Failure> {
        match self.hash_keys {
            true => Err(Failure::new(format!("--hash-keys is for mpt, not for {name}"))
                .hint("keys of this tree are put as they are")),
            false => Ok(()),
        }
    }

    /// The account that is asked for.
    pub(super) fn asked(&self) -> Option<Asked> {
        let chunks = || self.chunks.clone();
        self.address.map(|address| Asked { address, slots: self.slots(), chunks: chunks() })
    }

    /// Refuses a key that is given twice.
    pub(super) fn check_once(keys: &[impl AsRef<[u8]>]) -> Result<(), Failure> {
        let mut sorted: Vec<_> = keys.iter().map(AsRef::as_ref).collect();
        sorted.sort_unstable();
        let mut pairs = sorted.iter().zip(sorted.iter().skip(1));
        let Some((key, _)) = pairs.find(|(one, next)| one == next) else { return Ok(()) };
        Err(Failure::new(format!("key {} is given twice", Bytes::copy_from_slice(key))))
    }

    /// Refuses to look for an account among raw keys of an mpt, or for raw keys among accounts.
    pub(super) fn check_account(&self, held: &Held<'_, impl PageStore>) -> anyhow::Result<()> {
        if !self.chunks.is_empty() {
            return Err(Failure::new("--chunk is for the trees that hold code")
                .hint("say --tree ubt:sha256, or whatever tree the store holds")
                .into());
        }
        let record = trees::record_of(&held.store.snapshot()?, Name::Mpt, &held.name)?;
        let (what, hint) = match (self.address, trees::keys_of(record.scheme)) {
            (Some(_), "raw") => ("raw keys, and no accounts", "give keys instead of --address"),
            (None, "state") => ("Ethereum's state, and no raw keys", "give --address, and --slot"),
            _ => return Ok(()),
        };
        let what = format!("the store holds {what} ({})", held.name);
        Err(Failure::new(what).hint(hint).into())
    }
}
