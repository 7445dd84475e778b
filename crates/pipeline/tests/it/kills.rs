//! A process killed at uniform moments of a rebuild.
//!
//! `SPINNEY_KILLS=200 SPINNEY_LEAVES=1000000` is the long run of CONTRIBUTING.md.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use spinney_hash::keccak256;
use spinney_pipeline::{Gather, Options, Progress, Report, RunName};
use spinney_store::RedbStore;
use spinney_tree::mpt::Mpt;
use spinney_tree::{Batch, MemoryStore, PageStore, Snapshot, Table, Tree, TreeId};

const ID: TreeId = TreeId(1);
const CHILD: &str = "SPINNEY_KILLS_CHILD";

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn leaf(index: u64) -> ([u8; 32], [u8; 40]) {
    let key = keccak256(&index.to_be_bytes());
    let mut value = [7; 40];
    value[..8].copy_from_slice(&index.to_be_bytes());
    (key, value)
}

fn options(leaves: u64) -> Options {
    let mut options = Options::default();
    options.memory = 16 << 20;
    (options.threads, options.in_flight) = (2, 3);
    options.range_leaves = Some(leaves / 256);
    options
}

fn rebuild(dir: &Path, leaves: u64) -> Report {
    let store = RedbStore::open_or_create(dir.join("db"), 8 << 20).unwrap();
    let mut tree = Tree::open(Mpt, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    let options = options(leaves);
    let name = RunName::of(&tree, &leaves.to_be_bytes(), &options);
    let mut gather = Gather::open(&dir.join("spill"), name, options).unwrap();
    if !gather.is_sorted() {
        for index in 0..leaves {
            let (key, value) = leaf(index);
            gather.push(&key, &value).unwrap();
        }
    }
    let on = &mut |_: &Progress<'_>| std::ops::ControlFlow::Continue(());
    gather.rebuild(&mut tree, &store, None, None, on).unwrap()
}

/// The process that is killed: nothing where it is run as a test of its own.
#[test]
fn child() {
    let Some(dir) = env::var_os(CHILD) else { return };
    let report = rebuild(&PathBuf::from(dir), number("SPINNEY_LEAVES", 0));
    assert_eq!(report.notes, Vec::<String>::new());
}

fn start(dir: &Path, leaves: u64) -> std::process::Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "kills::child"])
        .env(CHILD, dir)
        .env("SPINNEY_LEAVES", leaves.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// P12: killed at any moments, and gone on with each time: the same root and pages; and the leaves
/// hashed are at most those there are, and what was under way at each kill.
#[test]
fn p12_a_rebuild_killed_at_uniform_moments() {
    if env::var_os(CHILD).is_some() {
        return;
    }
    let (kills, leaves) = (number("SPINNEY_KILLS", 6), number("SPINNEY_LEAVES", 20_000));
    let dir = tempfile::tempdir().unwrap();
    // How long one takes that nobody kills.
    let began = Instant::now();
    assert!(start(dir.path(), leaves).wait().unwrap().success());
    let whole = began.elapsed();
    std::fs::remove_dir_all(dir.path().join("db")).unwrap();
    let (mut done, mut rounds, mut chance) = (0, 0, 0x5eed_u64);
    let (mut hashed, mut most) = (0, 0);
    while done < kills {
        rounds += 1;
        let mut killed = 0;
        loop {
            // Uniform over the whole run, of which each process does a part.
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let share = (chance >> 40) as f64 / (1u64 << 24) as f64;
            let wait = Duration::from_secs_f64(whole.as_secs_f64() * share);
            let mut child = start(dir.path(), leaves);
            let began = Instant::now();
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break Some(status);
                }
                if done < kills && began.elapsed() >= wait {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    break None;
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            match status {
                Some(status) => {
                    assert!(status.success());
                    break;
                }
                None => (done, killed) = (done + 1, killed + 1),
            }
        }
        let store = RedbStore::open_or_create(dir.path().join("db"), 8 << 20).unwrap();
        let snapshot = store.snapshot().unwrap();
        let at = spinney_pipeline::Checkpoint::read(&snapshot, ID).unwrap().unwrap();
        let bound = leaves + killed * 3 * (leaves / 256);
        assert!(at.hashed >= leaves && at.hashed <= bound, "{} of at most {bound}", at.hashed);
        (hashed, most) = (hashed + at.hashed, most + bound);
        let tree = Tree::open(Mpt, ID, &snapshot, 1 << 20).unwrap();
        let expected = serial(leaves);
        assert_eq!((tree.root(), at.root), (expected.0, expected.0.to_vec()));
        assert!(pages(&tree, &snapshot) == expected.1, "pages differ");
        assert!(!dir.path().join("spill").exists());
        drop(snapshot);
        drop(store);
        std::fs::remove_dir_all(dir.path().join("db")).unwrap();
    }
    println!(
        "{kills} kills in {rounds} rebuilds of {leaves} leaves ({whole:?} each): \
         {hashed} leaves hashed, at most {most} allowed"
    );
}

/// Pages without generation and checksum, as one digest a row.
fn pages<N: Snapshot>(tree: &Tree<Mpt>, snapshot: &N) -> Vec<[u8; 32]> {
    let (low, high) = tree.page_range();
    let mut rows = Vec::new();
    let mut add = |key: &[u8], row: &[u8]| {
        rows.push(keccak256(&[&key[8..], &row[8..]].concat()));
        true
    };
    snapshot.scan(Table::Pages, &low, Some(&high), &mut add).unwrap();
    rows
}

fn serial(leaves: u64) -> ([u8; 32], Vec<[u8; 32]>) {
    let store = MemoryStore::new();
    let mut tree = Tree::open(Mpt, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    let mut batch = Batch::new();
    for index in 0..leaves {
        let (key, value) = leaf(index);
        batch.put(&key, &value);
    }
    let pending = tree.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
    tree.commit(&store, &pending, None).unwrap();
    let rows = pages(&tree, &store.snapshot().unwrap());
    (tree.root(), rows)
}
