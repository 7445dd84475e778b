//! What a store writes that keeps each node of a tree as a row of its own.
//!
//! Counted from the leaves, without the tree: which nodes there are follows from the keys, and how
//! long they are from the encodings that software with such stores has ([`Layout`]). A row's key is
//! the node's path, in whole bytes, and how many bits of it count.
//!
//! Invariants (tests.rs, against all nodes of the leaves before and after):
//! - put are the rows of nodes that a change of a leaf reaches, and of those that stand elsewhere
//!   or have another length since; removed are the rows of nodes that are no more;
//! - a leaf that gets the value that it had reaches nothing.

mod key;
mod layout;
mod nodes;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use self::layout::Layout;
pub(crate) use self::nodes::Step;
pub(crate) use self::store::{RowStore, RowsWritten};
