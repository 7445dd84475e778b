//! Connections to a server of the test's own.
#![cfg(unix)]

#[path = "../../../store/tests/it/server.rs"]
#[expect(dead_code, reason = "the tests of stores use more of it")]
mod server;
mod tls;
