//! Sum trees, one in the other, in a store whose disk fails or whose server is killed in the middle
//! of their batches.

use std::time::Instant;

use spinney_state::sum::{Nest, SumBatch, SumError, SumTree, commit_together};
use spinney_store::fault::{FaultDisk, Stop, Survivors};
use spinney_store::{PostgresStore, RedbStore, SqliteStore};
use spinney_tree::sum::reference::{self, Leaves};
use spinney_tree::sum::{Leaf, Profile};
use spinney_tree::{PageStore, StoreError, TreeError};

use crate::processes::{Other, say};
use crate::server::Server;

const PROFILE: Profile = Profile::Compatible;
/// The key under which the round stands, and under which the parent has its child.
const MARK: [u8; 32] = [0xee; 32];
/// Small, so that pages are read from the store, too.
const CACHE_BYTES: usize = 8 << 10;

fn key(n: u64) -> [u8; 32] {
    let mut key = [0; 32];
    for (i, part) in key.chunks_exact_mut(8).enumerate() {
        let mixed = (n * 4 + i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        part.copy_from_slice(&(mixed ^ mixed >> 29).to_be_bytes());
    }
    key
}

/// The batch of a round: leaves that come, change and go, and the number of the round.
fn batch(round: u64, leaves: u64) -> Leaves {
    let mut batch = Leaves::new();
    for n in 0..leaves {
        let number = (round * leaves / 3 + n * 5) % (4 * leaves);
        let leaf = if n % 4 == 3 {
            Leaf::default()
        } else {
            Leaf { value: vec![round as u8; n as usize % 60 + 1], sum: round + n }
        };
        batch.insert(key(number), leaf);
    }
    batch.insert(MARK, Leaf { value: round.to_be_bytes().to_vec(), sum: 0 });
    batch
}

fn open<'s, P: PageStore>(store: &'s P) -> Result<(SumTree<'s, P>, SumTree<'s, P>), SumError> {
    let create = |name| SumTree::create(store, name, PROFILE, CACHE_BYTES);
    Ok((create("child")?, create("parent")?))
}

/// Which round a store holds; 0 is none yet.
fn round_of<P: PageStore>(child: &SumTree<'_, P>) -> Result<u64, SumError> {
    let mark = child.get(&MARK)?;
    Ok(mark.map_or(0, |leaf| u64::from_be_bytes(leaf.value.try_into().unwrap())))
}

fn commit_next<P: PageStore>(store: &P, leaves: u64) -> Result<u64, SumError> {
    let (mut child, mut parent) = open(store)?;
    let round = round_of(&child)? + 1;
    let mut next = SumBatch::new();
    batch(round, leaves).iter().for_each(|(key, leaf)| next.put(key, leaf));
    let trees = &mut [(&mut child, next), (&mut parent, SumBatch::new())];
    commit_together(store, trees, &[Nest { child: 0, parent: 1, key: MARK }])?;
    Ok(round)
}

/// The leaves after each round.
fn states(rounds: u64, leaves: u64) -> Vec<Leaves> {
    let mut states = vec![Leaves::new()];
    for round in 1..=rounds {
        let mut next = states[states.len() - 1].clone();
        reference::apply(&mut next, &batch(round, leaves)).unwrap();
        states.push(next);
    }
    states
}

/// Both trees are of one round, whole; answers which.
fn check<P: PageStore>(store: &P, states: &[Leaves], what: &str) -> u64 {
    let (child, parent) = open(store).unwrap();
    let round = round_of(&child).unwrap();
    let expected = &states[round as usize];
    assert_eq!(child.root(), reference::root(PROFILE, expected).unwrap(), "{what}: round {round}");
    let nested = if round == 0 { Leaves::new() } else { [(MARK, child.as_leaf())].into() };
    assert_eq!(parent.root(), reference::root(PROFILE, &nested).unwrap(), "{what}: the parent");
    for tree in [&child, &parent] {
        let found = tree.tree().check(&store.snapshot().unwrap(), |_| {}).unwrap();
        assert_eq!(found, [], "{what}");
    }
    round
}

/// Goes on from whatever the store holds; answers the last round that was committed.
fn run(store: &RedbStore, rounds: u64) -> u64 {
    let mut last = 0;
    while last < rounds {
        match commit_next(store, 24) {
            Ok(round) => last = round,
            Err(_) => break,
        }
    }
    last
}

/// Each of the operations in turn if this is set, else every eleventh.
fn stride() -> usize {
    if std::env::var_os("SPINNEY_LONG").is_some() { 1 } else { 11 }
}

