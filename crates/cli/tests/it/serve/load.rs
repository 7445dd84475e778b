//! A server beside a writer, slow clients and odd ones, and its end.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::client::{Server, error_of, request, result_of};
use super::{TREES, root_at, sample};
use crate::support::{Folder, Ran, command, spinney};

/// Another process takes the store further: answers go on with it, and those of a batch are of
/// one commit.
#[test]
fn another_process_takes_the_store_further() {
    let folder = Folder::new();
    for (name, store) in [("db", "redb"), ("db.sqlite", "sqlite"), ("log", "log")] {
        let db = folder.path(name);
        let more = ["--blocks-count", "40", "--keep-undo", "all", "--db", &db, "--store", store];
        let replay = [&["replay", "-q", "--commit-every", "1"], &more[..]].concat();
        let _ = spinney(&[&replay[..], &["--to", "3"]].concat()).exits(0);
        let server = Server::start(&db, &["--threads", "2", "--store", store]);
        assert_eq!(server.call("eth_blockNumber", json!([])), "0x3", "{store}");
        let mut calls = vec![("eth_blockNumber", json!([])); 40];
        for (at, call) in calls.iter_mut().enumerate() {
            if at % 2 == 1 {
                *call = ("spinney_getRoot", json!(["mpt", "latest"]));
            }
        }
        let mut seen = BTreeSet::new();
        let mut writer = command(&replay).spawn().expect("the binary runs");
        let mut goes_on = true;
        while goes_on {
            goes_on = writer.try_wait().expect("it runs").is_none();
            let answers = server.batch(&calls);
            let (head, root) = (&answers[0], &answers[1]);
            for pair in answers.chunks(2) {
                assert_eq!((&pair[0], &pair[1]), (head, root), "{store}");
            }
            seen.insert((head.as_str().unwrap().to_owned(), root.clone().to_string()));
        }
        assert!(writer.wait().expect("it ended").success(), "{store}");
        assert_eq!(server.call("eth_blockNumber", json!([])), "0x28", "{store}");
        seen.insert(("0x28".into(), root_at(&server, 40).to_string()));
        println!("{store}: {} heads seen", seen.len());
        for (head, root) in seen {
            let kept = server.call("spinney_getRoot", json!(["mpt", head]));
            assert_eq!(kept.to_string(), root, "{store} {head}");
        }
    }
}

/// Those who open a connection and stop do not hinder others.
#[test]
fn slow_clients_hinder_nobody() {
    let folder = Folder::new();
    let db = sample(&folder, "2", "all", &[]);
    let server = Server::start(&db, &["--threads", "1", "--metrics", "127.0.0.1:0"]);
    let head =
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9";
    let slow: Vec<_> = (0..50)
        .map(|at| server.open(if at % 2 == 0 { "P".into() } else { format!("{head}\r\n\r\n{{") }))
        .collect();
    for _ in 0..20 {
        assert_eq!(server.call("eth_blockNumber", json!([])), "0x2");
    }
    // They are still there.
    let metrics = server.scrape();
    let open = metrics.lines().find_map(|line| line.strip_prefix("spinney_rpc_connections "));
    assert!(open.unwrap().parse::<u64>().unwrap() >= 50, "{metrics}");
    for stream in &slow {
        stream.set_nonblocking(true).unwrap();
        let read = std::io::Read::read(&mut &*stream, &mut [0]);
        let kind = read.map_err(|error| error.kind());
        assert_eq!(kind, Err(std::io::ErrorKind::WouldBlock));
    }
    // Nor do they hinder its end: what they began is given up.
    server.stop().exits(0);
}

/// Draws numbers: xorshift.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    /// Changes a text a few times.
    fn mutate(&mut self, good: &[u8]) -> Vec<u8> {
        let mut body = good.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(body.len().max(1));
            let end = (at + self.below(9)).min(body.len());
            match self.below(6) {
                0 if at < body.len() => body[at] ^= 1 << self.below(8),
                1 => drop(body.drain(at.min(end)..end)),
                2 => {
                    let again = body[at.min(end)..end].to_vec();
                    drop(body.splice(end..end, again));
                }
                3 => body.truncate(at),
                4 => body.insert(at.min(body.len()), b"{}[]\",:0\\\xff"[self.below(10)]),
                _ => {
                    let from = self.below(good.len());
                    let part = &good[from..(from + self.below(40)).min(good.len())];
                    drop(body.splice(at.min(end)..end, part.iter().copied()));
                }
            }
        }
        body
    }
}

/// Whatever is sent, the answer has a form and a code, and the server goes on.
#[test]
fn malformed_bodies_get_typed_answers() {
    let folder = Folder::new();
    let db = sample(&folder, "2", "all", &["--tree", TREES]);
    let server = Server::start(&db, &["--chain-id", "1"]);
    let now = std::time::UNIX_EPOCH.elapsed().expect("time goes on").as_nanos();
    let seed = match std::env::var("SPINNEY_SEED") {
        Ok(seed) => seed.parse().expect("a seed is a number"),
        Err(_) => u64::try_from(now & u128::from(u64::MAX)).unwrap() | 1,
    };
    println!("seed {seed}: SPINNEY_SEED={seed} draws the same again");
    let nobody = "0x00000000000000000000000000000000deadbeef";
    let account = json!({ "address": nobody, "slots": ["0x1"] });
    let one = request("eth_getProof", &json!([nobody, ["0x1"], { "blockNumber": "0x1" }]));
    let other = request("spinney_getProof", &json!(["pbt:blake3", account, "latest"]));
    let goods = [one.to_string(), other.to_string(), json!([one, other, one]).to_string()];
    let mut draw = Draw(seed);
    let mut errors = 0;
    for round in 0..500 {
        let body = draw.mutate(goods[round % goods.len()].as_bytes());
        let said = format!("seed {seed}, round {round}: {}", String::from_utf8_lossy(&body));
        let answer = server.post_bytes(&body);
        assert_eq!(answer.status, 200, "{said}: {answer:?}");
        if answer.body.is_empty() {
            continue;
        }
        let answers = match answer.json() {
            Value::Array(answers) => answers,
            answer => vec![answer],
        };
        for answer in answers {
            assert_eq!(answer["jsonrpc"], "2.0", "{said}: {answer}");
            if answer.get("error").is_none() {
                assert!(answer.get("result").is_some(), "{said}: {answer}");
                continue;
            }
            let (code, why) = error_of(&answer);
            let known = [-32700, -32600, -32601, -32602, -32001, 4444];
            assert!(known.contains(&code) && !why.is_empty(), "{said}: {answer}");
            errors += 1;
        }
    }
    assert!(errors > 200, "seed {seed}: {errors} errors");
    for good in &goods[..2] {
        assert!(result_of(&server.post(good).json()).is_object());
    }
}

/// It ends by SIGTERM, though a connection stays open, and what was asked before is answered.
#[test]
fn the_signal_to_end_ends_it() {
    let folder = Folder::new();
    let db = sample(&folder, "2", "all", &[]);
    let server = Server::start(&db, &[]);
    let idle = server.open(String::new());
    assert_eq!(server.call("eth_blockNumber", json!([])), "0x2");
    let address = server.address();
    let ran: Ran = server.stop().exits(0);
    assert_eq!(ran.err, "");
    assert!(std::net::TcpStream::connect(address).is_err(), "somebody still listens");
    drop(idle);
    // Others may have the address, and the store to write.
    let _ = sample(&folder, "3", "all", &[]);
    assert_eq!(Server::start(&db, &[]).call("eth_blockNumber", json!([])), "0x3");
}
