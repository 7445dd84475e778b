//! Addresses: URLs and libpq's pairs, taken apart, and how they print.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::fmt;
use std::str;

use percent_encoding::percent_decode_str;

use crate::ServerError;
use crate::error::Why;

/// What an address may say, and whether we heed it: `portable` is ours. libpq's other keywords are
/// refused by name.
pub(crate) const KEYWORDS: [(&str, bool); 37] = [
    ("host", true),
    ("hostaddr", true),
    ("port", true),
    ("dbname", true),
    ("user", true),
    ("password", true),
    ("passfile", true),
    ("options", true),
    ("application_name", true),
    ("connect_timeout", true),
    ("tcp_user_timeout", true),
    ("keepalives", true),
    ("keepalives_idle", true),
    ("keepalives_interval", true),
    ("keepalives_retries", true),
    ("target_session_attrs", true),
    ("channel_binding", true),
    ("load_balance_hosts", true),
    ("sslmode", true),
    ("sslrootcert", true),
    ("portable", true),
    ("keepalives_count", false),
    ("client_encoding", false),
    ("fallback_application_name", false),
    ("replication", false),
    ("gssencmode", false),
    ("sslnegotiation", false),
    ("sslcompression", false),
    ("sslcert", false),
    ("sslkey", false),
    ("sslpassword", false),
    ("sslcrl", false),
    ("sslcrldir", false),
    ("sslsni", false),
    ("requirepeer", false),
    ("krbsrvname", false),
    ("service", false),
];

/// Where a PostgreSQL database is, as people write it. It may hold a password, which neither
/// [`Display`](fmt::Display) nor [`Debug`](fmt::Debug) shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(String);

impl Address {
    /// The address that a text is. Whether it can be read is seen when it is [used](Self::access).
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether a text is the address of a server, rather than the name of a file: a URL of
    /// PostgreSQL, or pairs of libpq's.
    pub fn is(text: &str) -> bool {
        if after_scheme(text).is_some() {
            return true;
        }
        let first = text.trim_start().split(['=', ' ', '\t']).next().unwrap_or_default();
        KEYWORDS.iter().any(|(known, _)| *known == first)
            && text.trim_start()[first.len()..].trim_start().starts_with('=')
    }

    pub(crate) fn pairs(&self) -> Result<Pairs, ServerError> {
        let text = &self.0;
        let pairs = match after_scheme(text) {
            Some(rest) => of_url(rest)?,
            None if text.contains("://") && !Self::is(text) => {
                return Err(malformed("it begins with neither postgres:// nor postgresql://"));
            }
            None => of_words(text)?,
        };
        for (name, _) in &pairs {
            match KEYWORDS.iter().find(|(known, _)| known == name) {
                Some((_, true)) => {}
                // The text of a name that nobody knows may be a part of the password.
                None => return Err(malformed("it has a keyword that PostgreSQL does not have")),
                Some((known, false)) => {
                    return Err(malformed(&format!("{known} is not supported")));
                }
            }
        }
        Ok(Pairs(pairs))
    }
}

impl From<String> for Address {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for Address {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

/// An address without its password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pairs() {
            Ok(pairs) => pairs.fmt(f),
            Err(_) => f.write_str("the address of a PostgreSQL server"),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.to_string()).finish()
    }
}

/// What an address says, by libpq's keywords.
#[derive(Clone)]
pub(crate) struct Pairs(Vec<(String, String)>);

impl Pairs {
    /// What it says of a keyword: the last one counts.
    pub(crate) fn get(&self, keyword: &str) -> Option<&str> {
        let found = self.0.iter().rev().find(|(name, _)| name == keyword);
        found.map(|(_, value)| &value[..]).filter(|value| !value.is_empty())
    }

    /// Whether the server is to be spoken to in what engines of its protocol share.
    pub(crate) fn portable(&self) -> Result<bool, ServerError> {
        match self.get("portable") {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(malformed("portable is neither true nor false")),
        }
    }

    /// The hosts, with what each is called, where it is and its port.
    pub(crate) fn hosts(&self) -> Result<Vec<Host>, ServerError> {
        let list = |keyword| self.get(keyword).map_or(Vec::new(), |list| list.split(',').collect());
        let (names, addresses, ports): (Vec<_>, Vec<_>, Vec<_>) =
            (list("host"), list("hostaddr"), list("port"));
        let count = names.len().max(addresses.len());
        let fits = |list: &[&str]| list.is_empty() || list.len() == count;
        if count == 0 {
            return Err(malformed("it names no host"));
        }
        if !fits(&names) || !fits(&addresses) || (ports.len() > 1 && ports.len() != count) {
            return Err(malformed("it has other numbers of hosts and ports"));
        }
        let host = |at: usize| {
            let given = |list: &[&str]| list.get(at).filter(|t| !t.is_empty()).map(|t| (*t).into());
            let port = match ports.get(at).or(ports.first()).copied().unwrap_or_default() {
                "" => 5432,
                port => port.parse().map_err(|_| malformed("its port is no number up to 65535"))?,
            };
            let (name, address): (Option<String>, Option<String>) =
                (given(&names), given(&addresses));
            let name = name.or_else(|| address.clone());
            let name = name.ok_or_else(|| malformed("one of its hosts has no name"))?;
            Ok(Host { name, address, port })
        };
        (0..count).map(host).collect()
    }

