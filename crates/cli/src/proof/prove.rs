//! `prove`: a proof from a store.

use std::path::PathBuf;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use clap::Args;
use serde::Serialize;
use spinney_follow::{BlockName, Url};
use spinney_state::{MPT, State};
use spinney_store::Frozen;
use spinney_tree::mpt::Mpt;
use spinney_tree::sum::Profile;
use spinney_tree::{BlockId, PageStore, Tree};

use super::document::{AccountDocument, KeyDocument, KeysDocument, nodes};
use super::verify;
use super::words;
use crate::args::AtOrNoneArgs;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::stores::{Mode, Place};
use crate::sums::{self, NamespaceArgs};
use crate::trees::{self, Name};

/// Prove keys, or an account and its slots, present or absent.
///
/// Prints one JSON document: for raw keys of a store that `root` filled, the nodes on their paths; for an
/// address in a store of Ethereum's state, the EIP-1186 object. Of a binary or a Verkle tree, one proof of
/// any of its keys, or of those that hold an account. `spinney verify` checks it without a store.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    spinney prove --db state.db --address 0x00000000219ab540356cbb839cbe05303d7705fa --slot 0x0\n  \
    spinney prove --db state.db --tree pbt:blake3 --address 0x00000000219ab540356cbb839cbe05303d7705fa --chunk 0\n  \
    spinney prove --state-from http://127.0.0.1:8545 --block finalized --address 0x00000000219ab540356cbb839cbe05303d7705fa\n  \
    spinney prove --db raw.db 0x646f65 | spinney verify -")]
pub(crate) struct ProveArgs {
    /// Raw keys in hex; several give one document with the union of their nodes.
    #[arg(
        value_name = "KEY",
        required_unless_present_any = ["address", "all"],
        conflicts_with_all = ["address", "all"],
    )]
    pub(super) keys: Vec<Bytes>,
    /// The account to prove.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) address: Option<Address>,
    /// A slot of the account; may be given again.
    #[arg(long = "slot", value_name = "SLOT", requires = "address")]
    pub(super) slots: Vec<U256>,
    /// A chunk of the account's code, in a binary or a Verkle tree: 31 bytes each; may be given again.
    #[arg(long = "chunk", value_name = "INDEX", requires = "address")]
    pub(super) chunks: Vec<u32>,
    /// Prove the Keccak-256 digests of the keys, as `root --hash-keys` puts them.
    #[arg(long, conflicts_with = "address")]
    pub(super) hash_keys: bool,
    /// Read from a node instead of a store, over JSON-RPC: what it answers is proven under the state
    /// root in the header of the block. https is not spoken.
    #[arg(long, value_name = "URL", conflicts_with_all = ["all", "namespace"])]
    state_from: Option<Url>,
    /// The state root that is trusted: a block of the node's with another one is refused.
    #[arg(long, value_name = "ROOT", requires = "state_from")]
    pub(super) root: Option<B256>,
    /// The block whose state is proven: any that the store keeps. Without it, the last one. With
    /// --state-from a number, a hash, latest, safe, finalized or earliest; a hash pins the block.
    #[arg(long, value_name = "BLOCK")]
    pub(super) block: Option<BlockName>,
    /// Verify each document, without the store, under the root that the store names, before it is
    /// printed: what old or forged rows made does not hold.
    #[arg(long, conflicts_with = "all")]
    verify: bool,
    /// Prove every leaf of a sum tree, a document a line.
    #[arg(long, conflicts_with = "address")]
    all: bool,
    /// Write what is proven to a file, whole or not at all.
    #[arg(long = "out", id = "report_out", value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    at: AtOrNoneArgs,
    /// The tree: mpt, ubt:sha256, ubt:blake3, ubt:keccak, pbt with one of these hashes, verkle,
    /// sum or sum:bound. Without it, what the store holds, mpt before others.
    #[arg(long, value_name = "TREE", env = "SPINNEY_TREE")]
    pub(super) tree: Option<String>,
    #[command(flatten)]
    namespace: NamespaceArgs,
}

/// Where a state is that is proven.
pub(super) enum ProofSource {
    Store(Place),
    Node(Url),
}

