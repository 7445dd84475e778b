//! Passwords in texts that may or may not be addresses: words of a command line, messages about
//! them.

use percent_encoding::percent_decode_str;

use crate::address::KEYWORDS;

/// What stands in place of a password.
const STARS: &str = "***";

/// libpq's keywords whose values are secret.
pub(crate) const SECRETS: [&str; 6] = [
    "password",
    "sslpassword",
    "oauth_client_secret",
    "scram_client_key",
    "scram_server_key",
    "passphrase",
];

/// A text, as one word of a command line, with `***` in place of each password: of `user:password@`
/// in a URL of any scheme, and of `password=` and the like, in a URL or as libpq's pairs.
///
/// What is no address is masked rather too much than too little: a password that should have been
/// quoted or escaped, and is not, goes as a whole.
///
/// ```
/// # use spinney_postgres::masked;
/// assert_eq!(masked("--db=postgres://me:secret@host/db"), "--db=postgres://me:***@host/db");
/// assert_eq!(masked("host=h password='a b' user=me"), "host=h password=*** user=me");
/// assert_eq!(masked("state.db"), "state.db");
/// ```
pub fn masked(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    // A password may hold "://" itself, so only the first one begins an address.
    if let Some(at) = rest.find("://") {
        let (scheme, address) = rest.split_at(at + 3);
        shown += scheme;
        rest = address;
        if let Some((start, end)) = user_password(rest) {
            shown += &rest[..start];
            shown += STARS;
            rest = &rest[end..];
        }
        if let Some((before, query)) = rest.split_once('?') {
            shown += &pairs(before);
            shown += "?";
            return shown + &parameters(query);
        }
    }
    shown + &pairs(rest)
}

/// Where the password lies in what follows a URL's scheme.
fn user_password(address: &str) -> Option<(usize, usize)> {
    let colon = address.find(':')?;
    let before_query = address.find('?').unwrap_or(address.len());
    let at = address[..before_query].rfind('@').or_else(|| {
        // An address without a user, whose parameters have an @; unless what seems to be a port is
        // none.
        let port = &address[colon + 1..before_query.max(colon + 1)];
        let port = port.split(['/', ',']).next().unwrap_or_default();
        let is_port = port.bytes().all(|b| b.is_ascii_digit());
        if is_port { None } else { address.rfind('@') }
    });
    match at {
        Some(at) if colon < at => Some((colon + 1, at)),
        // A user before the @, and a port behind it.
        Some(_) => None,
        None if address.starts_with('[') => None,
        None => stray_password(address, colon, before_query),
    }
}

