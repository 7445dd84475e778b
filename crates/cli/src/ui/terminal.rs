//! What people are shown: the one place through which texts reach a terminal.
//!
//! Names may come from files and places of others, and a word of the command line may be an address
//! in the wrong place. So whatever is printed for people is made [`printable`], and what is said of
//! errors and as a notice is [`shown`]: without passwords, too. Documents for programs keep what is
//! there, in JSON's own escapes.

use std::io::{self, Write as _};

use spinney_postgres::masked;

/// Text of others, for people: control characters, which could move a terminal's cursor, are
/// escaped.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A JSON text whose strings have no control characters: JSON itself lets some stand as they are.
pub(crate) fn printable_json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // They are in strings, where all others are escaped already.
            '\u{7f}'..='\u{9f}' => shown.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown
}

/// A line for people, without the passwords that stand in the arguments.
pub(crate) fn shown(text: &str) -> String {
    printable(&without_secrets(text))
}

/// Writes a line on standard error.
pub(crate) fn tell(text: &str) {
    // Where nobody listens there is nobody to tell.
    let _ = writeln!(io::stderr(), "{}", shown(text));
}

/// A text without the passwords of addresses that were given as arguments, wherever it repeats
/// them.
pub(crate) fn without_secrets(text: &str) -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    words.fold(text.to_owned(), |text, word| masked_in(text, &word))
}

fn masked_in(text: String, word: &str) -> String {
    let value = word.split_once('=').map_or("", |(_, value)| value);
    let parts = [word, value].into_iter().filter(|part| masked(part) != **part);
    parts.fold(text, |text, part| text.replace(part, &masked(part)))
}

#[cfg(test)]
mod tests {
    use super::{masked_in, printable, printable_json};

    #[test]
    fn control_characters_are_escaped() {
        let text = "a\u{1b}[2J\n\u{9b}b\u{7f} \u{e9}";
        assert_eq!(printable(text), "a\\u{1b}[2J\\n\\u{9b}b\\u{7f} \u{e9}");
        assert_eq!(printable(&printable(text)), printable(text));
    }

    #[test]
    fn documents_say_the_same() {
        let text = "a\u{1b}[2J\n\u{9b}b\u{7f} \u{e9}";
        let document = serde_json::json!({ text: [text] });
        let shown = printable_json(&document.to_string());
        assert!(!shown.contains(char::is_control), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), document);
    }

    #[test]
    fn words_are_masked_where_they_are_repeated() {
        let word = "--db=postgres://me:SECRET@h/d";
        for text in [format!("in {word}: no"), "cannot open postgres://me:SECRET@h/d".into()] {
            let shown = masked_in(text, word);
            assert!(shown.contains("postgres://me:***@h/d"), "{shown}");
        }
        assert_eq!(masked_in("state.db".into(), "state.db"), "state.db");
    }
}