impl ProveArgs {
    /// Where the state is: in a store, or at a node.
    pub(super) fn source(&self) -> Result<ProofSource, Failure> {
        match (&self.state_from, self.at.place(self.state_from.is_some())?) {
            (None, Some(place)) => Ok(ProofSource::Store(place)),
            (Some(url), None) => Ok(ProofSource::Node(url.clone())),
            (Some(_), Some(_)) => Err(Failure::new("both a store and a node (--db, --state-from)")
                .hint("name the one to read from")),
            (None, None) => Err(Failure::new("no store is named (--db)")
                .hint("give --db, or a node by --state-from")),
        }
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
}

pub(super) fn run(args: &ProveArgs, place: &Place, output: &Output) -> anyhow::Result<Exit> {
    let name = trees::asked(args.tree.as_deref(), place)?;
    if let Name::Sum(profile) = name {
        return leaves(args, profile, place, output);
    }
    if args.all {
        let what = format!("--all is for sum trees, not for {name}");
        return Err(Failure::new(what).hint("give keys, or --address").into());
    }
    let store = place.open(Mode::Look)?;
    // Root, nodes and block are of one commit, whoever writes meanwhile.
    let store = Frozen::of(&store)?;
    if name != Name::Mpt {
        return print(args, &words::prove(args, name, &store, place)?, output);
    }
    if !args.chunks.is_empty() {
        return Err(Failure::new("--chunk is for the trees that hold code")
            .hint("say --tree ubt:sha256, or whatever tree the store holds")
            .into());
    }
    let keys = trees::keys_of(trees::record_of(&store.snapshot()?, name, &place.name())?.scheme);
    let kind = |what: &str, hint: &str| {
        let what = format!("the store holds {what} ({})", place.name());
        Failure::new(what).hint(hint)
    };
    match args.address {
        Some(_) if keys == "raw" => {
            Err(kind("raw keys, and no accounts", "give keys instead of --address").into())
        }
        None if keys == "state" => {
            Err(kind("Ethereum's state, and no raw keys", "give --address, and --slot").into())
        }
        Some(address) => print(args, &prove_account(args, address, &store, place)?, output),
        None if args.keys.len() == 1 => {
            print(args, &prove_keys(args, &store, place)?.into_one(), output)
        }
        None => print(args, &prove_keys(args, &store, place)?, output),
    }
}

/// Leaves of a sum tree.
fn leaves(
    args: &ProveArgs,
    profile: Profile,
    place: &Place,
    output: &Output,
) -> anyhow::Result<Exit> {
    if args.address.is_some() || args.hash_keys || args.block.is_some() {
        let what =
            format!("a tree {} has neither addresses, hashed keys nor blocks", sums::name(profile));
        return Err(Failure::new(what).hint("give keys of 32 bytes, or --all").into());
    }
    let namespace = &args.namespace.namespace;
    match args.all {
        true => sums::prove_all(place, namespace, profile, args.out.as_deref(), output),
        false => sums::prove(place, namespace, profile, (&args.keys, args.verify), output),
    }
}

pub(super) fn print(
    args: &ProveArgs,
    document: &impl Serialize,
    output: &Output,
) -> anyhow::Result<Exit> {
    if args.verify {
        verify::holds(&serde_json::to_vec(document)?)?;
    }
    output.json(document)?;
    Ok(Exit::Ok)
}

fn prove_account(
    args: &ProveArgs,
    address: Address,
    store: &impl PageStore,
    place: &Place,
) -> anyhow::Result<AccountDocument> {
    let state = State::open(store, place.tree_cache())?;
    let slots = args.slots();
    let asked = args.number()?;
    let (root, proof) = match asked {
        Some(number) => {
            let kept = state.at(number)?;
            (kept.root(), kept.prove(address, &slots)?)
        }
        None => (state.root(), state.prove(address, &slots)?),
    };
    let block = asked.or_else(|| state.block().map(|block| block.number));
    Ok(AccountDocument::new(Name::Mpt.to_string(), root, block, proof))
}

fn prove_keys(
    args: &ProveArgs,
    store: &impl PageStore,
    place: &Place,
) -> anyhow::Result<KeysDocument> {
    let snapshot = store.snapshot()?;
    let tree = Tree::open(Mpt, MPT, &snapshot, place.tree_cache())?;
    check_block(args.number()?, tree.block())?;
    let hashed = |key: &Bytes| Bytes::from(keccak256(key).0);
    let mut sorted: Vec<_> = args.keys.iter().collect();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Failure::new(format!("key {} is given twice", pair[0])).into());
    }
    let keys: Vec<_> =
        if args.hash_keys { args.keys.iter().map(hashed).collect() } else { args.keys.clone() };
    let proof = tree.prove(&snapshot, None, &keys)?;
    let value = |key: &Bytes| -> anyhow::Result<Option<Bytes>> {
        let value = tree.get(&snapshot, None, key)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    };
    let values = keys.iter().map(value).collect::<Result<_, _>>()?;
    Ok(KeysDocument {
        tree: Name::Mpt.to_string(),
        root: tree.root().into(),
        preimages: args.hash_keys.then(|| args.keys.clone()),
        keys,
        values,
        proof: nodes(proof),
    })
}

impl KeysDocument {
    fn into_one(mut self) -> KeyDocument {
        KeyDocument {
            tree: self.tree,
            root: self.root,
            preimage: self.preimages.and_then(|mut all| all.pop()),
            key: self.keys.remove(0),
            value: self.values.remove(0),
            proof: self.proof,
        }
    }
}

/// Refuses a block whose state is not that of the store: raw trees keep no history.
fn check_block(wanted: Option<u64>, head: Option<BlockId>) -> Result<(), Failure> {
    let Some(wanted) = wanted else { return Ok(()) };
    match head {
        Some(head) if head.number == wanted => Ok(()),
        Some(head) => {
            let hint = format!("leave out --block, or say --block {}", head.number);
            let what = format!(
                "the store keeps the state of block {}, and not that of block {wanted} (--block)",
                head.number
            );
            Err(Failure::new(what).hint(hint))
        }
        None => Err(Failure::new("the store keeps the state of no block (--block)")
            .hint("leave out --block: what the store holds is proven as it is")),
    }
}
