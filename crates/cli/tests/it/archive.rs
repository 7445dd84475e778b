//! `archive`: every block of a store, and what becomes of it.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use crate::follow::chain_of;
use crate::serve::client::Server;
use crate::support::{Folder, all_forks, command, spinney};

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

/// What `archive verify --blocks` says of all blocks, and what it warns of.
pub(crate) fn compared(archive: &str, chain: &str) -> (Value, Value) {
    let ran = spinney(&["archive", "verify", archive, "--json", "--block", "0", "--blocks", chain]);
    let ran = ran.exits(0);
    let envelope: Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    (envelope["data"]["headers"].clone(), envelope["warnings"].clone())
}

#[test]
fn every_block_is_compared_with_its_header() {
    let bench = Bench::new();
    bench.replay("db", &["--tree", "mpt,pbt:blake3,ubt:sha256,verkle"]);
    let last = bench.build("db", &[])["archive"]["last"].as_u64().unwrap();
    let archive = bench.path("archive");
    let (data, warnings) = compared(&archive, &bench.chain);
    // A chain's file need not have its genesis.
    let in_file = data["hashes"].as_u64().unwrap();
    assert!(in_file == last || in_file == last + 1, "{data}");
    assert_eq!((&data["blocks"], &data["state_roots"]), (&json!(last + 1), &json!(in_file)));
    assert_eq!(warnings.as_array().unwrap().len() as u64, last + 1 - in_file, "{warnings}");
    // A way or two into each of four trees.
    assert!(data["entries"].as_u64().unwrap() > 4 * last, "{data}");
    let without = spinney(&["archive", "verify", &archive, "--json"]).exits(0).data();
    assert_eq!(without.get("headers"), None);

    // Another state root in the header of block 30; then another hash alone, by its receipts.
    let verify = |chain: &str| spinney(&["archive", "verify", &archive, "--blocks", chain]);
    let (_, blocks) = chain_of(&bench.path("d"));
    let header =
        blocks.iter().find(|it| it.block.header.number == 30).unwrap().block.header.clone();
    let chain = fs::read(&bench.chain).unwrap();
    for (part, why) in [
        (header.state_root, "block 30 is wrong: its state root is"),
        (header.receipts_root, "block 30 is wrong: its hash is"),
    ] {
        let mut chain = chain.clone();
        let at = chain.windows(32).position(|bytes| bytes == part.as_slice()).unwrap();
        chain[at] ^= 1;
        let other = bench.path("other.rlp");
        fs::write(&other, &chain).unwrap();
        verify(&other).exits(1).refuses(why);
    }
    let none = bench.path("none.rlp");
    fs::write(&none, first_blocks(&chain, 1)).unwrap();
    verify(&none).exits(0).says("no header of");
    fs::write(&none, []).unwrap();
    verify(&none).exits(2).refuses("none");
    verify(&bench.path("nowhere")).exits(2).refuses("nowhere");
}

#[test]
fn an_archive_without_a_trie_is_compared_by_hashes() {
    let bench = Bench::new();
    bench.replay("db", &["--tree", "pbt:blake3"]);
    let _ = bench.build("db", &[]);
    let (data, warnings) = compared(&bench.path("archive"), &bench.chain);
    assert!(data["hashes"].as_u64().unwrap() > 40 && data["state_roots"] == 0, "{data}");
    assert!(warnings.to_string().contains("has no mpt"), "{warnings}");
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

/// The state at each of some blocks, as dumps of stores that come out of an archive.
pub(crate) fn dumps(folder: &Folder, archive: &str, blocks: &[u64]) -> Vec<String> {
    let dump = |number: &u64| {
        let (target, number) = (folder.path("then"), number.to_string());
        let restore = ["archive", "restore", "-q", archive, &target, "--block", &number];
        let _ = spinney(&restore).exits(0);
        let dumped = spinney(&["db", "dump", "--db", &target]).exits(0).out;
        fs::remove_dir_all(&target).unwrap();
        dumped
    };
    blocks.iter().map(dump).collect()
}

fn copied(from: &str, to: &str) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), Path::new(to).join(file.file_name())).unwrap();
    }
}

/// Builds an archive of a store.
fn build(db: &str, into: &str, more: &[&str]) {
    let args = ["archive", "build", "-q", "--db", db, "--into", into];
    let _ = spinney(&[&args[..], more].concat()).exits(0);
}

