//! `verify`: a proof document against a root, with no store.

use std::path::PathBuf;

use alloy_primitives::B256;
use clap::Args;
use serde_json::json;
use spinney_document::{Claim, Document, DocumentError, Refuted, SpanDocument, TrustedRoots, read};

use super::facts::Said;
use super::roots::RootsArgs;
use crate::args::{FormatArgs, Size, digest};
use crate::commands::Command;
use crate::commands::sums;
use crate::failure::{Exit, Failure};
use crate::stores;
use crate::trees::{self, Name};
use crate::ui::{Answer, Output, Speech};

/// Check a proof document against a root, without a store.
///
/// Reads what `spinney prove` prints, what eth_getProof answers, and the execution witnesses of
/// Verkle blocks (stateDiff and verkleProof), of which it says the root after the block, too. A
/// root says nothing of the tree that it is of, and one hash can be that of a UBT and of a PBT that
/// hold different keys: --tree says which tree the root is trusted to be of. A proof of many blocks
/// is checked against the root of each, by --roots or --blocks. Exit code 0 if the proof holds, 1
/// if it does not or is of another tree, 2 if the document is none.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    spinney verify --tree mpt --root \
    0xd7f8974fb5ac78d9ac099b9ad5018bedc2ce0a72dad1827a1709da30580f0544 proof.json\n  \
    spinney prove --db raw.db 0x646f65 | spinney verify --tree mpt -")]
pub(crate) struct VerifyArgs {
    /// The document; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The root that is trusted. Without it the document's own is taken, which proves little.
    #[arg(long, value_name = "ROOT", value_parser = digest)]
    root: Option<B256>,
    #[command(flatten)]
    roots: RootsArgs,
    /// The sum of all leaves that is trusted, of a sum tree.
    #[arg(long, value_name = "SUM")]
    root_sum: Option<u64>,
    /// The tree that the root is of, by the names that `prove` takes. Without it the document's
    /// word is taken.
    #[arg(long, value_name = "TREE")]
    tree: Option<String>,
    /// The most that is read of a document.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    max_input: Size,
    #[command(flatten)]
    format: FormatArgs,
}

impl Command for VerifyArgs {
    const NAME: &'static str = "verify";

    fn speech(&self) -> Speech {
        Speech::Lines
    }

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        let trusted = self.tree.as_deref().map(trees::parse).transpose()?;
        let longer = "is it the document you mean? --max-input says how long it may be";
        let bytes = stores::read_file_of(&self.file, self.max_input.0 as u64, longer)?;
        if bytes.trim_ascii().is_empty() {
            return Err(Failure::new(format!("there is no document ({})", self.file.display()))
                .hint("the command that was to make it failed, or wrote it elsewhere")
                .into());
        }
        if sums::is_sum(&bytes) {
            let root = (self.root, self.root_sum);
            let mut said = Said::new(output);
            sums::verify(&bytes, &self.file, root, trusted, (output, &mut said))?;
            return said.finish();
        }
        if self.root_sum.is_some() {
            return Err(Failure::new("the document is of a tree without sums (--root-sum)")
                .hint("is it the document you mean?")
                .into());
        }
        let refused = |error| refused(self, &error);
        let value = read(&bytes).map_err(refused)?;
        if SpanDocument::is_one(&value) {
            return many(self, SpanDocument::of(value).map_err(refused)?, trusted, output);
        }
        let Document { tree, root: own, claim } = Document::of(value).map_err(refused)?;
        let name = match tree.as_deref() {
            Some(tree) => trees::parse_of(tree, "the document's")?,
            None => Name::Mpt,
        };
        // A document names its tree, and what it claims is of that tree; else it is no document.
        if matches!(claim, Claim::Keys { .. } | Claim::Account(_)) && name != Name::Mpt {
            let what = format!("the document says tree {name}, and its proof is of an mpt");
            return Err(Failure::new(what).hint("is it what spinney prove printed?").into());
        }
        check_tree(trusted, name, output)?;
        let (root, block) = match self.roots.read(name)? {
            Some(roots) => one_of(&roots, own)?,
            None => (self.trusted_root(own, output)?, None),
        };
        let unsure = claim.unsure_stems(name);
        let proven = claim.verify(&root, name).map_err(|error| {
            let what = format!("the proof does not hold under {root}");
            let hint = "proof, claims and root do not belong together: was it made for this root?";
            Failure::new(what).because(error).hint(hint).exit(Exit::No)
        })?;
        for stem in unsure {
            output.warn(format!(
                "stem {stem} is said to be absent, and a Verkle proof cannot show that: its leaf \
                 may be hidden"
            ));
        }
        let mut said = Said::new(output);
        let of = block.map_or_else(String::new, |block| format!(", the root of block {block}"));
        let fields = json!({ "tree": name.to_string(), "root": root, "block": block });
        said.say(format!("holds under {root}{of}, tree {name}"), fields)?;
        said.facts(&proven)?;
        said.finish()
    }
}

