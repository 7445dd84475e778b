//! Several processes and one store. The other process is this test program again.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use spinney_store::{PostgresStore, RedbStore, SqliteStore};
use spinney_tree::{PageStore, StoreError, Table};
use tempfile::tempdir;

use crate::tools::{CACHE_BYTES, contents, contents_of, puts, read};

const ROLE: &str = "SPINNEY_TEST_ROLE";
const FOLDER: &str = "SPINNEY_TEST_FOLDER";

/// What the other process does; nothing in this one.
#[test]
fn other_process() {
    let (Ok(role), Ok(folder)) = (env::var(ROLE), env::var(FOLDER)) else {
        return;
    };
    let (url, folder) = (&folder[..], Path::new(&folder));
    match &role[..] {
        "open" => say(outcome(RedbStore::open(folder, CACHE_BYTES).map(drop))),
        "create" => say(outcome(RedbStore::create(folder, CACHE_BYTES).map(drop))),
        "hold" => hold(RedbStore::open(folder, CACHE_BYTES).unwrap()),
        "read" => read_on_demand(&RedbStore::open_read_only(folder, CACHE_BYTES).unwrap()),
        "write" => write_for_ever(&RedbStore::open(folder, CACHE_BYTES).unwrap()),
        "open sqlite" => say(outcome(SqliteStore::open(folder, CACHE_BYTES).map(drop))),
        "hold sqlite" => hold(SqliteStore::open(folder, CACHE_BYTES).unwrap()),
        "read sqlite" => read_on_demand(&SqliteStore::open_read_only(folder, CACHE_BYTES).unwrap()),
        "write sqlite" => write_for_ever(&SqliteStore::open(folder, CACHE_BYTES).unwrap()),
        "fill sqlite" => crate::sum_kills::fill(&SqliteStore::open(folder, CACHE_BYTES).unwrap()),
        "open postgres" => say(outcome(PostgresStore::open(&url.into()).map(drop))),
        "read postgres" => read_on_demand(&PostgresStore::open_read_only(&url.into()).unwrap()),
        role => panic!("no role {role}"),
    }
}

pub(crate) fn say(text: impl AsRef<str>) {
    // Not println!, which the test harness captures.
    let mut out = std::io::stdout().lock();
    writeln!(out, "> {}", text.as_ref()).unwrap();
    out.flush().unwrap();
}

fn outcome(result: Result<(), StoreError>) -> String {
    match result {
        Ok(()) => "ok".into(),
        Err(StoreError::Busy { .. }) => "busy".into(),
        Err(error) => error.to_string(),
    }
}

/// Has the store open until told to go.
fn hold(store: impl PageStore) {
    say("ready");
    std::io::stdin().lines().next();
    drop(store);
}

/// Reads one row in a snapshot from the start, and in a new one, each time it is asked.
fn read_on_demand(store: &impl PageStore) {
    let first = store.snapshot().unwrap();
    say("ready");
    for _ in std::io::stdin().lines() {
        let old = contents_of(&first);
        let new = contents(store);
        let value = |rows: &crate::tools::Contents| {
            assert!(rows.values().all(|row| row[0] == rows.values().next().unwrap()[0]));
            rows.values().next().map_or(0, |row| row[0])
        };
        say(format!("{} {}", value(&old), value(&new)));
    }
}

/// Commits until it is killed, and says each that returned.
fn write_for_ever(store: &impl PageStore) {
    let start = read(store, Table::Meta, b"round");
    let start = start.map_or(0, |row| u32::from_be_bytes(row.try_into().unwrap()));
    for round in start + 1.. {
        let rows = (0..50_u8).map(|key| ([key], round.to_be_bytes()));
        let mut set = puts(Table::Pages, rows);
        set.put(Table::Meta, b"round", round.to_be_bytes());
        store.commit(&set).unwrap();
        say(round.to_string());
    }
}

pub(crate) struct Other {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Other {
    pub(crate) fn start(role: &str, folder: &Path) -> Self {
        Self::start_with(role, folder, |_| {}).unwrap()
    }

