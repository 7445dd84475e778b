//! `replay --archive` and `follow --archive`: an archive that grows beside the store.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use spinney_replay::ChainBlock;

use crate::archive::{compared, dumps, sound};
use crate::fake_node::FakeNode;
use crate::follow::{Following, chain_of, followed};
use crate::support::{Folder, PATIENCE, all_forks, command, spinney};

/// A store that keeps few blocks of its own accord, and waits for its archive.
const NARROW: [&str; 6] = ["--commit-every", "2", "--keep-undo", "0", "--archive-every", "1"];

/// How many replays are killed, unless `SPINNEY_KILLS` says it.
const KILLS: u32 = 6;

struct Demo {
    folder: Folder,
    genesis: String,
    chain: String,
    last: u64,
    blocks: Vec<ChainBlock>,
}

impl Demo {
    fn new() -> Self {
        let folder = Folder::new();
        let demo = folder.path("d");
        let _ = spinney(&["demo", "-q", &demo]).exits(0);
        let (_, blocks) = chain_of(&demo);
        let (genesis, chain) = (format!("{demo}/genesis.json"), format!("{demo}/chain.rlp"));
        Self { folder, genesis, chain, last: blocks.len() as u64, blocks }
    }

    fn replay<'a>(&'a self, db: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let args = ["replay", "-q", "--genesis", &self.genesis, "--blocks", &self.chain];
        [&args[..], &["--db", db], more].concat()
    }

    /// An archive that is built at once of a store that keeps all blocks.
    fn at_once(&self, trees: &str) -> String {
        let (db, archive) = (self.folder.path("all"), self.folder.path("at-once"));
        let _ = spinney(&self.replay(&db, &["--keep-undo", "all", "--tree", trees])).exits(0);
        let _ = spinney(&["archive", "build", "-q", "--db", &db, "--into", &archive]).exits(0);
        archive
    }
}

#[test]
fn a_replay_waits_for_its_archive() {
    let demo = Demo::new();
    let trees = "mpt,pbt:blake3";
    let blocks = [0, 1, 17, demo.last / 2, demo.last];
    let expected = dumps(&demo.folder, &demo.at_once(trees), &blocks);
    for (number, store) in ["log", "redb", "sqlite"].iter().enumerate() {
        let path = |name: &str| demo.folder.path(&format!("{name}-{number}"));
        let (db, archive) = (path("db"), path("archive"));
        // In two runs: the second one goes on with what there is.
        let told = ["--store", store, "--tree", trees, "--archive", &archive];
        let told = [&told[..], &NARROW].concat();
        let half = (demo.last / 2).to_string();
        let _ = spinney(&demo.replay(&db, &[&told[..], &["--to", &half]].concat())).exits(0);
        assert_eq!(sound(&archive), (0, demo.last / 2), "{store}");
        let _ = spinney(&demo.replay(&db, &told)).exits(0);
        assert_eq!(sound(&archive), (0, demo.last), "{store}");
        let (headers, _) = compared(&archive, &demo.chain);
        assert_eq!(headers["blocks"], json!(demo.last + 1), "{store}");
        assert_eq!(dumps(&demo.folder, &archive, &blocks), expected, "{store}");
        // Nothing is new, and the last blocks can stay out.
        let _ = spinney(&demo.replay(&db, &told)).exits(0);
        assert_eq!(sound(&archive), (0, demo.last), "{store}");
    }
    let (db, archive) = (demo.folder.path("behind"), demo.folder.path("archive-behind"));
    let told = ["--archive", &archive, "--archive-behind", "5"];
    let _ = spinney(&demo.replay(&db, &told)).exits(0);
    assert_eq!(sound(&archive), (0, demo.last - 5));
}

