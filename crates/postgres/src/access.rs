//! From an address to a connection.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::env;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use postgres::config::SslMode;
use postgres::{Client, Config, NoTls};

use crate::address::{Host, Pairs};
use crate::error::Why;
use crate::passfile::{self, Login};
use crate::tls::{Came, Mode, Wish};
use crate::{Address, ServerError, WARNINGS};

/// How long a server may take to answer a connection, unless the address says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server may be silent before it counts as gone, unless the address says otherwise.
const TCP_TIMEOUT: Duration = Duration::from_secs(60);
/// Folders of Unix sockets that passfiles call `localhost`.
const SOCKET_FOLDERS: [&str; 3] = ["/var/run/postgresql", "/run/postgresql", "/tmp"];

/// An address that was read: where a server is, and how to get in.
///
/// It holds passwords; `Debug` does not show them.
#[derive(Clone)]
pub struct Access {
    place: String,
    portable: bool,
    wish: Wish,
    /// One for each host, which are tried in their order.
    hosts: Vec<(Host, Config)>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Address {
    /// Reads the address, the environment and the passfile. `program` is what the server calls the
    /// connections, unless the address says otherwise. Nothing is connected to.
    ///
    /// # Errors
    /// [`Why::Address`] if the address cannot be read.
    pub fn access(&self, program: &str) -> Result<Access, ServerError> {
        let pairs = self.pairs()?;
        let wish = Wish::of(&pairs)?;
        let basis = basis(&pairs, program)?;
        let hosts = pairs.hosts()?.into_iter().map(|host| {
            let mut config = basis.clone();
            config.host(&host.name).port(host.port);
            if let Some(address) = &host.address {
                let what = "its hostaddr is no IP address";
                let address: IpAddr = address.parse().map_err(|_| unreadable(what))?;
                config.hostaddr(address);
            }
            if let Some(password) = password_for(&pairs, &host, &config) {
                config.password(password);
            }
            Ok((host, config))
        });
        let hosts = hosts.collect::<Result<_, ServerError>>()?;
        let (place, portable) = (pairs.to_string(), pairs.portable()?);
        Ok(Access { place, portable, wish, hosts })
    }
}

impl Access {
    /// The place as messages name it, without a password.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Whether the address says `portable=true`: the server may be another engine that speaks
    /// PostgreSQL's protocol.
    pub const fn portable(&self) -> bool {
        self.portable
    }

    /// Connects to the first host that answers.
    ///
    /// # Errors
    /// What the last host that was tried says: see [`Why`].
    pub fn connect(&self) -> Result<Client, ServerError> {
        let mut failed = unreadable("it names no host");
        for (host, config) in &self.hosts {
            match self.connect_to(host, config) {
                Ok(client) => return Ok(client),
                Err(error) => failed = error,
            }
            // Another host would be asked with a password that this one refused.
            if matches!(failed.why(), Why::Password | Why::Login) {
                break;
            }
        }
        Err(failed)
    }

    fn connect_to(&self, host: &Host, config: &Config) -> Result<Client, ServerError> {
        let here = is_here(host);
        let usual = if here { Mode::Disable } else { Mode::Prefer };
        let mode = if host.is_socket() { Mode::Disable } else { self.wish.mode.unwrap_or(usual) };
        let mut config = config.clone();
        if mode == Mode::Disable {
            config.ssl_mode(SslMode::Disable);
            return config.connect(NoTls).map_err(|error| (&error).into());
        }
        config.ssl_mode(match mode {
            Mode::Prefer => SslMode::Prefer,
            _ => SslMode::Require,
        });
        let connector = self.wish.connector(mode)?;
        let connected = config.connect(connector.clone());
        let plain = |why: &str| {
            tracing::warn!(
                target: WARNINGS,
                "the connection to {host} is not encrypted: {why}; sslmode=require insists on TLS, \
                 sslmode=disable on none",
            );
        };
        match connected {
            Ok(client) => {
                if connector.came() != Came::ToTls && !here {
                    plain("the server has no TLS");
                }
                Ok(client)
            }
            // As libpq does. Who may change what is sent could have turned TLS off anyway.
            Err(error)
                if mode == Mode::Prefer
                    && connector.came() == Came::ToNothing
                    && !connector.verifies() =>
            {
                let error = ServerError::from(&error);
                config.ssl_mode(SslMode::Disable);
                let client = config.connect(NoTls).map_err(|error| ServerError::from(&error))?;
                if !here {
                    plain(&error.to_string());
                }
                Ok(client)
            }
            Err(error) if connector.came() == Came::ToNothing => {
                Err(ServerError::new(Why::Tls, ServerError::from(&error).to_string()))
            }
            Err(error) => Err((&error).into()),
        }
    }
}

fn unreadable(what: &str) -> ServerError {
    ServerError::new(Why::Address, format!("the address of the server cannot be read: {what}"))
}

/// What is the same for all hosts, read by those who connect.
fn basis(pairs: &Pairs, program: &str) -> Result<Config, ServerError> {
    let quoted = |value: &str| value.replace('\\', "\\\\").replace('\'', "\\'");
    let words: Vec<_> =
        pairs.rest().map(|(name, value)| format!("{name}='{}'", quoted(value))).collect();
    // There is no password among them, and what is said names keywords alone.
    let read = words.join(" ").parse();
    let mut config: Config = read.map_err(|error: postgres::Error| {
        ServerError::new(Why::Address, ServerError::from(&error).to_string())
    })?;
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(TCP_TIMEOUT);
    }
    if config.get_application_name().is_none() {
        config.application_name(program);
    }
    Ok(config)
}

/// The password for a host, from the address, the environment or a passfile.
fn password_for(pairs: &Pairs, host: &Host, config: &Config) -> Option<Vec<u8>> {
    if let Some(password) = pairs.get("password") {
        return Some(password.into());
    }
    if let Some(password) = env::var_os("PGPASSWORD").filter(|password| !password.is_empty()) {
        return Some(password.into_encoded_bytes());
    }
    let file = pairs.get("passfile").map(PathBuf::from).or_else(passfile::usual)?;
    let user = match config.get_user() {
        Some(user) => user.to_owned(),
        None => whoami::username().ok()?,
    };
    let database = config.get_dbname().unwrap_or(&user);
    let usual_socket = host.is_socket() && SOCKET_FOLDERS.contains(&&host.name[..]);
    let name = if usual_socket { "localhost" } else { &host.name };
    passfile::password(&file, Login { host: name, port: host.port, database, user: &user })
}

/// Whether a host is this machine.
fn is_here(host: &Host) -> bool {
    let name = host.address.as_ref().unwrap_or(&host.name);
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    host.is_socket() || name == "localhost" || name.parse().is_ok_and(is_loopback)
}
