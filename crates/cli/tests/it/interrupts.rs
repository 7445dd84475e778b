//! Ctrl-C and readers that go away.
#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use crate::support::{Folder, Ran, all_forks, assert_sound, command, spinney};

/// Runs a command that tells events until its first commit, then presses Ctrl-C. Its output is what
/// came behind that commit.
fn interrupted_at_a_commit(args: &[&str]) -> Ran {
    let mut child = command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().expect("there is an event").unwrap();
    assert!(first.contains(r#""event":"committed""#), "{first}");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    let mut ran = Ran::from(child.wait_with_output().unwrap());
    ran.out = rest.join("\n");
    ran
}

#[test]
fn ctrl_c_commits_and_the_same_command_continues() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let db = folder.path("db");
    let input = ["replay", "--genesis", &chain.genesis, "--blocks", &chain.blocks, "--db", &db];
    let args = [&input[..], &["--commit-every", "1", "--events"]].concat();
    let ran = interrupted_at_a_commit(&args);
    let rest: Vec<_> = ran.out.lines().map(str::to_owned).collect();
    let _ = ran.exits(3).says("continue with: spinney replay --genesis ");
    let last: serde_json::Value = serde_json::from_str(rest.last().unwrap()).unwrap();
    assert_eq!((&last["success"], &last["interrupted"]), (&false.into(), &true.into()));
    let run = last["data"]["runs"][0].clone();
    assert_eq!(run["stopped"], true);
    let done = run["head"].as_u64().unwrap();
    // The first commit is the genesis.
    assert!((0..213).contains(&done), "{run}");
    assert_sound(&db);
    let run = spinney(&args).exits(0).run();
    assert_eq!((&run["head"], &run["root"]), (&213.into(), &chain.root().into()));
    assert_eq!(run["blocks"], 213 - done);
}

/// What was in memory is gone, so this is a failure, and the report is printed once all the same.
#[test]
fn ctrl_c_ends_a_replay_in_memory_with_one_envelope() {
    let Some(chain) = all_forks() else { return };
    let input = ["replay", "--genesis", &chain.genesis, "--blocks", &chain.blocks];
    let args = [&input[..], &["--store", "memory", "--commit-every", "1", "--events"]].concat();
    let ran = interrupted_at_a_commit(&args).exits(2).says("a store in memory keeps nothing");
    let envelopes: Vec<_> =
        ran.out.lines().filter(|line| line.contains("schema_version")).collect();
    assert_eq!(envelopes.len(), 1, "{envelopes:?}");
    let last: serde_json::Value = serde_json::from_str(envelopes[0]).unwrap();
    assert_eq!((&last["success"], &last["interrupted"]), (&false.into(), &true.into()));
}

/// A chain that is still being made is nothing to go on from, and is said to be gone.
#[test]
fn ctrl_c_ends_the_making_of_a_chain_with_a_word() {
    let args = ["replay", "-q", "--blocks-count", "1000000", "--store", "memory"];
    let child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id().to_string();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let ran = Ran::from(child.wait_with_output().unwrap()).exits(3);
    let _ = ran.refuses("interrupted while the sample chain was being made");
}

/// Ctrl-C ends a trace after the batch it is at, also while it waits for the next one.
#[test]
fn ctrl_c_ends_a_trace_with_what_was_committed() {
    let folder = Folder::new();
    let db = folder.path("db");
    let mut child = command(&["root", "--db", &db, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, r#"{{"put": {{"0x646f65": "0x7265696e64656572"}}}}"#).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().expect("a line").unwrap();
    assert!(first.starts_with(r#"{"batch": 1, "commit": 1, "root": "0x"#), "{first}");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let ran = Ran::from(child.wait_with_output().unwrap()).exits(3);
    let _ = ran.says("interrupted after batch 1, commit 1").says("the batches after it");
    drop(stdin);
    assert_sound(&db);
    let info = spinney(&["db", "info", "--json", "--db", &db]).exits(0).data();
    assert_eq!(info["trees"][0]["commit"], 1);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = Folder::new();
    let db = folder.path("db");
    spinney(&["replay", "-q", "--blocks-count", "2", "--db", &db]).exits(0);
    let replay = ["replay", "-q", "--blocks-count", "2", "--events", "--commit-every", "1"];
    for args in [
        &["db", "dump", "--db", &db][..],
        &["db", "info", "--db", &db],
        &["completions", "bash"],
        &["vectors"],
        &replay,
    ] {
        let mut child =
            command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ran = Ran::from(child.wait_with_output().unwrap()).exits(0);
        assert_eq!(ran.err, "", "{args:?}");
    }
}
