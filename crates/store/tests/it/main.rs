//! The stores, seen from outside.

mod behind;
mod conformance;
mod damage;
mod each_operation;
mod engine;
mod faults;
mod model;
mod places;
#[cfg(unix)]
mod portable;
#[cfg(unix)]
mod postgres;
mod processes;
#[cfg(unix)]
mod server;
mod sqlite;
#[cfg(unix)]
mod sum_kills;
#[cfg(unix)]
mod sums;
mod tools;
mod tree_faults;

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
