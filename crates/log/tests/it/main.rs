//! The log, seen from outside.
//!
//! `SPINNEY_LONG=1 cargo test --release -p spinney-log` runs the long forms.

mod damage;
mod format;
mod mem_disk;
mod model;
mod processes;

/// How many of something, in the short form and in the long one.
pub(crate) fn many(short: u64, long: u64) -> u64 {
    if std::env::var_os("SPINNEY_LONG").is_some() { long } else { short }
}

/// A test file that nobody declares here would never run.
#[test]
fn no_test_file_is_forgotten() {
    let main = include_str!("main.rs");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(name == "main" || main.contains(&format!("mod {name};")), "{}", path.display());
    }
}
