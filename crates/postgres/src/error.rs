//! What a server, or the way to it, fails with.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use postgres::error::SqlState;

/// A failure on the way to a server, or of a statement there. Its text has no password in it.
#[derive(Debug)]
pub struct ServerError {
    why: Why,
    what: String,
}

/// What kind of failure it is, for those who say what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The address cannot be read.
    Address,
    /// The password is wrong, or there is none.
    Password,
    /// The server lets this user, host or database not in, whatever the password.
    Login,
    /// The server has no such database.
    Database,
    /// TLS: the certificate is not the right one, one side asks for TLS and the other has none.
    Tls,
    /// Nobody answers there, or the connection broke.
    Connection,
    /// The user may not do this.
    Permission,
    /// The server has no room for one more connection, or is about to start or to stop.
    Overload,
    /// Anything else that the server says.
    Server,
}

impl ServerError {
    pub(crate) fn new(why: Why, what: impl Into<String>) -> Self {
        Self { why, what: what.into() }
    }

    /// What kind of failure it is.
    pub fn why(&self) -> Why {
        self.why
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl StdError for ServerError {}

impl From<&postgres::Error> for ServerError {
    fn from(error: &postgres::Error) -> Self {
        if let Some(said) = error.as_db_error() {
            return Self::new(why(said.code()), format!("PostgreSQL says: {}", said.message()));
        }
        let text = with_causes(error);
        if text.contains("password missing") {
            return Self::new(Why::Password, "the server asks for a password, and there is none");
        }
        match is_lost(error) {
            _ if text.contains("TLS") => Self::new(Why::Tls, text),
            true => {
                Self::new(Why::Connection, format!("the connection to the server is lost ({text})"))
            }
            false if text.contains("error connecting to server") => {
                Self::new(Why::Connection, text)
            }
            false => Self::new(Why::Server, text),
        }
    }
}

fn why(code: &SqlState) -> Why {
    let kinds = [
        (SqlState::INVALID_PASSWORD, Why::Password),
        (SqlState::INVALID_AUTHORIZATION_SPECIFICATION, Why::Login),
        (SqlState::INVALID_CATALOG_NAME, Why::Database),
        (SqlState::INSUFFICIENT_PRIVILEGE, Why::Permission),
        (SqlState::TOO_MANY_CONNECTIONS, Why::Overload),
        (SqlState::CANNOT_CONNECT_NOW, Why::Overload),
        (SqlState::ADMIN_SHUTDOWN, Why::Connection),
        (SqlState::CRASH_SHUTDOWN, Why::Connection),
    ];
    let known = kinds.into_iter().find(|(known, _)| known == code);
    known.map_or(Why::Server, |(_, why)| why)
}

/// Whether a statement failed because its connection is gone.
fn is_lost(error: &postgres::Error) -> bool {
    error.is_closed() || error.source().is_some_and(<dyn StdError>::is::<io::Error>)
}

/// An error and what it is due to, on one line.
fn with_causes(error: &postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}
