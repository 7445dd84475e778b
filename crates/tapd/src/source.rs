//! What both databases are asked for.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::fmt::Debug;

use spinney_tree::sum::SumNode;

use crate::error::TapdError;

/// A tree of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its name, as "multiverse-issuance".
    pub name: String,
    /// Its root as the database has it; `None` if its row is missing or unreadable, which
    /// [`Database::read`](crate::Database::read) says more of.
    pub root: Option<SumNode>,
    /// Rows of nodes, those that nothing leads to included.
    pub rows: u64,
}

/// A database, in one read transaction.
pub(crate) trait Source: Debug {
    /// The file, or the URL without its password.
    fn place(&self) -> &str;

    /// The trees, by name.
    fn namespaces(&mut self) -> Result<Vec<Namespace>, TapdError>;

    /// The hash that the root of a tree has, and the number of its rows; `None` if it has no root.
    fn root(&mut self, namespace: &str) -> Result<Option<(Vec<u8>, u64)>, TapdError>;

    /// Gives `row` the rows of these different hashes that are there, in any order.
    fn rows(
        &mut self,
        namespace: &str,
        hashes: &[&[u8]],
        row: &mut dyn FnMut(Row),
    ) -> Result<(), TapdError>;
}

/// A row of `mssmt_nodes`.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) hash: Vec<u8>,
    pub(crate) content: Content,
    pub(crate) sum: u64,
}

/// What is in a row.
#[derive(Debug)]
pub(crate) enum Content {
    Branch {
        left: Vec<u8>,
        right: Vec<u8>,
    },
    /// A compacted leaf has a key.
    Leaf {
        key: Option<Vec<u8>>,
        value: Vec<u8>,
    },
    /// The value is longer than any may be.
    TooLong,
    /// One child without the other, or a column of another type.
    Malformed(String),
}

impl Content {
    /// What the columns of a row say.
    pub(crate) fn of(
        children: (Option<Vec<u8>>, Option<Vec<u8>>),
        key: Option<Vec<u8>>,
        value: Option<Vec<u8>>,
    ) -> Self {
        match children {
            (Some(left), Some(right)) => Self::Branch { left, right },
            (None, None) => Self::Leaf { key, value: value.unwrap_or_default() },
            _ => Self::Malformed("a branch with one child's hash".into()),
        }
    }
}

/// As an unsigned number that the column's signed one stands for.
pub(crate) const fn sum_of(column: i64) -> u64 {
    column.cast_unsigned()
}
