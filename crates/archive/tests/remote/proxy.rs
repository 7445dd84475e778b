//! A proxy on loopback that reads requests and answers of HTTP/1.1, and spoils them as it is told.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// What is done with a request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Pass,
    /// Answers by itself.
    Answer(u16, String),
    /// Passes as many bytes of the request's body on, and closes.
    CutRequest(usize),
    /// Passes it on, and closes in place of the answer.
    LoseAnswer,
    /// Passes as many bytes of the answer's body, and closes.
    CutAnswer(usize),
    /// Passes as many bytes of the answer's body, and says that it has no more.
    ShortAnswer(usize),
    /// Passes as many bytes of the answer's body, and no more until the client goes.
    StallAnswer(usize),
    /// Waits before it passes it on.
    Wait(Duration),
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) target: String,
    /// The head, with all headers.
    pub(crate) head: String,
    /// How many there were before.
    pub(crate) number: usize,
}

type Plan = Arc<dyn Fn(&Asked) -> Act + Send + Sync>;

pub(crate) struct Proxy {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    listener: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Before the server at this port; 0 where there is none.
    pub(crate) fn start(port: u16, plan: impl Fn(&Asked) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (ended, count, plan) = (Arc::clone(&over), Arc::clone(&asked), Arc::new(plan) as Plan);
        let listener = std::thread::spawn(move || {
            for client in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(client), plan, count) = (client, Arc::clone(&plan), Arc::clone(&count))
                else {
                    continue;
                };
                // Each ends with its client.
                std::thread::spawn(move || {
                    let _ = serve(&client, port, &plan, &count);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, over, asked, listener: Some(listener) }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many requests there were.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

fn serve(client: &TcpStream, port: u16, plan: &Plan, count: &AtomicUsize) -> io::Result<()> {
    let (mut from, mut to) = (BufReader::new(client), client);
    let mut server: Option<BufReader<TcpStream>> = None;
    loop {
        let Some(head) = read_head(&mut from)? else { return Ok(()) };
        let mut words = head.split_whitespace().map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let number = count.fetch_add(1, Ordering::Relaxed);
        let mut body = vec![0; length(&head).unwrap_or(0)];
        from.read_exact(&mut body)?;
        let asked = Asked { method, target, head, number };
        let act = plan(&asked);
        if let Act::Answer(status, text) = &act {
            let kind = "Content-Type: application/xml";
            let length = text.len();
            let head = format!("HTTP/1.1 {status} X\r\n{kind}\r\nContent-Length: {length}\r\n\r\n");
            let text = if asked.method == "HEAD" { "" } else { text };
            to.write_all(format!("{head}{text}").as_bytes())?;
            continue;
        }
        if let Act::Wait(time) = act {
            std::thread::sleep(time);
        }
        let server = match &mut server {
            Some(server) => server,
            none => none.insert(BufReader::new(TcpStream::connect(("127.0.0.1", port))?)),
        };
        let passed = match act {
            Act::CutRequest(most) => most.min(body.len()),
            _ => body.len(),
        };
        server.get_mut().write_all(asked.head.as_bytes())?;
        server.get_mut().write_all(&body[..passed])?;
        if matches!(act, Act::CutRequest(_)) {
            return Ok(());
        }
        let Some(head) = read_head(server)? else { return Ok(()) };
        if matches!(act, Act::LoseAnswer) {
            return Ok(());
        }
        answer(&asked, &act, head, server, to)?;
        match act {
            Act::CutAnswer(_) => return Ok(()),
            Act::StallAnswer(_) => {
                // Until the client goes.
                let _ = from.read(&mut [0])?;
                return Ok(());
            }
            _ => {}
        }
    }
}

/// Passes an answer on.
fn answer(
    asked: &Asked,
    act: &Act,
    mut head: String,
    server: &mut BufReader<TcpStream>,
    mut to: &TcpStream,
) -> io::Result<()> {
    if asked.method == "HEAD" || head.contains(" 204 ") {
        return to.write_all(head.as_bytes());
    }
    let Some(length) = length(&head) else {
        return chunks(&head, server, to);
    };
    let mut body = vec![0; length];
    server.read_exact(&mut body)?;
    if let &Act::ShortAnswer(most) = act
        && most < length
    {
        body.truncate(most);
        let lines = head.split("\r\n").map(|line| {
            let is_length = line.to_ascii_lowercase().starts_with("content-length:");
            if is_length { format!("Content-Length: {most}") } else { line.to_owned() }
        });
        head = lines.collect::<Vec<_>>().join("\r\n");
    }
    if let &(Act::CutAnswer(most) | Act::StallAnswer(most)) = act {
        body.truncate(most);
    }
    to.write_all(head.as_bytes())?;
    to.write_all(&body)
}

fn chunks(head: &str, server: &mut BufReader<TcpStream>, mut to: &TcpStream) -> io::Result<()> {
    to.write_all(head.as_bytes())?;
    if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return Ok(());
    }
    loop {
        let mut line = String::new();
        server.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        let mut chunk = vec![0; size + 2];
        server.read_exact(&mut chunk)?;
        to.write_all(line.as_bytes())?;
        to.write_all(&chunk)?;
        if size == 0 {
            return Ok(());
        }
    }
}

/// A head with the empty line after it; `None` at the end.
fn read_head(from: &mut impl io::BufRead) -> io::Result<Option<String>> {
    let mut head = String::new();
    while from.read_line(&mut head)? > 2 {}
    Ok(Some(head).filter(|head| head.ends_with("\r\n\r\n")))
}

fn length(head: &str) -> Option<usize> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let line = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    line.and_then(|(_, value)| value.trim().parse().ok())
}
