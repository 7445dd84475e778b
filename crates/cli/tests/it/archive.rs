//! `archive`: every block of a store, and what becomes of it.

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::Instant;

use serde_json::Value;

use crate::support::{Folder, command, spinney};

/// How many builds are killed, unless `SPINNEY_KILLS` says it.
const KILLS: u32 = 12;
/// Builds that one archive is made of.
const STEPS: u32 = 4;

struct Bench {
    folder: Folder,
    genesis: String,
    chain: String,
}

impl Bench {
    fn new() -> Self {
        let folder = Folder::new();
        let demo = folder.path("d");
        let _ = spinney(&["demo", "-q", &demo]).exits(0);
        let (genesis, chain) = (format!("{demo}/genesis.json"), format!("{demo}/chain.rlp"));
        Self { folder, genesis, chain }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path(name)
    }

    fn replay(&self, db: &str, more: &[&str]) {
        let args = ["replay", "-q", "--genesis", &self.genesis, "--blocks", &self.chain];
        let _ = spinney(&[&args[..], &["--db", &self.path(db)], more].concat()).exits(0);
    }

    fn build(&self, db: &str, more: &[&str]) -> Value {
        let (db, into) = (self.path(db), self.path("archive"));
        let args = ["archive", "build", "--db", &db, "--into", &into, "--json"];
        spinney(&[&args[..], more].concat()).exits(0).data()
    }

    fn dump(&self, db: &str) -> String {
        spinney(&["db", "dump", "--db", &self.path(db)]).exits(0).out
    }
}

#[test]
fn stores_of_earlier_blocks_come_out_of_an_archive() {
    let bench = Bench::new();
    let trees = ["--tree", "mpt,pbt:blake3,ubt:sha256"];
    bench.replay("db", &[&trees[..], &["--to", "20"]].concat());
    let built = bench.build("db", &["--behind", "5"]);
    assert_eq!((&built["added"], &built["archive"]["last"]), (&15.into(), &15.into()));
    bench.replay("db", &[]);
    let built = bench.build("db", &[]);
    let last = built["archive"]["last"].as_u64().unwrap();
    assert_eq!(built["added"], last - 15);
    assert_eq!(bench.build("db", &[])["added"], 0);

    let archive = bench.path("archive");
    let blocks = ["--block", "0", "--block", "15", "--block", "40"];
    let verify = ["archive", "verify", &archive, "--json"];
    let verified = spinney(&[&verify[..], &blocks].concat()).exits(0).data();
    assert_eq!(verified["roots"].as_array().unwrap().len(), 9);

    for number in ["0", "15", "16", "40"] {
        let (then, stopped) = (format!("then-{number}"), format!("stopped-{number}"));
        let target = bench.path(&then);
        let restore = ["archive", "restore", "-q", &archive, &target, "--block", number];
        let _ = spinney(&restore).exits(0);
        bench.replay(&stopped, &[&trees[..], &["--to", number]].concat());
        assert_eq!(bench.dump(&then), bench.dump(&stopped), "block {number}");
        let _ = spinney(&["db", "check", "--db", &target]).exits(0);
    }
}

