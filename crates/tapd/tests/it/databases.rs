//! Makes databases with tapd's tables from leaves.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rusqlite::Connection;
use spinney_tapd::{Database, Report, TapdError};
use spinney_tree::sum::reference::Leaves;
use spinney_tree::sum::{DEPTH, Leaf, Profile, SumNode};
use tempfile::TempDir;

const HASHES: Profile = Profile::Compatible;

/// The columns of a node beside its hash and its sum: children, key, value.
pub(crate) type Columns = (Option<Vec<u8>>, Option<Vec<u8>>, Option<Vec<u8>>, Option<Vec<u8>>);

/// What is in a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Contents {
    /// By namespace and hash.
    pub(crate) nodes: BTreeMap<(String, Vec<u8>), (Columns, i64)>,
    pub(crate) roots: BTreeMap<String, Vec<u8>>,
}

/// The shape of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// A lone leaf so many levels below where it could be, as after deletions.
    Compacted { below: usize },
    /// Every branch down to depth 256.
    Full,
}

pub(crate) fn goes_right(key: &[u8; 32], depth: usize) -> bool {
    key[depth / 8] >> (depth % 8) & 1 == 1
}

impl Contents {
    /// Adds a tree as tapd would keep it: a row a node, unless there is one of that hash.
    pub(crate) fn add(&mut self, namespace: &str, shape: Shape, leaves: &Leaves) -> SumNode {
        let leaves: Vec<_> = leaves.iter().map(|(key, leaf)| (*key, leaf)).collect();
        let root = self.node(namespace, shape, &leaves, 0);
        self.roots.insert(namespace.into(), root.hash.to_vec());
        root
    }

    pub(crate) fn put(&mut self, namespace: &str, node: SumNode, columns: Columns) {
        let key = (namespace.to_owned(), node.hash.to_vec());
        self.nodes.entry(key).or_insert((columns, node.sum.cast_signed()));
    }

    pub(crate) fn branch(&mut self, namespace: &str, left: SumNode, right: SumNode) -> SumNode {
        let node = HASHES.branch(left, right).unwrap();
        let children = (Some(left.hash.to_vec()), Some(right.hash.to_vec()));
        self.put(namespace, node, (children.0, children.1, None, None));
        node
    }

    fn node(
        &mut self,
        namespace: &str,
        shape: Shape,
        leaves: &[([u8; 32], &Leaf)],
        depth: usize,
    ) -> SumNode {
        match (leaves, shape) {
            ([], _) => HASHES.empty_node(depth),
            ([(_, leaf)], Shape::Full) if depth == DEPTH => {
                let node = HASHES.leaf(leaf);
                self.put(namespace, node, (None, None, None, Some(leaf.value.clone())));
                node
            }
            ([(key, leaf)], Shape::Compacted { below })
                if depth == DEPTH || depth > 0 && below == 0 =>
            {
                let node = climb(key, leaf, depth);
                let value = Some(leaf.value.clone());
                self.put(namespace, node, (None, None, Some(key.to_vec()), value));
                node
            }
            _ => {
                let deeper = match shape {
                    Shape::Compacted { below } if depth > 0 && leaves.len() == 1 => {
                        Shape::Compacted { below: below - 1 }
                    }
                    shape => shape,
                };
                let (right, left): (Vec<_>, Vec<_>) =
                    leaves.iter().copied().partition(|(key, _)| goes_right(key, depth));
                let left = self.node(namespace, deeper, &left, depth + 1);
                let right = self.node(namespace, deeper, &right, depth + 1);
                self.branch(namespace, left, right)
            }
        }
    }

    /// In SQLite.
    pub(crate) fn sqlite(&self) -> Sqlite {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tapd.db");
        let mut connection = Connection::open(&file).unwrap();
        // Nothing here has to outlive a power cut.
        connection.execute_batch("PRAGMA journal_mode = off; PRAGMA synchronous = off").unwrap();
        connection.execute_batch(&TABLES.replace("BYTES", "BLOB")).unwrap();
        let change = connection.transaction().unwrap();
        for ((namespace, hash), ((left, right, key, value), sum)) in &self.nodes {
            change
                .execute(
                    "INSERT INTO mssmt_nodes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                    (hash, left, right, key, value, sum, namespace),
                )
                .unwrap();
        }
        for root in &self.roots {
            change.execute("INSERT INTO mssmt_roots VALUES (?1, ?2)", root).unwrap();
        }
        change.commit().unwrap();
        Sqlite { file, _folder: folder }
    }

    /// In a schema of the server, by its URL.
    #[cfg(unix)]
    pub(crate) fn postgres(&self, server: &crate::server::Server) -> String {
        let (url, schema) = server.schema();
        let mut session = server.session(&schema);
        session.batch_execute(&TABLES.replace("BYTES", "BYTEA")).unwrap();
        let mut change = session.transaction().unwrap();
        for ((namespace, hash), ((left, right, key, value), sum)) in &self.nodes {
            change
                .execute(
                    "INSERT INTO mssmt_nodes VALUES ($1, $2, $3, $4, $5, $6, $7)",
                    &[hash, left, right, key, value, sum, namespace],
                )
                .unwrap();
        }
        for (namespace, hash) in &self.roots {
            change.execute("INSERT INTO mssmt_roots VALUES ($1, $2)", &[namespace, hash]).unwrap();
        }
        change.commit().unwrap();
        url
    }
}

/// As ../shared/specs/mssmt.md gives them. Without the reference between the tables: damaged
/// databases are made, too.
const TABLES: &str = "
    CREATE TABLE mssmt_nodes(hash_key BYTES NOT NULL, l_hash_key BYTES, r_hash_key BYTES, key BYTES,
        value BYTES, sum BIGINT NOT NULL, namespace VARCHAR NOT NULL, PRIMARY KEY(hash_key, namespace));
    CREATE INDEX mssmt_nodes_l_hash_key_idx ON mssmt_nodes(l_hash_key);
    CREATE INDEX mssmt_nodes_r_hash_key_idx ON mssmt_nodes(r_hash_key);
    CREATE TABLE mssmt_roots(namespace VARCHAR PRIMARY KEY, root_hash BYTES NOT NULL);";

/// A database in a folder that goes with it.
pub(crate) struct Sqlite {
    pub(crate) file: PathBuf,
    _folder: TempDir,
}

impl Sqlite {
    pub(crate) fn open(&self) -> Database {
        Database::sqlite(&self.file).unwrap()
    }
}

/// The hash of a lone leaf's subtree, by the book.
pub(crate) fn climb(key: &[u8; 32], leaf: &Leaf, depth: usize) -> SumNode {
    (depth..DEPTH).rev().fold(HASHES.leaf(leaf), |node, depth| {
        let empty = HASHES.empty_node(depth + 1);
        match goes_right(key, depth) {
            true => HASHES.branch(empty, node).unwrap(),
            false => HASHES.branch(node, empty).unwrap(),
        }
    })
}

/// All leaves of a tree; one that comes twice is a failure.
pub(crate) fn read(
    database: &mut Database,
    namespace: &str,
) -> Result<(Report, Leaves), TapdError> {
    let mut leaves = Leaves::new();
    let report = database.read(namespace, &mut |key, leaf| {
        assert_eq!(leaves.insert(key, leaf), None, "a leaf comes twice");
        Ok::<_, TapdError>(())
    })?;
    assert_eq!(report.leaves, leaves.len() as u64);
    Ok((report, leaves))
}
