//! `prove`: leaves that are there, and keys without any.

use std::path::Path;

use alloy_primitives::Bytes;
use spinney_document::SumDocument;
use spinney_store::Frozen;
use spinney_tree::SharedStore;
use spinney_tree::sum::{Claim, ClaimError, Profile, Proven, verify_many};

use super::{open, plain};
use crate::failure::{Exit, Failure};
use crate::out_file::OutFile;
use crate::stores::{Mode, Place};
use crate::ui::Output;

/// Prints a document a key, each verified before if that is asked for.
pub(crate) fn prove(
    place: &Place,
    namespace: &str,
    profile: Profile,
    (keys, verify): (&[Bytes], bool),
    output: &Output,
) -> anyhow::Result<Exit> {
    let key = |key: &Bytes| {
        let hint = "a key of a sum tree is 0x and 64 hex digits";
        let what = format!("key {key} has {} bytes, and keys of a sum tree have 32", key.len());
        <[u8; 32]>::try_from(&key[..]).map_err(|_| Failure::new(what).hint(hint))
    };
    let keys: Vec<[u8; 32]> = keys.iter().map(key).collect::<Result<_, _>>()?;
    let store = place.open(Mode::Look)?;
    // Root and proofs are of one commit, whoever writes meanwhile.
    let store = SharedStore::new(Frozen::of(&store)?);
    let tree = open(&store, namespace, profile, place.tree_cache())?;
    let proven = tree.prove(&keys).map_err(plain)?;
    if verify {
        let claim = |(key, proven)| {
            let Proven { leaf, proof, .. }: &Proven = proven;
            Claim { key, leaf: leaf.as_ref(), proof }
        };
        let claims: Vec<_> = keys.iter().zip(&proven).map(claim).collect();
        verify_many(profile, tree.root(), &claims).map_err(|ClaimError { source, .. }| {
            Failure::new("what was made of the store does not hold under its root")
                .because(source)
                .hint("rows of the store are old or forged: spinney db check looks at all of it")
        })?;
    }
    for (key, proven) in keys.iter().zip(&proven) {
        let document = SumDocument::new(profile, tree.root(), key, proven);
        output.json(&document)?;
    }
    Ok(Exit::Ok)
}

/// Proves every leaf, in the order of the tree, into a file or onto standard output.
pub(crate) fn prove_all(
    place: &Place,
    namespace: &str,
    profile: Profile,
    out: Option<&Path>,
    output: &Output,
) -> anyhow::Result<Exit> {
    let store = place.open(Mode::Look)?;
    let store = SharedStore::new(Frozen::of(&store)?);
    let tree = open(&store, namespace, profile, place.tree_cache())?;
    let root = tree.root();
    if root == profile.empty_node(0) {
        // A file without documents would say nothing of any root.
        let what = format!("namespace {namespace} has no leaves to prove (--all)");
        let hint = "spinney prove KEY proves that a key has no leaf";
        return Err(Failure::new(what).hint(hint).into());
    }
    let mut file = OutFile::begin(out)?;
    let write = |key: &[u8; 32], proven: &Proven, bytes: &mut Vec<u8>| {
        let document = SumDocument::new(profile, root, key, proven);
        serde_json::to_writer(&mut *bytes, &document).expect("a vector takes all there is");
        bytes.push(b'\n');
    };
    let written = tree.write_proofs(&mut file, write).map_err(plain)?;
    file.finish()?;
    output.note(&format!("{written} proofs"));
    Ok(Exit::Ok)
}
