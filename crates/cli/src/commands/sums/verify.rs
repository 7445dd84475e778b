//! `verify`: documents of leaves, one a line, against a root; no store.
#![deny(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::path::Path;

use alloy_primitives::{B256, Bytes};
use serde_json::json;
use spinney_document::{Strict, SumClaim, SumDocument};
use spinney_tree::sum::{Claim, ClaimError, Profile, SumNode, verify_many};

use crate::commands::proof::{Said, check_tree};
use crate::failure::{Exit, Failure};
use crate::trees::Name;
use crate::ui::Output;

/// How many documents are verified together.
const TOGETHER: usize = 1_024;

/// Whether a file holds documents of a sum tree: by the tree that the first one names.
pub(crate) fn is_sum(bytes: &[u8]) -> bool {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Strict>();
    let first = values.next().and_then(Result::ok);
    first.is_some_and(|Strict(first)| {
        first.get("tree").and_then(|tree| tree.as_str()).is_some_and(SumDocument::is_of)
    })
}

/// Verifies all documents of a file under one root of one tree: those which are given, or the first
/// one's own.
pub(crate) fn verify(
    bytes: &[u8],
    file: &Path,
    (root, root_sum): (Option<B256>, Option<u64>),
    tree: Option<Name>,
    (output, said): (&Output, &mut Said<'_>),
) -> anyhow::Result<()> {
    let mut trusted: Option<(Profile, SumNode)> = None;
    let mut waiting = Vec::new();
    let lines = bytes.split(|byte| *byte == b'\n').zip(1..);
    for (line, number) in lines.filter(|(line, _)| !line.trim_ascii().is_empty()) {
        let malformed = |what: String| {
            let what = format!("line {number}: {what} ({})", file.display());
            Failure::new(what).hint("a line is a document that spinney prove prints for a sum tree")
        };
        let document: SumDocument =
            serde_json::from_slice(line).map_err(|error| malformed(error.to_string()))?;
        let claim = document.claim().map_err(|error| malformed(error.to_string()))?;
        let own = (claim.profile, claim.root);
        let (profile, root) = match trusted {
            Some(trusted) => trusted,
            None => {
                check_tree(tree, Name::Sum(own.0), output)?;
                let hash = root.map_or(own.1.hash, |root| root.0);
                let sum = match (root, root_sum) {
                    (_, Some(sum)) => sum,
                    (_, None) => own.1.sum,
                };
                if root.is_none() || root_sum.is_none() {
                    output.warn(
                        "checked against the document's own root or sum; --root and --root-sum \
                         trust one",
                    );
                }
                *trusted.insert((own.0, SumNode { hash, sum }))
            }
        };
        if own.0 != profile {
            let (own, first) = (Name::Sum(own.0), Name::Sum(profile));
            let what = format!("line {number}: the document is of a tree {own}, not of {first}");
            return Err(Failure::new(what)
                .hint("all documents of a file are of the first one's tree, or of --tree")
                .exit(Exit::No)
                .into());
        }
        if own.1 != root {
            output.warn(format!("line {number}: the document was made for another root"));
        }
        waiting.push((number, claim));
        if waiting.len() == TOGETHER {
            flush(&mut waiting, profile, root, said)?;
        }
    }
    let Some((profile, root)) = trusted else {
        return Err(Failure::new(format!("{} holds no document", file.display())).into());
    };
    flush(&mut waiting, profile, root, said)
}

fn flush(
    waiting: &mut Vec<(usize, SumClaim)>,
    profile: Profile,
    root: SumNode,
    said: &mut Said<'_>,
) -> anyhow::Result<()> {
    let claims: Vec<_> = waiting
        .iter()
        .map(|(_, it)| Claim { key: &it.key, leaf: it.leaf.as_ref(), proof: &it.proof })
        .collect();
    let shown =
        format!("{} of sum {}, tree {}", B256::from(root.hash), root.sum, Name::Sum(profile));
    verify_many(profile, root, &claims).map_err(|ClaimError { index, source }| {
        let line = waiting.get(index).map_or(0, |(line, _)| *line);
        let what = format!("line {line}: the proof does not hold under {shown}");
        let hint = "proof, leaf, key and root do not belong together: was it made for this root?";
        Failure::new(what).because(source).hint(hint).exit(Exit::No)
    })?;
    for (_, SumClaim { key, leaf, .. }) in waiting.drain(..) {
        let key = B256::from(key);
        let value = leaf.as_ref().map(|leaf| Bytes::copy_from_slice(&leaf.value));
        let sum = leaf.as_ref().map_or(0, |leaf| leaf.sum);
        let line = match &value {
            Some(value) => format!("{key}: {value}, sum {sum}"),
            None => format!("{key}: absent"),
        };
        let (hash, all) = (B256::from(root.hash), root.sum.to_string());
        let fields = json!({
            "tree": Name::Sum(profile).to_string(), "root": hash, "root_sum": all,
            "key": key, "value": value, "sum": sum.to_string(),
        });
        said.say(format!("{line}; holds under {shown}"), fields)?;
    }
    Ok(())
}