#[test]
fn nested_trees_survive_a_failure_at_any_write_or_sync() {
    const ROUNDS: u64 = 10;
    let states = states(ROUNDS, 24);
    let blank = FaultDisk::new();
    blank.create_store().unwrap().close().unwrap();
    let mut tried = 0;
    for operation in (0..).step_by(stride()) {
        let disk = FaultDisk::with_image(blank.image());
        disk.stop_at(operation, Stop::Fail);
        let reported = disk.open_store().map_or(0, |store| run(&store, ROUNDS));
        let finished = disk.operations() <= operation;
        disk.resume();
        let survivors = [Survivors::Nothing, Survivors::All, Survivors::Some(operation)];
        let cut = disk.after_power_cut(survivors[tried % survivors.len()]);
        let what = format!("operation {operation}");
        let store = cut.open_store().unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = check(&store, &states, &what);
        assert!(found == reported || found == reported + 1, "{what}: {found}, told {reported}");
        // And it goes on from there.
        assert!(found == ROUNDS || run(&store, ROUNDS) == ROUNDS, "{what}");
        assert_eq!(check(&store, &states, &what), ROUNDS);
        tried += 1;
        if finished {
            assert_eq!(reported, ROUNDS);
            break;
        }
    }
    println!("failed at {tried} operations");
}

const FILL_ROUNDS: u64 = 10;

/// Commits rounds until one fails or all are there; says each, and what was wrong.
pub(crate) fn fill(store: &SqliteStore) {
    loop {
        match commit_next(store, 24) {
            Ok(FILL_ROUNDS) => return say("done"),
            Ok(round) => say(round.to_string()),
            Err(SumError::Tree(TreeError::Store(StoreError::Backend { .. }))) => {
                return say("full");
            }
            Err(error) => return say(format!("not the error it should be: {error}")),
        }
    }
}

/// Files that cannot grow stand for a full disk: a batch that does not fit is refused, and those
/// before it stay. With room again, the rest is written.
#[test]
fn a_full_disk_refuses_a_batch_in_sqlite_and_loses_none() {
    if !cfg!(target_os = "linux") {
        return println!("skipped: only Linux is known to refuse writes beyond a limit this way");
    }
    let states = states(FILL_ROUNDS, 24);
    let (mut refused, mut least) = (0, u64::MAX);
    // From hardly any room for the first batch to enough for all.
    for blocks in (0..).map(|step| 64 + 24 * step) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sums.sqlite");
        drop(SqliteStore::create(&file, CACHE_BYTES).unwrap());
        let mut other = Other::start_within("fill sqlite", &file, blocks).unwrap();
        let mut told = 0;
        let last = loop {
            let said = other.hear().expect("it says how it ended");
            match said.parse::<u64>() {
                Ok(round) => told = round,
                Err(_) => break said,
            }
        };
        other.end();
        let store = SqliteStore::open(&file, CACHE_BYTES).unwrap();
        store.check().unwrap();
        let what = format!("{blocks} blocks");
        let found = check(&store, &states, &what);
        if last == "done" {
            assert_eq!(found, FILL_ROUNDS, "{what}");
            break;
        }
        assert_eq!((&last[..], found), ("full", told), "{what}");
        (refused, least) = (refused + 1, least.min(found));
        while commit_next(&store, 24).unwrap() < FILL_ROUNDS {}
        check(&store, &states, &what);
    }
    assert!(refused >= 5 && least <= 2, "the disk was never full: {refused}, {least}");
}

/// How often the server is killed: `SPINNEY_KILLS=50` is the long run.
fn kills() -> u32 {
    std::env::var("SPINNEY_KILLS").map_or(4, |kills| kills.parse().unwrap())
}

/// The server is killed at moments spread over a batch, and started again: of both trees the batch
/// is there whole, or not at all.
#[test]
fn a_server_killed_in_a_sum_batch_has_all_of_it_or_nothing() {
    const LEAVES: u64 = 1_000;
    let Some(mut server) = Server::start() else { return };
    let (url, _) = server.schema();
    let states = states(u64::from(kills()) + 2, LEAVES);
    let store = PostgresStore::create(&url.as_str().into()).unwrap();
    commit_next(&store, LEAVES).unwrap();
    let begun = Instant::now();
    commit_next(&store, LEAVES).unwrap();
    let whole = begun.elapsed();
    drop(store);
    let (mut done, mut undone, mut reported) = (0, 0, 0);
    let mut last = 2;
    for kill in 0..kills() {
        let store = PostgresStore::open(&url.as_str().into()).unwrap();
        let after = whole * (2 * kill + 1) / kills();
        let committed = std::thread::scope(|scope| {
            let ours = scope.spawn(|| commit_next(&store, LEAVES));
            std::thread::sleep(after);
            server.kill();
            ours.join().unwrap()
        });
        if let Err(error) = &committed {
            let gone = SumError::Tree(TreeError::Store(StoreError::Backend {
                place: String::new(),
                source: "".into(),
            }));
            let same = std::mem::discriminant(error) == std::mem::discriminant(&gone);
            assert!(same, "a typed error: {error}");
        }
        drop(store);
        server.run();
        let store = PostgresStore::open(&url.as_str().into()).unwrap();
        let found = check(&store, &states, &format!("kill {kill}"));
        assert!(found == last || found == last + 1, "{found} after {last}");
        assert!(committed.is_err() || found == last + 1, "a commit that returned is durable");
        done += usize::from(found == last + 1);
        undone += usize::from(found == last);
        reported += usize::from(committed.is_ok());
        last = found;
    }
    println!(
        "killed {} times: {done} batches were there ({reported} had returned), {undone} not",
        kills()
    );
}
