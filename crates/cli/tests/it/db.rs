//! `db`: what a store holds, and stores that are none.

use spinney_tree::{PageStore as _, Table, WriteSet};

use crate::support::{Folder, assert_sound, command, open_store, rows, spinney, spinney_fed};

fn sample(folder: &Folder) -> String {
    sample_of("log", folder)
}

fn sample_of(kind: &str, folder: &Folder) -> String {
    let db = folder.path(kind);
    spinney(&["replay", "-q", "--blocks-count", "3", "--store", kind, "--db", &db]).exits(0);
    db
}

#[test]
fn info_and_stats_in_every_format() {
    let folder = Folder::new();
    let db = sample(&folder);
    let info = spinney(&["db", "info", "--json", "--db", &db]).exits(0).data();
    let tree = &info["trees"][0];
    assert_eq!((&tree["tree"], &tree["keys"]), (&"mpt".into(), &"state".into()));
    assert_eq!((&tree["version"], &tree["block"]), (&1.into(), &3.into()));
    let stats = spinney(&["db", "stats", "--json", "--db", &db]).exits(0).data();
    assert_eq!(stats["tables"][0]["table"], "pages");
    assert!(stats["tables"][0]["rows"].as_u64() > Some(10), "{stats}");
    assert!(stats["tables"][0]["largest_row"].as_u64() < Some(8_000), "{stats}");
    assert!(stats["file_bytes"].as_u64() > Some(0), "{stats}");
    for verb in ["info", "stats", "check"] {
        let table = spinney(&["db", verb, "-q", "--format", "table", "--db", &db]).exits(0);
        let csv = spinney(&["db", verb, "-q", "--format", "csv", "--db", &db]).exits(0);
        assert!(!table.out.is_empty() && !csv.out.is_empty());
        assert_eq!((table.err, csv.err), (String::new(), String::new()));
    }
}

