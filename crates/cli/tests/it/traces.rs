//! What geth's `prestateTracer` says of a chain, in place of executing it.

use crate::support::{Folder, all_forks, spinney};

/// What geth says of all-forks, in a file.
fn traces(folder: &Folder) -> String {
    let file = include_bytes!("../../../../testdata/traces/all-forks.ndjson.zst");
    folder.write("traces.ndjson", zstd::decode_all(&file[..]).expect("it is zstd"))
}

#[test]
fn a_chain_is_replayed_by_traces() {
    let (folder, Some(chain)) = (Folder::new(), all_forks()) else { return };
    let (db, traces) = (folder.path("db"), traces(&folder));
    let with = |more: &[&str]| chain.replay(&[&["--db", &db][..], more].concat());
    let traced = |more: &[&str]| with(&[&["--traces", &traces][..], more].concat());
    let run = traced(&["--to", "3"]).exits(0).run();
    assert_eq!((&run["roots_checked"], &run["head"]), (&3.into(), &3.into()));
    // An account is made empty in block 4, of which traces say nothing.
    let refused = traced(&[]).exits(1);
    refused.refuses("block 4: the traces do not lead to its root").says("--to");
    assert_eq!(with(&["--to", "164"]).exits(0).run()["roots_checked"], 161);
    // From here on it goes by traces alone: system calls, withdrawals, requests.
    let lists = folder.path("lists.ndjson");
    let run = traced(&["--bal-out", &lists]).exits(0).run();
    assert_eq!((&run["roots_checked"], &run["head"]), (&49.into(), &213.into()));
    assert_eq!(
        (&run["root"], &run["times"]["sender_recovery"]),
        (&chain.root().into(), &0.0.into())
    );
}

#[test]
fn without_blocks_traces_are_differences() {
    let (folder, Some(chain)) = (Folder::new(), all_forks()) else { return };
    let args = ["replay", "-q", "--json", "--traces", &traces(&folder)];
    let with = |more: &[&str]| spinney(&[&args[..], more].concat());
    let run = with(&["--genesis", &chain.genesis]).exits(0).run();
    assert_eq!((&run["blocks"], &run["roots_checked"]), (&213.into(), &0.into()));
    with(&[]).exits(2).refuses("nothing to start from");
    let bad =
        folder.write("bad.ndjson", r#"{"jsonrpc": "2.0", "id": 1, "error": {"code": -32601}}"#);
    for more in [&[][..], &["--blocks", &chain.blocks]] {
        let args = ["replay", "-q", "--traces", &bad, "--genesis", &chain.genesis];
        let refused = spinney(&[&args[..], more].concat()).exits(2);
        refused.refuses("traces").says("line 1").says("-32601").says("diffMode");
    }
}

#[test]
fn blocks_are_measured_by_traces() {
    let (folder, Some(chain)) = (Folder::new(), all_forks()) else { return };
    let args = ["bench", "-q", "--json", "--genesis", &chain.genesis, "--to", "60"];
    let args = [&args[..], &["--tree", "mpt,ubt:sha256", "--store", "memory"]].concat();
    let data = |more: &[&str]| spinney(&[&args[..], more].concat()).exits(0).data();
    let executed = data(&["--blocks", &chain.blocks]);
    let traced = data(&["--blocks", &chain.blocks, "--traces", &traces(&folder)]);
    // The trie's root is that of each header, and the other tree's what it is after execution.
    assert_eq!(traced["roots_checked"], true);
    for cell in [0, 1] {
        assert_eq!(traced["cells"][cell]["root"], executed["cells"][cell]["root"]);
    }
    let input = traced["input"].as_str().expect("the input has a name");
    assert!(input.contains("11 blocks, 4 the first of them, executed"), "{input}");
    let alone = data(&["--traces", &traces(&folder)]);
    assert_eq!((&alone["roots_checked"], &alone["blocks"]), (&false.into(), &60.into()));
}
