//! `prove --state-from`: a proof from a node, checked before it is believed.

use alloy_primitives::B256;
use serde_json::{Value, json};
use spinney_document::{AccountDocument, Claim, Document};
use spinney_follow::{BlockName, Node, NodeError, RemoteBlock, RemoteError, Url, Vouched};

use super::args::ProveArgs;
use super::prove::print;
use crate::failure::{Exit, Failure};
use crate::trees::{self, Name};
use crate::ui::Output;

/// Prints what a node proves.
pub(super) fn prove(args: &ProveArgs, url: &Url, output: &Output) -> anyhow::Result<Exit> {
    let name = args.tree.as_deref().map_or(Ok(Name::Mpt), trees::parse)?;
    let node = Node::new(url.clone());
    let block = args.block.unwrap_or(BlockName::Tag("latest"));
    match name {
        Name::Mpt => {}
        Name::Ubt(_) | Name::Pbt(_) | Name::Verkle => {
            return prove_words(args, name, (&node, block), output);
        }
        Name::Sum(_) => {
            return Err(Failure::new(format!(
                "a tree {name} is not read from a node (--state-from)"
            ))
            .hint("spinney_getSumProof of a Spinney server proves its leaves; or give --db")
            .into());
        }
    }
    let Some(address) = args.address.filter(|_| args.chunks.is_empty()) else {
        return Err(Failure::new("a node proves accounts and slots of its mpt (--state-from)")
            .hint("give --address, and --slot; of a Spinney server also --tree with --chunk")
            .into());
    };
    let block = RemoteBlock::find(&node, block, args.root).map_err(failure)?;
    let proof = block.prove(address, &args.slots()).map_err(failure)?;
    if block.vouched() == Vouched::Node {
        warn_of_root(block.root(), output);
    }
    let number = Some(block.number());
    let document = AccountDocument::new(name.to_string(), block.root(), number, proof);
    print(args, &document, output)
}

fn warn_of_root(root: B256, output: &Output) {
    output.warn(format!(
        "that {root} is the root is the node's word alone: --root names one that is trusted"
    ));
}

/// Prints what a Spinney server proves in another tree. No header has the root of such a tree.
fn prove_words(
    args: &ProveArgs,
    name: Name,
    (node, block): (&Node, BlockName),
    output: &Output,
) -> anyhow::Result<Exit> {
    let asked = args.asked();
    args.check_not_hashed(name)?;
    let keys = match &asked {
        Some(asked) => json!(asked),
        None => json!(args.keys),
    };
    let told = node.spinney_proof(&name.to_string(), &keys, block);
    let text = told.map_err(|error| failure(error.into()))?;
    let other = |what: &str| {
        let what = format!("the node does not prove what it was asked for: {what}");
        Failure::new(what).hint("it is damaged, or it lies").exit(Exit::No)
    };
    let Document { tree, root, claim } =
        Document::parse(text.as_bytes()).map_err(|error| other(&error.to_string()))?;
    let root = root.ok_or_else(|| other("there is no root"))?;
    if tree != Some(name.to_string()) {
        return Err(other("its tree is another one").into());
    }
    let value: Value = serde_json::from_str(&text)?;
    if let BlockName::Number(number) = block
        && value.get("block") != Some(&json!(format!("{number:#x}")))
    {
        return Err(other("its block is another one").into());
    }
    let Claim::Words(words) = &claim else { return Err(other("it has no proof").into()) };
    let is_asked = match &asked {
        Some(_) => words.account == asked,
        None => {
            let keys = words.proof.entries.iter().map(|(key, _)| &key[..]);
            keys.eq(args.keys.iter().map(|key| &key[..]))
        }
    };
    if !is_asked {
        return Err(other("its keys are others").into());
    }
    if let Some(expected) = args.root.filter(|expected| *expected != root) {
        return Err(
            other(&format!("its root is {root}, and {expected} is trusted (--root)")).into()
        );
    }
    claim.verify(&root, name).map_err(|error| other(&error.to_string()))?;
    if args.root.is_none() {
        warn_of_root(root, output);
    }
    output.json(&value)?;
    Ok(Exit::Ok)
}

/// What is wrong with what a node says, and what to do.
pub(crate) fn failure(error: RemoteError) -> anyhow::Error {
    failure_at("", error)
}

/// The same, behind the place where it came up.
pub(crate) fn failure_at(place: &str, error: RemoteError) -> anyhow::Error {
    let (hint, exit) = match &error {
        RemoteError::Node(NodeError::Refused { .. }) => (
            "does it keep the state of that block? --block names another one, and a node that \
             keeps all states has them all",
            Exit::Error,
        ),
        RemoteError::Node(NodeError::Answer { .. }) => {
            ("it is damaged, or lies; or what stands between cuts its answers off", Exit::No)
        }
        RemoteError::Node(_) => ("does a node listen there?", Exit::Error),
        RemoteError::NoBlock { .. } => ("--block latest is there on every node", Exit::Error),
        RemoteError::NoHeader { .. } => (
            "name the block by its number or as latest; with replay, give --blocks a file that has \
             the block in it",
            Exit::Error,
        ),
        RemoteError::OtherRoot { .. } => (
            "the node has another block there, or the root is one of another block (--root)",
            Exit::No,
        ),
        RemoteError::Proof { .. } => (
            "it has another block there by now, is damaged, or lies: ask again, or another node",
            Exit::No,
        ),
        RemoteError::Code { .. } | RemoteError::State(_) => {
            ("the node contradicts itself: it is damaged, or it lies", Exit::No)
        }
        RemoteError::Alone { .. } => (
            "ask a node that has debug_executionWitness or debug_storageRangeAt: a Spinney that \
             keeps witnesses (--keep-witnesses), or geth",
            Exit::Error,
        ),
        _ => ("spinney prove --help shows what is needed", Exit::Error),
    };
    let failure = Failure::new(format!("{place}{error}")).hint(hint).exit(exit);
    match error {
        RemoteError::Proof { error, .. } => failure.because(error).into(),
        _ => failure.into(),
    }
}
