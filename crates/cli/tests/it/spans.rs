//! Proofs over time: `prove --from --to`, of a store and of an archive, and `verify`.

use serde_json::Value;

use crate::support::{Folder, all_forks, command, spinney, spinney_fed};

const SLOT: &str = "0x0";
const LAST: u64 = 40;

struct Bench {
    folder: Folder,
    db: String,
    archive: String,
    chain: String,
    account: String,
}

impl Bench {
    /// The demonstration's chain in four trees, and an archive of it from its block 0 on.
    fn new() -> Self {
        let folder = Folder::new();
        let (demo, db, archive) = (folder.path("d"), folder.path("db"), folder.path("archive"));
        let _ = spinney(&["demo", "-q", &demo]).exits(0);
        let (genesis, chain) = (format!("{demo}/genesis.json"), format!("{demo}/chain.rlp"));
        let trees = "mpt,pbt:blake3,ubt:sha256,verkle";
        let args = ["replay", "-q", "--genesis", &genesis, "--blocks", &chain, "--db", &db];
        let _ = spinney(&[&args[..], &["--tree", trees]].concat()).exits(0);
        let _ = spinney(&["archive", "build", "--db", &db, "--into", &archive]).exits(0);
        let account = "0x1a721F7c5aFe8c710634F636C4dB599C098937B1".to_owned();
        Self { folder, db, archive, chain, account }
    }

    fn prove(&self, from: &[&str], more: &[&str]) -> String {
        let args = ["prove", "--address", &self.account, "--slot", SLOT];
        spinney(&[&args[..], from, more].concat()).exits(0).out
    }

    fn of_store(&self, more: &[&str]) -> String {
        self.prove(&["--db", &self.db], more)
    }

    fn of_account_at_3(&self) -> String {
        spinney(&["prove", "--db", &self.db, "--address", &self.account, "--block", "3"])
            .exits(0)
            .out
    }

    fn of_archive(&self, more: &[&str]) -> String {
        self.prove(&["--archive", &self.archive], more)
    }