/// The first and the last block of an archive, all of which is sound.
pub(crate) fn sound(archive: &str) -> (u64, u64) {
    let _ = spinney(&["archive", "verify", "-q", archive]).exits(0);
    let info = spinney(&["archive", "info", archive, "--json"]).exits(0).data();
    (info["first"].as_u64().unwrap(), info["last"].as_u64().unwrap())
}

/// Runs a verb that is killed at moments spread over the time that it takes undisturbed: each time
/// on an archive of its own, which `check` is shown.
fn killed(
    (folder, archive): (&Folder, &str),
    args: &dyn Fn(&str) -> Vec<String>,
    check: &dyn Fn(&str),
) {
    let kills = std::env::var("SPINNEY_KILLS").ok();
    let kills = kills.map_or(KILLS, |kills| kills.parse().expect("SPINNEY_KILLS is a number"));
    let run = |name: &str| {
        let target = folder.path(name);
        copied(archive, &target);
        let args = args(&target);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut verb = command(&args);
        (target, verb.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let clock = Instant::now();
    let (target, mut verb) = run("whole");
    assert!(verb.wait().unwrap().success());
    let whole = clock.elapsed();
    check(&target);
    let mut hit = 0;
    for kill in 0..kills {
        let (target, mut verb) = run(&format!("killed-{kill}"));
        thread::sleep(whole * (kill * 7 % kills) / kills);
        verb.kill().unwrap();
        hit += u32::from(!verb.wait().unwrap().success());
        check(&target);
        // Once more, and all is done.
        let args = args(&target);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let _ = spinney(&args).exits(0);
        check(&target);
        fs::remove_dir_all(&target).unwrap();
    }
    assert!(hit > 0 || kills < 4, "nothing was killed");
    eprintln!("{hit} of {kills} runs were killed");
}

#[test]
fn the_first_blocks_go() {
    let bench = Bench::new();
    bench.replay("db", &["--tree", "mpt,pbt:blake3,ubt:sha256", "--keep-witnesses", "60"]);
    bench.build("db", &["--behind", "20"]);
    bench.build("db", &[]);
    let (archive, nowhere) = (bench.path("archive"), bench.path("nowhere"));
    let before = dumps(&bench.folder, &archive, &[39, 45, 60]);
    let whole = bench.path("copy");
    copied(&archive, &whole);
    let prune = |keep: &str| spinney(&["archive", "prune", &archive, "--keep", keep, "--json"]);
    prune("0").exits(2).says("0 is not in 1..");
    for keep in ["61", "100"] {
        let data = prune(keep).exits(0).data();
        assert_eq!((&data["dropped"], &data["archive"]["first"]), (&0.into(), &0.into()));
    }
    let said = ["archive", "prune", &archive, "--keep", "61", "--format", "table"];
    assert!(spinney(&said).exits(0).out.starts_with("nothing was dropped"));
    let data = prune("22").exits(0).data();
    assert_eq!((&data["dropped"], &data["archive"]["first"]), (&39.into(), &39.into()));
    assert_eq!(sound(&archive), (39, 60));
    assert_eq!(dumps(&bench.folder, &archive, &[39, 45, 60]), before);
    let outside = ["archive", "restore", &archive, &nowhere, "--block", "38"];
    spinney(&outside).exits(2).refuses("blocks 39 to 60, not block 38");
    spinney(&["archive", "verify", &archive, "--block", "0"]).exits(2).refuses("not block 0");
    assert!(!fs::exists(&nowhere).unwrap());
    // It goes on from there.
    let data = prune("1").exits(0).data();
    assert_eq!(data["archive"]["first"], 60);
    assert_eq!(bench.build("db", &[])["added"], 0);
    let objects = fs::read_dir(&archive).unwrap().flatten();
    let names = objects.map(|object| object.file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("segment-")).count(), 1);
    assert_eq!(dumps(&bench.folder, &archive, &[60]), before[2..]);

    let args = |archive: &str| {
        ["archive", "prune", "-q", archive, "--keep", "22"].map(str::to_owned).to_vec()
    };
    killed((&bench.folder, &whole), &args, &|archive| {
        let (first, last) = sound(archive);
        assert!([0, 39].contains(&first) && last == 60, "{first} to {last}");
    });
}

#[test]
fn an_older_archive_is_put_in_front() {
    let bench = Bench::new();
    let trees = ["--tree", "mpt,pbt:blake3,ubt:sha256"];
    bench.replay("early", &[&trees[..], &["--to", "30"]].concat());
    bench.replay("db", &trees);
    let (archive, older) = (bench.path("archive"), bench.path("older"));
    bench.build("db", &["--from", "20"]);
    build(&bench.path("early"), &older, &["--behind", "7"]);
    build(&bench.path("early"), &older, &[]);
    let blocks = [0, 7, 19, 20, 21, 30, 31, 60];
    let stopped = |number: &u64| {
        let name = format!("stopped-{number}");
        bench.replay(&name, &[&trees[..], &["--to", &number.to_string()]].concat());
        bench.dump(&name)
    };
    let expected: Vec<String> = blocks.iter().map(stopped).collect();
    let begun = bench.path("begun");
    copied(&archive, &begun);
    let refused = |from: &str, words: &str| {
        let listed = || {
            let files = fs::read_dir(&archive).unwrap().flatten().map(|file| file.file_name());
            let files = files.map(|name| name.into_string().unwrap());
            let mut segments: Vec<_> = files.filter(|it| it.starts_with("segment-")).collect();
            segments.sort();
            segments
        };
        let before = listed();
        let from = bench.path(from);
        spinney(&["archive", "backfill", &archive, "--from", &from]).exits(2).refuses(words);
        assert_eq!(listed(), before);
    };
    refused("nowhere", "there is no archive");
    refused("archive", "it begins with block 20");
    bench.replay("short", &[&trees[..], &["--to", "19"]].concat());
    build(&bench.path("short"), &bench.path("shorter"), &[]);
    refused("shorter", "it ends with block 19, and has to hold block 20");
    bench.replay("mpt", &["--to", "30"]);
    build(&bench.path("mpt"), &bench.path("of-mpt"), &[]);
    refused("of-mpt", "is not kept there, and");

    let backfill = ["archive", "backfill", &archive, "--from", &older, "--json"];
    let data = spinney(&backfill).exits(0).data();
    assert_eq!((&data["added"], &data["archive"]["first"]), (&20.into(), &0.into()));
    assert_eq!(sound(&archive), (0, 60));
    assert_eq!(dumps(&bench.folder, &archive, &blocks), expected);
    spinney(&backfill).exits(2).refuses("begins before block 0");

    let args = |archive: &str| {
        ["archive", "backfill", "-q", archive, "--from", &older].map(str::to_owned).to_vec()
    };
    // Once it is done it cannot be done again.
    let once = |archive: &str| match sound(archive) {
        (0, 60) => ["archive", "info", archive].map(str::to_owned).to_vec(),
        _ => args(archive),
    };
    killed((&bench.folder, &begun), &once, &|archive| {
        let (first, last) = sound(archive);
        assert!([0, 20].contains(&first) && last == 60, "{first} to {last}");
    });
}

#[test]
fn a_chain_is_replayed_in_front() {
    let bench = Bench::new();
    bench.replay("db", &["--tree", "mpt,pbt:blake3"]);
    bench.build("db", &["--from", "35"]);
    let (archive, begun) = (bench.path("archive"), bench.path("begun"));
    copied(&archive, &begun);
    let whole = bench.path("entire");
    build(&bench.path("db"), &whole, &[]);
    let blocks = [0, 1, 6, 7, 8, 34, 35, 60];
    let expected = dumps(&bench.folder, &whole, &blocks);
    let args = |archive: &str| {
        let verb = ["archive", "backfill", "-q", archive, "--genesis", &bench.genesis];
        let more = ["--blocks", &bench.chain, "--step", "7"];
        verb.iter().chain(&more).map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    let run = |args: &[String]| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        spinney(&args)
    };
    // Blocks that end too early: what there is stays, and the whole chain goes on from there.
    let bytes = fs::read(&bench.chain).unwrap();
    let short = bench.folder.write("short.rlp", first_blocks(&bytes, 20));
    let mut too_short = args(&archive);
    too_short[7].clone_from(&short);
    run(&too_short).exits(2).refuses("the blocks end with block 20, and the archive begins with");
    assert_eq!(sound(&archive), (35, 60));
    let beside = format!("{archive}.backfill");
    assert!(fs::exists(&beside).unwrap());
    let data = run(&[args(&archive), vec!["--json".into()]].concat()).exits(0).data();
    assert_eq!((&data["added"], &data["archive"]["first"]), (&35.into(), &0.into()));
    assert!(!fs::exists(&beside).unwrap(), "the scratch is gone");
    assert_eq!(sound(&archive), (0, 60));
    assert_eq!(dumps(&bench.folder, &archive, &blocks), expected);
    // There is nothing before block 0.
    let again = run(&[args(&archive), vec!["--json".into()]].concat()).exits(0).data();
    assert_eq!(again["added"], 0);
    let mut nowhere = args(&archive);
    nowhere[2] = "-q".into();
    nowhere[3] = bench.path("nowhere");
    run(&nowhere).exits(2).refuses("there is no archive");
    let bad = bench.folder.write("bad.rlp", b"no blocks");
    let mut bad_blocks = args(&begun);
    bad_blocks[7].clone_from(&bad);
    assert_ne!(run(&bad_blocks).code, Some(0));
    assert!(!fs::exists(format!("{begun}.backfill")).unwrap(), "nothing is left");

    killed((&bench.folder, &begun), &args, &|archive| {
        let (first, last) = sound(archive);
        assert!([0, 35].contains(&first) && last == 60, "{first} to {last}");
    });
    let left = fs::read_dir(bench.path("")).unwrap().flatten().map(|file| file.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains(".backfill")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// So many blocks of a chain in RLP, each a list after another.
fn first_blocks(chain: &[u8], count: usize) -> &[u8] {
    let mut rest = chain;
    for _ in 0..count {
        let (head, len) = match rest[0] {
            short @ 0xc0..=0xf7 => (1, usize::from(short - 0xc0)),
            long => {
                let digits = usize::from(long - 0xf7);
                let len =
                    rest[1..=digits].iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
                (1 + digits, len)
            }
        };
        rest = &rest[head + len..];
    }
    &chain[..chain.len() - rest.len()]
}

#[test]
fn all_forks_moves_its_beginning() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let [db, whole, archive] = ["db", "whole", "archive"].map(|name| folder.path(name));
    let trees = "mpt,pbt:blake3,ubt:sha256";
    let _ = chain.replay(&["--db", &db, "--tree", trees, "--keep-undo", "all"]).exits(0);
    build(&db, &whole, &[]);
    let last = sound(&whole).1;
    let (data, _) = compared(&whole, &chain.blocks);
    assert_eq!(data["blocks"], last + 1);
    assert!(data["hashes"].as_u64().unwrap() >= last, "{data}");
    assert_eq!(data["hashes"], data["state_roots"]);
    let (first, quarter) = (last / 2, last / 4);
    build(&db, &archive, &["--from", &first.to_string()]);
    let blocks = [0, quarter, first - 1, first, first + 1, last];
    let expected = dumps(&folder, &whole, &blocks);
    let backfill = ["archive", "backfill", "-q", &archive, "--genesis", &chain.genesis];
    let _ =
        spinney(&[&backfill[..], &["--blocks", &chain.blocks, "--step", "50"]].concat()).exits(0);
    assert_eq!(sound(&archive), (0, last));
    assert_eq!(compared(&archive, &chain.blocks).0, data);
    assert_eq!(dumps(&folder, &archive, &blocks), expected);
    let keep = (last - quarter + 1).to_string();
    let _ = spinney(&["archive", "prune", "-q", &archive, "--keep", &keep]).exits(0);
    assert_eq!(sound(&archive), (quarter, last));
    assert_eq!(dumps(&folder, &archive, &blocks[1..]), expected[1..]);
    let _ = spinney(&["archive", "backfill", "-q", &archive, "--from", &whole]).exits(0);
    assert_eq!(sound(&archive), (0, last));
    assert_eq!(dumps(&folder, &archive, &blocks), expected);
}

/// What a server answers of an account at a block, or why not.
fn asked(server: &Server, address: &str, block: u64) -> Vec<Value> {
    let block = json!(format!("{block:#x}"));
    let slots = json!(["0x0", "0x1", "0x1000"]);
    let account = json!({ "address": address, "slots": slots });
    let calls = [
        ("eth_getProof", json!([address, slots, block])),
        ("eth_getBalance", json!([address, block])),
        ("eth_getTransactionCount", json!([address, block])),
        ("eth_getCode", json!([address, block])),
        ("eth_getStorageAt", json!([address, "0x0", block])),
        ("spinney_getProof", json!(["pbt:blake3", account, block])),
        ("spinney_getRoot", json!(["mpt", block])),
    ];
    server.answers(&calls)
}

#[test]
fn all_forks_is_sliced() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let [db, whole, target] = ["db", "whole", "slice"].map(|name| folder.path(name));
    let trees = "mpt,pbt:blake3,ubt:sha256,verkle";
    let _ = chain.replay(&["--db", &db, "--tree", trees, "--keep-undo", "all"]).exits(0);
    build(&db, &whole, &[]);
    let last = sound(&whole).1;
    // The account with the most slots, one with code, one without, and one that is not there.
    let accounts = chain.head_state["accounts"].as_object().unwrap();
    let most = |of: &dyn Fn(&Value) -> usize| {
        accounts.iter().max_by_key(|(_, account)| of(account)).unwrap().0.clone()
    };
    let slots = |account: &Value| account["storage"].as_object().map_or(0, serde_json::Map::len);
    let code = |account: &Value| account["code"].as_str().map_or(0, str::len);
    let nobody = "0x00000000000000000000000000000000000c0ffe".to_owned();
    let plain = accounts.iter().find(|(_, it)| slots(it) == 0 && code(it) < 3).unwrap().0.clone();
    let mine = [most(&slots), most(&code), plain, nobody];
    let mut args = vec!["archive", "slice", &whole, &target, "--json", "--from", "20"];
    mine.iter().for_each(|address| args.extend(["--address", address]));
    let ran = spinney(&args).exits(0).says("ubt:sha256, verkle left out");
    assert_eq!(ran.data()["archive"]["slice"]["without"], json!(["ubt:sha256", "verkle"]));
    spinney(&args).exits(2).refuses("there is an archive at");
    let verify = ["archive", "verify", &target, "--json", "--block", "20", "--block", "100"];
    let verified = spinney(&verify).exits(0).data();
    assert_eq!(
        (&verified["entries"], verified["roots"].as_array().unwrap().len()),
        (&16.into(), 4)
    );
    let info = spinney(&["archive", "info", &target, "--format", "table"]).exits(0).out;
    assert!(info.contains("a slice of 0x"), "{info}");
    let prove = |archive: &str, address: &str| {
        let range = ["--from", "20", "--to", "30", "--tree", "mpt"];
        let args = ["prove", "--archive", archive, "--address", address, "--slot", "0x0"];
        spinney(&[&args[..], &range].concat())
    };
    for address in &mine {
        assert_eq!(prove(&target, address).exits(0).out, prove(&whole, address).exits(0).out);
    }
    let _ = prove(&target, "0x00000000000000000000000000000000000decaf").exits(2).refuses("slice");
    let keys = ["prove", "--archive", &target, "--tree", "pbt:blake3", "0x01"];
    let _ = spinney(&keys).exits(2).refuses("keys are asked for");
    let bytes = |archive: &str| {
        let info = spinney(&["archive", "info", archive, "--json"]).exits(0).data();
        info["bytes"].as_u64().unwrap()
    };
    assert!(bytes(&target) < bytes(&whole), "{} {}", bytes(&target), bytes(&whole));

    let (there, here) = (Server::of_archive(&whole, &[]), Server::of_archive(&target, &[]));
    for block in (20..=last).step_by(7).chain([last]) {
        for address in &mine {
            let (expected, got) = (asked(&there, address, block), asked(&here, address, block));
            assert_eq!(expected, got, "{address} at block {block}");
        }
    }
    let others = accounts.keys().filter(|address| !mine.contains(address)).take(40);
    let absent = "0x00000000000000000000000000000000000c0fff".to_owned();
    for other in others.chain([&absent]) {
        let mut answers = asked(&here, other, 50);
        answers.pop();
        for answer in answers {
            assert_eq!(answer["error"]["code"], 4444, "{answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.contains("is a slice of 4 accounts"), "{message}");
        }
    }
    let witness = here.refused("debug_executionWitness", json!(["0x32"]));
    assert_eq!(witness.0, 4444, "{witness:?}");
    assert_eq!(here.refused("spinney_getRoot", json!(["ubt:sha256", "0x32"])).0, -32602);
    assert_eq!(here.refused("eth_getBalance", json!([mine[0], "0x13"])).0, 4444);
    for method in ["spinney_trees", "debug_proofsSyncStatus", "spinney_status", "eth_blockNumber"] {
        assert!(!here.call(method, json!([])).is_null(), "{method}");
    }
    drop(here);

    let nowhere = folder.path("nowhere");
    let restore = ["archive", "restore", &target, &nowhere];
    spinney(&restore).exits(2).refuses("is a slice of 4 accounts: no store can be made of it");
    assert!(!fs::exists(&nowhere).unwrap());
    let add = ["archive", "build", "--db", &db, "--into", &target];
    spinney(&add).exits(2).refuses("is a slice of 4 accounts: no blocks are added to it");
    let backfill = ["archive", "backfill", &target, "--from", &whole];
    spinney(&backfill).exits(2).refuses("is a slice");
    let cases: [(&[&str], &str); 3] = [
        (&["--from", "99999"], "not block 99999"),
        (&["--from", "9", "--to", "8"], "block 9 comes after block 8"),
        (&["--address", "0x12"], ""),
    ];
    for (more, words) in cases {
        let slice = ["archive", "slice", &whole, &nowhere, "--address", &mine[0]];
        let ran = spinney(&[&slice[..], more].concat());
        assert_ne!(ran.code, Some(0));
        ran.says(words);
        assert!(!fs::exists(&nowhere).unwrap(), "nothing is left");
    }
    // A changed byte is told.
    let segment = fs::read_dir(&target).unwrap().map(|file| file.unwrap().path());
    let segment = segment.max_by_key(|file| fs::metadata(file).unwrap().len()).unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    bytes[200] ^= 4;
    fs::write(&segment, bytes).unwrap();
    let name = segment.file_name().unwrap().to_str().unwrap();
    spinney(&["archive", "verify", &target]).exits(1).refuses(name);
}

#[test]
fn a_slice_that_is_killed_is_whole_or_not_there() {
    let bench = Bench::new();
    bench.replay("db", &["--tree", "mpt,pbt:blake3"]);
    bench.build("db", &[]);
    let slice_of = |archive: &str| format!("{archive}-slice");
    let is_there = |slice: &str| {
        let listed = fs::read_dir(slice).into_iter().flatten().flatten();
        let mut names = listed.map(|file| file.file_name().to_string_lossy().into_owned());
        names.any(|name| name.starts_with("manifest-") && name.ends_with(".json"))
    };
    let address = "0x100ba66A4ed81db56d86104f53Aa0Cf96c5cC4CA";
    let args = |archive: &str| {
        let slice = slice_of(archive);
        let args: &[&str] = match is_there(&slice) {
            true => &["archive", "info", &slice],
            false => &["archive", "slice", archive, &slice, "--address", address],
        };
        args.iter().map(|word| (*word).to_owned()).collect()
    };
    killed((&bench.folder, &bench.path("archive")), &args, &|archive| {
        let slice = slice_of(archive);
        assert_eq!(sound(archive), (0, 60));
        assert!(!is_there(&slice) || sound(&slice) == (0, 60));
    });
}

/// Commits that are kept are no history, and who asks for their blocks is told so.
#[test]
fn commits_that_are_kept_make_no_archive() {
    let folder = Folder::new();
    let (db, into) = (folder.path("db"), folder.path("archive"));
    let replay = ["replay", "-q", "--db", &db, "--commit-every", "1", "--keep-undo", "0"];
    let _ = spinney(&[&replay[..], &["--blocks-count", "9", "--keep-commits", "all"]].concat())
        .exits(0);
    let build = |more: &[&str]| {
        spinney(&[&["archive", "build", "--db", &db, "--into", &into], more].concat())
    };
    for from in [&[][..], &["--from", "3"]] {
        let refused = build(from).exits(2).refuses("this one's begins with block 9: what else");
        let _ = refused.says("commits, of blocks 1 to 9").says("--keep-undo all");
        assert!(!Path::new(&into).exists(), "{from:?}");
    }
    build(&["--from", "9"]).exits(0);
}