    /// One whose files cannot grow beyond some blocks of 512 bytes: a write that would is refused,
    /// as one to a full disk is. `None` where there is no shell to say so.
    pub(crate) fn start_within(role: &str, folder: &Path, blocks: u64) -> Option<Self> {
        let limited = format!("trap '' XFSZ; ulimit -f {blocks} && exec \"$0\" \"$@\"");
        Self::start_with(role, folder, |command| {
            let inner = std::mem::replace(command, Command::new("/bin/sh"));
            command.args(["-c", &limited]).arg(inner.get_program()).args(inner.get_args());
            for (name, value) in inner.get_envs() {
                command.env(name, value.expect("none is removed"));
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        })
        .ok()
    }

    fn start_with(
        role: &str,
        folder: &Path,
        change: impl FnOnce(&mut Command),
    ) -> std::io::Result<Self> {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "processes::other_process", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(FOLDER, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Ok(Self { child, stdin, stdout })
    }

    /// What it says next, or nothing if it ended.
    pub(crate) fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).unwrap() > 0 {
            // The harness writes "test .. ... " before the first line of ours.
            if let Some((_, said)) = line.split_once("> ") {
                return Some(said.trim_end().to_owned());
            }
            line.clear();
        }
        None
    }

    pub(crate) fn ask(&mut self) -> String {
        writeln!(self.stdin.as_ref().unwrap()).unwrap();
        self.hear().unwrap()
    }

