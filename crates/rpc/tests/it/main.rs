//! What a server refuses when it has too much to do: limits that the command does not set.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use spinney_rpc::{Finality, Limits, Options, Server, Stop};
use spinney_state::{Changes, State};
use spinney_tree::{BlockId, MemoryStore};

/// The status and the body of what is answered to a request that ends its connection.
fn ask(address: SocketAddr, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head =
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn call(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string()
}

/// Runs a server over a store of blocks 0 to 4 for as long as somebody asks it.
fn with_server(options: Options, asks: impl FnOnce(SocketAddr)) {
    let mut state = State::open(MemoryStore::new(), 1 << 20).unwrap();
    for number in 0..5 {
        state.apply(&Changes::default()).unwrap();
        state.seal(BlockId { number, hash: [number as u8; 32] }).unwrap();
        state.commit().unwrap();
    }
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), None).unwrap();
    let (address, stop) = (server.address(), Stop::default());
    /// Ends the server, whatever the test comes to.
    struct Ends(Stop);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    thread::scope(|scope| {
        let store = state.store();
        let running = scope.spawn(|| server.run(store, options, &stop));
        let ends = Ends(stop.clone());
        asks(address);
        drop(ends);
        running.join().unwrap().unwrap();
    });
}

fn limited(limit: impl FnOnce(&mut Limits)) -> Options {
    let mut options = Options::default();
    options.threads = 2;
    limit(&mut options.limits);
    options
}

#[test]
fn what_finds_no_place_in_line_is_told_to_come_again() {
    let head = call("eth_blockNumber", &json!([]));
    with_server(limited(|limits| limits.waiting = 0), |address| {
        let (status, body) = ask(address, &head);
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &answer["error"]["code"]), (503, &json!(-32005)), "{answer}");
        assert_eq!(answer["id"], Value::Null);
    });
    with_server(limited(|limits| limits.waiting = 1), |address| {
        let (status, body) = ask(address, &head);
        assert_eq!((status, &body[..]), (200, r#"{"jsonrpc":"2.0","id":7,"result":"0x4"}"#));
    });
}

/// A body that does not come is given up, and so is a header.
#[test]
fn what_does_not_come_in_time_is_given_up() {
    with_server(limited(|limits| limits.read = Duration::from_millis(50)), |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        write!(stream, "{head}Content-Length: 9\r\n\r\n{{").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 408");
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(stream, "POST").unwrap();
        let mut rest = String::new();
        let _ = stream.read_to_string(&mut rest).unwrap();
        assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 408"), "{rest}");
    });
}

/// Who follows the chain tells which block is final.
#[test]
fn the_final_block_may_be_told() {
    let told = Arc::new(AtomicU64::new(u64::MAX));
    let mut options = limited(|_| ());
    options.finality = Finality::Told(Arc::clone(&told));
    with_server(options, |address| {
        let ask = |method: &str, params: &Value| -> Value {
            serde_json::from_str(&ask(address, &call(method, params)).1).unwrap()
        };
        let root = |block: &str| ask("spinney_getRoot", &json!(["mpt", block]));
        assert_eq!(root("finalized")["error"]["code"], -32001);
        told.store(3, Ordering::Relaxed);
        assert_eq!(root("finalized")["result"], root("0x3")["result"]);
        assert_eq!(ask("spinney_status", &json!([]))["result"]["finalized"], "0x3");
        // The store is behind.
        told.store(5, Ordering::Relaxed);
        assert_eq!(root("finalized")["error"]["code"], -32001);
    });
}

/// A name that somebody else made to stand for the server's address is refused, whatever is asked.
#[test]
fn a_host_that_is_another_one_is_refused() {
    let ask = |address: SocketAddr, first: &str, hosts: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let body = call("eth_blockNumber", &json!([]));
        let head = format!("{first} HTTP/1.1\r\n{hosts}Content-Type: application/json");
        let length = body.len();
        write!(stream, "{head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse::<u16>().unwrap(), body.to_owned())
    };
    let mut options = limited(|_| ());
    with_server(options.clone(), |address| {
        let port = address.port();
        for hosts in [
            String::new(),
            format!("Host: {address}\r\n"),
            format!("Host: LOCALHOST:{port}\r\n"),
            "Host: [::1]\r\n".into(),
        ] {
            assert_eq!(ask(address, "POST /", &hosts).0, 200, "{hosts}");
        }
        for (first, hosts) in [
            ("POST /", format!("Host: evil.example:{port}\r\n")),
            ("GET /", "Host: evil.example\r\n".into()),
            ("GET /health", "Host: evil.example\r\n".into()),
            ("POST /", "Host:\r\n".into()),
            ("POST /", format!("Host: localhost\r\nHost: evil.example:{port}\r\n")),
            ("POST http://evil.example/", format!("Host: {address}\r\n")),
        ] {
            let (status, body) = ask(address, first, &hosts);
            let answer: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(
                (status, &answer["error"]["code"]),
                (403, &json!(-32600)),
                "{first} {hosts}"
            );
            let why = answer["error"]["message"].as_str().unwrap();
            assert!(why.contains("--hosts"), "{why}");
        }
    });
    options.hosts = "rpc.example".parse().unwrap();
    with_server(options, |address| {
        assert_eq!(ask(address, "POST /", "Host: RPC.example:80\r\n").0, 200);
        assert_eq!(ask(address, "POST /", "Host: evil.example\r\n").0, 403);
    });
}
