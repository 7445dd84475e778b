//! A database with the tables in which a Taproot Assets daemon keeps its sum trees.

use std::path::Path;

use anyhow::Context as _;
use rusqlite::{Connection, Transaction};
use spinney_hash::sha256;
use spinney_tree::sum::{DEPTH, Leaf, Profile, SumNode};

const HASHES: Profile = Profile::Compatible;

const TABLES: &str = "
    PRAGMA journal_mode = off;
    CREATE TABLE mssmt_nodes(hash_key BLOB NOT NULL, l_hash_key BLOB, r_hash_key BLOB, key BLOB,
        value BLOB, sum BIGINT NOT NULL, namespace VARCHAR NOT NULL, \
    PRIMARY KEY(hash_key, namespace));
    CREATE INDEX mssmt_nodes_l_hash_key_idx ON mssmt_nodes(l_hash_key);
    CREATE INDEX mssmt_nodes_r_hash_key_idx ON mssmt_nodes(r_hash_key);
    CREATE TABLE mssmt_roots(namespace VARCHAR PRIMARY KEY, root_hash BLOB NOT NULL);";

/// The trees, and how many leaves each has.
const TREES: [(&str, u64); 2] = [("issuance-demo", 40), ("transfer-demo", 12)];

/// A leaf and its key.
type Keyed = ([u8; 32], Leaf);

pub(super) fn write(path: &Path) -> anyhow::Result<()> {
    let mut connection = Connection::open(path)?;
    connection.execute_batch(TABLES)?;
    let rows = connection.transaction()?;
    for (namespace, count) in TREES {
        let leaf = |n: u64| Leaf { value: format!("asset {n}").into_bytes(), sum: 100 + n };
        let leaves: Vec<Keyed> =
            (0..count).map(|n| (sha256(format!("{namespace} {n}").as_bytes()), leaf(n))).collect();
        let root = node(&rows, namespace, &leaves, 0)?;
        rows.execute("INSERT INTO mssmt_roots VALUES (?1, ?2)", (namespace, root.hash.as_slice()))?;
    }
    rows.commit()?;
    Ok(())
}

/// Writes the rows of a subtree. A lone leaf is compacted: it lies where its branch ends.
fn node(
    rows: &Transaction<'_>,
    namespace: &str,
    leaves: &[Keyed],
    depth: usize,
) -> anyhow::Result<SumNode> {
    match leaves {
        [] => Ok(HASHES.empty_node(depth)),
        [(key, leaf)] if depth > 0 => {
            let node = climbed(key, leaf, depth)?;
            let bytes = leaf.value.to_vec();
            rows.execute(
                "INSERT INTO mssmt_nodes VALUES (?1, NULL, NULL, ?2, ?3, ?4, ?5)",
                (node.hash.as_slice(), key.as_slice(), bytes, node.sum.cast_signed(), namespace),
            )?;
            Ok(node)
        }
        _ => {
            let (right, left): (Vec<_>, Vec<_>) =
                leaves.iter().cloned().partition(|(key, _)| goes_right(key, depth));
            let left = node(rows, namespace, &left, depth + 1)?;
            let right = node(rows, namespace, &right, depth + 1)?;
            let node = HASHES.branch(left, right).context("the sums fit")?;
            rows.execute(
                "INSERT INTO mssmt_nodes VALUES (?1, ?2, ?3, NULL, NULL, ?4, ?5)",
                (
                    node.hash.as_slice(),
                    left.hash.as_slice(),
                    right.hash.as_slice(),
                    node.sum.cast_signed(),
                    namespace,
                ),
            )?;
            Ok(node)
        }
    }
}

/// The side of a key below a branch at this depth: bits of a byte count from the lowest.
fn goes_right(key: &[u8; 32], depth: usize) -> bool {
    key[depth / 8] >> (depth % 8) & 1 == 1
}

/// The hash of a lone leaf at a depth.
fn climbed(key: &[u8; 32], leaf: &Leaf, depth: usize) -> anyhow::Result<SumNode> {
    let mut node = HASHES.leaf(leaf);
    for depth in (depth..DEPTH).rev() {
        let empty = HASHES.empty_node(depth + 1);
        let branch = match goes_right(key, depth) {
            true => HASHES.branch(empty, node),
            false => HASHES.branch(node, empty),
        };
        node = branch.context("the sums fit")?;
    }
    Ok(node)
}
