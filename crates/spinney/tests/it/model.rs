//! Random histories of a database against maps: trees of two kinds, states on states, dropped and
//! stale ones, commits of one tree and of both, and reopening.

use std::collections::BTreeMap;

use proptest::prelude::*;
use spinney::engine::bulk;
use spinney::{
    Database, DbTree, Error, HashFunction, Leaf, Mpt, Pbt, PendingState, Sum, TreeKind, Ubt,
    Verkle, View,
};

use crate::Place;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// A kind of tree, and keys and values that it takes.
trait Sample: TreeKind {
    fn key(n: u8) -> Vec<u8>;
    fn value(n: u8) -> Vec<u8>;
    /// The entries as the engine has them, sorted.
    fn stored(entries: &Entries) -> Vec<(Vec<u8>, Vec<u8>)> {
        entries.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

impl Sample for Mpt {
    fn key(n: u8) -> Vec<u8> {
        // Some begin others.
        [n % 4, n / 4, n].repeat(1 + usize::from(n % 3))
    }
    fn value(n: u8) -> Vec<u8> {
        vec![n.max(1); 1 + usize::from(n) % 60]
    }
}

fn word(n: u8, len: usize) -> Vec<u8> {
    let mut word = vec![n % 3; len];
    word[len / 2] = n / 16;
    word[len - 1] = n;
    word
}

macro_rules! words {
    ($tree:ty, $len:expr) => {
        impl Sample for $tree {
            fn key(n: u8) -> Vec<u8> {
                word(n, $len)
            }
            fn value(n: u8) -> Vec<u8> {
                vec![n; 32]
            }
        }
    };
}
words!(Ubt, 32);
words!(Pbt, 34);
words!(Verkle, 32);

impl Sample for Sum {
    fn key(n: u8) -> Vec<u8> {
        word(n, 32)
    }
    fn value(n: u8) -> Vec<u8> {
        Leaf { value: vec![n; 3], sum: u64::from(n) + 1 }.encode()
    }
    fn stored(entries: &Entries) -> Vec<(Vec<u8>, Vec<u8>)> {
        let reversed = |key: &Vec<u8>| key.iter().map(|byte| byte.reverse_bits()).collect();
        let mut stored: Vec<_> =
            entries.iter().map(|(key, value)| (reversed(key), value.clone())).collect();
        stored.sort();
        stored
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A batch on one of the states that there are, or on the last commit: of the first tree, or of
    /// the second.
    Prepare {
        second: bool,
        on: Option<usize>,
        puts: BTreeMap<u8, Option<u8>>,
        clear: Option<u8>,
    },
    Commit {
        second: bool,
        state: usize,
    },
    CommitBoth(usize, usize),
    Forget {
        second: bool,
        state: usize,
    },
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let puts =
        prop::collection::btree_map(0..40_u8, prop::option::weighted(0.7, any::<u8>()), 0..6);
    let on = prop::option::weighted(0.6, 0..8_usize);
    let clear = prop::option::weighted(0.1, 0..4_u8);
    let step = prop_oneof![
        6 => (any::<bool>(), on, puts, clear)
            .prop_map(|(second, on, puts, clear)| Step::Prepare { second, on, puts, clear }),
        3 => (any::<bool>(), 0..8_usize).prop_map(|(second, state)| Step::Commit { second, state }),
        1 => (0..8_usize, 0..8_usize).prop_map(|(a, b)| Step::CommitBoth(a, b)),
        1 => (any::<bool>(), 0..8_usize).prop_map(|(second, state)| Step::Forget { second, state }),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..24)
}

/// A state, and what it is known to hold.
struct Held<S: TreeKind> {
    state: PendingState<S>,
    entries: Entries,
    /// The states that it stands on, itself the last, by number.
    chain: Vec<u64>,
}

/// A tree, and what it is known to hold.
struct Side<S: TreeKind> {
    tree: DbTree<S>,
    scheme: S,
    /// The state of the last commit, by number.
    head: u64,
    next: u64,
    committed: Entries,
    held: Vec<Held<S>>,
}

impl<S: Sample> Side<S> {
    fn open(db: &Database, name: &str, scheme: &S, committed: Entries) -> Self {
        let tree = db.tree_with(name, scheme.clone()).unwrap();
        let scheme = scheme.clone();
        Self { tree, scheme, head: 0, next: 1, committed, held: Vec::new() }
    }

    fn pick(&self, state: usize) -> Option<&Held<S>> {
        let count = self.held.len();
        if count == 0 { None } else { self.held.get(state % count) }
    }

    fn is_good(&self, held: &Held<S>) -> bool {
        held.chain.contains(&self.head)
    }

    fn prepare(&mut self, on: Option<usize>, puts: &BTreeMap<u8, Option<u8>>, clear: Option<u8>) {
        let below = on.and_then(|on| self.pick(on));
        let good = below.is_none_or(|below| self.is_good(below));
        let (mut batch, mut entries, mut chain) = match below {
            Some(below) => (below.state.batch(), below.entries.clone(), below.chain.clone()),
            None => (self.tree.batch(), self.committed.clone(), vec![self.head]),
        };
        if let Some(clear) = clear {
            let prefix = &S::key(clear)[..1];
            batch = batch.delete_prefix(prefix);
            entries.retain(|key, _| !key.starts_with(prefix));
        }
        for (key, value) in puts {
            let key = S::key(*key);
            match value {
                Some(value) => {
                    batch = batch.put(&key, S::value(*value));
                    entries.insert(key, S::value(*value));
                }
                None => {
                    batch = batch.delete(&key);
                    entries.remove(&key);
                }
            }
        }
        let before = below.map_or(&self.committed, |below| &below.entries);
        if entries == *before {
            // Whether it would count as a state of its own is the engine's business.
            return;
        }
        match batch.prepare() {
            Ok(state) => {
                assert!(good, "it was prepared on a stale state");
                chain.push(self.next);
                self.next += 1;
                self.held.push(Held { state, entries, chain });
            }
            Err(Error::Stale { .. }) => assert!(!good),
            Err(error) => panic!("{error}"),
        }
    }

    fn committed(&mut self, state: usize) {
        let held = self.pick(state).expect("it was committed");
        if held.entries.is_empty() && self.committed.is_empty() {
            // Nothing is written: the tree stays where it is.
            return;
        }
        let (head, entries) = (*held.chain.last().unwrap(), held.entries.clone());
        (self.head, self.committed) = (head, entries);
    }

    fn root_of(&self, entries: &Entries) -> S::Root {
        bulk::root_of_sorted(&self.scheme, &S::stored(entries)).unwrap()
    }

    fn look(&self, view: &View<'_, S>, entries: &Entries) {
        let root = view.root().unwrap();
        assert_eq!(root, self.root_of(entries));
        let read: Entries = view
            .prefix([])
            .map(|entry| entry.map(|(key, value)| (key, value.to_vec())))
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(&read, entries);
        let prefix = &S::key(1)[..1];
        let some = view.prefix(prefix).map(|entry| entry.unwrap().0);
        let mut some: Vec<_> = some.collect();
        some.sort();
        let expected = entries.keys().filter(|key| key.starts_with(prefix)).cloned();
        assert_eq!(some, expected.collect::<Vec<_>>());
        let keys: Vec<_> = [0, 7, 21, 39].map(S::key).into();
        let proof = view.prove(&keys).unwrap();
        let verified = self.scheme.check(&root, &proof).unwrap();
        for key in &keys {
            let expected = entries.get(key).map(|value| &value[..]);
            assert_eq!(view.get(key).unwrap().as_deref(), expected);
            assert_eq!(verified.get(key).unwrap(), expected);
        }
    }

    /// Everything that can be seen is as it is to be.
    fn check(&self) {
        self.look(&self.tree.view(), &self.committed);
        for held in &self.held {
            let view = self.tree.at(&held.state);
            if self.is_good(held) {
                self.look(&view, &held.entries);
            } else {
                assert_eq!(held.state.root(), self.root_of(&held.entries));
                assert!(matches!(view.get(S::key(0)), Err(Error::Stale { .. })));
            }
        }
    }
}

fn run<S: Sample, T: Sample>(place: Option<&Place>, steps: &[Step], (s, t): (&S, &T)) {
    let memory = Database::memory();
    let open = || place.map_or_else(|| memory.clone(), Place::open);
    let mut db = open();
    let mut one = Side::open(&db, "one", s, Entries::new());
    let mut two = Side::open(&db, "two", t, Entries::new());
    for step in steps {
        match step {
            Step::Prepare { second: false, on, puts, clear } => one.prepare(*on, puts, *clear),
            Step::Prepare { second: true, on, puts, clear } => two.prepare(*on, puts, *clear),
            Step::Commit { second: false, state } => commit(&mut one, *state),
            Step::Commit { second: true, state } => commit(&mut two, *state),
            Step::CommitBoth(a, b) => {
                let (Some(first), Some(second)) = (one.pick(*a), two.pick(*b)) else { continue };
                let good = one.is_good(first) && two.is_good(second);
                match db.commit(&[&first.state, &second.state]) {
                    Ok(()) => {
                        assert!(good);
                        one.committed(*a);
                        two.committed(*b);
                    }
                    Err(Error::Stale { .. }) => assert!(!good),
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Forget { second: false, state } => forget(&mut one, *state),
            Step::Forget { second: true, state } => forget(&mut two, *state),
            Step::Reopen => {
                let (first, second) = (one.committed, two.committed);
                (one.held, two.held) = (Vec::new(), Vec::new());
                drop((one.tree, two.tree, one.held, two.held, db));
                db = open();
                one = Side::open(&db, "one", s, first);
                two = Side::open(&db, "two", t, second);
            }
        }
        one.check();
        two.check();
    }
    let trees: Vec<_> = db.trees().unwrap().into_iter().map(|tree| tree.name).collect();
    assert_eq!(trees, ["one", "two"]);
}

fn commit<S: Sample>(side: &mut Side<S>, state: usize) {
    let Some(held) = side.pick(state) else { return };
    let good = side.is_good(held);
    match held.state.commit() {
        Ok(()) => {
            assert!(good);
            side.committed(state);
        }
        Err(Error::Stale { .. }) => assert!(!good),
        Err(error) => panic!("{error}"),
    }
}

fn forget<S: Sample>(side: &mut Side<S>, state: usize) {
    if !side.held.is_empty() {
        let count = side.held.len();
        drop(side.held.remove(state % count));
    }
}

const SUM: Sum = Sum { profile: spinney::Profile::Compatible };
const PBT: Pbt = Pbt { hash: HashFunction::Blake3 };
const UBT: Ubt = Ubt { hash: HashFunction::Keccak256 };

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, max_shrink_iters: 2_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(64))]

    #[test]
    fn in_memory(steps in steps()) {
        run(None, &steps, (&Mpt, &SUM));
        run(None, &steps, (&PBT, &UBT));
    }
}

proptest! {
    #![proptest_config(config(16))]

    #[test]
    fn in_a_directory(steps in steps()) {
        run(Some(&Place::folder()), &steps, (&Mpt, &PBT));
    }

    #[test]
    fn in_a_redb_store(steps in steps()) {
        run(Some(&Place::redb()), &steps, (&PBT, &Mpt));
    }

    #[test]
    fn in_a_sqlite_file(steps in steps()) {
        run(Some(&Place::sqlite()), &steps, (&SUM, &Mpt));
    }
}

proptest! {
    #![proptest_config(config(4))]

    #[test]
    fn on_a_server(steps in steps()) {
        if let Some(place) = Place::postgres() {
            run(Some(&place), &steps, (&UBT, &SUM));
        }
    }

    #[test]
    fn in_a_verkle_tree(steps in steps()) {
        run(None, &steps, (&Verkle::shared(), &Mpt));
    }
}
