//! Commands that are none: what clap says of them, and an envelope for those who asked for JSON.

use std::env;
use std::io::{self, IsTerminal as _, Write as _};

use clap::error::{ContextKind, ContextValue};
use serde_json::{Value, json};

use super::output::envelope;
use super::terminal::{printable_json, without_secrets};

/// Ends as clap does, but says no password that stands in an argument.
pub(crate) fn exit(error: clap::Error, command: clap::Command) -> ! {
    let coloured = if io::stderr().is_terminal() && error.use_stderr() {
        error.render().ansi().to_string()
    } else {
        error.render().to_string()
    };
    let mut text = without_secrets(&coloured);
    // Where nobody listens there is nobody to tell.
    if !error.use_stderr() {
        let _ = io::stdout().write_all(text.as_bytes());
        std::process::exit(error.exit_code());
    }
    if let Some(name) = of_environment(&error, &command) {
        text += &format!("\nThe value is that of {name} in the environment.\n");
    }
    let _ = io::stderr().write_all(text.as_bytes());
    if wants_json() {
        let plain = without_secrets(&error.render().to_string());
        let mut lines = plain.lines().map(str::trim).filter(|line| !line.is_empty());
        let message = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let details: Vec<_> = lines.collect();
        let error = json!({
            "message": message, "details": details, "causes": [],
            "hint": "spinney --help shows the verbs, spinney VERB --help what one takes",
        });
        let envelope = envelope(&Value::Null, &[error], &[], false);
        let _ = writeln!(io::stdout(), "{}", printable_json(&envelope.to_string()));
    }
    std::process::exit(error.exit_code())
}

/// Whether JSON was asked for: the command could not be read, so its words are looked at.
fn wants_json() -> bool {
    let words: Vec<_> = env::args_os().skip(1).collect();
    let mut pairs = words.iter().zip(words.iter().skip(1));
    let said = |word: &&std::ffi::OsString| {
        ["--json", "--events", "--format=json"].iter().any(|json| *word == json)
    };
    words.iter().any(|word| said(&word))
        || pairs.any(|(option, value)| option == "--format" && value == "json")
        || env::var_os("SPINNEY_FORMAT").is_some_and(|format| format == "json")
}

/// The variable that a refused value comes from.
fn of_environment(error: &clap::Error, command: &clap::Command) -> Option<String> {
    let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) else {
        return None;
    };
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
    let option = shown.split([' ', '=']).next()?.strip_prefix("--")?;
    if env::args_os().any(|word| word.to_string_lossy().starts_with(&format!("--{option}"))) {
        return None;
    }
    let mut verbs = vec![command];
    while let Some(verb) = verbs.pop() {
        verbs.extend(verb.get_subcommands());
        let arg = verb.get_arguments().find(|arg| arg.get_long() == Some(option));
        let name = arg.and_then(clap::Arg::get_env);
        if let Some(name) =
            name.filter(|name| env::var_os(name).is_some_and(|said| *said == **value))
        {
            return Some(name.to_string_lossy().into_owned());
        }
    }
    None
}
