//! PostgreSQL servers: where they are, how to get in, and what goes wrong on the way.
//!
//! [`Address`] is what people write: a URL, or libpq's `key=value` pairs. It prints without its
//! password, whichever form it has. [`Access`] is read from it: the password may also come from
//! `PGPASSWORD` or a passfile, so that it need not stand in an argument list; connections are
//! encrypted as `sslmode` says.
//!
//! ```no_run
//! use spinney_postgres::Address;
//!
//! let address = Address::new("postgres://me:secret@db.example/state?sslmode=verify-full");
//! assert_eq!(address.to_string(), "postgres://me@db.example:5432/state");
//! let mut client = address.access("my program")?.connect()?;
//! client.simple_query("SELECT 1").unwrap();
//! # Ok::<_, spinney_postgres::ServerError>(())
//! ```
//!
//! # What an address may say
//! libpq's keywords `host`, `hostaddr`, `port`, `dbname`, `user`, `password`, `passfile`,
//! `options`, `application_name`, `connect_timeout` and `tcp_user_timeout` (seconds, as `postgres`
//! reads them), `keepalives` and its three figures, `target_session_attrs`, `channel_binding`,
//! `load_balance_hosts` (the addresses of one host; hosts are tried in their order), `sslmode` and
//! `sslrootcert`; and one of our own, `portable` (`true` or `false`): whether to keep to what other
//! engines of the protocol have, too. Others are refused.
//!
//! # Passwords
//! In this order: the address, `PGPASSWORD`, the passfile (`passfile`, `PGPASSFILE`, `~/.pgpass`).
//! A passfile that others may read is not read, with a warning. Each host gets its own line of it.
//!
//! # TLS
//! | `sslmode` | connection |
//! |---|---|
//! | `disable` | plain |
//! | `prefer` | encrypted if the server can, by any certificate; else plain, with a warning |
//! | `require` | encrypted, by any certificate; with root certificates as `verify-ca` |
//! | `verify-ca` | encrypted, by a certificate that leads to a root certificate |
//! | `verify-full` | the same, and the certificate names the host |
//!
//! Without `sslmode` it is `verify-ca` where `sslrootcert` names a file, `verify-full` where it is
//! `system`, else `disable` for this machine and `prefer` for others. Root certificates are those
//! of `sslrootcert`, or of `~/.postgresql/root.crt`. Unix sockets are plain.
//!
//! Warnings are events of `tracing` at the level `WARN`, with the target [`WARNINGS`].
#![forbid(unsafe_code)]

mod access;
mod address;
mod error;
mod mask;
mod passfile;
mod tls;

pub use access::Access;
pub use address::Address;
pub use error::{ServerError, Why};
pub use mask::masked;

/// The target of the events that are warnings.
pub const WARNINGS: &str = "spinney::postgres";
