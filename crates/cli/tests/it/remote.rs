//! `--state-from`: proofs and replays from a server, and from one that somebody stands before who
//! lies.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::fake_node::FakeNode;
use crate::follow::chain_of;
use crate::serve::client::Server;
use crate::serve::sample;
use crate::support::{Folder, Ran, all_forks, spinney};

/// An account of the sample chain, and a contract.
const ACCOUNT: &str = "0x100ba66A4ed81db56d86104f53Aa0Cf96c5cC4CA";

/// What is done to an answer, or to the request before it.
type Lie = Arc<dyn Fn(&mut Value, Option<String>) -> Option<String> + Send + Sync>;

/// Stands before a server, and passes on what it likes.
struct Proxy {
    address: SocketAddr,
    lie: Arc<Mutex<Lie>>,
    ended: Arc<AtomicBool>,
}

impl Proxy {
    fn before(server: Arc<Server>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let honest: Lie = Arc::new(|_, answer| answer);
        let lie = Arc::new(Mutex::new(honest));
        let ended = Arc::new(AtomicBool::new(false));
        let (told, over) = (Arc::clone(&lie), Arc::clone(&ended));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (server, told) = (Arc::clone(&server), Arc::clone(&told));
                thread::spawn(move || drop(pass(&stream.unwrap(), &server, &told)));
            }
        });
        Self { address, lie, ended }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn lies(
        &self,
        lie: impl Fn(&mut Value, Option<String>) -> Option<String> + Send + Sync + 'static,
    ) {
        *self.lie.lock().unwrap() = Arc::new(lie);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }
}

fn pass(stream: &TcpStream, server: &Server, lie: &Mutex<Lie>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim().to_ascii_lowercase();
            if let Some(given) = line.strip_prefix("content-length: ") {
                length = given.parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let mut asked: Value = serde_json::from_slice(&body).unwrap();
        let lie = Arc::clone(&*lie.lock().unwrap());
        let before = lie(&mut asked, None);
        let answer = match before {
            Some(answer) => Some(answer),
            None => {
                let answer = server.post(&asked.to_string()).body;
                lie(&mut asked, Some(answer))
            }
        };
        let answer = answer.unwrap_or_default();
        // A mark of those that are to end in the middle.
        let (text, is_cut) = answer.strip_suffix('!').map_or((&answer[..], false), |t| (t, true));
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length";
        let sent = if is_cut { &text[..text.len() / 2] } else { text };
        let whole = format!("{head}: {}\r\n\r\n{sent}", text.len());
        (&*stream).write_all(whole.as_bytes())?;
        if is_cut {
            return Ok(());
        }
    }
}

fn has(asked: &Value, method: &str) -> bool {
    asked.to_string().contains(&format!("\"{method}\""))
}

/// A replay of the demo's chain, whose state comes from somebody.
fn replay(demo: &str, url: &str, more: &[&str]) -> Ran {
    let (genesis, blocks) = (format!("{demo}/genesis.json"), format!("{demo}/chain.rlp"));
    let args = ["replay", "-q", "--genesis", &genesis, "--blocks", &blocks, "--state-from", url];
    spinney(&[&args[..], &["--json"], more].concat())
}

fn served(folder: &Folder, to: &str) -> (String, Server) {
    let (demo, db) = (folder.path("d"), folder.path("db"));
    let _ = spinney(&["demo", "-q", &demo]).exits(0);
    let (genesis, blocks) = (format!("{demo}/genesis.json"), format!("{demo}/chain.rlp"));
    let chain = ["replay", "-q", "--genesis", &genesis, "--blocks", &blocks];
    let _ = spinney(&[&chain[..], &["--db", &db, "--to", to]].concat()).exits(0);
    (demo, Server::start(&db, &[]))
}

