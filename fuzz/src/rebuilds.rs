//! What a rebuild that was stopped leaves behind: rows of checkpoints, and run files.
//!
//! ```text
//! input = item*
//! item  = what (1: 0 row of the run, 1 row of a range, 2 file, 3 row that names the rebuild), number (1),
//!         length (u16), so many bytes
//! ```
//! Checksums keep a fuzzer out of what is behind them: here each record is sealed before it is
//! used.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::{env, fs, process};

use spinney_pipeline::{Checkpoint, Gather, Options, PipelineError, Progress, RunName};
use spinney_tree::mpt::Mpt;
use spinney_tree::{MemoryStore, PageStore, Snapshot, Table, Tree, WriteSet};
use xxhash_rust::xxh3::xxh3_64;

use crate::TREE;

const HEAD_BYTES: usize = 7;
const SUM_BYTES: usize = 8;
const FOOTER_BYTES: usize = 24;

/// A rebuild of a few leaves that goes on with what the input says is there. It ends with the right
/// root, or with an error; no thread of it panics.
pub fn rebuilds(input: &[u8]) {
    let dir = scratch();
    let (store, mut set, mut rest) = (MemoryStore::new(), WriteSet::new(), input);
    while let [what, number, high, low, behind @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(behind.len());
        let (bytes, behind) = behind.split_at(len);
        rest = behind;
        match what % 4 {
            0 => set.put(Table::Meta, &key(b"pipeline", None), sealed(bytes)),
            1 => set.put(Table::Meta, &key(b"pipeline", Some(*number)), sealed(bytes)),
            2 => fs::write(file(&dir, *number), sealed_file(bytes)).expect("a scratch folder"),
            _ => set.put(Table::Meta, &key(b"rebuild", None), bytes.to_vec()),
        }
    }
    set.sort();
    store.commit(&set).expect("memory");
    drop(Checkpoint::read(&store.snapshot().expect("memory"), TREE));
    let expected = root();
    match rebuild(&store, &dir, Some(expected), &mut |_| ControlFlow::Continue(())) {
        Ok(root) => assert_eq!(root, expected),
        Err(error) => assert!(!matches!(error, PipelineError::Worker { .. }), "{error}"),
    }
    let _ = fs::remove_dir_all(&dir);
}

/// What the rebuild leaves that is stopped halfway: an input.
pub fn stopped() -> Vec<u8> {
    let (dir, store, mut commits) = (scratch(), MemoryStore::new(), 0);
    let stopped = rebuild(&store, &dir, None, &mut |_| {
        commits += 1;
        if commits < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert!(matches!(stopped, Err(PipelineError::Stopped)), "it has more ranges than that");
    let mut input = Vec::new();
    let mut add = |what: u8, number: u8, bytes: &[u8]| {
        let len = u16::try_from(bytes.len()).expect("its leaves are few");
        input.extend_from_slice(&[what, number]);
        input.extend_from_slice(&len.to_be_bytes());
        input.extend_from_slice(bytes);
    };
    let mut row = |key: &[u8], row: &[u8]| {
        match key.strip_prefix(b"pipeline") {
            Some(rest) if rest.len() == 4 => add(0, 0, row),
            Some(rest) => add(1, rest.last().copied().unwrap_or(0), row),
            None => add(3, 0, row),
        }
        true
    };
    store.snapshot().expect("memory").scan(Table::Meta, &[], None, &mut row).expect("memory");
    for number in 0.. {
        let Ok(bytes) = fs::read(file(&dir, number)) else { break };
        add(2, number, &bytes);
    }
    let _ = fs::remove_dir_all(&dir);
    input
}

fn scratch() -> PathBuf {
    let dir = env::temp_dir().join(format!("spinney-fuzz-{}", process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a scratch folder");
    dir
}

fn file(dir: &Path, number: u8) -> PathBuf {
    dir.join(format!("run-{number:06}"))
}

fn key(name: &[u8], number: Option<u8>) -> Vec<u8> {
    let number = number.map(|number| u32::from(number).to_be_bytes());
    [name, &TREE.0.to_be_bytes(), number.as_ref().map_or(&[], |number| &number[..])].concat()
}

fn leaves() -> impl Iterator<Item = ([u8; 8], [u8; 40])> {
    let key = |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    (0..40).map(move |i| (key(i), [i as u8 + 1; 40]))
}

fn root() -> [u8; 32] {
    let mut sorted: Vec<_> = leaves().collect();
    sorted.sort_unstable();
    let sorted = sorted.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    spinney_tree::mpt::reference::root(&sorted)
}

fn rebuild(
    store: &MemoryStore,
    dir: &Path,
    expected: Option<[u8; 32]>,
    watch: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
) -> Result<[u8; 32], PipelineError> {
    let mut tree = Tree::open(Mpt, TREE, &store.snapshot()?, 1 << 20)?;
    let mut options = Options::default();
    (options.memory, options.threads, options.in_flight) = (2_000, 1, 1);
    options.range_leaves = Some(9);
    let name = RunName::of(&tree, b"fuzz", &options);
    let mut gather = Gather::open(dir, name, options)?;
    for (key, value) in leaves() {
        gather.push(&key, &value)?;
    }
    gather.rebuild(&mut tree, store, None, expected, watch)?;
    Ok(tree.root())
}

/// A record with the length that it has, and its checksum.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut record = bytes[..bytes.len().saturating_sub(SUM_BYTES)].to_vec();
    if let Some(len) = record.len().checked_sub(HEAD_BYTES) {
        record[3..HEAD_BYTES].copy_from_slice(&(len as u32).to_be_bytes());
    }
    let sum = xxh3_64(&record);
    record.extend_from_slice(&sum.to_be_bytes());
    record
}

/// A file whose records are sealed, as far as their lengths make sense, and its end.
fn sealed_file(bytes: &[u8]) -> Vec<u8> {
    let Some(end) = bytes.len().checked_sub(FOOTER_BYTES) else { return bytes.to_vec() };
    let (mut rest, footer) = bytes.split_at(end);
    let mut file = Vec::with_capacity(bytes.len());
    while let Some(len) = rest.get(3..HEAD_BYTES) {
        let len = u32::from_be_bytes([len[0], len[1], len[2], len[3]]) as usize;
        let whole = (HEAD_BYTES + SUM_BYTES).saturating_add(len);
        let Some((record, behind)) = rest.split_at_checked(whole) else { break };
        file.extend(sealed(record));
        rest = behind;
    }
    file.extend_from_slice(rest);
    let sum = xxh3_64(&footer[..FOOTER_BYTES - SUM_BYTES]);
    file.extend_from_slice(&footer[..FOOTER_BYTES - SUM_BYTES]);
    file.extend_from_slice(&sum.to_be_bytes());
    file
}
