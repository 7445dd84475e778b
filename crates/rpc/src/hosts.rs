//! The names that a server answers to.
//!
//! A page of a browser may ask a server at loopback: its own name is made to stand for that address
//! once the page is loaded (DNS rebinding), and then the browser takes both to be one site. The
//! browser still says which name it asks for, in the header `Host`: a name that is not the server's
//! own is refused, whatever it asks. An address is no name, and stands for itself alone.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The names by which a server may be asked, beside `localhost` and any address.
///
/// ```
/// use spinney_rpc::Hosts;
///
/// let hosts: Hosts = "rpc.example.org".parse()?;
/// assert!(hosts.answers_to("RPC.example.org:8545") && hosts.answers_to("[::1]:8545"));
/// assert!(!hosts.answers_to("elsewhere.example.org"));
/// assert!(!Hosts::default().answers_to("rpc.example.org"));
/// # Ok::<_, spinney_rpc::HostError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    names: Vec<String>,
    is_any: bool,
}

/// A text that is no list of names of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name of a host: give names with commas between, without ports, or * for any")]
pub struct HostError(String);

impl FromStr for Hosts {
    type Err = HostError;

    /// Reads names with commas between them; `*` stands for any.
    fn from_str(text: &str) -> Result<Self, HostError> {
        let mut hosts = Self::default();
        for name in text.split(',').map(str::trim) {
            if name == "*" {
                hosts.is_any = true;
                continue;
            }
            let is_part = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            if name.is_empty() || !name.chars().all(is_part) {
                return Err(HostError(name.to_owned()));
            }
            hosts.names.push(plain(name).to_ascii_lowercase());
        }
        Ok(hosts)
    }
}

impl Hosts {
    /// Whether a request may name this host, as the header `Host` does: with a port, or without.
    pub fn answers_to(&self, host: &str) -> bool {
        if self.is_any {
            return true;
        }
        let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, port)) => {
                return is_port(port) && address.parse::<Ipv6Addr>().is_ok();
            }
            None => match host.find(':') {
                Some(end) => {
                    let (name, port) = host.split_at(end);
                    if !is_port(port) {
                        return false;
                    }
                    name
                }
                None => host,
            },
        };
        let name = plain(name).to_ascii_lowercase();
        name == "localhost" || name.parse::<Ipv4Addr>().is_ok() || self.names.contains(&name)
    }
}

/// A name without the dot that may stand behind it.
fn plain(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Whether it is nothing, or a colon and a port.
fn is_port(text: &str) -> bool {
    let port = text.strip_prefix(':');
    text.is_empty() || port.is_some_and(|port| port.bytes().all(|digit| digit.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::Hosts;

    #[test]
    fn an_address_and_localhost_are_answered() {
        let hosts = Hosts::default();
        for host in [
            "localhost",
            "LOCALHOST:8545",
            "localhost.",
            "127.0.0.1",
            "127.0.0.1:8545",
            "192.168.7.9:80",
            "[::1]",
            "[::1]:8545",
            "[fe80::7]:",
        ] {
            assert!(hosts.answers_to(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8545",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:8545.evil.example",
            "localhost:evil.example",
            "[::1].evil.example",
            "[evil.example]",
            "::1",
            "evil.example@127.0.0.1",
            "0x7f.1",
            "2130706433",
        ] {
            assert!(!hosts.answers_to(host), "{host}");
        }
    }

    #[test]
    fn names_are_those_that_were_given() {
        let hosts: Hosts = "a.example, B.example.".parse().unwrap();
        for host in ["a.example", "A.EXAMPLE:1", "b.example", "localhost", "10.0.0.1"] {
            assert!(hosts.answers_to(host), "{host}");
        }
        assert!(!hosts.answers_to("c.a.example") && !hosts.answers_to("example"));
        let any: Hosts = "*".parse().unwrap();
        assert!(any.answers_to("evil.example") && any.answers_to(""));
        for text in ["", "a,", "a:80", "http://a", "a b", "*.example"] {
            assert!(text.parse::<Hosts>().is_err(), "{text}");
        }
    }
}