/// Without an @ what follows the colon is a port, or a password whose host was forgotten.
fn stray_password(address: &str, colon: usize, before_query: usize) -> Option<(usize, usize)> {
    if colon >= before_query {
        return None;
    }
    let hosts = address[..before_query].split('/').next().unwrap_or_default();
    let is_port = |host: &str| {
        host.rsplit_once(':').is_none_or(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
    };
    if hosts.split(',').all(is_port) { None } else { Some((colon + 1, before_query)) }
}

/// The parameters of a URL. Keywords may be escaped as values are.
fn parameters(query: &str) -> String {
    let mut secret = false;
    let parts = query.split('&').map(|part| match part.split_once('=') {
        Some((name, value)) => {
            let decoded = percent_decode_str(name).decode_utf8_lossy().to_lowercase();
            secret = SECRETS.contains(&decoded.trim());
            if secret && !value.is_empty() { format!("{name}={STARS}") } else { part.to_owned() }
        }
        // What follows an & that the password has in it.
        None if secret => STARS.to_owned(),
        None => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("&")
}

/// libpq's pairs: from a secret keyword's `=` up to the next keyword with one, or the end.
fn pairs(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut from = 0;
    while let Some((value, end)) = secret_value(text, from) {
        shown += &text[from..value];
        shown += STARS;
        from = end;
    }
    shown + &text[from..]
}

/// The first secret value behind `from`: where it begins and where it ends.
fn secret_value(text: &str, from: usize) -> Option<(usize, usize)> {
    let lower = text.to_ascii_lowercase();
    let begins = |secret: &str| {
        lower[from..].match_indices(secret).find_map(|(at, _)| {
            let after = from + at + secret.len();
            let behind = lower[after..].trim_start();
            let value = behind.strip_prefix('=')?.trim_start();
            (!value.is_empty()).then(|| lower.len() - value.len())
        })
    };
    let start = SECRETS.iter().filter_map(|secret| begins(secret)).min()?;
    Some((start, end_of_value(&lower, start)))
}

/// Where a value ends that begins at `start`.
fn end_of_value(text: &str, start: usize) -> usize {
    let value = &text[start..];
    if value.starts_with('\'') {
        let mut escaped = false;
        for (at, c) in value.char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '\'' => return start + at + 1,
                _ => {}
            }
        }
        return text.len();
    }
    let is_keyword = |word: &str| {
        word.split_once('=').is_some_and(|(name, _)| KEYWORDS.iter().any(|known| known.0 == name))
    };
    let mut at = start;
    for word in value.split_inclusive(char::is_whitespace) {
        if at > start && is_keyword(word) {
            return start + text[start..at].trim_end().len();
        }
        at += word.len();
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn every_form_of_a_password_goes() {
        for (text, expected) in [
            ("postgres://u:SECRET@h/d", "postgres://u:***@h/d"),
            ("postgresql://:SECRET@h:1/d?x=y", "postgresql://:***@h:1/d?x=y"),
            ("mysql://u:SECRET@h", "mysql://u:***@h"),
            ("--db=postgres://u:SECRET@h/d", "--db=postgres://u:***@h/d"),
            // Escapes are missing.
            ("postgres://u:SE@CRET@h/d", "postgres://u:***@h/d"),
            ("postgres://u:SE/CRET@h/d", "postgres://u:***@h/d"),
            ("postgres://u:SE?CRET@h/d", "postgres://u:***@h/d"),
            ("postgres://u:SE CRET@h/d", "postgres://u:***@h/d"),
            ("postgres://u:SE://CRET@h/d", "postgres://u:***@h/d"),
            ("postgres://u:SECRET", "postgres://u:***"),
            ("postgres://u:SECRET/d?sslmode=require", "postgres://u:***?sslmode=require"),
            // Parameters.
            ("postgres://h/d?password=SECRET", "postgres://h/d?password=***"),
            (
                "postgres://u@h:5/d?a=b&password=SECRET&c=d",
                "postgres://u@h:5/d?a=b&password=***&c=d",
            ),
            ("postgres://h/d?p%61ssword=SECRET", "postgres://h/d?p%61ssword=***"),
            ("postgres://h:1/d?password=S@ECRET", "postgres://h:1/d?password=***"),
            ("postgres://h/d?password=SEC&RET&a=b", "postgres://h/d?password=***&***&a=b"),
            ("postgres://u:SECRET@h/d?sslpassword=SECRET", "postgres://u:***@h/d?sslpassword=***"),
            // Pairs.
            ("host=h password=SECRET", "host=h password=***"),
            ("password=SECRET host=h", "password=*** host=h"),
            ("password = 'SE CR\\'ET' host=h", "password = *** host=h"),
            ("PASSWORD=SECRET", "PASSWORD=***"),
            ("password='SECRET host=h", "password=***"),
            ("password=SE CRET host=h", "password=*** host=h"),
            ("password=SE\\ CRET host=h", "password=*** host=h"),
            ("sslpassword=SECRET password=SECRET x", "sslpassword=*** password=***"),
        ] {
            assert_eq!(masked(text), expected, "{text}");
        }
    }

    #[test]
    fn what_has_no_password_stays() {
        for text in [
            "",
            "state.db",
            "postgres://h",
            "postgres://u@h:5432/d?options=-csearch_path%3Ds",
            "postgres://h1:1,h2:2/d",
            "postgres://[::1]:5432/d",
            "postgres://h:5/d?application_name=a@b",
            "host=h user=me",
            "/a/folder: with a colon/x@y",
            "password",
            "passfile=/home/me/.pgpass",
        ] {
            assert_eq!(masked(text), text);
        }
    }
}
