//! Migrations between trees that are known by their names.

use spinney_state::TreeName;
use spinney_tree::PageStore;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;

use crate::convert::{Converted, from_mpt, to_mpt};
use crate::error::MigrateError;
use crate::names::NameSource;
use crate::work::Work;

/// Whether a state can be moved from one tree into another: from `mpt` to any other tree, and from
/// `pbt` back to `mpt`.
pub const fn has_way(from: TreeName, to: TreeName) -> bool {
    matches!(
        (from, to),
        (TreeName::Mpt, TreeName::Ubt(_) | TreeName::Pbt(_) | TreeName::Verkle)
            | (TreeName::Pbt(_), TreeName::Mpt)
    )
}

/// Moves a state as [`from_mpt`] or [`to_mpt`] does, whichever leads from one tree to the other.
///
/// # Errors
/// As these; and [`MigrateError::NoWay`] where neither does.
pub fn convert<P: PageStore, Q: PageStore>(
    (from, to): (TreeName, TreeName),
    source: &P,
    target: &Q,
    names: NameSource<'_>,
    work: &mut Work<'_>,
) -> Result<Converted, MigrateError> {
    match (from, to) {
        (TreeName::Mpt, TreeName::Ubt(hash)) => from_mpt(source, target, Ubt { hash }, names, work),
        (TreeName::Mpt, TreeName::Pbt(hash)) => from_mpt(source, target, Pbt { hash }, names, work),
        (TreeName::Mpt, TreeName::Verkle) => {
            from_mpt(source, target, Verkle::shared(), names, work)
        }
        (TreeName::Pbt(hash), TreeName::Mpt) => to_mpt(source, target, Pbt { hash }, names, work),
        _ => Err(MigrateError::NoWay { from, to }),
    }
}
