//! `convert`: a state from one tree into another, checked before it is there.

use serde_json::Value;
use spinney_store::LogStore;
use spinney_tree::{PageStore as _, Table, WriteSet};

use crate::several::alloc_of;
use crate::support::{
    Chain, Folder, PATIENCE, Ran, all_forks, assert_sound, chain_600, command, rows, shared,
    spinney,
};

/// Ids of trees in a store.
const MPT: u8 = 1;
const PBT: u8 = 3;

/// The pages of a tree, without generation and checksum.
fn pages(db: &str, tree: u8) -> Vec<(Vec<u8>, Vec<u8>)> {
    let of_tree = rows(db, Table::Pages).into_iter().filter(|(key, _)| key[..4] == [0, 0, 0, tree]);
    of_tree.map(|(key, row)| (key[8..].to_vec(), row[8..].to_vec())).collect()
}

/// The notes that a tree keeps beside its pages.
fn notes(db: &str, tree: u8) -> Vec<(Vec<u8>, Vec<u8>)> {
    let is_note = |key: &[u8]| key.len() > 5 && key[..4] == [0, 0, 0, tree];
    rows(db, Table::Meta).into_iter().filter(|(key, _)| is_note(key)).collect()
}

fn convert(from: &str, to: &str, source: &str, target: &str, more: &[&str]) -> Ran {
    let args = ["convert", "-q", "--json", "--from", from, "--to", to, source, target];
    spinney(&[&args[..], more].concat())
}

/// The state after some blocks: a store of the trie, one of trie and PBT, and the state's document.
struct At {
    folder: Folder,
    mpt: String,
    both: String,
    roots: Value,
    alloc: String,
}

impl At {
    fn new(chain: &Chain, number: u64) -> Self {
        let folder = Folder::new();
        let (mpt, both) = (folder.path("mpt"), folder.path("both"));
        let to = number.to_string();
        chain.replay(&["--db", &mpt, "--to", &to]).exits(0);
        let trees = ["--tree", "mpt,pbt:blake3", "--db", &both, "--to", &to];
        chain.replay(&trees).exits(0);
        let status = spinney(&["stage", "status", "--json", "--db", &both]).exits(0).data();
        let dump = spinney(&["db", "dump", "--db", &mpt]).exits(0).out;
        let dump: Value = serde_json::from_str(&dump).expect("a dump is JSON");
        let alloc = folder.write("alloc.json", alloc_of(&dump));
        Self { folder, mpt, both, roots: status["roots"].clone(), alloc }
    }

    /// There and back again, and everywhere else.
    fn check(&self) {
        let (pbt, again) = (self.folder.path("pbt"), self.folder.path("again"));
        let there = convert("mpt", "pbt:blake3", &self.mpt, &pbt, &[]).exits(0).data();
        assert_eq!(there["root"], self.roots["pbt:blake3"]);
        assert_eq!(there["source_root"], self.roots["mpt"]);
        assert!(pages(&pbt, PBT) == pages(&self.both, PBT), "replayed and converted pages");
        assert_eq!(notes(&pbt, PBT), notes(&self.both, PBT));
        assert_sound(&pbt);
        let back = convert("pbt:blake3", "mpt", &pbt, &again, &[]).exits(0).data();
        assert_eq!(back["root"], self.roots["mpt"]);
        assert_eq!((&back["accounts"], &back["slots"]), (&there["accounts"], &there["slots"]));
        assert!(pages(&again, MPT) == pages(&self.mpt, MPT), "pages after the way back");
        assert_sound(&again);
        for tree in ["ubt:sha256", "verkle", "pbt:sha256"] {
            let target = self.folder.path(tree);
            let made = convert("mpt", tree, &self.mpt, &target, &["--memory", "16MiB"]);
            let root = spinney(&["state-root", "--tree", tree, &self.alloc]).exits(0);
            assert_eq!(made.exits(0).data()["root"], root.out.trim(), "{tree}");
            assert_sound(&target);
        }
    }
}

