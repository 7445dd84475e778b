//! `db dump`: the leaves of a namespace, one a line, in the order of the tree.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::io::Write as _;
use std::path::Path;

use alloy_primitives::hex;
use spinney_state::sum::SumError;
use spinney_store::Frozen;
use spinney_tree::SharedStore;
use spinney_tree::sum::Profile;

use super::{open, plain};
use crate::out_file::OutFile;
use crate::stores::{Mode, Place};

/// With `verify` the root is first computed from the leaves alone.
pub(crate) fn dump(
    place: &Place,
    namespace: &str,
    profile: Profile,
    (verify, out): (bool, Option<&Path>),
) -> anyhow::Result<()> {
    let store = place.open(Mode::Look)?;
    let store = SharedStore::new(Frozen::of(&store)?);
    let tree = open(&store, namespace, profile, place.tree_cache())?;
    if verify {
        tree.verify_entries().map_err(plain)?;
    }
    let mut out = OutFile::begin(out)?;
    let written = tree.visit(|key, leaf| {
        let (key, value) = (hex::encode_prefixed(key), hex::encode_prefixed(&leaf.value));
        let sum = leaf.sum.to_string();
        writeln!(out, r#"{{"key":"{key}","value":"{value}","sum":"{sum}"}}"#)?;
        Ok::<_, SumError>(true)
    });
    written.map_err(plain)?;
    Ok(out.finish()?)
}
