//! `follow`: a node that is made for it, the store that follows, and who asks it meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use spinney_replay::{ChainBlock, ChainReader, Genesis};

use crate::fake_node::{FakeNode, Mood};
use crate::serve::client::Server;
use crate::serve::pages::{document, first_cells, names_of};
use crate::support::{Folder, PATIENCE, Ran, assert_sound, command, rows, shared, spinney};

/// The chain that demo made in a folder.
pub(crate) fn chain_of(folder: &str) -> (Genesis, Vec<ChainBlock>) {
    let genesis = Genesis::parse(&fs::read(format!("{folder}/genesis.json")).unwrap()).unwrap();
    let blocks = ChainReader::new(fs::File::open(format!("{folder}/chain.rlp")).unwrap()).unwrap();
    let blocks = blocks.map(Result::unwrap).filter(|block| block.block.header.number > 0);
    (genesis, blocks.collect())
}

/// A follower that serves, and what it tells.
pub(crate) struct Following {
    pub(crate) server: Server,
    events: Receiver<Value>,
}

impl Following {
    pub(crate) fn start(args: &[&str]) -> Self {
        let more =
            ["--events", "--poll", "10", "--serve", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
        let args = [args, &more].concat();
        let child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the binary runs");
        let lines = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
        let (tell, events) = channel();
        thread::spawn(move || {
            for line in lines {
                let event = serde_json::from_str(&line.expect("text")).expect("JSON");
                if tell.send(event).is_err() {
                    return;
                }
            }
        });
        let listening: Value = events.recv_timeout(PATIENCE).expect("it says where it listens");
        let address = |name: &str| {
            let text = listening[name].as_str().expect("an address");
            let text = text.trim_start_matches("http://").trim_end_matches("/metrics");
            text.parse().expect("an address")
        };
        let server = Server::of(child, address("rpc"), Some(address("metrics")));
        Self { server, events }
    }

    /// Waits for an event.
    #[track_caller]
    fn until(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        let clock = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(clock.elapsed());
            let event = self.events.recv_timeout(left).expect("it is told");
            if is_it(&event) {
                return event;
            }
        }
    }

    #[track_caller]
    pub(crate) fn committed(&self, block: u64) {
        self.until(|event| event["event"] == "committed" && event["block"] == block);
    }
}

/// The last block with something else in its header, which no state sees.
fn other_head(blocks: &[ChainBlock]) -> Vec<ChainBlock> {
    let mut blocks = blocks.to_vec();
    let mut last = blocks.pop().expect("a block").block;
    last.header.extra_data = b"another".to_vec().into();
    blocks.push(ChainBlock::new(last));
    blocks
}

#[test]
fn a_node_is_followed_and_served() {
    let folder = Folder::new();
    let (demo, db, direct) = (folder.path("d"), folder.path("db"), folder.path("direct"));
    let _ = spinney(&["demo", "-q", &demo]).exits(0);
    let (genesis, blocks) = chain_of(&demo);
    let file = format!("{demo}/genesis.json");
    let node = FakeNode::start(&genesis, &blocks[..20], true);
    let url = node.url().to_string();
    let args = ["follow", &url, "--genesis", &file, "--db", &db, "--tree", "mpt,pbt:blake3"];
    let following = Following::start(&[&args[..], &["--keep-witnesses", "5"]].concat());
    following.committed(20);
    let server = &following.server;
    assert_eq!(server.call("eth_blockNumber", json!([])), "0x14");
    assert_eq!(
        server.call("eth_chainId", json!([])),
        json!(format!("{:#x}", genesis.config.chain_id))
    );
    assert_eq!(server.refused("spinney_getRoot", json!(["mpt", "finalized"])).0, -32001);
    // It goes away and comes back with another last block, and then with more.
    node.is(Mood::Away);
    following.until(|event| event["event"] == "node_failed");
    node.finalizes(Some(15));
    node.has(&other_head(&blocks[..20]));
    node.is(Mood::Good);
    let back = following.until(|event| event["event"] == "reorganised");
    assert_eq!((&back["from"], &back["to"]), (&json!(20), &json!(19)));
    following.committed(20);
    node.has(&blocks);
    following.committed(blocks.len() as u64);
    let root = server.call("spinney_getRoot", json!(["mpt", "latest"]));
    assert_eq!(
        root["root"].as_str().or(root.as_str()),
        Some(&*blocks.last().unwrap().block.header.state_root.to_string())
    );
    assert!(server.call("spinney_getRoot", json!(["mpt", "finalized"])) != root);
    let chain = format!("{demo}/chain.rlp");
    for number in blocks.len() - 4..=blocks.len() {
        let block = number.to_string();
        let one = ["witness", "-q", "--genesis", &file, "--blocks", &chain, "--block", &block];
        let made: Value = serde_json::from_str(&spinney(&one).exits(0).out).unwrap();
        let got = server.call("debug_executionWitness", json!([format!("{number:#x}")]));
        assert_eq!(got, made, "block {number}");
    }
    let older = format!("{:#x}", blocks.len() - 5);
    assert_eq!(server.refused("debug_executionWitness", json!([older])).0, 4444);
    // What is counted is what the pages say.
    let text = server.scrape();
    let (server_page, follow_page) = (document("metrics.md"), document("follow.md"));
    let told: BTreeSet<_> = [&server_page, &follow_page]
        .into_iter()
        .flat_map(|page| first_cells(page))
        .filter(|cell| cell.starts_with("spinney_"))
        .collect();
    // Nothing was refused.
    let told: BTreeSet<_> = told.into_iter().filter(|n| !n.contains("rpc_refused")).collect();
    assert_eq!(names_of(&text), told, "{text}");
    let count = blocks.len() + 2;
    for sample in [
        format!("spinney_follow_blocks_total {count}"),
        format!("spinney_follow_roots_checked_total {count}"),
        format!("spinney_follow_node_head_block {}", blocks.len()),
        "spinney_follow_reorganisations_total 2".to_owned(),
        "spinney_follow_lag_blocks 0".to_owned(),
    ] {
        assert!(text.lines().any(|line| line == sample), "{sample} is not in {text}");
    }
    let ran = following.server.stop().exits(0);
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    assert_sound(&db);
    // The store is that of a replay.
    let replay =
        ["replay", "-q", "--tree", "mpt,pbt:blake3", "--genesis", &file, "--blocks", &chain];
    let _ = spinney(&[&replay[..], &["--db", &direct]].concat()).exits(0);
    let pages = |db: &str| rows(db, spinney_tree::Table::Pages);
    assert!(pages(&db) == pages(&direct), "other pages than those of a replay");
    // And it is gone on with as such.
    let to = blocks.len().to_string();
    let again = spinney(&[&args[..4], &["--db", &db, "--to", &to, "--json"]].concat()).exits(0);
    assert_eq!(again.data()["blocks"], 0);
}