#[test]
fn all_forks_converted_and_back() {
    let Some(chain) = all_forks() else { return };
    for number in [40, 120, 213] {
        At::new(&chain, number).check();
    }
}

#[test]
fn chain_600_converted_and_back() {
    let Some(chain) = chain_600() else { return };
    for number in [100, 300, 600] {
        At::new(&chain, number).check();
    }
}

#[test]
fn mainnet_genesis_converted_and_back() {
    let Some(genesis) = shared("data/genesis/mainnet.json") else { return };
    let root = "0xd7f8974fb5ac78d9ac099b9ad5018bedc2ce0a72dad1827a1709da30580f0544";
    let folder = Folder::new();
    let db = folder.path("db");
    let import = ["import", "state", "-q", "--number", "0", "--db", &db, &genesis];
    spinney(&import).exits(0);
    for tree in ["pbt:blake3", "ubt:sha256", "verkle"] {
        let target = folder.path(tree);
        let made = convert("mpt", tree, &db, &target, &[]).exits(0).data();
        let expected = spinney(&["state-root", "--tree", tree, &genesis]).exits(0);
        assert_eq!(
            (&made["root"], &made["source_root"]),
            (&expected.out.trim().into(), &root.into())
        );
        assert_eq!(made["accounts"], 8893);
    }
    let again = folder.path("again");
    let back = convert("pbt:blake3", "mpt", &folder.path("pbt:blake3"), &again, &[]).exits(0);
    assert_eq!(back.data()["root"], root);
    assert!(pages(&again, MPT) == pages(&db, MPT));
}

/// Into a schema of a server, from there on, and back.
#[cfg(unix)]
#[test]
fn a_server_takes_a_converted_state() {
    let (Some(chain), Some(server)) = (all_forks(), crate::server::shared()) else { return };
    let folder = Folder::new();
    let (db, url) = (folder.path("db"), server.schema().0);
    chain.replay(&["--db", &db, "--to", "120"]).exits(0);
    let to_server = ["--to-store", "postgres"];
    // A URL says what it is.
    let made = convert("mpt", "verkle", &db, &url, &[]).exits(0).data();
    assert!(made["target_bytes"].as_u64() > Some(10_000), "{made}");
    let expected = convert("mpt", "verkle", &db, &folder.path("file"), &[]).exits(0).data();
    assert_eq!((&made["root"], &made["leaves"]), (&expected["root"], &expected["leaves"]));
    assert_eq!(spinney(&["db", "check", "--json", "--db", &url]).exits(0).data()["sound"], true);
    convert("mpt", "pbt:blake3", &db, &url, &to_server)
        .exits(2)
        .refuses("there is a store already");
    let (other, again) = (server.schema().0, folder.path("again"));
    convert("mpt", "pbt:blake3", &db, &other, &to_server).exits(0);
    let back = convert("pbt:blake3", "mpt", &other, &again, &[]).exits(0).data();
    assert_eq!(back["root"], made["source_root"]);
    assert!(pages(&again, MPT) == pages(&db, MPT));
}

