//! The names of trees.

use spinney_tree::SchemeId;

use crate::failure::Failure;

/// All names there are going to be; this version has the first.
const NAMES: [&str; 10] = [
    "mpt",
    "ubt:sha256",
    "ubt:blake3",
    "ubt:keccak",
    "pbt:blake3",
    "pbt:sha256",
    "pbt:keccak",
    "sum",
    "sum:bound",
    "verkle",
];
const HAVE: &str = "mpt";

/// Refuses a tree that this version does not have.
pub(crate) fn check_name(name: &str) -> Result<(), Failure> {
    if name == HAVE {
        return Ok(());
    }
    let what = if NAMES.contains(&name) {
        format!("tree {name} is not in this version (--tree)")
    } else {
        format!("there is no tree {name} (--tree)")
    };
    Err(Failure::new(what).hint(format!("this version has: {HAVE}")))
}

/// The name of a scheme that a store holds.
pub(crate) fn name_of(scheme: SchemeId) -> &'static str {
    match (scheme.tree, scheme.hash) {
        (1 | 2, 0) => "mpt",
        _ => "unknown",
    }
}

/// What keys a scheme's tree has.
pub(crate) fn keys_of(scheme: SchemeId) -> &'static str {
    match (scheme.tree, scheme.hash) {
        (1, 0) => "raw",
        (2, 0) => "state",
        _ => "unknown",
    }
}
