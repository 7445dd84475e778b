//! `bisect`, and what `follow` says of a root that does not fit.

use alloy_primitives::{Address, B256, U256};
use serde_json::Value;
use spinney_replay::{ChainBlock, Genesis};
use spinney_state::{AccountChange, Change, Changes};

use crate::fake_node::FakeNode;
use crate::follow::chain_of;
use crate::support::{Folder, spinney};

/// The block whose state the node has otherwise.
const FAULT: usize = 40;

/// A fault: a balance, and a slot of another account.
fn fault() -> Changes {
    let poor = AccountChange { balance: Some(U256::from(77)), ..AccountChange::default() };
    let slots = [(B256::with_last_byte(3), U256::from(9))].into();
    let other = AccountChange { storage: slots, ..AccountChange::default() };
    let accounts = [(address(1), Change::Written(poor)), (address(2), Change::Written(other))];
    Changes { accounts: accounts.into() }
}

fn address(number: u8) -> Address {
    Address::repeat_byte(number)
}

/// A node that has the fault.
pub(crate) fn faulty_node(genesis: &Genesis, blocks: &[ChainBlock]) -> FakeNode {
    FakeNode::with_fault(genesis, &blocks[..FAULT], &fault())
}

#[test]
fn a_store_and_a_node_are_compared() {
    let folder = Folder::new();
    let (demo, db) = (folder.path("d"), folder.path("db"));
    let _ = spinney(&["demo", "-q", &demo]).exits(0);
    let (genesis, blocks) = chain_of(&demo);
    let node = faulty_node(&genesis, &blocks);
    let url = node.url().to_string();
    let file = format!("{demo}/genesis.json");
    // The follower names what it ends at.
    let follow = ["follow", &url, "--genesis", &file, "--db", &db];
    let ran = spinney(&[&follow[..], &["--events"]].concat()).exits(1);
    let events = ran.out.lines().map(|line| serde_json::from_str(line).unwrap());
    let events: Vec<Value> = events.collect();
    let differs = events.iter().find(|event| event["event"] == "differs").expect("it is told");
    assert_eq!((&differs["block"], differs["accounts"].as_array().unwrap().len()), (&40.into(), 1));
    assert!(ran.err.contains("state root: expected"), "{}", ran.err);
    let account = differs["accounts"][0]["address"].as_str().unwrap().to_owned();
    assert!(ran.err.contains(&format!("account {account}")), "{}", ran.err);
    // So does the verb, of a store that has the block as it is to be.
    let chain = format!("{demo}/chain.rlp");
    let args = ["replay", "-q", "--genesis", &file, "--blocks", &chain, "--db", &db];
    let _ = spinney(&[&args[..], &["--to", "60"]].concat()).exits(0);
    let bisect = ["bisect", &url, "--db", &db];
    let found = spinney(&[&bisect[..], &["--json", "--all", "9"]].concat()).exits(1);
    let found = found.data();
    assert_eq!((&found["first"], &found["last"]), (&0.into(), &40.into()));
    let divergence = &found["divergence"];
    assert_eq!((&divergence["block"], &divergence["is_first"]), (&40.into(), &true.into()));
    let accounts = divergence["accounts"].as_array().unwrap();
    let of = |number: u8| {
        let name = address(number).to_string().to_lowercase();
        let is_it = |it: &&Value| it["address"].as_str().unwrap().to_lowercase() == name;
        accounts.iter().find(is_it).expect("it is named")
    };
    assert_eq!((accounts.len(), &divergence["is_all"]), (2, &true.into()));
    assert_eq!((&of(1)["left"]["balance"], &of(1)["right"]), (&"77".into(), &Value::Null));
    let slot = &of(2)["slots"][0];
    assert!(slot["slot"].as_str().unwrap().ends_with("03"), "{slot}");
    assert!(slot["left"].as_str().unwrap().ends_with("09"), "{slot}");
    // For people; and where all is the same.
    let ran = spinney(&[&bisect[..], &["--format", "table"]].concat()).exits(1);
    assert!(ran.out.contains("differ after block 40 (first"), "{}", ran.out);
    let ran = spinney(&[&bisect[..], &["--format", "csv", "--to", "39"]].concat()).exits(0);
    assert_eq!(ran.out, "block,account,slot,what,left,right\n");
    let ran = spinney(&["bisect", &url, &url, "--format", "table"]).exits(0);
    assert!(ran.out.contains("the same state after block 40"), "{}", ran.out);
}

#[test]
fn what_cannot_be_compared_is_told() {
    let folder = Folder::new();
    let (demo, db) = (folder.path("d"), folder.path("db"));
    let _ = spinney(&["demo", "-q", &demo]).exits(0);
    let (genesis, blocks) = chain_of(&demo);
    let node = FakeNode::start(&genesis, &blocks, true);
    let url = node.url().to_string();
    let refused = |args: &[&str], says: &str| {
        let ran = spinney(&[&["bisect"], args].concat()).exits(2);
        assert!(ran.err.contains(says), "{}", ran.err);
    };
    refused(&[&url], "one other side");
    refused(&[&url, &url, "--db", &db], "one other side");
    refused(&[&url, "--db", &db], "db");
    refused(&[&url, &url, "--all", "0"], "--all");
    refused(&[&url, &url, "--from", "5", "--to", "4"], "blocks 5 to 4 are wanted");
    let away = "http://me:secret@127.0.0.1:9";
    let ran = spinney(&["bisect", away, &url]).exits(2);
    assert!(ran.err.contains("http://***@127.0.0.1:9"), "{}", ran.err);
    assert!(!ran.err.contains("secret"), "{}", ran.err);
}