    /// What each block's own proof shows: a line of the account, and one of the slot.
    fn lines_at(&self, tree: &str, block: u64) -> (String, Vec<String>) {
        let number = block.to_string();
        let proof = self.of_store(&["--tree", tree, "--block", &number]);
        assert_eq!(self.of_archive(&["--tree", tree, "--block", &number]), proof);
        let root = json(&proof)["root"].as_str().unwrap().to_owned();
        let shown = spinney_fed(&["verify", "--tree", tree, "--root", &root, "-"], &proof).exits(0);
        (root, shown.out.lines().skip(1).map(str::to_owned).collect())
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("it is JSON")
}

#[test]
fn a_proof_of_one_block_is_checked_against_headers() {
    let bench = Bench::new();
    let proof = bench.folder.write("proof.json", bench.of_account_at_3());
    let verify = |more: &[&str]| spinney(&[&["verify", "--tree", "mpt"], more, &[&proof]].concat());
    let root = json(&bench.of_account_at_3())["root"].as_str().unwrap().to_owned();
    let said = verify(&["--blocks", &bench.chain]).exits(0).out;
    assert!(said.contains(&format!("holds under {root}, the root of block 3, tree mpt")), "{said}");
    let roots = bench.folder.write("roots", format!("7 {root}\n"));
    let said = verify(&["--roots", &roots]).exits(0).out;
    assert!(said.contains("the root of block 7"), "{said}");
    let other = bench.folder.write("other", format!("3 0x{}\n", "11".repeat(32)));
    verify(&["--roots", &other]).exits(1).refuses("is none of the trusted ones");
}

/// What a proof over time says of a block: its lines, without the blocks that they are of.
fn said_of(lines: &[String], block: u64) -> Vec<String> {
    let holds = |line: &String| {
        let (name, rest) = line.split_once(", block").expect("it says of which blocks");
        let (blocks, what) = rest.split_once(": ").expect("it says what");
        let mut numbers = blocks
            .trim_start_matches('s')
            .split(" to ")
            .map(|number| number.trim().parse::<u64>().expect("it is a number"));
        let first = numbers.next().unwrap();
        let last = numbers.next().unwrap_or(first);
        (first..=last).contains(&block).then(|| format!("{name}: {what}"))
    };
    lines.iter().filter_map(holds).collect()
}

#[test]
fn one_proof_says_of_every_block_what_its_own_proof_says() {
    let bench = Bench::new();
    for tree in ["mpt", "pbt:blake3", "ubt:sha256", "verkle"] {
        let last = if tree == "verkle" { 12 } else { LAST };
        let (from, to) = ("3", last.to_string());
        let range = ["--tree", tree, "--from", from, "--to", &to, "--verify"];
        let proof = bench.of_archive(&range);
        assert_eq!(bench.of_store(&range), proof, "{tree}");
        let file = bench.folder.write("span.json", &proof);
        let (mut roots, mut expected) = (String::new(), Vec::new());
        for block in 3..=last {
            let (root, lines) = bench.lines_at(tree, block);
            roots += &format!("{block} {root}\n");
            expected.push((block, lines));
        }
        let roots_file = bench.folder.write("roots", &roots);
        let args = ["verify", "--tree", tree, "--roots", &roots_file, &file];
        let shown = spinney(&args).exits(0);
        let mut lines = shown.out.lines().map(str::to_owned);
        assert_eq!(lines.next().unwrap(), format!("holds at blocks 3 to {last}, tree {tree}"));
        let lines: Vec<_> = lines.collect();
        for (block, expected) in expected {
            assert_eq!(said_of(&lines, block), expected, "{tree}, block {block}");
        }
        if tree == "mpt" {
            let by_headers =
                spinney(&["verify", "--tree", tree, "--blocks", &bench.chain, &file]).exits(0);
            assert_eq!(by_headers.out, shown.out);
            assert!(by_headers.err.is_empty());
        }

        // A root that is another one, or none of a block.
        let (first, _) = bench.lines_at(tree, 3);
        let other = roots.replace(&first, &format!("0x{}", "11".repeat(32)));
        let other = bench.folder.write("other", other);
        let refused = spinney(&["verify", "--tree", tree, "--roots", &other, &file]).exits(1);
        let _ = refused.refuses("the proof does not hold").says("block 3: the proof is of root");
        let short: String = roots.lines().skip(1).map(|line| format!("{line}\n")).collect();
        let short = bench.folder.write("short", short);
        let _ = spinney(&["verify", "--tree", tree, "--roots", &short, &file])
            .exits(2)
            .refuses("no root of block 3 is trusted");

        // Other bytes, other blocks.
        let frames = if tree == "mpt" { "account" } else { "frames" };
        let text = json(&proof)[frames].as_str().unwrap().to_owned();
        for place in [text.len() / 5, text.len() / 2, text.len() - 3] {
            let mut changed = text.clone().into_bytes();
            changed[place] = if changed[place] == b'0' { b'1' } else { b'0' };
            let changed = proof.replace(&text, &String::from_utf8(changed).unwrap());
            let refused =
                spinney_fed(&["verify", "--tree", tree, "--roots", &roots_file, "-"], &changed);
            let _ = refused.exits(1).refuses("the proof does not hold");
        }
        let moved = proof.replace("\"from\":\"0x3\"", "\"from\":\"0x4\"");
        assert_ne!(moved, proof);
        let _ = spinney_fed(&["verify", "--tree", tree, "--roots", &roots_file, "-"], &moved)
            .exits(1)
            .refuses("the proof does not hold");
    }
}

/// Commits of one block without a history, and of several whose histories reach from one to the
/// next: the proof is that of a store whose history has all.
#[test]
fn commits_that_are_kept_prove_what_the_history_does() {
    let bench = Bench::new();
    let trees = "mpt,pbt:blake3,ubt:sha256,verkle";
    let genesis = bench.folder.path("d/genesis.json");
    let replay = |name: &str, more: &[&str]| {
        let db = bench.folder.path(name);
        let args = ["replay", "-q", "--genesis", &genesis, "--blocks", &bench.chain, "--db", &db];
        let keep = ["--tree", trees, "--keep-commits", "all"];
        let _ = spinney(&[&args[..], &keep, more].concat()).exits(0);
        db
    };
    let each = replay("each", &["--commit-every", "1", "--keep-undo", "0"]);
    let some = replay("some", &["--commit-every", "7", "--keep-undo", "7"]);
    for tree in trees.split(',') {
        let last = if tree == "verkle" { "12" } else { "40" };
        let range = ["--tree", tree, "--from", "3", "--to", last, "--verify"];
        let proof = bench.of_store(&range);
        assert_eq!(bench.prove(&["--db", &each], &range), proof, "{tree}");
        assert_eq!(bench.prove(&["--db", &some], &range), proof, "{tree}");
    }

    // Commits of several blocks, and nothing that leads into them.
    let gaps = replay("gaps", &["--commit-every", "7", "--keep-undo", "0"]);
    let refused = |blocks: &[&str]| {
        let args = ["prove", "--address", &bench.account, "--db", &gaps];
        spinney(&[&args[..], blocks].concat()).exits(2)
    };
    for (blocks, block, near) in [
        (&["--from", "15", "--to", "20"][..], 16, "the nearest commits are of blocks 15 and 22"),
        (&["--from", "14", "--to", "15"], 14, "the nearest commits are of blocks 8 and 15"),
        (&["--block", "20"], 20, "the nearest commits are of blocks 15 and 22"),
        (&["--block", "0"], 0, "the nearest commit is of block 1"),
    ] {
        let what = format!("the store keeps no state of block {block}: it has that of block ");
        let kept = "; it keeps 10 commits, of blocks 1 to 60";
        let _ = refused(blocks).refuses(&what).says(kept).says(near);
    }
    let at_8 = ["--from", "8", "--to", "8"];
    assert_eq!(bench.prove(&["--db", &gaps], &at_8), bench.of_store(&at_8));
}

#[test]
fn what_is_asked_for_wrongly_is_refused() {
    let bench = Bench::new();
    let account = &bench.account;
    let prove = |more: &[&str]| {
        spinney(&[&["prove", "--address", account, "--archive", &bench.archive], more].concat())
    };
    let _ = prove(&["--from", "5", "--to", "4"]).exits(2).refuses("block 5 is behind block 4");
    let _ = prove(&["--from", "5", "--to", "100000"]).exits(2).refuses("block");
    let _ = prove(&["--block", "100000"]).exits(2).refuses("100000");
    let _ = prove(&["--from", "1", "--block", "3"]).exits(2);
    let _ = prove(&["--to", "3"]).exits(2);
    let _ = prove(&["--tree", "sum", "--block", "3"]).exits(2).refuses("tree sum");
    let both = spinney(&["prove", "--address", account, "--archive", "a", "--db", &bench.db]);
    let _ = both.exits(2).refuses("both a store and an archive");
    let url = "http://127.0.0.1:1";
    let _ = prove(&["--state-from", url]).exits(2).refuses("both an archive and a node");
    let all = spinney(&["prove", "--archive", &bench.archive, "--all"]);
    let _ = all.exits(2).refuses("--all is for sum trees");
    // An archive that the environment alone names gives way to a store, and does not forbid --all.
    let named = |archive: &str, args: &[&str]| {
        let mut command = command(&[&["prove", "--db", &bench.db], args].concat());
        command.env("SPINNEY_ARCHIVE", archive).output().expect("it runs")
    };
    let of_store = named("/no/such", &["--address", account, "--block", "3"]);
    assert_eq!(String::from_utf8_lossy(&of_store.stdout), bench.of_account_at_3());
    let all = named("/no/such", &["--all"]);
    assert!(String::from_utf8_lossy(&all.stderr).contains("--all is for sum trees"), "{all:?}");
    let keys = ["prove", "--archive", &bench.archive, "0x01", "--from", "1"];
    let _ = spinney(&keys).exits(2).refuses("no raw keys").says("give --address");

    let proof = bench.of_store(&["--tree", "pbt:blake3", "--from", "1", "--to", "3"]);
    let file = bench.folder.write("span.json", &proof);
    let verify = |more: &[&str]| spinney(&[&["verify"], more, &[&file]].concat());
    let _ = verify(&["--blocks", &bench.chain]).exits(2).refuses("no root of a tree pbt:blake3");
    let root = format!("0x{}", "11".repeat(32));
    let _ = verify(&["--root", &root]).exits(2).refuses("of many blocks");
    let _ = verify(&["--tree", "mpt"]).exits(1).refuses("not of mpt");
    verify(&[]).exits(0).says("the document's own roots");
    for roots in ["3", "three 0x00", "3 0x1 2", "\u{fffd}\n"] {
        let roots = bench.folder.write("roots", roots);
        let _ = verify(&["--roots", &roots]).exits(2).refuses("names no block and root");
    }
    let twice = bench.folder.write("roots", format!("1 {root}\n1 0x{}\n", "22".repeat(32)));
    let _ = verify(&["--roots", &twice]).exits(2).refuses("block 1 has two roots");
    for text in [
        r#"{"from": "0x1"}"#,
        r#"{"tree": "mpt", "from": "0x1", "to": "0x2"}"#,
        r#"{"tree": "mpt", "from": "0x1", "to": "0x2", "account": "0x"}"#,
        r#"{"tree": "pbt:blake3", "from": "0x1", "to": "0x2", "keys": [], "frames": "0x"}"#,
        r#"{"tree": "mpt", "from": "0x1", "to": "0x2", "account": "0x", "frames": "0x"}"#,
    ] {
        let ran = spinney_fed(&["verify", "-"], text).exits(2);
        assert!(!ran.err.contains("RawSpan"), "{text}: {ran:?}");
    }
    let other = proof.replace("pbt:blake3", "mpt");
    let _ = spinney_fed(&["verify", "-"], &other).exits(1).says("of another kind");
}

/// Every account and slot that the head has, at all blocks since the merge.
#[test]
fn a_chain_through_all_forks_is_proven_over_time() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let (db, archive) = (folder.path("db"), folder.path("archive"));
    let _ = chain.replay(&["--db", &db, "--tree", "mpt,pbt:blake3", "--keep-undo", "100000"]);
    let _ = spinney(&["archive", "build", "--db", &db, "--into", &archive]).exits(0);
    let dump = json(&spinney(&["db", "dump", "--db", &db]).exits(0).out);
    let accounts = dump["accounts"].as_object().expect("accounts by address");
    let (with_slots, without): (Vec<_>, Vec<_>) =
        accounts.iter().partition(|(_, account)| account.get("storage").is_some());
    for (address, account) in with_slots.into_iter().take(12).chain(without.into_iter().take(4)) {
        let mut args = vec!["prove", "--archive", &archive, "--address", address, "--from", "0"];
        let slots = account.get("storage").and_then(Value::as_object);
        for slot in slots.into_iter().flat_map(|slots| slots.keys()).take(3) {
            args.extend(["--slot", slot]);
        }
        let proof = spinney(&args).exits(0).out;
        let shown =
            spinney_fed(&["verify", "--tree", "mpt", "--blocks", &chain.blocks, "-"], &proof);
        // The genesis has no header among the blocks.
        let _ = shown.exits(2).refuses("no root of block 0 is trusted");
        args[6] = "1";
        let proof = spinney(&args).exits(0).out;
        let shown =
            spinney_fed(&["verify", "--tree", "mpt", "--blocks", &chain.blocks, "-"], &proof);
        let shown = shown.exits(0).out;
        assert!(shown.contains("holds at blocks 1 to"), "{shown}");
    }
}