#[test]
fn a_replay_that_is_killed_goes_on_with_its_archive() {
    let Some(chain) = all_forks() else { return };
    let kills = std::env::var("SPINNEY_KILLS").ok();
    let kills = kills.map_or(KILLS, |kills| kills.parse().expect("SPINNEY_KILLS is a number"));
    let folder = Folder::new();
    let replay = |db: &str, archive: &str| {
        let args = ["replay", "-q", "--genesis", &chain.genesis, "--blocks", &chain.blocks];
        let args = [&args[..], &["--db", db, "--archive", archive], &NARROW].concat();
        command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let (db, undisturbed) = (folder.path("db"), folder.path("undisturbed"));
    let clock = Instant::now();
    assert!(replay(&db, &undisturbed).wait().unwrap().success());
    let whole = clock.elapsed();
    let (first, last) = sound(&undisturbed);
    let blocks = [first, last / 3, last / 2, last - 1, last];
    let expected = dumps(&folder, &undisturbed, &blocks);
    let mut hit = 0;
    for kill in 0..kills {
        let (db, archive) = (folder.path("once"), folder.path("archive"));
        let mut child = replay(&db, &archive);
        // Moments that are spread over the time that it takes.
        thread::sleep(whole * (kill * 7 % kills) / kills);
        child.kill().unwrap();
        hit += u32::from(!child.wait().unwrap().success());
        let held = fs::read_dir(&archive).into_iter().flatten().flatten();
        if held.map(|file| file.file_name()).any(|name| {
            let name = name.to_string_lossy();
            name.starts_with("manifest-") && name.ends_with(".json")
        }) {
            let _ = sound(&archive);
        }
        assert!(replay(&db, &archive).wait().unwrap().success());
        assert_eq!(sound(&archive), (first, last));
        assert_eq!(dumps(&folder, &archive, &blocks), expected);
        fs::remove_dir_all(&db).unwrap();
        fs::remove_dir_all(&archive).unwrap();
    }
    assert!(hit > 0 || kills < 4, "nothing was killed");
    eprintln!("{hit} of {kills} replays were killed");
}

#[test]
fn an_archive_that_cannot_grow_is_refused_before_anything_is_made() {
    let demo = Demo::new();
    let (db, archive) = (demo.folder.path("db"), demo.folder.path("archive"));
    let refused = |more: &[&str]| {
        let ran = spinney(&demo.replay(&db, more)).exits(2);
        assert!(!Path::new(&db).exists());
        ran
    };
    let file = demo.folder.write("file", "no folder");
    let _ = refused(&["--archive", &file]);
    let _ = refused(&["--archive", "ftp://somewhere/archive"]);
    let _ = refused(&["--archive-every", "5"]);
    // A store whose oldest block lies behind what the archive has.
    let _ = spinney(&demo.replay(&db, &["--to", "10", "--archive", &archive])).exits(0);
    let _ = spinney(&demo.replay(&db, &["--to", "50", "--keep-undo", "4"])).exits(0);
    let ran = spinney(&demo.replay(&db, &["--archive", &archive])).exits(2);
    let _ = ran.refuses("the archive ends with block 10, and the store keeps");
    assert_eq!(sound(&archive), (0, 10));
}

#[test]
fn a_followed_chain_is_archived_but_for_its_last_blocks() {
    let demo = Demo::new();
    let (genesis, blocks) = chain_of(&demo.folder.path("d"));
    assert_eq!(blocks.len(), demo.blocks.len());
    let node = FakeNode::start(&genesis, &demo.blocks, true);
    let (db, archive) = (demo.folder.path("db"), demo.folder.path("archive"));
    let told = ["--archive", &archive, "--archive-behind", "7", "--archive-every", "2"];
    let to = blocks.len();
    let _ = followed(&node, &demo.genesis, &db, to, &told).exits(0);
    assert_eq!(sound(&archive), (0, demo.last - 7));
    let blocks = [0, 9, demo.last - 7];
    let expected = dumps(&demo.folder, &demo.at_once("mpt"), &blocks);
    assert_eq!(dumps(&demo.folder, &archive, &blocks), expected);

    // A place that fails does not stop a follower, and what is left is for the next run.
    let (db, archive) = (demo.folder.path("other"), demo.folder.path("fails"));
    node.has(&demo.blocks[..20]);
    let (url, moved) = (node.url().to_string(), demo.folder.path("moved"));
    let told = ["--archive", &archive, "--archive-behind", "0", "--archive-every", "1"];
    let follow = ["follow", &url, "--genesis", &demo.genesis, "--db", &db];
    let following = Following::start(&[&follow[..], &told].concat());
    following.committed(20);
    let clock = Instant::now();
    while fs::read_dir(&archive).is_ok_and(|files| files.count() < 2) || sound(&archive).1 < 20 {
        assert!(clock.elapsed() < PATIENCE, "block 20 is not archived");
        thread::sleep(Duration::from_millis(20));
    }
    fs::rename(&archive, &moved).unwrap();
    fs::write(&archive, "no folder").unwrap();
    node.has(&demo.blocks);
    following.committed(demo.last);
    let scraped = following.server.scrape();
    assert!(scraped.contains("spinney_follow_archived_block 20\n"), "{scraped}");
    let ran = following.server.stop().exits(0);
    assert!(
        ran.err.contains("does not grow") || ran.err.contains("nothing is archived"),
        "{ran:?}"
    );
    fs::remove_file(&archive).unwrap();
    fs::rename(&moved, &archive).unwrap();
    let _ = followed(&node, &demo.genesis, &db, to, &told).exits(0);
    assert_eq!(sound(&archive), (0, demo.last));
}
