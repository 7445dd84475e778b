//! Connections to a PostgreSQL server: how they are made, what they count, how they fail.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::error::Error as StdError;
use std::io;

use postgres::error::SqlState;
use postgres::types::{ToSql, Type};
use postgres::{Client, Row, SimpleQueryMessage};
use spinney_postgres::{Access, ServerError};
use spinney_tree::StoreError;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::guard::{backend, corrupt};
use crate::metered::Meter;

/// What the number of the lock is seeded with: "Spin", so that it is none of another program's.
const LOCK_SEED: u64 = 0x5370_696E;

/// A connection, ready for our statements.
pub(super) struct Connection {
    client: Box<Client>,
    schema: String,
}

/// Why a statement failed: the server's reasons, or ours.
#[derive(Debug)]
pub(super) enum Failed {
    Postgres(postgres::Error),
    /// There is no connection.
    Server(ServerError),
    Store(StoreError),
}

impl From<postgres::Error> for Failed {
    fn from(error: postgres::Error) -> Self {
        Self::Postgres(error)
    }
}

impl From<ServerError> for Failed {
    fn from(error: ServerError) -> Self {
        Self::Server(error)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Tables are read by their index, whatever a planner without statistics may think; commits are
/// durable.
const OF_POSTGRES: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off; \
     SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; \
     SELECT set_config('synchronous_commit', 'on', false) \
        WHERE current_setting('synchronous_commit') = 'off'";

impl Connection {
    pub(super) fn open(access: &Access, meter: &Meter) -> Result<Self, Failed> {
        let mut client = access.connect()?;
        meter.round_trip();
        // Transactions are as the module says.
        let shared = "SET default_transaction_isolation = 'repeatable read'";
        let own = if access.portable() { "" } else { OF_POSTGRES };
        client.batch_execute(&format!("{shared}; {own}"))?;
        meter.round_trip();
        let row = client.query_typed("SELECT current_schema()::text", &[])?;
        meter.round_trip();
        let schema = row.first().and_then(|row| row.try_get::<_, Option<String>>(0).ok()).flatten();
        match schema {
            Some(schema) => Ok(Self { client: Box::new(client), schema }),
            None => {
                let what = "none of the schemas in its search_path is there; create one";
                Err(backend(access.place(), what).into())
            }
        }
    }

    /// The advisory lock of the one that writes to this schema.
    pub(super) fn lock_number(&self) -> i64 {
        xxh3_64_with_seed(self.schema.as_bytes(), LOCK_SEED) as i64
    }

    /// Runs statements without parameters in one round trip.
    pub(super) fn simple(
        &mut self,
        meter: &Meter,
        sql: &str,
    ) -> Result<Vec<SimpleQueryMessage>, Failed> {
        meter.round_trip();
        Ok(self.client.simple_query(sql)?)
    }

    /// Runs a statement in one round trip, and answers with its rows.
    pub(super) fn query(
        &mut self,
        meter: &Meter,
        sql: &str,
        columns: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Failed> {
        meter.round_trip();
        Ok(self.client.query_typed(sql, columns)?)
    }

    pub(super) fn close(self) -> Result<(), Failed> {
        Ok(self.client.close()?)
    }
}

/// Whether a connection is of no use any more.
pub(super) fn is_lost(error: &postgres::Error) -> bool {
    match error.code() {
        Some(code) => {
            *code == SqlState::ADMIN_SHUTDOWN
                || *code == SqlState::CRASH_SHUTDOWN
                || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
                || code.code().starts_with("08")
        }
        None => error.is_closed() || error.source().is_some_and(<dyn StdError>::is::<io::Error>),
    }
}

impl Failed {
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Postgres(error) if is_lost(error))
    }

    /// Whether the transaction was given up for another's sake.
    pub(super) fn is_transient(&self) -> bool {
        let Self::Postgres(error) = self else { return false };
        error.code().is_some_and(|code| {
            *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED
        })
    }

    pub(super) fn into_store_error(self, place: &str) -> StoreError {
        let error = match self {
            Self::Store(error) => return error,
            Self::Server(error) => return backend(place, error),
            Self::Postgres(error) => error,
        };
        let what = ServerError::from(&error);
        let Some(said) = error.as_db_error() else { return backend(place, what) };
        let code = said.code();
        if *code == SqlState::DISK_FULL {
            backend(place, io::Error::new(io::ErrorKind::StorageFull, what))
        } else if *code == SqlState::LOCK_NOT_AVAILABLE {
            StoreError::Busy { place: place.to_owned() }
        } else if [
            SqlState::DATA_CORRUPTED,
            SqlState::INDEX_CORRUPTED,
            SqlState::UNDEFINED_TABLE,
            SqlState::UNDEFINED_COLUMN,
        ]
        .contains(code)
        {
            corrupt(place, what.to_string())
        } else {
            backend(place, what)
        }
    }
}
