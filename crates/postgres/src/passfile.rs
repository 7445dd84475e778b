//! Passfiles: lines of `host:port:database:user:password`, by libpq's rules.
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

use std::env;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::WARNINGS;

/// The most that is read of a passfile.
const BYTES_MAX: u64 = 1 << 20;

/// Whose password is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Login<'a> {
    /// The host's name; of a Unix socket `localhost`, or its folder where that is an unusual one.
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) database: &'a str,
    pub(crate) user: &'a str,
}

/// The passfile that the environment names, or the user's own.
pub(crate) fn usual() -> Option<PathBuf> {
    match env::var_os("PGPASSFILE").filter(|path| !path.is_empty()) {
        Some(path) => Some(path.into()),
        None => env::home_dir().map(|home| home.join(".pgpass")),
    }
}

/// The password of the first line that fits. A file that is not there, cannot be read or is open to
/// others has none; the last is worth a warning.
pub(crate) fn password(path: &Path, login: Login<'_>) -> Option<Vec<u8>> {
    let metadata = fs::metadata(path).ok()?;
    let refused = if !metadata.is_file() {
        Some("is not a plain file")
    } else if is_open_to_others(&metadata) {
        Some("has group or world access; its permissions should be u=rw (0600) or less")
    } else {
        None
    };
    if let Some(refused) = refused {
        let path = path.display();
        tracing::warn!(target: WARNINGS, "the password file {path} {refused}: it is not read");
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    bytes.split(|b| *b == b'\n').find_map(|line| of_line(line, login))
}

#[cfg(unix)]
fn is_open_to_others(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o077 != 0
}

#[cfg(not(unix))]
fn is_open_to_others(_: &fs::Metadata) -> bool {
    false
}

fn of_line(line: &[u8], login: Login<'_>) -> Option<Vec<u8>> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() || line.starts_with(b"#") {
        return None;
    }
    let port = login.port.to_string();
    let mut rest = line;
    for wanted in [login.host, &port, login.database, login.user] {
        rest = after_field(rest, wanted.as_bytes())?;
    }
    Some(unescaped(rest))
}

/// What follows a field that is `*` or what is wanted.
fn after_field<'l>(line: &'l [u8], wanted: &[u8]) -> Option<&'l [u8]> {
    if let Some(rest) = line.strip_prefix(b"*:") {
        return Some(rest);
    }
    let (mut rest, mut field) = (line, Vec::new());
    loop {
        rest = match rest {
            [b':', behind @ ..] => return (field == wanted).then_some(behind),
            [b'\\', byte, behind @ ..] | [byte, behind @ ..] => {
                field.push(*byte);
                behind
            }
            [] => return None,
        };
    }
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = text.iter();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => *bytes.next().unwrap_or(byte),
            byte => *byte,
        });
    }
    plain
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::{Login, password};

    const LOGIN: Login<'_> = Login { host: "h:1", port: 5432, database: "d\\", user: "me" };

    fn found(lines: &str, mode: u32) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pgpass");
        fs::write(&path, lines).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        password(&path, LOGIN).map(|password| String::from_utf8(password).unwrap())
    }

    #[test]
    fn the_first_line_that_fits_counts() {
        for (lines, expected) in [
            ("*:*:*:*:any", Some("any")),
            (
                "#*:*:*:*:no\nother:*:*:*:no\n\n*:5433:*:*:no\r\nh\\:1:5432:d\\\\:me:a\\:b\\\\\r\n",
                Some("a:b\\"),
            ),
            ("*:*:*:me:first\n*:*:*:me:second", Some("first")),
            ("*:*:*:me:a:b", Some("a:b")),
            ("*:*:*:you:no", None),
            ("h:1:5432:d\\\\:me:unescaped colon", None),
            ("*:*:*", None),
            ("*x:*:*:*:no", None),
            ("", None),
        ] {
            assert_eq!(found(lines, 0o600).as_deref(), expected, "{lines:?}");
        }
        assert_eq!(password("/no/such/file".as_ref(), LOGIN), None);
        assert_eq!(password("/".as_ref(), LOGIN), None);
    }

    #[test]
    fn a_file_that_others_may_read_or_write_has_none() {
        for mode in [0o600, 0o400, 0o700] {
            assert_eq!(found("*:*:*:*:any", mode).as_deref(), Some("any"), "{mode:o}");
        }
        for mode in [0o640, 0o604, 0o620, 0o602, 0o610, 0o644] {
            assert_eq!(found("*:*:*:*:any", mode), None, "{mode:o}");
        }
    }
}
