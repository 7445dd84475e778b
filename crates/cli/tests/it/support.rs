//! Running the binary, and data that lies beside the repository.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use spinney_store::{AnyStore, Location, LogStore, OpenFor, RedbStore};
use spinney_tree::{PageStore as _, Snapshot as _, Table};

/// Nobody waits for longer: a test that hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// What a run left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("standard output is text"),
            err: String::from_utf8(output.stderr).expect("standard error is text"),
        }
    }
}

impl Ran {
    /// Asserts an exit code, and that nothing panicked.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(!self.err.contains("panicked") && !self.err.contains("a bug"), "{self:#?}");
        self
    }

    /// Asserts that standard error has a text.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.err.contains(text), "{text:?} is not in {self:#?}");
        self
    }

    /// Asserts the shape of an error: what, then causes, then one hint.
    #[track_caller]
    pub(crate) fn refuses(self, text: &str) -> Self {
        let error = self.err.lines().find(|line| line.starts_with("error: "));
        assert!(error.is_some_and(|line| line.contains(text)), "{text:?} is not in {self:#?}");
        let hints = self.err.lines().filter(|line| line.starts_with("hint: ")).count();
        assert_eq!(hints, 1, "{self:#?}");
        self
    }

    /// The data of the envelope on the last line.
    #[track_caller]
    pub(crate) fn data(&self) -> Value {
        let last = self.out.lines().last().unwrap_or_default();
        let envelope: Value = serde_json::from_str(last).expect("the last line is JSON");
        assert_eq!(envelope["schema_version"], 1);
        assert_eq!(envelope["success"], true, "{envelope}");
        for list in ["errors", "warnings"] {
            assert!(envelope[list].is_array(), "{envelope}");
        }
        envelope["data"].clone()
    }

    /// The one run of a replay.
    #[track_caller]
    pub(crate) fn run(&self) -> Value {
        let data = self.data();
        assert_eq!(data["runs"].as_array().map(Vec::len), Some(1));
        data["runs"][0].clone()
    }
}

/// The binary, free of what the environment would tell it. One that hangs is told and killed.
pub(crate) fn command(args: &[&str]) -> Command {
    #[cfg(target_os = "linux")]
    crate::hangs::watch();
    let mut command = Command::new(env!("CARGO_BIN_EXE_spinney"));
    command.args(args).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SPINNEY_")) {
        command.env_remove(name);
    }
    command
}

pub(crate) fn spinney(args: &[&str]) -> Ran {
    command(args).output().expect("the binary runs").into()
}

/// Runs the binary with a text on its standard input.
pub(crate) fn spinney_fed(args: &[&str], input: &str) -> Ran {
    use std::io::Write as _;
    let mut child = command(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("it was asked for");
    // It may end before it has read everything.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("the binary ends").into()
}

/// A folder that goes away with its value, and paths in it.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder can be made"))
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("the path is text").to_owned()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("the folder can be written");
        path
    }
}

/// A path in the folder beside the repository; where it is missing the test says so and is to
/// return.
pub(crate) fn shared(name: &str) -> Option<String> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(name);
    if !path.exists() {
        println!("skipped: {} is not there", path.display());
        return None;
    }
    Some(path.to_str().expect("the path is text").to_owned())
}

/// A chain of the shared data.
pub(crate) struct Chain {
    pub(crate) genesis: String,
    pub(crate) blocks: String,
    pub(crate) head_state: Value,
    pub(crate) block_count: u64,
}

pub(crate) fn chain(name: &str, block_count: u64) -> Option<Chain> {
    let folder = shared(&format!("data/{name}"))?;
    let head_state = std::fs::read(format!("{folder}/headstate.json")).expect("it can be read");
    Some(Chain {
        genesis: format!("{folder}/genesis.json"),
        blocks: format!("{folder}/chain.rlp"),
        head_state: serde_json::from_slice(&head_state).expect("it is JSON"),
        block_count,
    })
}

pub(crate) fn chain_600() -> Option<Chain> {
    chain("chain-600", 600)
}

pub(crate) fn all_forks() -> Option<Chain> {
    chain("chains/all-forks", 213)
}

pub(crate) fn amsterdam() -> Option<Chain> {
    chain("chains/amsterdam", 200)
}

impl Chain {
    /// Replays it, as JSON.
    pub(crate) fn replay(&self, more: &[&str]) -> Ran {
        let input =
            ["replay", "--json", "-q", "--genesis", &self.genesis, "--blocks", &self.blocks];
        spinney(&[&input[..], more].concat())
    }

    /// Takes it in chunks, as JSON.
    pub(crate) fn stage(&self, db: &str, more: &[&str]) -> Ran {
        let (genesis, blocks) = (&self.genesis, &self.blocks);
        let args = ["stage", "run", "--json", "-q", "--db", db];
        let input = ["--genesis", genesis, "--blocks", blocks];
        spinney(&[&args[..], &input, more].concat())
    }

    pub(crate) fn root(&self) -> String {
        format!("0x{}", self.head_state["root"].as_str().expect("the root is text"))
    }
}

/// Opens the store in a directory, to write it.
pub(crate) fn open_store(db: &str) -> AnyStore {
    Location::directory(db).open(OpenFor::Writing, 1 << 20).expect("the store opens")
}

/// Whether a directory has a store.
pub(crate) fn is_store(db: impl AsRef<Path>) -> bool {
    RedbStore::is_at(&db) || LogStore::is_at(&db)
}

/// All rows of a table.
pub(crate) fn rows(db: &str, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    let store = open_store(db);
    let mut rows = Vec::new();
    let mut visit = |key: &[u8], row: &[u8]| {
        rows.push((key.to_vec(), row.to_vec()));
        true
    };
    store.snapshot().unwrap().scan(table, &[], None, &mut visit).expect("the store can be read");
    rows
}

/// Asserts that `db check` finds nothing.
#[track_caller]
pub(crate) fn assert_sound(db: &str) {
    let data = spinney(&["db", "check", "-q", "--json", "--db", db]).exits(0).data();
    assert_eq!(data["sound"], true, "{data}");
    assert_eq!(data["findings"].as_array().map(Vec::len), Some(0), "{data}");
}

/// The pages of a store, without generation and checksum.
pub(crate) fn pages(db: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let bare = |(key, row): (Vec<u8>, Vec<u8>)| (key[8..].to_vec(), row[8..].to_vec());
    rows(db, Table::Pages).into_iter().map(bare).collect()
}
