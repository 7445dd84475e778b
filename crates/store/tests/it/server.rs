//! A PostgreSQL server of our own: on loopback, in a scratch folder, gone with this process.
//!
//! The tests of other crates include this file by its path.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use postgres::{Client, Config, NoTls};
use tempfile::TempDir;

/// PostgreSQL does not run as root; then it runs as nobody.
const NOBODY: u32 = 65_534;
/// How long a server may take to be there.
const PATIENCE: Duration = Duration::from_secs(90);

/// Prints its own process id, runs the server, and ends it at once when its input ends: that is,
/// when this process does, however it ends.
const KEEPER: &str =
    "\"$@\" & server=$!; echo $server; read -r _; kill -QUIT $server; wait $server";

/// A server.
pub(crate) struct Server {
    programs: PathBuf,
    folder: TempDir,
    port: u16,
    /// What it is told beside what all are told.
    settings: Vec<String>,
    running: Option<Running>,
}

struct Running {
    keeper: Child,
    _input: ChildStdin,
    server: u32,
}

/// Where PostgreSQL's programs are, if it is installed.
fn programs() -> Option<PathBuf> {
    let has = |folder: &Path| folder.join("initdb").is_file() && folder.join("postgres").is_file();
    let on_path = std::env::split_paths(&std::env::var_os("PATH")?).find(|path| has(path));
    on_path.or_else(|| {
        let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
        let folders = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
        folders.filter(|folder| has(folder)).max()
    })
}

impl Server {
    /// A server with nothing in it; `None`, and a line that says so, where PostgreSQL is not
    /// installed.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(|_| Vec::new())
    }

    /// The same, set up by who gets the folder of its data, which may then be written, and answers
    /// with settings.
    pub(crate) fn start_with(set_up: impl FnOnce(&Path) -> Vec<String>) -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("skipped: PostgreSQL is not installed (apt-get install postgresql)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        if is_root() {
            std::os::unix::fs::chown(&data, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut server = Self { programs, folder, port: 0, settings: Vec::new(), running: None };
        let mut initdb = server.program("initdb");
        initdb.args(["--username=spinney", "--auth=trust", "--no-sync", "--locale=C"]);
        let made = initdb.args(["--encoding=UTF8", "-D"]).arg(&data).output().unwrap();
        assert!(made.status.success(), "initdb: {made:?}");
        server.settings = set_up(&data);
        for entry in fs::read_dir(&data).unwrap().map(Result::unwrap).filter(|_| is_root()) {
            std::os::unix::fs::chown(entry.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        server.run();
        Some(server)
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir(self.folder.path()).env_remove("PGDATA").env("LC_ALL", "C");
        as_nobody(&mut command);
        command
    }

    /// Starts it, or starts it again, and waits until it answers.
    pub(crate) fn run(&mut self) {
        let since = Instant::now();
        loop {
            // Another program may take the port first; then there is another one. Users of a server
            // that is started again expect it where it was.
            if self.port == 0 {
                let free = TcpListener::bind("127.0.0.1:0").unwrap();
                self.port = free.local_addr().unwrap().port();
            }
            self.spawn();
            while since.elapsed() < PATIENCE && self.is_alive() {
                if Client::connect(&self.url("postgres", "public"), NoTls).is_ok() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            self.kill();
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(since.elapsed() < PATIENCE, "PostgreSQL does not start: {log}");
        }
    }

    fn spawn(&mut self) {
        let log = fs::File::create(self.folder.path().join("log")).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper"]).arg(self.programs.join("postgres")).arg("-D");
        command.arg(self.folder.path().join("data")).args(["-p", &self.port.to_string()]);
        for setting in
            ["listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=60"]
        {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        command.current_dir(self.folder.path()).env("LC_ALL", "C");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        as_nobody(&mut command);
        let mut keeper = command.spawn().unwrap();
        let input = keeper.stdin.take().unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let server = line.trim().parse().unwrap();
        self.running = Some(Running { keeper, _input: input, server });
    }

    fn is_alive(&self) -> bool {
        let Some(running) = &self.running else { return false };
        // What has ended and was not waited for yet has no command line.
        fs::read(format!("/proc/{}/cmdline", running.server)).is_ok_and(|line| !line.is_empty())
    }

    /// Ends it and all of its processes in the middle of whatever they do.
    pub(crate) fn kill(&mut self) {
        let Some(mut running) = self.running.take() else { return };
        let server = running.server;
        let children = format!("/proc/{server}/task/{server}/children");
        let children = fs::read_to_string(children).unwrap_or_default();
        // The postmaster first, so that it does not see its children go and start others.
        let processes = std::iter::once(server.to_string());
        let processes = processes.chain(children.split_whitespace().map(str::to_owned));
        let _ = Command::new("kill").arg("-KILL").args(processes).stderr(Stdio::null()).status();
        drop(running._input);
        running.keeper.wait().unwrap();
    }

    /// The URL of a schema of a database. Its name is also what its connections are called.
    pub(crate) fn url(&self, database: &str, schema: &str) -> String {
        let port = self.port;
        let options = format!("options=-csearch_path%3D{schema}&application_name={schema}");
        format!("postgres://spinney@127.0.0.1:{port}/{database}?{options}")
    }

    /// A session of ours, to look and to meddle.
    pub(crate) fn session(&self, schema: &str) -> Client {
        let mut config: Config = self.url("postgres", schema).parse().unwrap();
        config.application_name("a session of the test").connect(NoTls).unwrap()
    }

    /// The URL of a new schema, and its name.
    pub(crate) fn schema(&self) -> (String, String) {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let schema = format!("s{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.session("public").batch_execute(&format!("CREATE SCHEMA {schema}")).unwrap();
        (self.url("postgres", &schema), schema)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The server that the tests of this process share.
pub(crate) fn shared() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(Server::start).as_ref()
}

fn is_root() -> bool {
    // The owner of a file that we make is who we are.
    use std::os::unix::fs::MetadataExt as _;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"x").unwrap();
    file.metadata().unwrap().uid() == 0
}

fn as_nobody(command: &mut Command) {
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
}
