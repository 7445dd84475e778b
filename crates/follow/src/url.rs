//! Addresses of nodes.

use std::fmt;
use std::str::FromStr;

/// Where a node listens: `http://HOST:PORT/PATH`.
///
/// A name and a password in it are sent, and never shown.
///
/// ```
/// use spinney_follow::Url;
///
/// let url: Url = "http://me:secret@127.0.0.1:8545/".parse()?;
/// assert_eq!(url.to_string(), "http://***@127.0.0.1:8545/");
/// assert!("https://127.0.0.1:8545".parse::<Url>().is_err());
/// # Ok::<_, spinney_follow::UrlError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Url(String);

/// Why a text is no address of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It is reached by TLS, which this does not speak.
    #[error("https is not spoken here: put a proxy between, or reach the node by http://")]
    Tls,
    /// It is no address at all.
    #[error("expected http://HOST:PORT")]
    Malformed,
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text.starts_with("https://") {
            return Err(UrlError::Tls);
        }
        let rest = text.strip_prefix("http://").ok_or(UrlError::Malformed)?;
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_graphic();
        if host.is_empty() || host.ends_with('@') || !text.chars().all(is_plain) {
            return Err(UrlError::Malformed);
        }
        Ok(Self(text.to_owned()))
    }
}

impl Url {
    /// The whole of it, password included.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = self.0.strip_prefix("http://").unwrap_or(&self.0);
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        match host.rsplit_once('@') {
            Some((_, host)) => write!(f, "http://***@{host}{path}"),
            None => write!(f, "http://{host}{path}"),
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