    /// All other pairs, for those who read them next.
    pub(crate) fn rest(&self) -> impl Iterator<Item = (&str, &str)> {
        let ours = [
            "host",
            "hostaddr",
            "port",
            "password",
            "passfile",
            "sslmode",
            "sslrootcert",
            "portable",
        ];
        let pairs = self.0.iter().map(|(name, value)| (&name[..], &value[..]));
        pairs.filter(move |(name, value)| !ours.contains(name) && !value.is_empty())
    }
}

/// One of the hosts of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// Its name, or the folder of a Unix socket.
    pub(crate) name: String,
    /// Its IP address, if that is given apart.
    pub(crate) address: Option<String>,
    pub(crate) port: u16,
}

impl Host {
    pub(crate) fn is_socket(&self) -> bool {
        self.address.is_none() && self.name.starts_with('/')
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

/// The place as messages name it: everything that tells two stores apart, and no password.
impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        if let Some(user) = self.get("user") {
            write!(f, "{user}@")?;
        }
        let hosts = self.hosts().unwrap_or_default();
        let hosts: Vec<_> = hosts.iter().map(Host::to_string).collect();
        write!(f, "{}/{}", hosts.join(","), self.get("dbname").unwrap_or_default())?;
        self.get("options").map_or(Ok(()), |options| write!(f, " ({options})"))
    }
}

fn malformed(what: &str) -> ServerError {
    ServerError::new(Why::Address, format!("the address of the server cannot be read: {what}"))
}

fn after_scheme(text: &str) -> Option<&str> {
    ["postgres://", "postgresql://"].iter().find_map(|scheme| text.strip_prefix(scheme))
}

fn decoded(text: &str) -> Result<String, ServerError> {
    let bytes = text.as_bytes();
    let is_escape = |behind: &[u8]| match behind {
        [one, two, ..] => one.is_ascii_hexdigit() && two.is_ascii_hexdigit(),
        _ => false,
    };
    if bytes.split(|byte| *byte == b'%').skip(1).any(|behind| !is_escape(behind)) {
        return Err(malformed("a % has no two hexadecimal digits behind it (it is written %25)"));
    }
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| malformed("its escapes are not UTF-8"))
}

/// Takes a URL apart behind its scheme, as libpq does.
fn of_url(rest: &str) -> Result<Vec<(String, String)>, ServerError> {
    let mut pairs = Vec::new();
    let mut rest = rest;
    // As in libpq, a slash ends the place where a user may be.
    let at = rest[..rest.find('/').unwrap_or(rest.len())].find('@');
    if let Some(at) = at {
        let (user, password) = rest[..at].split_once(':').unwrap_or((&rest[..at], ""));
        if user.contains('?') {
            // postgres://host?password=a@b is more likely than such a user.
            return Err(malformed(
                "there is a ? before the @ (in a user's name it is written %3F)",
            ));
        }
        pairs.push(("user".to_owned(), decoded(user)?));
        pairs.push(("password".to_owned(), decoded(password)?));
        rest = rest.split_once('@').map_or("", |(_, rest)| rest);
    }
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, database) = before.split_once('/').unwrap_or((before, ""));
    of_hosts(hosts, &mut pairs)?;
    pairs.push(("dbname".to_owned(), decoded(database)?));
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let Some((name, value)) = part.split_once('=') else {
            return Err(malformed("one of its parameters has no ="));
        };
        pairs.push((decoded(name)?, decoded(value)?));
    }
    Ok(pairs)
}

fn of_hosts(hosts: &str, pairs: &mut Vec<(String, String)>) -> Result<(), ServerError> {
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for host in hosts.split(',').filter(|_| !hosts.is_empty()) {
        let (name, port) = match host.strip_prefix('[') {
            Some(bracketed) => {
                let (name, port) = bracketed
                    .split_once(']')
                    .ok_or_else(|| malformed("the [ of an IPv6 address is not closed"))?;
                let port = if port.is_empty() { Some("") } else { port.strip_prefix(':') };
                (name, port.ok_or_else(|| malformed("there is something behind a ]"))?)
            }
            None => host.split_once(':').unwrap_or((host, "")),
        };
        names.push(decoded(name)?);
        ports.push(decoded(port)?);
    }
    pairs.push(("host".to_owned(), names.join(",")));
    if ports.iter().any(|port| !port.is_empty()) {
        pairs.push(("port".to_owned(), ports.join(",")));
    }
    Ok(())
}

