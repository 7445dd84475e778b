//! Two chains of geth's: every root on the way, and every account and slot at the end.

use serde_json::Value;

use crate::support::{Chain, Folder, all_forks, assert_sound, chain_600, pages, shared, spinney};

fn dump(db: &str) -> Value {
    let ran = spinney(&["db", "dump", "--db", db]).exits(0);
    serde_json::from_str(&ran.out).expect("the dump is JSON")
}

#[track_caller]
fn assert_same_state(dump: &Value, expected: &Value) {
    assert_eq!(dump["root"], expected["root"]);
    let accounts = |state: &Value| state["accounts"].as_object().expect("an object").clone();
    let (ours, theirs) = (accounts(dump), accounts(expected));
    for (address, account) in &theirs {
        assert_eq!(ours.get(address), Some(account), "{address}");
    }
    assert_eq!(ours.len(), theirs.len());
}

fn check(chain: &Chain) {
    let run = chain.replay(&[]).exits(0).run();
    assert_eq!((&run["tree"], &run["store"]), (&"mpt".into(), &"memory".into()));
    assert_eq!(run["blocks"], chain.block_count);
    assert_eq!(run["root"], chain.root());
    let folder = Folder::new();
    let mut first = None;
    for every in ["1", "7", "all"] {
        let db = folder.path(every);
        let run = chain.replay(&["--db", &db, "--commit-every", every]).exits(0).run();
        assert_eq!(run["store"], "log");
        assert_eq!(run["head"], chain.block_count);
        assert_eq!(run["root"], chain.root());
        assert!(run["roots_checked"].as_u64() >= Some(chain.block_count), "{run}");
        assert!(run["bytes_written"].as_u64() > Some(0) && run["store_bytes"].as_u64() > Some(0));
        assert_sound(&db);
        let pages = pages(&db);
        assert_eq!(first.get_or_insert_with(|| pages.clone()), &pages, "{every} blocks a commit");
    }
    assert_same_state(&dump(&folder.path("7")), &chain.head_state);
}

#[test]
fn chain_600_comes_to_the_state_of_geth_whatever_a_commit_takes() {
    if let Some(chain) = chain_600() {
        check(&chain);
    }
}

#[test]
fn all_forks_comes_to_the_state_of_geth_whatever_a_commit_takes() {
    if let Some(chain) = all_forks() {
        check(&chain);
    }
}

#[test]
fn differences_come_to_the_same_pages_as_blocks() {
    let (Some(chain), Some(diffs)) = (all_forks(), shared("data/chains/all-forks/diffs.ndjson"))
    else {
        return;
    };
    let folder = Folder::new();
    let (blocks, genesis, alloc) = (folder.path("b"), folder.path("g"), folder.path("a"));
    chain.replay(&["--db", &blocks]).exits(0);
    let input = ["replay", "--json", "-q", "--diffs", &diffs];
    let from_genesis = ["--genesis", &chain.genesis, "--db", &genesis];
    let from_alloc = ["--alloc", &chain.genesis, "--db", &alloc, "--commit-every", "all"];
    for start in [&from_genesis[..], &from_alloc[..]] {
        let run = spinney(&[&input[..], start].concat()).exits(0).run();
        assert_eq!((&run["blocks"], &run["roots_checked"]), (&213.into(), &213.into()));
        assert_eq!(run["root"], chain.root());
    }
    assert_sound(&alloc);
    assert_eq!(pages(&blocks), pages(&genesis));
    assert_eq!(pages(&blocks), pages(&alloc));
    assert_same_state(&dump(&alloc), &chain.head_state);
}

#[test]
fn a_trace_of_differences_has_the_roots_of_the_blocks() {
    let (Some(chain), Some(diffs)) = (all_forks(), shared("data/chains/all-forks/diffs.ndjson"))
    else {
        return;
    };
    // `root --state` starts from nothing: the allocation goes in as block 0.
    let genesis: Value =
        serde_json::from_slice(&std::fs::read(&chain.genesis).unwrap()).expect("it is JSON");
    let mut accounts = genesis["alloc"].clone();
    for account in accounts.as_object_mut().expect("an object").values_mut() {
        let account = account.as_object_mut().expect("an object");
        account.entry("nonce").or_insert(0.into());
    }
    let start = serde_json::json!({ "number": 0, "accounts": accounts });
    let lines = std::fs::read_to_string(&diffs).expect("it can be read");
    let folder = Folder::new();
    let trace = folder.write("trace", format!("{start}\n{lines}"));
    let ran = spinney(&["root", "--state", &trace]).exits(0);
    let roots: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    assert_eq!(roots.len(), 214);
    for (line, root) in lines.lines().zip(&roots[1..]) {
        let diff: Value = serde_json::from_str(line).expect("it is JSON");
        assert_eq!(diff["stateRoot"], root["root"], "block {}", diff["number"]);
    }
}