#[test]
fn what_cannot_be_converted_is_refused() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let (db, bare, target) = (folder.path("db"), folder.path("bare"), folder.path("target"));
    chain.replay(&["--db", &db, "--to", "60"]).exits(0);
    chain.replay(&["--db", &bare, "--to", "60", "--no-preimages"]).exits(0);
    convert("mpt", "pbt:blake3", &bare, &target, &[])
        .exits(1)
        .refuses("no preimage of the account");
    convert("pbt:blake3", "mpt", &db, &target, &[]).exits(2).refuses("holds no pbt:blake3");
    convert("mpt", "mpt", &db, &target, &[]).exits(2).refuses("there is no way from mpt to mpt");
    convert("mpt", "pbt", &db, &target, &[])
        .exits(2)
        .refuses("there is no tree pbt (--tree)")
        .says("pbt:blake3");
    convert("mpt", "sum", &db, &target, &[]).exits(2).refuses("holds leaves, and no accounts");
    let _ = convert("mpt", "pbt:blake3", &db, &target, &["--to-store", "postgres"])
        .exits(2)
        .refuses("the target cannot be reached");
    convert("mpt", "pbt:blake3", &db, &target, &["--to-store", "memory"])
        .exits(2)
        .refuses("a directory, a file or a server's address");
    assert!(!std::path::Path::new(&target).exists());
    let part = folder.path("target.part");
    assert!(!std::path::Path::new(&part).exists(), "what was refused does not stay");
    // What another run has begun stays.
    let store = LogStore::create(&part).unwrap();
    let mut set = WriteSet::new();
    set.put(Table::Meta, b"converted", b"something else".to_vec());
    store.commit(&set).unwrap();
    store.close().unwrap();
    let refused = convert("mpt", "verkle", &db, &target, &[]).exits(2);
    refused.refuses("target.part is being made of something else");
    std::fs::remove_dir_all(&part).expect("it is there");
    convert("mpt", "verkle", &db, &target, &[]).exits(0);
    convert("mpt", "verkle", &db, &target, &[]).exits(2).refuses("there is something already");
    // Beside a trie, a store does not say which slots an account of the other tree has.
    let (both, other) = (folder.path("both"), folder.path("other"));
    chain.replay(&["--tree", "mpt,pbt:blake3", "--db", &both, "--to", "60"]).exits(0);
    convert("pbt:blake3", "mpt", &both, &other, &[]).exits(1).refuses("belongs to no account");
    let file = folder.path("pbt.sqlite");
    convert("mpt", "pbt:blake3", &db, &file, &["--to-store", "sqlite"]).exits(0);
    assert_eq!(spinney(&["db", "check", "--json", "--db", &file]).exits(0).data()["sound"], true);
    let left: Vec<_> = std::fs::read_dir(std::path::Path::new(&file).parent().unwrap())
        .expect("a folder")
        .map(|file| file.expect("a file").file_name().into_string().expect("text"))
        .filter(|name| name.starts_with("pbt.sqlite.part"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn an_estimate_writes_nothing() {
    let Some(chain) = chain_600() else { return };
    let folder = Folder::new();
    let (db, target) = (folder.path("db"), folder.path("target"));
    chain.replay(&["--db", &db]).exits(0);
    let told = convert("mpt", "pbt:blake3", &db, &target, &["--dry-run"]).exits(0).data();
    assert_eq!(told["share"], 1.0);
    let made = convert("mpt", "pbt:blake3", &db, &target, &[]).exits(0).data();
    for count in ["accounts", "slots", "leaves", "page_bytes"] {
        assert_eq!(told[count], made[count], "{count}");
    }
}

/// Killed again and again, it comes to the same end.
#[cfg(unix)]
#[test]
fn a_conversion_that_is_killed_goes_on() {
    let Some(chain) = chain_600() else { return };
    let folder = Folder::new();
    let (db, whole, target) = (folder.path("db"), folder.path("whole"), folder.path("target"));
    chain.replay(&["--db", &db]).exits(0);
    let small = ["--memory", "1MiB", "--threads", "1"];
    let expected = convert("mpt", "pbt:blake3", &db, &whole, &small).exits(0).data();
    let args = ["convert", "-q", "--json", "--to", "pbt:blake3", &db, &target];
    let mut kills = 0_u64;
    while !std::path::Path::new(&target).exists() {
        let mut child = command(&[&args[..], &small].concat())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let life = std::time::Duration::from_millis(10 + 12 * kills);
        let began = std::time::Instant::now();
        while began.elapsed() < life && child.try_wait().expect("it is ours").is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        if child.try_wait().expect("it is ours").is_none() {
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
            kills += 1;
        } else {
            let _ = Ran::from(child.wait_with_output().expect("it is ours")).exits(0);
        }
    }
    println!("killed {kills} times");
    assert!(kills > 0, "it was never killed");
    assert!(pages(&target, PBT) == pages(&whole, PBT), "after {kills} kills");
    assert_eq!(notes(&target, PBT), notes(&whole, PBT));
    assert_eq!(rows(&target, Table::Codes), rows(&whole, Table::Codes));
    assert_eq!(rows(&target, Table::Preimages), rows(&whole, Table::Preimages));
    assert_sound(&target);
    let again = folder.path("again");
    let back = convert("pbt:blake3", "mpt", &target, &again, &[]).exits(0).data();
    assert_eq!(back["root"], expected["source_root"]);
}

/// Into a schema of a server: the conversion killed, and the server under it, by turns.
#[cfg(unix)]
#[test]
fn a_conversion_into_a_server_goes_on_whichever_is_killed() {
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    let (Some(chain), Some(mut server)) = (chain_600(), crate::server::Server::start()) else {
        return;
    };
    let folder = Folder::new();
    let (db, undisturbed, url) = (folder.path("db"), server.schema().0, server.schema().0);
    chain.replay(&["--db", &db]).exits(0);
    let small = ["--to-store", "postgres", "--memory", "1MiB", "--threads", "1"];
    let began = Instant::now();
    let expected = convert("mpt", "pbt:blake3", &db, &undisturbed, &small).exits(0).data();
    let whole = began.elapsed();
    let args = ["convert", "-q", "--json", "--to", "pbt:blake3", &db, &url];
    // So many kills at first, and as many more as it takes until one has the time that is left.
    let kills = std::env::var("SPINNEY_KILLS").map_or(6, |kills| kills.parse().expect("a number"));
    let (mut clients, mut servers) = (0, 0);
    let mut locked = None;
    let made = loop {
        let mut child = command(&[&args[..], &small].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let (began, life) = (Instant::now(), whole * (2 * (clients + servers) + 1) / (4 * kills));
        while began.elapsed() < life && child.try_wait().expect("it is ours").is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_running = child.try_wait().expect("it is ours").is_none();
        if is_running {
            locked = None;
        }
        if is_running && clients <= servers {
            clients += 1;
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
            continue;
        }
        if is_running {
            servers += 1;
            server.kill();
        }
        let ran = Ran::from(child.wait_with_output().expect("it is ours"));
        if is_running {
            server.run();
        }
        match ran.code {
            Some(0) => break Some(ran.data()),
            // Killed when it was done, and had not said so.
            _ if ran.err.contains("there is a store already") => break None,
            // It is told that the server is gone; the next one goes on.
            _ if is_running => drop(ran.exits(2).refuses("")),
            // A killed writer's lock lasts until the server has seen that it is gone.
            _ => {
                drop(ran.exits(2).refuses("in use by another process"));
                let waits = locked.get_or_insert_with(Instant::now).elapsed();
                assert!(waits < PATIENCE, "the lock of a killed writer stays");
            }
        }
    };
    println!("{clients} conversions were killed, and the server under {servers}");
    assert!(clients + servers > 1, "nothing was killed");
    let figures = ["root", "source_root", "leaves", "accounts", "slots", "snapshot_digest"];
    for figure in figures {
        if let Some(made) = &made {
            assert_eq!(made[figure], expected[figure], "{figure}");
        }
    }
    assert_eq!(spinney(&["db", "check", "--json", "--db", &url]).exits(0).data()["sound"], true);
    let export = |db: &str, name: &str| {
        let (out, names) = (folder.path(name), folder.path(&format!("{name}.names")));
        let args = ["snapshot", "export", "-q", "--db", db, "--out", &out, "--preimages", &names];
        spinney(&args).exits(0);
        (std::fs::read(out).expect("it is there"), std::fs::read(names).expect("it is there"))
    };
    assert!(export(&url, "killed") == export(&undisturbed, "undisturbed"), "the same files");
}
