//! What users write to say where a store is.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use spinney_store::Address;

/// A path, or the address of a server. An address may hold a password, which neither `Display` nor
/// `Debug` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlaceName {
    /// A folder or a file.
    Path(PathBuf),
    /// A URL, or libpq's pairs.
    Server(Address),
}

impl From<OsString> for PlaceName {
    fn from(text: OsString) -> Self {
        match text.to_str() {
            Some(address) if Address::is(address) || is_url(address) => {
                Self::Server(address.into())
            }
            _ => Self::Path(text.into()),
        }
    }
}

/// What was given where a name is wanted, to be shown: it may be an address in the wrong place.
pub(crate) fn without_password(text: &str) -> String {
    PlaceName::from(OsString::from(text)).to_string()
}

/// Whether a text is a URL of any kind: a scheme that is spelled wrongly makes no folder, since its
/// name would hold the password.
fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        !scheme.is_empty() && scheme.chars().all(is_of_scheme)
    })
}

impl fmt::Display for PlaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Server(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PlaceName;

    #[test]
    fn servers_are_told_from_paths_and_show_no_password() {
        for text in [
            "postgres://me:SECRET@h/d",
            "postgre://me:SECRET@h/d",
            "host=h password=SECRET",
            "postgres://me:SECRET@h:SECRET/",
        ] {
            let name = PlaceName::from(std::ffi::OsString::from(text));
            assert!(matches!(name, PlaceName::Server(_)), "{text}");
            let shown = format!("{name} {name:?}");
            assert!(!shown.contains("SECRET"), "{shown}");
        }
        for text in ["state.db", "/a/b", "./host=h", "/a/x://y", ""] {
            let name = PlaceName::from(std::ffi::OsString::from(text));
            assert_eq!(name.to_string(), text);
            assert!(matches!(name, PlaceName::Path(_)), "{text}");
        }
    }
}