/// Follows a node up to its last block, and answers the envelope.
pub(crate) fn followed(node: &FakeNode, genesis: &str, db: &str, to: usize, more: &[&str]) -> Ran {
    let (url, to) = (node.url().to_string(), to.to_string());
    let args = ["follow", &url, "--genesis", genesis, "--db", db, "--to", &to, "--poll", "10"];
    spinney(&[&args[..], &["--json"], more].concat())
}

/// Traces that do not lead to a block's root are left for its execution.
#[test]
fn blocks_are_taken_by_traces() {
    let folder = Folder::new();
    let (demo, db) = (folder.path("d"), folder.path("db"));
    let _ = spinney(&["demo", "-q", &demo]).exits(0);
    let (genesis, blocks) = chain_of(&demo);
    let node = FakeNode::start(&genesis, &blocks, true);
    let lines = fs::read_to_string(format!("{demo}/traces.ndjson")).unwrap();
    for (index, line) in lines.lines().enumerate() {
        let line: Value = serde_json::from_str(line).unwrap();
        let mut traces = line["traces"].clone();
        if index == 9 {
            traces.as_array_mut().unwrap().pop();
        }
        node.tells(
            "debug_traceBlockByHash",
            line["hash"].as_str().unwrap().parse().unwrap(),
            traces,
        );
    }
    let file = format!("{demo}/genesis.json");
    let more = ["--by", "traces", "--tree", "mpt,pbt:blake3"];
    let ran = followed(&node, &file, &db, blocks.len(), &more).exits(0);
    let root = blocks.last().unwrap().block.header.state_root;
    assert_eq!(ran.data()["root"], json!(root));
    assert_eq!(ran.data()["roots_checked"], blocks.len());
    assert_eq!(node.asked("debug_traceBlockByHash"), blocks.len());
    assert_sound(&db);
}

