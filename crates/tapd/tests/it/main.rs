//! Databases as tapd makes them, and worse ones.

mod damage;
mod databases;
#[cfg(unix)]
#[path = "../../../store/tests/it/server.rs"]
mod server;
mod trees;
