//! The explorer: the files of its page, and the page in a real browser.

use std::path::Path;
use std::process::Command;

use crate::bench::browser;
use crate::serve::client::Server;
use crate::serve::sample;
use crate::support::Folder;

const TREES: &str = "mpt,ubt:sha256,pbt:blake3,verkle";

/// The contract that keeps the hashes of blocks (EIP-2935): it has code and slots.
const CONTRACT: &str = "0x0000f90827f1c53a10cb7a02335b175320002935";

#[test]
fn the_page_and_its_files_are_served() {
    let folder = Folder::new();
    let db = sample(&folder, "2", "all", &[]);
    let server = Server::start(&db, &[]);
    let page = server.get("/");
    let head = page.head.to_ascii_lowercase();
    assert_eq!(page.status, 200);
    assert!(page.body.contains("<title>Spinney explorer</title>"), "{}", page.body);
    assert!(head.contains("content-type: text/html"), "{head}");
    let policy = "content-security-policy: default-src 'none'; \
        script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; connect-src 'self';";
    assert!(head.contains(policy), "{head}");
    // Whatever the files name is served, and nothing is loaded from elsewhere.
    let mut open = vec!["/".to_owned()];
    let mut seen = Vec::new();
    while let Some(path) = open.pop() {
        let file = server.get(&path);
        assert_eq!(file.status, 200, "{path}");
        let is_text = !path.ends_with(".wasm");
        assert!(!is_text || !file.body.contains("://"), "{path} names another host");
        let text = if is_text { &file.body[..] } else { "" };
        let named = text.split('"').filter(|name| {
            name.starts_with('/') && [".js", ".css", ".wasm"].iter().any(|end| name.ends_with(end))
        });
        open.extend(named.filter(|name| !seen.iter().any(|seen| seen == name)).map(str::to_owned));
        seen.push(path);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 8, "{seen:?}");
    let wasm = server.get("/verifier.wasm");
    assert!(wasm.body.starts_with("\0asm") && wasm.head.contains("application/wasm"));
    // A browser that has a file asks whether it is the same.
    let tag = wasm.head.lines().find_map(|line| line.strip_prefix("etag: ")).expect("a tag");
    let again =
        format!("GET /verifier.wasm HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\n\r\n");
    let stream = server.open(again);
    let mut status = [0; 12];
    std::io::Read::read_exact(&mut &stream, &mut status).expect("an answer");
    assert_eq!(&status, b"HTTP/1.1 304");
    // POST is JSON-RPC, as ever; and the page can be left out.
    assert_eq!(server.call("eth_blockNumber", serde_json::json!([])), "0x2");
    let server = Server::start(&db, &["--no-explorer"]);
    let get = server.get("/");
    assert_eq!((get.status, server.get("/verifier.wasm").status), (405, 404));
    assert!(get.head.to_ascii_lowercase().contains("allow: post"), "{}", get.head);
}

#[test]
fn a_browser_verifies_proofs_and_refuses_changed_ones() {
    let Some(browser) = browser() else { return };
    if Command::new("node").arg("--version").output().is_err() {
        println!("skipped: there is no Node.js here (apt-get install nodejs)");
        return;
    }
    let folder = Folder::new();
    let server = Server::start(&sample(&folder, "5", "all", &["--tree", TREES]), &[]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/explorer/browser.mjs");
    let url = format!("http://{}/", server.address());
    let mut node = Command::new("node");
    let ran = node.arg(script).args([browser, &url, CONTRACT, "4"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(said, "the page holds\n");
}
