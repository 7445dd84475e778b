//! All crates together.

#[expect(dead_code, reason = "shared with the tests of spinney-store")]
#[path = "../../../store/tests/it/each_operation.rs"]
mod each_operation;
mod seeds;
mod verbs;

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
