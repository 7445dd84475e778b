//! The log as a store, copies of stores, and a log's segments shipped.

use crate::support::{Folder, spinney};

#[test]
fn a_chain_over_the_log_is_copied_and_shipped() {
    let folder = Folder::new();
    let [redb, log, back, copy] = ["redb", "log", "back", "copy"].map(|name| folder.path(name));
    let replay = |store: &str, db: &str, blocks: &str| {
        let args = ["replay", "-q", "--store", store, "--blocks-count", blocks, "--db", db];
        spinney(&args).exits(0);
    };
    let root = |db: &str| {
        spinney(&["db", "info", "--json", "--db", db]).exits(0).data()["trees"][0]["root"].clone()
    };
    replay("redb", &redb, "3");
    replay("log", &log, "2");
    replay("log", &log, "3");
    assert_eq!(root(&log), root(&redb));
    spinney(&["db", "check", "--db", &log]).exits(0);
    let stats = spinney(&["db", "stats", "--json", "--db", &log]).exits(0).data();
    assert!(stats["log"]["commit"].as_u64() > Some(0), "{stats}");

    let copied = spinney(&["db", "copy", "--json", "--db", &log, &back]).exits(0).data();
    assert_eq!(copied["trees"][0]["root"], root(&redb));
    assert_eq!(root(&back), root(&redb));
    spinney(&["db", "copy", "--db", &log, &back]).exits(2).refuses("there is a store already");

    spinney(&["db", "ship", "--db", &log, "--to", &copy]).exits(0);
    assert_eq!(root(&copy), root(&log));
    replay("log", &log, "4");
    let shipped = spinney(&["db", "ship", "--json", "--db", &log, "--to", &copy]).exits(0).data();
    assert!(shipped["bytes"].as_u64() > Some(0), "{shipped}");
    assert_eq!(root(&copy), root(&log));
    spinney(&["db", "ship", "--db", &redb, "--to", &copy]).exits(2).refuses("cannot be shipped");
    spinney(&["db", "compact", "--db", &log]).exits(0);
    assert_ne!(root(&log), root(&redb));
}