#[test]
fn blocks_are_executed_on_the_state_of_a_server() {
    let folder = Folder::new();
    let (demo, server) = served(&folder, "40");
    let (_, blocks) = chain_of(&demo);
    let url = format!("http://{}", server.address());
    let last = blocks.last().unwrap();
    let (head, root) = (last.block.header.number, last.block.header.state_root.to_string());
    for (more, from) in [
        (&["--block", "latest"][..], 40),
        (&["--block", "35"], 35),
        (&["--block", &blocks[29].hash.to_string()], 30),
        (&[], 0),
    ] {
        let data = replay(&demo, &url, more).exits(0).run();
        assert_eq!((&data["head"], &data["root"]), (&json!(head), &json!(root)), "{data}");
        assert_eq!(data["roots_checked"], json!(head - from), "{data}");
        let state = &data["state_from"];
        assert_eq!((&state["block"], &state["url"]), (&json!(from), &json!(url)));
        assert!(state["asks"].as_u64().unwrap() > 0);
    }
    let short = replay(&demo, &url, &["--block", "38", "--to", "39"]).exits(0).run();
    assert_eq!((&short["head"], &short["blocks"]), (&json!(39), &json!(1)));
    let refused = |more: &[&str], code, text| replay(&demo, &url, more).exits(code).refuses(text);
    refused(&["--block", "41"], 2, "header not found");
    refused(&["--block", "99999"], 2, "and not 99999 (--block)");
    refused(&["--tree", "pbt:blake3"], 2, "the mpt alone");
    refused(&["--db", &folder.path("other")], 2, "both a store and a node");
    replay(&demo, &url, &["--block", "newest"]).exits(2).says("expected a number");
    // A file that does not begin with the first block: the server has no header of the one before.
    let (file, genesis) = (folder.path("part"), format!("{demo}/genesis.json"));
    let part: Vec<u8> = blocks[30..].iter().flat_map(|block| block.to_rlp()).collect();
    std::fs::write(&file, part).unwrap();
    let args = ["replay", "-q", "--genesis", &genesis, "--blocks", &file, "--state-from", &url];
    spinney(&args).exits(2).refuses("gives no headers");
    let data = spinney(&[&args[..], &["--json", "--block", "35"]].concat()).exits(0).run();
    assert_eq!((&data["root"], &data["blocks"]), (&json!(root), &json!(head - 35)));
}

/// Blocks of every fork, on a server that stands at an earlier block, and on one that keeps all.
#[test]
fn blocks_of_all_forks_are_executed_on_the_state_of_a_server() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let (early, all) = (folder.path("early"), folder.path("all"));
    let whole = chain.replay(&["--db", &all, "--keep-undo", "all"]).exits(0).run();
    let head = whole["head"].as_u64().unwrap();
    let back = (head - 25).to_string();
    let _ = chain.replay(&["--db", &early, "--keep-undo", "1", "--to", &back]).exits(0);
    let server = Server::start(&early, &[]);
    let url = format!("http://{}", server.address());
    let data = chain.replay(&["--state-from", &url, "--block", "latest"]).exits(0).run();
    for field in ["head", "head_hash", "root"] {
        assert_eq!(data[field], whole[field], "{data}");
    }
    assert_eq!(data["roots_checked"], 25);
    drop(server);
    let server = Server::start(&all, &[]);
    let url = format!("http://{}", server.address());
    for from in (0..head).step_by(usize::try_from(head / 6).unwrap()) {
        let (block, to) = (from.to_string(), (from + 12).min(head).to_string());
        let args = ["--state-from", &url, "--block", &block, "--to", &to];
        let data = chain.replay(&args).exits(0).run();
        assert_eq!(data["blocks"], json!((from + 12).min(head) - from), "{data}");
    }
}

#[test]
fn a_proof_from_a_server_is_that_from_its_store() {
    let folder = Folder::new();
    let db = sample(&folder, "9", "9", &["--tree", "mpt,pbt:blake3,verkle"]);
    let server = Server::start(&db, &[]);
    let url = format!("http://{}", server.address());
    for more in [
        &["--slot", "0x0", "--slot", "7"][..],
        &["--block", "5"],
        &["--tree", "pbt:blake3", "--slot", "1"],
        &["--tree", "verkle", "--block", "7"],
    ] {
        let args = [&["prove", "-q", "--address", ACCOUNT][..], more].concat();
        let own = spinney(&[&args[..], &["--db", &db]].concat()).exits(0);
        let own: Value = serde_json::from_str(&own.out).unwrap();
        let root = own["root"].as_str().unwrap();
        let remote = [&args[..], &["--state-from", &url]].concat();
        let got = spinney(&remote).exits(0).says("word alone");
        assert_eq!(serde_json::from_str::<Value>(&got.out).unwrap(), own, "{more:?}");
        let trusted = spinney(&[&remote[..], &["--root", root]].concat()).exits(0);
        assert_eq!(serde_json::from_str::<Value>(&trusted.out).unwrap(), own);
        assert!(!trusted.err.contains("word alone"), "{}", trusted.err);
        let other = format!("0x{}", "11".repeat(32));
        let refused = spinney(&[&remote[..], &["--root", &other]].concat()).exits(1);
        assert_eq!(refused.out, "");
    }
    let prove = |more: &[&str]| spinney(&[&["prove", "-q"], more].concat());
    let from = ["--state-from", &url[..]];
    prove(&[&from[..], &["0x00"]].concat()).exits(2).refuses("accounts and slots");
    prove(&[&from[..], &["--db", &db, "--address", ACCOUNT]].concat())
        .exits(2)
        .refuses("both a store and a node (--db, --state-from)");
    prove(&["--address", ACCOUNT]).exits(2).refuses("no store is named");
    let hash = format!("0x{}", "22".repeat(32));
    let pinned = ["--address", ACCOUNT, "--block", &hash];
    prove(&[&from[..], &pinned].concat()).exits(2).refuses("gives no headers");
    let args = ["--address", ACCOUNT, "--tree", "sum"];
    prove(&[&from[..], &args].concat()).exits(2).refuses("is not read from a node");
    let pinned = ["--db", &db[..], "--address", ACCOUNT, "--block", &hash];
    prove(&pinned).exits(2).refuses("is not asked for a block");
    let nobody = ["--state-from", "http://127.0.0.1:1", "--address", ACCOUNT];
    prove(&nobody).exits(2).refuses("127.0.0.1:1");
}