/// From Amsterdam on blocks are taken by their lists; others, and those of a node without, are
/// executed. A list that is not the block's is not taken.
#[test]
fn blocks_are_taken_by_access_lists() {
    let Some(chain) = shared("data/chains/amsterdam") else { return };
    let (genesis, blocks) = chain_of(&chain);
    let lines = fs::read_to_string(format!("{chain}/bals.ndjson")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let named = |block: &&ChainBlock| block.block.header.block_access_list_hash.is_some();
    assert_eq!(lines.len(), blocks.iter().filter(named).count());
    let folder = Folder::new();
    let file = format!("{chain}/genesis.json");
    let root = json!(blocks.last().unwrap().block.header.state_root);
    let hash = |line: &Value| line["hash"].as_str().unwrap().parse().unwrap();
    let method = "eth_getBlockAccessList";
    let node = FakeNode::start(&genesis, &blocks, true);
    let ran = followed(&node, &file, &folder.path("without"), blocks.len(), &[]).exits(0);
    assert_eq!(ran.data()["root"], root);
    lines.iter().for_each(|line| node.tells(method, hash(line), line["accessList"].clone()));
    let asked = node.asked(method);
    for (db, more) in [("by", ["--by", "execution"]), ("kept", ["--keep-witnesses", "3"])] {
        let ran = followed(&node, &file, &folder.path(db), blocks.len(), &more).exits(0);
        assert_eq!((&ran.data()["root"], node.asked(method)), (&root, asked), "{more:?}");
    }
    let db = folder.path("db");
    let ran = followed(&node, &file, &db, blocks.len(), &[]).exits(0);
    assert_eq!(ran.data()["root"], root);
    // Each once, and the last one before the first.
    assert_eq!(node.asked(method), asked + lines.len() + 1);
    assert_sound(&db);
    // One block at a time: each of those that have lists is taken by its own.
    let at = blocks.len() - lines.len();
    node.has(&blocks[..at]);
    let (db, asked) = (folder.path("late"), node.asked(method));
    let _ = followed(&node, &file, &db, at, &["--by", "lists"]).exits(0);
    assert_eq!(node.asked(method), asked);
    node.has(&blocks);
    let other = lines[5]["accessList"].clone();
    node.tells(method, hash(&lines[4]), other);
    let url = node.url().to_string();
    let follow = ["follow", &url, "--genesis", &file, "--db", &db];
    let following = Following::start(&follow);
    let failed = following.until(|event| event["event"] == "node_failed");
    assert!(failed["error"].as_str().unwrap().starts_with(method), "{failed}");
    node.tells(method, hash(&lines[4]), lines[4]["accessList"].clone());
    following.committed(blocks.len() as u64);
    assert_eq!(following.server.call("spinney_getRoot", json!(["mpt", "latest"])), root);
    assert!(node.asked(method) >= asked + lines.len());
    let _ = following.server.stop().exits(0);
    assert_sound(&db);
}

#[test]
fn what_cannot_be_followed_is_refused_and_leaves_nothing() {
    let folder = Folder::new();
    let (demo, db) = (folder.path("d"), folder.path("db"));
    let _ = spinney(&["demo", "-q", &demo]).exits(0);
    let (genesis, blocks) = chain_of(&demo);
    let file = format!("{demo}/genesis.json");
    let with = |url: &str, more: &[&str]| {
        spinney(&[&["follow", url, "--genesis", &file, "--db", &db, "--to", "3"], more].concat())
    };
    with("https://127.0.0.1:1", &[]).exits(2).says("https is not spoken here");
    with("127.0.0.1:8545", &[]).exits(2).says("expected http://HOST:PORT");
    with("http://127.0.0.1:1", &["--metrics", "127.0.0.1:0"]).exits(2).refuses("--metrics without");
    let mut other = genesis.clone();
    other.hash.0[0] ^= 1;
    let node = FakeNode::start(&other, &blocks, true);
    with(&node.url().to_string(), &[]).exits(1).refuses("the node's chain begins with");
    assert!(!fs::exists(&db).unwrap());
    // A chain that breaks a rule: what was good stays.
    let mut bad = blocks[..2].to_vec();
    let mut third = blocks[2].block.clone();
    third.header.state_root.0[0] ^= 1;
    bad.push(ChainBlock::new(third));
    let node = FakeNode::start(&genesis, &bad, false);
    let ran = with(&node.url().to_string(), &[]).exits(1).refuses("state root");
    assert!(ran.err.contains("block 3"), "{}", ran.err);
    let info = spinney(&["db", "info", "--db", &db, "--json"]).exits(0);
    assert!(info.out.contains("\"block\":2"), "{}", info.out);
    // Passwords are sent, and never shown.
    let url = node.url().to_string().replace("http://", "http://me:s3cret@");
    let ran = with(&url, &["--json"]).exits(1);
    assert!(!ran.err.contains("s3cret") && !ran.out.contains("s3cret"), "{}{}", ran.err, ran.out);
}

/// The dashboard asks for metrics that there are, and for all of them.
#[test]
fn the_dashboard_knows_the_metrics() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let dashboard = fs::read_to_string(folder.join("grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let mut asked = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let text = target["expr"].as_str().unwrap();
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let names = words.filter(|word| word.starts_with("spinney_"));
            asked.extend(names.map(|name| name.trim_end_matches("_bucket").to_owned()));
        }
    }
    let (server, follow) = (document("metrics.md"), document("follow.md"));
    let told: BTreeSet<_> = [&server, &follow]
        .into_iter()
        .flat_map(|page| first_cells(page))
        .filter(|cell| cell.starts_with("spinney_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(asked, told);
    // The unit's command line is one that is understood.
    let unit = fs::read_to_string(folder.join("spinney-follow.service")).unwrap();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let words: Vec<_> = start.split(' ').skip(1).collect();
    let mut command = command(&words);
    command.env("SPINNEY_NODE", "http://127.0.0.1:1").env("SPINNEY_TREE", "mpt,pbt:blake3");
    let ran = Ran::from(command.env("SPINNEY_KEEP_UNDO", "512").output().unwrap());
    ran.exits(2).refuses("/etc/spinney/genesis.json");
}
