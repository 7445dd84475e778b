//! A SeaweedFS server of our own with its S3 gateway: on loopback, in a scratch folder, gone with
//! this process.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use spinney_archive::{Objects as _, Patience, Remote, RemoteOptions};
use tempfile::TempDir;

/// Marks what must never be shown.
pub(crate) const SECRET: &str = "marked-secret-7f3a";
pub(crate) const BUCKET: &str = "archive";
const KEY: &str = "marked-key-55c1";
/// How long a server may take to be there.
const PATIENCE: Duration = Duration::from_secs(120);

/// Prints the server's process id, and ends it at once when its input ends: that is, when this
/// process does, however it ends.
const KEEPER: &str =
    "\"$@\" & server=$!; echo $server; read -r _; kill -KILL $server; wait $server";

/// What the server listens on; each is a port of HTTP and one of gRPC.
const PARTS: [&str; 4] = ["master", "volume", "filer", "s3"];

pub(crate) struct Weed {
    program: PathBuf,
    folder: TempDir,
    /// Of HTTP, then of gRPC, in the order of [`PARTS`].
    ports: Vec<u16>,
    running: Option<(Child, ChildStdin, u32)>,
}

fn program() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/weed/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain([built]);
    folders.find_map(|folder| Some(folder.join("weed")).filter(|program| program.is_file()))
}

impl Weed {
    /// A server with an empty bucket; `None`, and a line that says so, where there is no `weed`.
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = program() else {
            eprintln!("skipped: there is no weed here (pip install --target target/weed, .ci/run)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        let credentials = format!(r#"[{{"accessKey":"{KEY}","secretKey":"{SECRET}"}}]"#);
        let actions = r#"["Admin","Read","Write","List"]"#;
        let identity = format!(
            r#"{{"identities":[{{"name":"t","credentials":{credentials},"actions":{actions}}}]}}"#
        );
        fs::write(folder.path().join("s3.json"), identity).unwrap();
        let mut server = Self { program, folder, ports: Vec::new(), running: None };
        server.run();
        Some(server)
    }

    /// Starts it, or starts it again where it was, and waits until it takes objects.
    pub(crate) fn run(&mut self) {
        let since = Instant::now();
        let fresh = self.ports.is_empty();
        loop {
            // Another program may take a port first; then there are others.
            if fresh {
                let free: Vec<_> =
                    (0..8).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
                self.ports = free.iter().map(|free| free.local_addr().unwrap().port()).collect();
            }
            self.spawn();
            while since.elapsed() < PATIENCE && self.is_alive() {
                if self.is_ready() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            self.kill();
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(since.elapsed() < PATIENCE, "weed does not start: {log}");
        }
    }

    fn spawn(&mut self) {
        let log = File::create(self.folder.path().join("log")).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper"]).arg(&self.program).arg("server");
        for option in ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-dir=data", "-filer", "-s3"] {
            command.arg(option);
        }
        for option in ["-s3.config=s3.json", "-s3.iam=false", "-s3.autoCreateBucket=false"] {
            command.arg(option);
        }
        for option in ["-s3.port.lance=0", "-s3.port.iceberg=0", "-volume.max=100"] {
            command.arg(option);
        }
        command.args(["-master.volumeSizeLimitMB=128", "-master.telemetry=false"]);
        // The only master waits as long as this for others before it begins, each time.
        command.arg("-master.electionTimeout=1s");
        command.args(["-volume.minFreeSpace=0"]);
        for (at, part) in PARTS.iter().enumerate() {
            command.arg(format!("-{part}.port={}", self.ports[at]));
            command.arg(format!("-{part}.port.grpc={}", self.ports[at + PARTS.len()]));
        }
        command.current_dir(self.folder.path()).env("HOME", self.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut keeper = command.spawn().unwrap();
        let input = keeper.stdin.take().unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.running = Some((keeper, input, line.trim().parse().unwrap()));
    }

    fn is_alive(&self) -> bool {
        let Some((_, _, server)) = &self.running else { return false };
        // What has ended and was not waited for yet has no command line.
        fs::read(format!("/proc/{server}/cmdline")).is_ok_and(|line| !line.is_empty())
    }

    fn is_ready(&self) -> bool {
        let made = self.asks_filer("POST", &format!("/buckets/{BUCKET}/"));
        // 201 for a new one, 409 where it is there.
        let there = |answer: String| ["201", "409"].contains(&answer.get(9..12).unwrap_or(""));
        if !made.is_some_and(there) {
            return false;
        }
        let patience = Patience { call: Duration::from_secs(10), ..Patience::default() };
        let remote = Remote::open_with(
            &format!("s3://{BUCKET}/ready"),
            &options(&self.endpoint(), SECRET, patience),
        );
        remote.unwrap().create("ready", b"ready").is_ok()
    }

    /// Asks the server's own side for files.
    fn asks_filer(&self, method: &str, target: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[2])).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let head = format!("{method} {target} HTTP/1.1\r\nHost: filer\r\nAccept: application/json");
        let rest = "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.write_all(format!("{head}{rest}").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// Uploads that are neither done nor given up.
    pub(crate) fn open_uploads(&self) -> usize {
        let target = format!("/buckets/{BUCKET}/.uploads/?limit=1000");
        let answer = self.asks_filer("GET", &target).unwrap();
        answer.matches("\"FullPath\"").count()
    }

    /// Makes an object of any name at all.
    pub(crate) fn plant(&self, target: &str) {
        let answer = self.asks_filer("PUT", &format!("/buckets/{BUCKET}/{target}")).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201"), "{target}: {answer}");
    }

    /// Ends it in the middle of whatever it does.
    pub(crate) fn kill(&mut self) {
        let Some((mut keeper, input, _)) = self.running.take() else { return };
        drop(input);
        keeper.wait().unwrap();
    }

    pub(crate) fn port(&self) -> u16 {
        self.ports[3]
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    /// A new prefix.
    pub(crate) fn remote(&self) -> Remote {
        remote(&self.endpoint(), Patience::default())
    }
}

impl Drop for Weed {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A new prefix of the bucket at this endpoint.
pub(crate) fn remote(endpoint: &str, patience: Patience) -> Remote {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let url = format!("s3://{BUCKET}/tests/p{number}");
    Remote::open_with(&url, &options(endpoint, SECRET, patience)).unwrap()
}

pub(crate) fn options(endpoint: &str, secret: &str, patience: Patience) -> RemoteOptions {
    let mut options = RemoteOptions::default();
    let variables = [
        ("AWS_ACCESS_KEY_ID", KEY),
        ("AWS_SECRET_ACCESS_KEY", secret),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ALLOW_HTTP", "true"),
    ];
    options.variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    options.patience = patience;
    options
}

/// The server that the tests of this process share.
pub(crate) fn shared() -> Option<&'static Weed> {
    static SERVER: OnceLock<Option<Weed>> = OnceLock::new();
    SERVER.get_or_init(Weed::start).as_ref()
}