/// A header is verified where a node gives one, and then nobody's word is taken.
#[test]
fn a_proof_from_a_node_has_the_root_of_a_header() {
    let folder = Folder::new();
    let demo = folder.path("d");
    let _ = spinney(&["demo", "-q", &demo]).exits(0);
    let (genesis, blocks) = chain_of(&demo);
    let node = FakeNode::with_fault(&genesis, &blocks[..6], &Default::default());
    let url = node.url().to_string();
    let args = ["prove", "-q", "--state-from", &url, "--address", ACCOUNT];
    let got = spinney(&args).exits(0);
    let document: Value = serde_json::from_str(&got.out).unwrap();
    let root = blocks[5].block.header.state_root.to_string();
    assert_eq!((&document["root"], &document["block"]), (&json!(root), &json!("0x6")));
    assert!(!got.err.contains("word alone"), "{}", got.err);
    let file = folder.write("proof.json", &got.out);
    let _ = spinney(&["verify", "--tree", "mpt", "--root", &root, &file]).exits(0);
}

#[test]
fn a_server_that_lies_is_not_believed() {
    let folder = Folder::new();
    let (demo, server) = served(&folder, "40");
    let proxy = Proxy::before(Arc::new(server));
    let url = proxy.url();
    let run = || replay(&demo, &url, &["--block", "40"]);
    let prove = || spinney(&["prove", "-q", "--state-from", &url, "--address", ACCOUNT]);
    assert_eq!(run().exits(0).run()["roots_checked"], json!(chain_of(&demo).1.len() - 40));
    // A balance, a node, the proof of another account, that of another block, and other code.
    let spoil = |method: &'static str, from: &'static str, to: &'static str| {
        proxy.lies(move |asked, answer| {
            answer.map(|text| if has(asked, method) { text.replacen(from, to, 1) } else { text })
        });
    };
    spoil("eth_getProof", "\"balance\":\"0x", "\"balance\":\"0x1");
    run().exits(1).refuses("does not hold under");
    prove().exits(1).refuses("does not hold under");
    spoil("eth_getProof", "\"accountProof\":[\"0x", "\"accountProof\":[\"0x00");
    run().exits(1).refuses("does not hold under");
    spoil("eth_getProof", "\"nonce\":\"0x", "\"nonce\":\"0x1");
    prove().exits(1).refuses("does not hold under");
    proxy.lies(|asked, answer| {
        let mut text = asked.to_string();
        if answer.is_none() && has(asked, "eth_getProof") {
            text = text.replace("\"0x28\"", "\"0x27\"");
            *asked = serde_json::from_str(&text).unwrap();
        }
        answer
    });
    run().exits(1).refuses("does not hold under");
    spoil("eth_getCode", "\"result\":\"0x", "\"result\":\"0x00");
    run().exits(1).refuses("code of account");
    // What is cut off, of another request, no JSON, or empty.
    for lie in ["!", "id", "text", "empty"] {
        proxy.lies(move |asked, answer| {
            let text = answer?;
            if !has(asked, "eth_getProof") {
                return Some(text);
            }
            Some(match lie {
                "!" => text + "!",
                "id" => text.replace("\"id\":", "\"id\":7"),
                "text" => "nothing".to_owned(),
                _ => String::new(),
            })
        });
        let ran = run();
        assert!(!ran.out.contains("\"success\":true"), "{lie}: {}", ran.out);
        assert_eq!(prove().out, "", "{lie}");
    }
    proxy.lies(|_, answer| answer);
    let _ = run().exits(0);
    let _ = prove().exits(0);
}