/// Takes libpq's pairs apart: `name = value`, values quoted or not, with backslashes.
fn of_words(text: &str) -> Result<Vec<(String, String)>, ServerError> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let Some((name, behind)) = rest.split_once('=') else {
            return Err(malformed("a keyword has no ="));
        };
        let name = name.trim_end();
        if name.contains(char::is_whitespace) {
            return Err(malformed("a value with a space in it has no quotes, or a keyword no ="));
        }
        let (value, behind) = value_of(behind.trim_start())?;
        pairs.push((name.to_owned(), value));
        rest = behind.trim_start();
    }
    Ok(pairs)
}

fn value_of(text: &str) -> Result<(String, &str), ServerError> {
    let (quoted, text) = text.strip_prefix('\'').map_or((false, text), |text| (true, text));
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            '\'' if quoted => return Ok((value, chars.as_str())),
            c if !quoted && c.is_whitespace() => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    if quoted { Err(malformed("a quote is not closed")) } else { Ok((value, "")) }
}

#[cfg(test)]
mod tests {
    use super::Address;

    /// An address as it prints, what its password is, and that nothing else shows it.
    fn read(text: &str) -> (String, Option<String>) {
        let address = Address::new(text);
        let (shown, debug) = (address.to_string(), format!("{address:?}"));
        for shown in [&shown, &debug] {
            assert!(!shown.contains("SECRET"), "{shown}");
        }
        let password = address.pairs().unwrap().get("password").map(str::to_owned);
        (shown, password)
    }

    #[test]
    fn urls_and_pairs_say_the_same() {
        let shown = "postgres://me@h:5432/d (-csearch_path=s)";
        for text in [
            "postgres://me:SECRET@h/d?options=-csearch_path%3Ds",
            "postgresql://me@h:5432/d?password=SECRET&options=-csearch_path=s",
            "postgres:///?host=h&user=me&dbname=d&p%61ssword=SECR%45T&options=-csearch_path%3Ds",
            "host=h user=me dbname=d password=SECRET options=-csearch_path=s",
            "password = 'SECRE\\T' host = 'h'\n user=me dbname=d port='' options='-csearch_path=s'",
        ] {
            assert_eq!(read(text), (shown.to_owned(), Some("SECRET".to_owned())), "{text}");
        }
        let (shown, password) = read("postgres://a:1,[::1]:2,c/d");
        assert_eq!((&shown[..], password), ("postgres://a:1,[::1]:2,c:5432/d", None));
        assert_eq!(read("host=/run/pg user=me").0, "postgres://me@/run/pg:5432/");
        assert_eq!(read("postgres://%2Frun%2Fpg/d").0, "postgres:///run/pg:5432/d");
        assert_eq!(read("postgres://me:a:b@h").1.as_deref(), Some("a:b"));
        assert_eq!(read("postgres://me:a?b@h").1.as_deref(), Some("a?b"));
    }

    #[test]
    fn what_cannot_be_read_is_told_without_its_words() {
        for (text, what) in [
            ("postgres://me:SECRET@h:SECRET/d", "its port is no number"),
            ("postgres://me:SECRET", "its port is no number"),
            ("postgres://h?password=SECRET@b", "before the @"),
            ("postgres://me:SECR%ET@h", "a % has no two"),
            ("postgres://me:SECRET%ff@h", "not UTF-8"),
            ("postgres://h/d?password=SECRET&SECRET", "has no ="),
            ("postgres://h/d?password=SEC&SECRET=1", "a keyword that PostgreSQL does not have"),
            ("postgres://h/d?sslpassword=SECRET", "sslpassword is not supported"),
            ("host=h password=a SECRET user=me", "a space in it"),
            ("host=h password='SECRET", "a quote is not closed"),
            ("host=h SECRET", "a keyword has no ="),
            ("password=SECRET", "it names no host"),
            ("postgre://me:SECRET@h/d", "neither postgres:// nor"),
            ("host=a,b hostaddr=::1 password=SECRET", "other numbers"),
            ("postgres://[::1/?password=SECRET", "is not closed"),
            ("postgres://u:SECRET@h,,i/", "no name"),
        ] {
            let address = Address::new(text);
            let error = address.pairs().and_then(|pairs| pairs.hosts()).unwrap_err();
            let shown = format!("{error} {error:?} {address} {address:?}");
            assert!(error.to_string().contains(what), "{text}: {error}");
            assert!(!shown.contains("SECRET"), "{shown}");
        }
    }

    #[test]
    fn addresses_are_told_from_files() {
        for text in ["postgres://h", "postgresql://h", "host=h", " password = 'x'"] {
            assert!(Address::is(text), "{text}");
        }
        for text in ["", "state.db", "/a/host=h", "hosts=h", "host", "mysql://h", "x=y"] {
            assert!(!Address::is(text), "{text}");
        }
    }
}