    pub(crate) fn end(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_second_writer_in_another_process_is_busy() {
    let folder = tempdir().unwrap();
    let store = RedbStore::create(folder.path(), CACHE_BYTES).unwrap();
    let mut other = Other::start("open", folder.path());
    assert_eq!(other.hear().unwrap(), "busy");
    other.end();
    drop(store);
    let mut other = Other::start("open", folder.path());
    assert_eq!(other.hear().unwrap(), "ok");
    other.end();

    let mut other = Other::start("hold", folder.path());
    assert_eq!(other.hear().unwrap(), "ready");
    let busy = RedbStore::open(folder.path(), CACHE_BYTES).unwrap_err();
    assert!(matches!(busy, StoreError::Busy { .. }), "{busy}");
    other.end();
    RedbStore::open(folder.path(), CACHE_BYTES).unwrap();
}

#[test]
fn readers_in_other_processes_follow_a_writer() {
    let folder = tempdir().unwrap();
    let store = RedbStore::create(folder.path(), CACHE_BYTES).unwrap();
    let write = |store: &RedbStore, round: u8| {
        let rows = (0..40_u8).map(|key| ([key], vec![round; 3_000]));
        store.commit(&puts(Table::Pages, rows)).unwrap();
    };
    write(&store, 1);
    let mut early = Other::start("read", folder.path());
    assert_eq!(early.hear().unwrap(), "ready");
    assert_eq!(early.ask(), "1 1");
    for round in 2..30 {
        write(&store, round);
        assert_eq!(early.ask(), format!("1 {round}"));
    }
    let mut late = Other::start("read", folder.path());
    assert_eq!(late.hear().unwrap(), "ready");
    write(&store, 30);
    assert_eq!(early.ask(), "1 30");
    assert_eq!(late.ask(), "29 30");
    // The writer goes and comes back; the readers stay.
    drop(store);
    assert_eq!(late.ask(), "29 30");
    let store = RedbStore::open(folder.path(), CACHE_BYTES).unwrap();
    write(&store, 31);
    assert_eq!(early.ask(), "1 31");
    assert_eq!(late.ask(), "29 31");
    early.end();
    late.end();
}

/// A killed reader leaves no lock behind.
#[test]
fn a_killed_reader_hinders_nobody() {
    let folder = tempdir().unwrap();
    let mut store = RedbStore::create(folder.path(), CACHE_BYTES).unwrap();
    let mut other = Other::start("read", folder.path());
    assert_eq!(other.hear().unwrap(), "ready");
    assert!(store.compact().is_err(), "a snapshot elsewhere is in the way");
    other.kill();
    store.compact().unwrap();
}

#[test]
fn a_writer_killed_in_the_middle_loses_no_commit() {
    let folder = tempdir().unwrap();
    drop(RedbStore::create(folder.path(), CACHE_BYTES).unwrap());
    kill_a_writer("write", folder.path(), |life| {
        if life == 3 {
            // Nobody has repaired it yet, and a reader may not.
            let error = RedbStore::open_read_only(folder.path(), CACHE_BYTES).unwrap_err();
            assert!(error.to_string().contains("open it for writing once"), "{error}");
        }
        let mut store = RedbStore::open(folder.path(), CACHE_BYTES).unwrap();
        store.check().unwrap();
        store
    });
}

/// Kills a writer after ever more commits; `open` opens the store then.
pub(crate) fn kill_a_writer<S: PageStore>(role: &str, place: &Path, open: impl Fn(u32) -> S) {
    let mut last = 0_u32;
    for life in 0..8 {
        let mut other = Other::start(role, place);
        for _ in 0..=life * 3 {
            last = other.hear().unwrap().parse().unwrap();
        }
        other.kill();
        while let Some(said) = other.hear() {
            last = said.parse().unwrap_or(last);
        }
        let store = open(life);
        let found = read(&store, Table::Meta, b"round").unwrap();
        let found = u32::from_be_bytes(found.try_into().unwrap());
        assert!(found == last || found == last + 1, "{found} is stored, {last} was said");
        let rows = contents(&store);
        assert_eq!(rows.len(), 51);
        assert!(rows.values().all(|row| row[..] == found.to_be_bytes()));
        last = found;
    }
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_written_says_so() {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    // Root may write anywhere, so the other process is nobody; without root, we are nobody already.
    const NOBODY: u32 = 65_534;
    let folder = tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o555)).unwrap();
    let root = fs::write(folder.path().join("probe"), "").is_ok();
    let start = |role: &str, folder: &Path| {
        Other::start_with(role, folder, |command| {
            if root {
                command.uid(NOBODY).gid(NOBODY);
            }
        })
    };
    let said = |mut other: Other| {
        let said = other.hear().unwrap();
        other.end();
        said
    };
    let place = folder.path().join("store");
    let Ok(other) = start("create", &place) else {
        eprintln!("skipped: this test program cannot be run by another user");
        return;
    };
    assert!(said(other).ends_with("/store: Permission denied (os error 13)"));
    if !root {
        return;
    }

    drop(RedbStore::create(&place, CACHE_BYTES).unwrap());
    let file = place.join("spinney.redb");
    // A store is its owner's alone until it is lent.
    fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    let denied = said(start("open", &place).unwrap());
    assert_eq!(denied, format!("{}: Permission denied (os error 13)", file.display()));
    let mut reader = start("read", &place).unwrap();
    assert_eq!(reader.hear().unwrap(), "ready");
    assert_eq!(reader.ask(), "0 0");
    reader.end();
}

/// Between its making and its start as another program, a child has all of our files open, and a
/// lock on one of them with it. A store that is closed is free all the same.
#[cfg(unix)]
#[test]
fn children_that_are_being_made_keep_no_store_busy() {
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::process::CommandExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    let folder = tempdir().unwrap();
    let places = ["redb", "sqlite"].map(|name| folder.path().join(name));
    let owner = std::fs::metadata(folder.path()).unwrap().uid();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // With a user to become, a child is a copy of this process first.
                    let child = Command::new("true").uid(owner).status().unwrap();
                    assert!(child.success());
                }
            });
        }
        let tries = (0..80).try_for_each(|_| {
            RedbStore::open_or_create(&places[0], CACHE_BYTES)?.close()?;
            SqliteStore::open_or_create(&places[1], CACHE_BYTES)?.close()
        });
        done.store(true, Ordering::Relaxed);
        tries.unwrap();
    });
}
