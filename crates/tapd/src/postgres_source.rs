//! tapd's database in PostgreSQL.
#![deny(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::HashMap;

use postgres::Client;
use spinney_postgres::{Address, ServerError};
use spinney_tree::sum::SumNode;

use crate::source::{Content, Row, Source, sum_of};
use crate::{Namespace, TapdError, VALUE_BYTES_MAX};

/// Bytes of values that one query brings, or one value.
const QUERY_BYTES: i64 = 16 << 20;

/// A database whose view stays as it is while this is open.
pub(crate) struct Postgres {
    client: Client,
    place: String,
}

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Postgres").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Postgres {
    pub(crate) fn open(address: &Address) -> Result<Self, TapdError> {
        let access = address
            .access("spinney")
            .map_err(|error| TapdError::Server { place: address.to_string(), source: error })?;
        let place = access.place().to_owned();
        let mut client = access
            .connect()
            .map_err(|source| TapdError::Server { place: place.clone(), source })?;
        let mut begin = || {
            // Without statistics, as in a database just filled, the planner reads whole tables.
            client.batch_execute(
                "SET enable_seqscan = off; SET enable_bitmapscan = off; \
                 BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            )?;
            let sql = "SELECT to_regclass('mssmt_nodes') IS NOT NULL \
                       AND to_regclass('mssmt_roots') IS NOT NULL";
            client.query_one(sql, &[])?.try_get(0)
        };
        match begin() {
            Ok(true) => Ok(Self { client, place }),
            Ok(false) => {
                let what = "it has no tables mssmt_nodes and mssmt_roots".into();
                Err(TapdError::Foreign { place, what })
            }
            Err(error) => Err(failed(&place, &error)),
        }
    }
}

fn failed(place: &str, error: &postgres::Error) -> TapdError {
    TapdError::Server { place: place.to_owned(), source: ServerError::from(error) }
}

impl Source for Postgres {
    fn place(&self) -> &str {
        &self.place
    }

    fn namespaces(&mut self) -> Result<Vec<Namespace>, TapdError> {
        let sql = "SELECT r.namespace, n.hash_key, n.sum, \
                     (SELECT count(*) FROM mssmt_nodes AS m WHERE m.namespace = r.namespace) \
                   FROM mssmt_roots AS r LEFT JOIN mssmt_nodes AS n \
                     ON n.hash_key = r.root_hash AND n.namespace = r.namespace \
                   ORDER BY r.namespace";
        let mut read = || {
            let mut trees = Vec::new();
            for row in self.client.query(sql, &[])? {
                let (hash, sum): (Option<Vec<u8>>, Option<i64>) =
                    (row.try_get(1)?, row.try_get(2)?);
                let hash = hash.and_then(|hash| hash.try_into().ok());
                let root = hash.zip(sum).map(|(hash, sum)| SumNode { hash, sum: sum_of(sum) });
                let rows = row.try_get::<_, i64>(3)?.max(0).cast_unsigned();
                trees.push(Namespace { name: row.try_get(0)?, root, rows });
            }
            Ok(trees)
        };
        read().map_err(|error| failed(&self.place, &error))
    }

    fn root(&mut self, namespace: &str) -> Result<Option<(Vec<u8>, u64)>, TapdError> {
        let sql = "SELECT root_hash, \
                     (SELECT count(*) FROM mssmt_nodes AS m WHERE m.namespace = r.namespace) \
                   FROM mssmt_roots AS r WHERE r.namespace = $1";
        let mut read = || {
            let row = self.client.query_opt(sql, &[&namespace])?;
            row.map(|row| Ok((row.try_get(0)?, row.try_get::<_, i64>(1)?.max(0).cast_unsigned())))
                .transpose()
        };
        read().map_err(|error| failed(&self.place, &error))
    }

    /// Two queries as a rule: what rows there are, and then the values, in as many queries as their
    /// bytes take.
    fn rows(
        &mut self,
        namespace: &str,
        hashes: &[&[u8]],
        row: &mut dyn FnMut(Row),
    ) -> Result<(), TapdError> {
        let sql = "SELECT hash_key, l_hash_key, r_hash_key, key, sum, octet_length(value) \
                   FROM mssmt_nodes WHERE namespace = $1 AND hash_key = ANY($2)";
        let mut read = || {
            let mut leaves = Vec::new();
            for found in self.client.query(sql, &[&namespace, &hashes])? {
                let (hash, sum): (Vec<u8>, i64) = (found.try_get(0)?, found.try_get(4)?);
                let (left, right) = (found.try_get(1)?, found.try_get(2)?);
                let (key, bytes): (_, Option<i32>) = (found.try_get(3)?, found.try_get(5)?);
                let (sum, bytes) = (sum_of(sum), i64::from(bytes.unwrap_or(0)));
                let content = if bytes > VALUE_BYTES_MAX as i64 {
                    Content::TooLong
                } else {
                    Content::of((left, right), key, None)
                };
                let found = Row { hash, content, sum };
                match found.content {
                    Content::Leaf { .. } if bytes > 0 => leaves.push((found, bytes)),
                    _ => row(found),
                }
            }
            let mut group = HashMap::new();
            let mut group_bytes = 0;
            for (leaf, bytes) in leaves {
                if group_bytes + bytes > QUERY_BYTES {
                    values(&mut self.client, namespace, std::mem::take(&mut group), row)?;
                    group_bytes = 0;
                }
                group_bytes += bytes;
                group.insert(leaf.hash.clone(), leaf);
            }
            values(&mut self.client, namespace, group, row)
        };
        read().map_err(|error: postgres::Error| failed(&self.place, &error))
    }
}

/// Hands leaves on with their values.
fn values(
    client: &mut Client,
    namespace: &str,
    mut leaves: HashMap<Vec<u8>, Row>,
    row: &mut dyn FnMut(Row),
) -> Result<(), postgres::Error> {
    if leaves.is_empty() {
        return Ok(());
    }
    let hashes: Vec<&[u8]> = leaves.keys().map(|hash| &hash[..]).collect();
    let sql = "SELECT hash_key, value FROM mssmt_nodes WHERE namespace = $1 AND hash_key = ANY($2)";
    for found in client.query(sql, &[&namespace, &hashes])? {
        let hash: Vec<u8> = found.try_get(0)?;
        if let Some(mut leaf) = leaves.remove(&hash) {
            if let Content::Leaf { value, .. } = &mut leaf.content {
                *value = found.try_get(1)?;
            }
            row(leaf);
        }
    }
    Ok(())
}
