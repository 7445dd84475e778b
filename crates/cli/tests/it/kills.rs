//! A replay that is killed at any moment goes on, and comes to the same end.
#![cfg(unix)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use spinney_tree::Table;

use crate::support::{Chain, Folder, Ran, all_forks, assert_sound, command, is_store, pages, rows};

/// How many replays are killed, unless `SPINNEY_KILLS` says it.
const KILLS: u32 = 6;

#[test]
fn a_replay_that_is_killed_comes_to_the_same_end() {
    killed(&["replay", "--commit-every", "8"]);
}

#[test]
fn a_replay_into_several_trees_that_is_killed_comes_to_the_same_end() {
    killed(&["replay", "--commit-every", "8", "--tree", "mpt,ubt:sha256,pbt:blake3"]);
}

/// P7 and P12 of blocks in chunks.
#[test]
fn p12_chunks_that_are_killed_come_to_the_same_end() {
    killed(&["stage", "run", "--chunk-blocks", "8", "--memory", "20k"]);
}

/// P7 and P12 of chunks for each of which the tree is built anew.
#[test]
fn p12_rebuilt_chunks_that_are_killed_come_to_the_same_end() {
    killed(&["stage", "run", "--chunk-blocks", "40", "--rebuild", "--range-leaves", "30"]);
}

/// A verb with what it is told beside its input: few blocks a commit, so that most moments lie
/// between two.
type Words = &'static [&'static str];

fn killed(words: Words) {
    let Some(chain) = all_forks() else { return };
    let kills = std::env::var("SPINNEY_KILLS").ok();
    let kills = kills.map_or(KILLS, |kills| kills.parse().expect("SPINNEY_KILLS is a number"));
    let folder = Folder::new();
    let undisturbed = [0, 1, 2].map(|run| folder.path(&format!("undisturbed-{run}")));
    let time = |db: &String| {
        let began = Instant::now();
        assert!(start(&chain, words, db).wait().unwrap().success());
        began.elapsed()
    };
    // The shortest: the other ones waited for something.
    let whole = undisturbed.iter().map(time).min().expect("there are three");
    let [undisturbed, ..] = undisturbed;
    let end = End { chain, words, undisturbed };

    let mut hit = 0;
    for kill in 0..kills {
        let db = folder.path("once");
        hit += u32::from(
            end.killed_after(&db, whole.mul_f64((f64::from(kill) + 0.5) / f64::from(kills))),
        );
        end.is_reached_from(&db);
        std::fs::remove_dir_all(&db).unwrap();
    }
    println!("{hit} of {kills} replays of {whole:?} were killed before they ended");
    assert!(hit > 0, "no replay was killed");

    // And one that is killed again and again, each time a bit later: it ends all the same.
    let db = folder.path("again");
    let later = |life: u32| whole.mul_f64(0.3) + Duration::from_millis(3) * life;
    let lives = (0..).find(|life| !end.killed_after(&db, later(*life))).expect("it ends");
    println!("one was killed {lives} times on its way");
    end.is_reached_from(&db);
}

fn run(chain: &Chain, words: Words, db: &str) -> Command {
    let input = ["--json", "-q", "--genesis", &chain.genesis, "--blocks", &chain.blocks];
    command(&[words, &input, &["--db", db]].concat())
}

fn start(chain: &Chain, words: Words, db: &str) -> Child {
    run(chain, words, db).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// What every replay of the chain comes to.
struct End {
    chain: Chain,
    words: Words,
    /// A store that was filled at one go.
    undisturbed: String,
}

impl End {
    /// Starts a replay and kills it after a while; not where it has ended by then.
    fn killed_after(&self, db: &str, while_: Duration) -> bool {
        let mut child = start(&self.chain, self.words, db);
        thread::sleep(while_);
        let running = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        running
    }

    /// What was left is sound, and the same command again comes to the end.
    fn is_reached_from(&self, db: &str) {
        if is_store(db) {
            assert_sound(db);
        }
        let ran = Ran::from(run(&self.chain, self.words, db).output().unwrap()).exits(0);
        let data = if self.words[0] == "replay" { ran.run() } else { ran.data() };
        assert_eq!(data["root"], self.chain.root());
        assert_sound(db);
        assert!(pages(db) == pages(&self.undisturbed), "pages differ");
        // Of a rebuild it says how much was done, too.
        let meta = (!self.words.contains(&"--rebuild")).then_some(Table::Meta);
        for table in [Table::History].into_iter().chain(meta) {
            assert!(rows(db, table) == rows(&self.undisturbed, table), "{table} differ");
        }
        assert!(!Path::new(&format!("{db}.leaves")).exists());
    }
}