#[test]
fn stats_name_sum_trees_and_count_one_page() {
    let folder = Folder::new();
    let db = folder.path("sums");
    let leaf = format!(r#"{{"put": {{"0x{}": {{"value": "0x", "sum": "5"}}}}}}"#, "01".repeat(32));
    spinney_fed(&["root", "--tree", "sum", "--namespace", "oaks", "--db", &db, "-"], &leaf)
        .exits(0);
    let stats = spinney(&["db", "stats", "--format", "table", "--db", &db]).exits(0).out;
    assert!(stats.contains("\nsum oaks: 1 page, "), "{stats}");
    assert!(stats.contains("\nlog: 1 file, "), "{stats}");
    assert!(stats.lines().all(|line| line.chars().count() <= 80), "{stats}");
}

#[test]
fn info_and_stats_say_which_commits_are_kept() {
    let folder = Folder::new();
    let db = folder.path("kept");
    let replay = |more: &[&str]| {
        let args = ["replay", "-q", "--commit-every", "3", "--db", &db];
        spinney(&[&args[..], more].concat()).exits(0)
    };
    replay(&["--blocks-count", "9", "--keep-commits", "all"]);
    let said = |verb: &str| {
        let data = spinney(&["db", verb, "--json", "--db", &db]).exits(0).data();
        let table = spinney(&["db", verb, "--format", "table", "--db", &db]).exits(0).out;
        assert!(table.lines().filter(|line| line.contains("kept")).all(|line| line.len() <= 80));
        (data, table)
    };
    let ((info, info_lines), (stats, stats_lines)) = (said("info"), said("stats"));
    let kept = serde_json::json!({ "count": 4, "first_block": 1, "last_block": 9 });
    assert_eq!((&info["kept_commits"], &stats["log"]["kept_commits"]), (&kept, &kept));
    assert!(info_lines.ends_with("\nkept: 4 commits, of blocks 1 to 9\n"), "{info_lines}");
    assert!(stats_lines.contains("\nlog: 4 commits, of blocks 1 to 9 kept\n"), "{stats_lines}");
    // A log that keeps its last commit alone says nothing of others.
    replay(&["--blocks-count", "10", "--keep-commits", "1"]);
    let ((info, info_lines), (stats, _)) = (said("info"), said("stats"));
    assert!(info["kept_commits"].is_null() && stats["log"]["kept_commits"].is_null(), "{stats}");
    assert!(!info_lines.contains("kept"), "{info_lines}");
}

#[test]
fn a_store_that_is_none_is_refused() {
    let folder = Folder::new();
    let file = folder.write("file", "text");
    let foreign = folder.path("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(format!("{foreign}/spinney.redb"), "something else entirely").unwrap();
    for verb in ["info", "stats", "check", "dump"] {
        let missing = folder.path("missing");
        spinney(&["db", verb, "--db", &missing]).exits(2).refuses("there is no store at");
        spinney(&["db", verb, "--db", &file]).exits(2).refuses("is not a spinney store");
        spinney(&["db", verb, "--db", &foreign]).exits(2).refuses("is not a spinney store");
        assert!(!std::path::Path::new(&missing).exists(), "looking makes no store");
    }
    let args = ["replay", "--blocks-count", "1", "--db", &foreign];
    spinney(&args).exits(2).refuses("is not a spinney store");
}

/// Each answer is of one commit, also while commits come in between its reads.
#[test]
fn a_store_is_read_while_it_is_written() {
    let folder = Folder::new();
    let db = folder.path("db");
    let replay = ["replay", "-q", "--json", "--commit-every", "1", "--db", &db, "--blocks-count"];
    spinney(&[&replay[..], &["20"]].concat()).exits(0);
    let mut writer = command(&[&replay[..], &["400"]].concat());
    let mut writer = writer.stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut blocks = std::collections::BTreeSet::new();
    while writer.try_wait().unwrap().is_none() {
        let dump = spinney(&["db", "dump", "--db", &db]).exits(0).out;
        let dump: serde_json::Value = serde_json::from_str(&dump).unwrap();
        blocks.insert(dump["block"]["number"].as_u64().unwrap());
        let address = "0x00000000000000000000000000000000000000aa";
        let proof = spinney(&["prove", "--db", &db, "--address", address, "--block", "20"]);
        spinney_fed(&["verify", "-"], &proof.exits(0).out).exits(0);
        spinney(&["stage", "status", "--db", &db]).exits(0);
    }
    assert!(writer.wait().unwrap().success());
    assert!(blocks.len() > 1, "nothing was read between two commits: {blocks:?}");
}

#[test]
fn every_damaged_page_is_found() {
    let folder = Folder::new();
    let db = sample_of("redb", &folder);
    assert_sound(&db);
    let file = format!("{db}/spinney.redb");
    let sound = std::fs::read(&file).unwrap();
    let pages = rows(&db, Table::Pages);
    let step = (pages.len() / 3).max(1);
    for (key, row) in pages.iter().step_by(step) {
        let mut damaged = sound.clone();
        let needle = &row[8..];
        // Pages of earlier commits may still lie about; only one of them counts.
        for at in 0..damaged.len() - needle.len() {
            if damaged[at] == needle[0] && damaged[at..].starts_with(needle) {
                damaged[at + needle.len() / 2] ^= 0x10;
            }
        }
        assert_ne!(damaged, sound);
        std::fs::write(&file, &damaged).unwrap();
        let ran = spinney(&["db", "check", "-q", "--format", "table", "--db", &db]).exits(1);
        assert!(ran.out.contains("damaged"), "{key:02x?}: {ran:?}");
        let dump = spinney(&["db", "dump", "--db", &db]).exits(2);
        let _ = dump.refuses("damaged").says("hint: ");
        std::fs::write(&file, &sound).unwrap();
    }
    assert_sound(&db);
}

/// A kill between two commits of a rebuild leaves its pages, or those before it: waste, and no
/// damage.
#[test]
fn what_a_rebuild_left_is_no_damage_and_other_strays_are() {
    let folder = Folder::new();
    let db = sample(&folder);
    let (first, row) = rows(&db, Table::Pages).swap_remove(0);
    let put = |table, key: Vec<u8>| {
        let store = open_store(&db);
        let mut set = WriteSet::new();
        set.put(table, &key, row.clone());
        store.commit(&set).unwrap();
        store.close().unwrap();
    };
    let of = |tree: &[u8]| [tree, &9_u32.to_be_bytes(), &first[8..]].concat();
    let check = || spinney(&["db", "check", "-q", "--json", "--db", &db]);
    put(Table::Pages, of(&first[..4]));
    put(Table::Meta, [b"rebuild", &77_u32.to_be_bytes()[..]].concat());
    put(Table::Pages, of(&77_u32.to_be_bytes()));
    let data = check().exits(0).data();
    assert_eq!((&data["sound"], &data["left_over_rows"]), (&true.into(), &2.into()), "{data}");
    let told = spinney(&["db", "check", "-q", "--format", "table", "--db", &db]).exits(0).out;
    assert!(told.starts_with("2 rows of pages are left over"), "{told}");
    put(Table::Pages, of(&78_u32.to_be_bytes()));
    let data = check().exits(1).data();
    assert_eq!(data["findings"][0], "1 rows of pages belong to no tree", "{data}");
}

#[test]
fn a_damaged_row_is_told_once() {
    let folder = Folder::new();
    let db = sample_of("sqlite", &folder);
    let mut file = std::fs::read(&db).unwrap();
    // Rows are the same in each kind of store.
    let pages = rows(&sample_of("redb", &folder), Table::Pages);
    let (_, row) = &pages[pages.len() / 2];
    // A long row lies in several places of the file.
    let part = &row[20..52];
    let at = file.windows(part.len()).position(|bytes| bytes == part).unwrap();
    file[at] ^= 1;
    std::fs::write(&db, file).unwrap();
    let said = spinney(&["db", "check", "-q", "--format", "table", "--db", &db]).exits(1).out;
    assert!(said.contains("does not match its checksum"), "{said}");
    assert!(said.lines().last().unwrap().starts_with("1 finding "), "{said}");
}

#[test]
fn a_cut_file_is_an_error_and_no_panic() {
    let folder = Folder::new();
    for (kind, file) in [("redb", "spinney.redb"), ("log", "spinney.log/seg-00000001")] {
        let db = sample_of(kind, &folder);
        let file = format!("{db}/{file}");
        let sound = std::fs::read(&file).unwrap();
        for len in [0, 5, 100, 4_096, sound.len() / 2] {
            std::fs::write(&file, &sound[..len]).unwrap();
            let ran = spinney(&["db", "check", "-q", "--format", "table", "--db", &db]);
            assert!(matches!(ran.code, Some(1 | 2)), "{len}: {ran:?}");
            assert!(!ran.err.contains("panicked") && !ran.err.contains("a bug"), "{len}: {ran:?}");
            let dump = spinney(&["db", "dump", "--db", &db]).exits(2);
            assert!(dump.err.starts_with("error: "), "{dump:?}");
        }
    }
}
