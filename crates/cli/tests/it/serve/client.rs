//! A running `spinney serve`, and a client of it that knows as much HTTP as is needed.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{PATIENCE, Ran, command};

/// A server that ends with its value.
pub(crate) struct Server {
    child: Option<Child>,
    rpc: SocketAddr,
    metrics: Option<SocketAddr>,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

pub(crate) fn request(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

#[track_caller]
pub(crate) fn result_of(answer: &Value) -> Value {
    answer.get("result").unwrap_or_else(|| panic!("no result: {answer}")).clone()
}

/// The code and the message of an error.
#[track_caller]
pub(crate) fn error_of(answer: &Value) -> (i64, String) {
    let error = answer.get("error").unwrap_or_else(|| panic!("no error: {answer:.1000}"));
    assert!(answer.get("result").is_none(), "{answer}");
    (error["code"].as_i64().expect("a code"), error["message"].as_str().expect("text").to_owned())
}

fn ask(address: SocketAddr, sent: &[u8]) -> Answer {
    try_send(address, sent).expect("an answer in time")
}

/// Posts a request to a server that may go away.
pub(crate) fn try_ask(address: SocketAddr, body: &str) -> io::Result<(u16, Value)> {
    let answer = try_send(address, &posted(body.as_bytes()))?;
    Ok((answer.status, if answer.status == 200 { answer.json() } else { Value::Null }))
}

fn posted(body: &[u8]) -> Vec<u8> {
    let head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
    let head = format!("{head}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn try_send(address: SocketAddr, sent: &[u8]) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(sent)?;
    // The length of the body says where an answer ends: the connection may stay.
    let (mut answer, mut part) = (Vec::new(), [0; 1 << 14]);
    loop {
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let length =
                lower.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
            let length: usize = length.expect("a length").trim().parse().expect("a number");
            if body.len() >= length {
                let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
                let status = status.expect("a status");
                return Ok(Answer { status, head: head.to_owned(), body: body.to_owned() });
            }
        }
        let read = stream.read(&mut part)?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "within an answer"));
        }
        answer.extend_from_slice(&part[..read]);
    }
}

impl Server {
    /// Starts it at a free port, and waits until it listens.
    pub(crate) fn start(db: &str, more: &[&str]) -> Self {
        Self::start_at(db, "127.0.0.1:0", more)
    }

    pub(crate) fn start_at(db: &str, listen: &str, more: &[&str]) -> Self {
        Self::start_with(&[&["--db", db, "--listen", listen], more].concat())
    }

    /// One that answers from an archive.
    pub(crate) fn of_archive(archive: &str, more: &[&str]) -> Self {
        Self::of_archive_with(archive, more, &[])
    }

    /// One that has some variables in its environment.
    pub(crate) fn of_archive_with(
        archive: &str,
        more: &[&str],
        variables: &[(String, String)],
    ) -> Self {
        let more = [&["--archive", archive, "--listen", "127.0.0.1:0"], more].concat();
        Self::start_in(&more, variables)
    }

    fn start_with(more: &[&str]) -> Self {
        Self::start_in(more, &[])
    }

    fn start_in(more: &[&str], variables: &[(String, String)]) -> Self {
        let args = [&["serve"], more].concat();
        let variables = variables.iter().map(|(name, value)| (name, value));
        let child =
            command(&args).envs(variables).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the binary runs");
        let mut lines = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
        let mut stderr = child.stderr.take().expect("it was asked for");
        let mut address = |what: &str| -> SocketAddr {
            let Some(line) = lines.next() else {
                let mut said = String::new();
                let _ = stderr.read_to_string(&mut said);
                panic!("it ended before it said where it listens: {said}");
            };
            let line = line.expect("text");
            let address = line.strip_prefix(what).unwrap_or_else(|| panic!("{line}"));
            address.trim_end_matches("/metrics").parse().expect("an address")
        };
        let rpc = address("rpc http://");
        let metrics = more.contains(&"--metrics").then(|| address("metrics http://"));
        child.stderr = Some(stderr);
        Self { child: Some(child), rpc, metrics }
    }

    /// One that runs already, and ends with this value.
    pub(crate) const fn of(child: Child, rpc: SocketAddr, metrics: Option<SocketAddr>) -> Self {
        Self { child: Some(child), rpc, metrics }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.rpc
    }

    /// Opens a connection and sends a part of a request.
    pub(crate) fn open(&self, part: String) -> TcpStream {
        let mut stream = TcpStream::connect(self.rpc).expect("it listens");
        stream.write_all(part.as_bytes()).expect("it is taken");
        stream
    }

    /// Sends a request as it is.
    pub(crate) fn send(&self, text: &str) -> Answer {
        ask(self.rpc, text.as_bytes())
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    }

    pub(crate) fn scrape(&self) -> String {
        let address = self.metrics.expect("it was asked for metrics");
        let answer = ask(address, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(answer.status, 200);
        answer.body
    }

    pub(crate) fn post_bytes(&self, body: &[u8]) -> Answer {
        ask(self.rpc, &posted(body))
    }

    pub(crate) fn post(&self, body: &str) -> Answer {
        self.post_bytes(body.as_bytes())
    }

    /// What a method answers, with what is around it.
    #[track_caller]
    pub(crate) fn answer(&self, method: &str, params: &Value) -> Value {
        let answer = self.post(&request(method, params).to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer.json();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(1)), "{answer}");
        answer
    }

    #[track_caller]
    pub(crate) fn call(&self, method: &str, params: Value) -> Value {
        result_of(&self.answer(method, &params))
    }

    /// The code and the message of a refusal.
    #[track_caller]
    pub(crate) fn refused(&self, method: &str, params: Value) -> (i64, String) {
        error_of(&self.answer(method, &params))
    }

    /// The answers to a batch, in its order.
    #[track_caller]
    pub(crate) fn answers(&self, calls: &[(&str, Value)]) -> Vec<Value> {
        let numbered = calls.iter().enumerate().map(|(id, (method, params))| {
            let mut call = request(method, params);
            call["id"] = id.into();
            call
        });
        let answer = self.post(&Value::from_iter(numbered).to_string()).json();
        let Value::Array(answers) = answer else { panic!("{answer}") };
        assert_eq!(answers.len(), calls.len());
        for (id, answer) in answers.iter().enumerate() {
            assert_eq!(answer["id"], id, "{answer}");
        }
        answers
    }

    #[track_caller]
    pub(crate) fn batch(&self, calls: &[(&str, Value)]) -> Vec<Value> {
        self.answers(calls).iter().map(result_of).collect()
    }

    /// Tells it to end, and waits until it did.
    pub(crate) fn stop(mut self) -> Ran {
        let child = self.child.take().expect("it runs");
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        child.wait_with_output().expect("it ends").into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
