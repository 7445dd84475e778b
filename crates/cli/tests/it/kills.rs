//! A replay that is killed at any moment goes on, and comes to the same end.
#![cfg(unix)]

use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use spinney_tree::Table;

use crate::support::{Chain, Folder, all_forks, assert_sound, command, rows};

/// How many replays are killed, unless `SPINNEY_KILLS` says it.
const KILLS: u32 = 6;

#[test]
fn a_replay_that_is_killed_comes_to_the_same_end() {
    killed("mpt");
}

#[test]
fn a_replay_into_several_trees_that_is_killed_comes_to_the_same_end() {
    killed("mpt,ubt:sha256,pbt:blake3");
}

fn killed(trees: &'static str) {
    let Some(chain) = all_forks() else { return };
    let kills = std::env::var("SPINNEY_KILLS").ok();
    let kills = kills.map_or(KILLS, |kills| kills.parse().expect("SPINNEY_KILLS is a number"));
    let folder = Folder::new();
    let undisturbed = [0, 1, 2].map(|run| folder.path(&format!("undisturbed-{run}")));
    let time = |db: &String| {
        let began = Instant::now();
        assert!(start(&chain, trees, db).wait().unwrap().success());
        began.elapsed()
    };
    // The shortest: the other ones waited for something.
    let whole = undisturbed.iter().map(time).min().expect("there are three");
    let [undisturbed, ..] = undisturbed;
    let end = End { chain, trees, undisturbed };

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

/// Few blocks a commit, so that most moments lie between two commits.
fn more<'a>(trees: &'a str, db: &'a str) -> [&'a str; 6] {
    ["--tree", trees, "--commit-every", "8", "--db", db]
}

fn start(chain: &Chain, trees: &str, db: &str) -> Child {
    let input = ["replay", "--json", "-q", "--genesis", &chain.genesis, "--blocks", &chain.blocks];
    let mut command = command(&[&input[..], &more(trees, db)].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// What every replay of the chain comes to.
struct End {
    chain: Chain,
    trees: &'static str,
    /// A store that was filled at one go.
    undisturbed: String,
}

impl End {
    /// Starts a replay and kills it after a while; not where it has ended by then.
    fn killed_after(&self, db: &str, while_: Duration) -> bool {
        let mut child = start(&self.chain, self.trees, db);
        thread::sleep(while_);
        let running = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        running
    }

    /// What was left is sound, and the same command again comes to the end.
    fn is_reached_from(&self, db: &str) {
        if Path::new(db).join("spinney.redb").exists() {
            assert_sound(db);
        }
        let run = self.chain.replay(&more(self.trees, db)).exits(0).run();
        assert_eq!((&run["root"], &run["head"]), (&self.chain.root().into(), &213.into()));
        assert_sound(db);
        for table in [Table::Pages, Table::History, Table::Meta] {
            assert!(rows(db, table) == rows(&self.undisturbed, table), "{table} differ");
        }
    }
}