impl VerifyArgs {
    /// The root to check against: the one that is trusted, else the document's own.
    fn trusted_root(&self, own: Option<B256>, output: &Output) -> Result<B256, Failure> {
        match (self.root, own) {
            (Some(root), own) => {
                if let Some(own) = own.filter(|own| *own != root) {
                    output.warn(format!("the document was made for another root: {own}"));
                }
                Ok(root)
            }
            (None, Some(own)) => {
                output.warn(format!(
                    "checked against the document's own root, {own}; --root trusts one"
                ));
                Ok(own)
            }
            (None, None) => Err(Failure::new("there is no root to check against")
                .hint("--root 0x.. names the root that is trusted: a header's state root")),
        }
    }
}

/// The root of a document, and the block that it is trusted of.
fn one_of(roots: &TrustedRoots, own: Option<B256>) -> Result<(B256, Option<u64>), Failure> {
    let Some(own) = own else {
        return Err(Failure::new("the document names no root (--roots, --blocks)")
            .hint("--root names the root that is trusted: a header's state root"));
    };
    match roots.block_of(&own) {
        Some(block) => Ok((own, Some(block))),
        None => {
            Err(Failure::new(format!("the document's root, {own}, is none of the trusted ones"))
                .hint("was it made at one of these blocks?")
                .exit(Exit::No))
        }
    }
}

/// Verifies a proof of blocks that follow each other.
fn many(
    args: &VerifyArgs,
    document: SpanDocument,
    trusted: Option<Name>,
    output: &Output,
) -> anyhow::Result<Answer> {
    let name = trees::parse_of(&document.tree, "the document's")?;
    check_tree(trusted, name, output)?;
    if args.root.is_some() {
        return Err(Failure::new("the proof is of many blocks, and of their roots (--root)")
            .hint("--roots names those that are trusted, --blocks the headers that have them")
            .into());
    }
    let roots = args.roots.read(name)?;
    if roots.is_none() {
        output.warn("checked against the document's own roots; --roots or --blocks trusts some");
    }
    let trusts = |block: u64, root: &[u8; 32]| {
        roots.as_ref().is_none_or(|roots| roots.trusts(block, &B256::from(*root)))
    };
    let (first, last) = document.claim.blocks();
    if let Some(lacks) = roots.as_ref().and_then(|roots| roots.lacks(first, last)) {
        let what = format!("no root of block {lacks} is trusted (--roots, --blocks)");
        return Err(Failure::new(what)
            .hint(format!("the proof is of blocks {first} to {last}: give all of their roots"))
            .into());
    }
    let proven = document.claim.verify(name, &trusts).map_err(|error| {
        let hint = "proof, claims and roots do not belong together: was it made for these blocks?";
        Failure::new("the proof does not hold").because(error).hint(hint).exit(Exit::No)
    })?;
    let mut said = Said::new(output);
    let fields = json!({ "tree": name.to_string(), "from": first, "to": last });
    said.say(format!("holds at blocks {first} to {last}, tree {name}"), fields)?;
    said.facts(&proven)?;
    said.finish()
}

/// Checks a document of our own under its own root.
pub(super) fn holds(document: &[u8]) -> anyhow::Result<()> {
    let value = read(document)?;
    if SpanDocument::is_one(&value) {
        let SpanDocument { tree, claim } = SpanDocument::of(value)?;
        let name = trees::parse(&tree)?;
        return claim.verify(name, &|_, _| true).map(drop).map_err(of_our_own);
    }
    let Document { tree, root, claim } = Document::of(value)?;
    let name = trees::parse(tree.as_deref().unwrap_or("mpt"))?;
    claim.verify(&root.unwrap_or_default(), name).map(drop).map_err(of_our_own)
}

/// A document of our own that does not hold.
fn of_our_own(error: Refuted) -> anyhow::Error {
    let hint = "rows of the store are old or forged: spinney db check looks at all of it";
    let what = "what was made of the store does not hold under its root";
    Failure::new(what).because(error).hint(hint).into()
}

/// A document that was not read. What it says of preimages is a claim like others, and can be
/// false.
fn refused(args: &VerifyArgs, error: &DocumentError) -> Failure {
    let failure = Failure::new(format!("{error} ({})", args.file.display()));
    match error {
        DocumentError::Preimage { .. } => failure
            .hint("the key was put under another preimage than the document says")
            .exit(Exit::No),
        _ => failure.hint(
            "the document is one JSON object: what spinney prove prints, the EIP-1186 object that \
             eth_getProof answers, alone or as the result of a response, or the execution witness \
             of a Verkle block",
        ),
    }
}

/// Refuses a document of another tree than the trusted one; without one, says whose word is taken.
pub(crate) fn check_tree(
    trusted: Option<Name>,
    name: Name,
    output: &Output,
) -> Result<(), Failure> {
    match trusted {
        Some(trusted) if trusted != name => {
            let what = format!("the document is of a tree {name}, not of {trusted} (--tree)");
            Err(Failure::new(what)
                .hint("spinney prove --tree makes one of the tree that you trust")
                .exit(Exit::No))
        }
        Some(_) => Ok(()),
        None => {
            output.warn(format!(
                "that the root is one of {name} is the document's own word; --tree {name} says so"
            ));
            Ok(())
        }
    }
}