#[test]
fn what_cannot_be_archived_is_said() {
    let bench = Bench::new();
    let (archive, nowhere) = (bench.path("archive"), bench.path("nowhere"));
    spinney(&["archive", "info", &archive]).exits(2).refuses("there is no archive");
    let build = |db: &str| {
        spinney(&["archive", "build", "--db", &bench.path(db), "--into", &bench.path("archive")])
    };
    build("nowhere").exits(2).refuses("nowhere");
    assert!(!fs::exists(&archive).unwrap() && !fs::exists(&nowhere).unwrap());
    bench.replay("short", &["--keep-undo", "3", "--to", "30"]);
    let from = ["archive", "build", "--db", &bench.path("short"), "--into", &archive];
    let ran = spinney(&[&from[..], &["--from", "20"]].concat()).exits(2);
    ran.refuses("block 20");
    assert!(!fs::exists(&archive).unwrap(), "nothing is left");
    let built = build("short").exits(0).data();
    assert_eq!((&built["archive"]["first"], &built["added"]), (&27.into(), &3.into()));
    bench.replay("short", &["--keep-undo", "3", "--to", "50"]);
    build("short").exits(2).refuses("the archive ends with block 30");
    let outside = ["archive", "restore", &archive, &nowhere, "--block", "26"];
    spinney(&outside).exits(2).refuses("blocks 27 to 30, not block 26");
    assert!(!fs::exists(&nowhere).unwrap());
    let strange = ["archive", "info", "ftp://there/archive"];
    spinney(&strange).exits(2).refuses("ftp://");
    // A changed byte of a segment.
    let segment = fs::read_dir(&archive).unwrap().map(|file| file.unwrap().path());
    let segment = segment.max_by_key(|file| fs::metadata(file).unwrap().len()).unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    bytes[100] ^= 4;
    fs::write(&segment, bytes).unwrap();
    let name = segment.file_name().unwrap().to_str().unwrap();
    spinney(&["archive", "verify", &archive]).exits(1).refuses(name);
}

#[test]
fn a_build_that_is_killed_goes_on() {
    let kills = std::env::var("SPINNEY_KILLS").ok();
    let kills = kills.map_or(KILLS, |kills| kills.parse().expect("SPINNEY_KILLS is a number"));
    let bench = Bench::new();
    bench.replay("db", &["--tree", "mpt,pbt:blake3"]);
    let clock = Instant::now();
    let last = bench.build("db", &[])["archive"]["last"].as_u64().unwrap();
    let whole = clock.elapsed();
    let roots = |archive: &str| {
        let verify = ["archive", "verify", archive, "--json", "--block"];
        let blocks = ["0", "--block", "17", "--block", "30", "--block", "44"];
        spinney(&[&verify[..], &blocks].concat()).exits(0).data()["roots"].clone()
    };
    let undisturbed = roots(&bench.path("archive"));
    let (db, mut hit) = (bench.path("db"), 0);
    for kill in 0..kills {
        let archive = bench.path(&format!("killed-{}", kill / STEPS));
        // A quarter of the chain more than the build before.
        let behind = last * u64::from(STEPS - 1 - kill % STEPS) / u64::from(STEPS);
        let behind = behind.to_string();
        let args = ["archive", "build", "-q", "--db", &db, "--into", &archive, "--behind", &behind];
        let mut build = command(&args);
        let mut build = build.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Moments that are spread over the time that a build takes.
        thread::sleep(whole * (kill * 7 % 19) / 19);
        build.kill().unwrap();
        hit += u32::from(!build.wait().unwrap().success());
        // What there is, is sound: no archive yet, or one of whole blocks.
        let listed = fs::read_dir(&archive).into_iter().flatten().flatten();
        let is_manifest = |name: &str| name.starts_with("manifest-") && name.ends_with(".json");
        if listed.map(|file| file.file_name()).any(|name| is_manifest(&name.to_string_lossy())) {
            let _ = spinney(&["archive", "verify", "-q", &archive]).exits(0);
        }
        if kill % STEPS == STEPS - 1 {
            let _ = spinney(&["archive", "build", "-q", "--db", &db, "--into", &archive]).exits(0);
            assert_eq!(roots(&archive), undisturbed);
            // Nothing is left but what the manifest names, and the last manifests.
            let _ = spinney(&["archive", "build", "-q", "--db", &db, "--into", &archive]).exits(0);
            let info = spinney(&["archive", "info", &archive, "--json"]).exits(0).data();
            let named = info["segments"].as_array().unwrap().len();
            let files = fs::read_dir(&archive).unwrap().flatten().map(|file| file.file_name());
            let segments = files.filter(|name| name.to_string_lossy().starts_with("segment-"));
            assert_eq!(segments.count(), named);
        }
    }
    assert!(hit > 0 || kills < 4, "no build was killed");
    eprintln!("{hit} of {kills} builds were killed");
}
