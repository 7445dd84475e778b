//! The binary trees and the Verkle tree on the command line.

use std::path::Path;

use crate::support::{Folder, assert_sound, spinney, spinney_fed};

const STEM: &str = "00000000000000000000000000000000000000000000000000000000000000";

fn put(key: &str, byte: &str) -> String {
    format!("{{\"put\": {{\"0x{key}\": \"0x{}\"}}}}\n", byte.repeat(32))
}

#[test]
fn a_trace_goes_into_every_tree() {
    let line = put(&format!("{STEM}00"), "01");
    for (tree, root) in [
        // As geth and the specification's own code have them.
        ("ubt:sha256", "0xaab1060e04cb4f5dc6f697ae93156a95714debbf77d54238766adc5709282b6f"),
        ("ubt:blake3", "0x694545468677064fd833cddc8455762fe6b21c6cabe2fc172529e0f573181cd5"),
    ] {
        let ran = spinney_fed(&["root", "--tree", tree, "-"], &line).exits(0);
        let expected = format!("{{\"batch\": 1, \"commit\": 1, \"root\": \"{root}\"}}\n");
        assert_eq!(ran.out, expected, "{tree}");
    }
    // go-verkle's, by both of its names.
    let ran = spinney_fed(&["root", "--tree", "verkle", "-"], &put(&format!("{STEM}00"), "00"));
    assert_eq!(
        ran.exits(0).out,
        "{\"batch\": 1, \"commit\": 1, \"root\": \"0x6b630905ce275e39f223e175242df2c1e8395e6f46ec71dce5557012c1334a5c\", \
         \"root_hash\": \"0xff00a9f3f2d4f58fc23bceebf6b2310419ceac2c30445e2f374e571487715015\"}\n"
    );
    let ran = spinney_fed(&["root", "--tree", "pbt:blake3", "-"], &put("ab", "01")).exits(0);
    assert!(ran.out.contains("0x2ebeea9f8e2e4bbf6e4ff1b4cf8afbb641d4dfaf9a05469dea3787bbc35188d5"));
    let lines = put("ab", "01") + &put("abcd", "02");
    let ran = spinney_fed(&["root", "--tree", "pbt:sha256", "-"], &lines).exits(2);
    ran.refuses("line 2: key 0xab begins key 0xabcd");
    let ran = spinney_fed(&["root", "--tree", "ubt:keccak", "-"], &put("ab", "01")).exits(2);
    ran.refuses("a key of 1 bytes where the tree takes 32 bytes");
    let ran = spinney_fed(&["root", "--tree", "pbt:md5", "-"], "").exits(2);
    ran.refuses("there is no tree pbt:md5");
    let ran = spinney_fed(&["root", "--tree", "pbt:blake3", "--hash-keys", "-"], "").exits(2);
    ran.refuses("--hash-keys is for mpt");
}

#[test]
fn a_store_continues_and_is_sound() {
    let folder = Folder::new();
    let db = folder.path("db");
    let line = |place: &str| put(&format!("{STEM}{place}"), "07");
    let (one, two) = (folder.write("1", line("00")), folder.write("2", line("01")));
    let both = folder.write("3", line("00") + &line("01"));
    let root = |args: &[&str]| {
        let ran = spinney(&[&["root", "--tree", "ubt:sha256"], args].concat()).exits(0);
        let last = ran.out.lines().last().unwrap().to_owned();
        last.split("\"root\": ").nth(1).unwrap().to_owned()
    };
    root(&["--db", &db, &one]);
    assert_eq!(root(&["--db", &db, &two]), root(&[&both]));
    assert_sound(&db);
    let info = spinney(&["db", "info", "--json", "--db", &db]).exits(0).data();
    assert_eq!(info["trees"][0]["tree"], "ubt:sha256");
    // The hash is the tree's for good.
    let other = spinney(&["root", "--tree", "ubt:blake3", "--db", &db, &one]).exits(2);
    other.refuses("is ubt:sha256, not ubt:blake3");
}

#[test]
fn differences_and_allocations_have_one_root() {
    let folder = Folder::new();
    let address = "0x00000000000000000000000000000000000000aa";
    let account = r#""nonce": "0x1", "balance": "0x5", "code": "0x6001600255""#;
    let storage = r#""storage": {"0x01": "0x02"}"#;
    let line = format!(
        "{{\"number\": 1, \"accounts\": {{\"{address}\": {{{account}, \"storage\": {{\"0x01\": \"0x02\"}}}}}}}}"
    );
    let word = |byte| format!("0x{byte:064x}");
    let alloc = format!(
        "{{\"alloc\": {{\"{address}\": {{{account}, {}}}}}}}",
        storage
            .replace("\"0x01\"", &format!("\"{}\"", word(1)))
            .replace("\"0x02\"", &format!("\"{}\"", word(2)))
    );
    let (diffs, alloc) = (folder.write("diffs", &line), folder.write("alloc", &alloc));
    for tree in ["ubt:sha256", "ubt:keccak", "pbt:blake3", "pbt:keccak", "verkle"] {
        let (db, args) = (folder.path(tree), ["--tree", tree]);
        let ran = spinney(&[&["root", "--state", "--db", &db][..], &args, &[&diffs]].concat());
        let ran = ran.exits(0);
        let root = spinney(&[&["state-root"][..], &args, &[&alloc]].concat()).exits(0);
        assert!(ran.out.contains(root.out.trim()), "{tree}: {ran:?} {root:?}");
        assert_sound(&db);
        // A block comes once.
        let again = spinney(&[&["root", "--state", "--db", &db][..], &args, &[&diffs]].concat());
        again.exits(2).refuses("expected a block after 1, got 1");
    }
}

#[test]
fn the_genesis_of_hoodi_has_the_published_root() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/genesis/hoodi.json");
    if !path.exists() {
        println!("skipped: {} is missing", path.display());
        return;
    }
    let ran = spinney(&["state-root", "--tree", "ubt:sha256", path.to_str().unwrap()]).exits(0);
    assert_eq!(
        ran.out.trim(),
        "0xc7982ccdbd13ae75a05b8c5c61f59b336d93300e4e26cd200fc71638746453f7"
    );
}
