//! Passwords of servers: no verb shows one, however it ends, and wherever it writes.

use std::cell::RefCell;
use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::server::Server;
use crate::support::{Folder, PATIENCE, Ran, command};

/// The password of the user `marked`.
const MARK: &str = "7Geheim7";

/// How a password is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    User,
    Parameter,
    Pairs,
    /// From `PGPASSWORD`.
    Environment,
}

/// A server that asks one user for a password, and all that was said of it.
struct Scene {
    server: Server,
    folder: Folder,
    said: RefCell<Vec<String>>,
    schemas: RefCell<Vec<String>>,
}

/// The address of this machine in its network, if it has one.
fn outside() -> Option<IpAddr> {
    // Nothing is sent.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

impl Scene {
    fn new() -> Option<Self> {
        let server = Server::start_with(|data| {
            let lines = "host all spinney all trust\nhost all marked all scram-sha-256\n";
            fs::write(data.join("pg_hba.conf"), lines).unwrap();
            let outside = outside().map(|outside| format!("listen_addresses=127.0.0.1,{outside}"));
            outside.into_iter().collect()
        })?;
        let role = format!("CREATE ROLE marked LOGIN SUPERUSER PASSWORD '{MARK}'");
        server.session("public").batch_execute(&role).unwrap();
        let folder = Folder::new();
        fs::create_dir(folder.path("tmp")).unwrap();
        Some(Self { server, folder, said: RefCell::default(), schemas: RefCell::default() })
    }

    /// A new schema, in one of the forms of an address.
    fn place(&self, form: Form) -> String {
        let (_, schema) = self.server.schema();
        self.schemas.borrow_mut().push(schema.clone());
        self.address(&schema, form)
    }

    fn address(&self, schema: &str, form: Form) -> String {
        let url = self.server.url("postgres", schema);
        let parameters = url.split_once('?').unwrap().1;
        let port = url.rsplit_once(':').unwrap().1.split('/').next().unwrap();
        let host = format!("127.0.0.1:{port}/postgres");
        match form {
            Form::User => format!("postgres://marked:{MARK}@{host}?{parameters}"),
            Form::Parameter => format!("postgres://marked@{host}?password={MARK}&{parameters}"),
            Form::Pairs => format!(
                "host=127.0.0.1 port={port} user=marked password={MARK} dbname=postgres \
                 options=-csearch_path={schema}"
            ),
            Form::Environment => format!("postgres://marked@{host}?{parameters}"),
        }
    }

    fn command(&self, args: &[&str], form: Form) -> Command {
        let mut command = command(args);
        command.current_dir(self.folder.path("")).env("TMPDIR", self.folder.path("tmp"));
        command.env("HOME", self.folder.path(""));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PG")) {
            command.env_remove(name);
        }
        if form == Form::Environment {
            command.env("PGPASSWORD", MARK);
        }
        command
    }

    fn ran(&self, ran: Ran) -> Ran {
        let mut said = self.said.borrow_mut();
        said.extend([ran.out.clone(), ran.err.clone()]);
        ran
    }

    fn run(&self, args: &[&str], form: Form) -> Ran {
        self.ran(self.command(args, form).output().expect("the binary runs").into())
    }

    fn data(&self, args: &[&str], form: Form) -> serde_json::Value {
        self.run(&[args, &["--json"]].concat(), form).exits(0).data()
    }

    /// Interrupts a command as soon as it listens. It may be done by then: new places are tried, up
    /// to twenty.
    #[track_caller]
    fn interrupt(&self, args: impl Fn() -> Vec<String>, fed: Option<&str>) {
        for _ in 0..20 {
            let args = args();
            let args: Vec<_> = args.iter().map(String::as_str).collect();
            let mut command = self.command(&args, Form::User);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            if until_it_listens(&mut child) {
                let id = child.id().to_string();
                let _ = Command::new("kill").args(["-INT", &id]).stderr(Stdio::null()).status();
            }
            let mut stdin = child.stdin.take().unwrap();
            let _ = stdin.write_all(fed.unwrap_or_default().as_bytes());
            drop(stdin);
            let ran = self.ran(child.wait_with_output().unwrap().into());
            if ran.code == Some(3) {
                let _ = ran.says("continue with: spinney ").says("***");
                return;
            }
            assert_eq!(ran.code, Some(0), "{ran:#?}");
        }
        panic!("it was always done before: {:?}", args());
    }

    /// Where the mark is: in what was said, in files and their names, in rows.
    fn found(&self) -> Vec<String> {
        let said = self.said.borrow();
        let mut found: Vec<_> = said.iter().filter(|text| text.contains(MARK)).cloned().collect();
        files(Path::new(&self.folder.path("")), &mut found);
        let mut session = self.server.session("public");
        for schema in self.schemas.borrow().iter() {
            let sql = format!(
                "SELECT count(*) FROM {schema}.spinney_rows \
                 WHERE position('{MARK}'::bytea in value) > 0 OR position('{MARK}'::bytea in key) > 0"
            );
            // Some have no store.
            let rows = session.query_one(&sql, &[]).map_or(0_i64, |row| row.get(0));
            if rows > 0 {
                found.push(format!("{rows} rows in {schema}"));
            }
        }
        found
    }
}

/// Files of a folder that have the mark in them or in their names.
fn files(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains(MARK) {
            found.push(format!("the name {}", path.display()));
        }
        if path.is_dir() {
            files(&path, found);
        } else if fs::read(&path).unwrap().windows(MARK.len()).any(|at| at == MARK.as_bytes()) {
            found.push(format!("the file {}", path.display()));
        }
    }
}

/// Waits until a process catches Ctrl-C; false where it ended before.
fn until_it_listens(child: &mut Child) -> bool {
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()));
        let caught = status
            .unwrap_or_default()
            .lines()
            .find_map(|line| u64::from_str_radix(line.strip_prefix("SigCgt:")?.trim(), 16).ok());
        // Signal 2 is the second bit.
        if caught.is_some_and(|caught| caught & 2 != 0) {
            return true;
        }
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
    panic!("it never listens");
}

/// Every verb that takes a place, with each form of an address; what it refuses, too.
#[test]
fn no_verb_shows_a_password() {
    let Some(scene) = Scene::new() else { return };
    for form in [Form::User, Form::Parameter, Form::Pairs, Form::Environment] {
        every_verb(&scene, form);
    }
    assert_eq!(scene.found(), Vec::<String>::new());
    // The search finds what is there.
    scene.folder.write("planted", format!("password={MARK}"));
    assert_eq!(scene.found().len(), 1);
}

fn every_verb(scene: &Scene, form: Form) {
    let folder = &scene.folder;
    let data = |args: &[&str]| scene.data(args, form);
    let run = |args: &[&str]| scene.run(args, form);
    let db = scene.place(form);
    let replay = ["replay", "--blocks-count", "30", "--db", &db];
    data(&replay);
    let again = run(&[&replay[..], &["--format", "table"]].concat()).exits(0);
    assert!(again.out.contains("postgres"), "{again:?}");
    for verb in ["info", "stats", "check", "compact"] {
        data(&["db", verb, "--db", &db]);
    }
    let dump = folder.write("dump", run(&["db", "dump", "--db", &db]).exits(0).out);
    let address = format!("0x{}", "11".repeat(20));
    run(&["prove", "--db", &db, "--address", &address]).exits(0);
    run(&["prove", "--db", &db, "--tree", "verkle", "--address", &address]).exits(2);
    run(&["prove", "--db", &db, "0x00"]).exits(2);
    data(&["stage", "status", "--db", &db]);
    data(&["stage", "unwind", "--db", &db, "--to", "20"]);
    data(&["stage", "run", "--own", "--db", &db]);
    let (part, lines) = (scene.place(form), folder.path("lines"));
    data(&["stage", "dump", "--db", &db, "--from", "20", "--into", &part, "--diffs-out", &lines]);
    data(&["stage", "run", "--db", &part, "--diffs", &lines]);
    data(&["db", "load", "--db", &scene.place(form), &dump]);
    data(&["import", "state", "--db", &scene.place(form), "--number", "30", &dump]);
    let pbt = scene.place(form);
    data(&["convert", "--to", "pbt:blake3", &db, &pbt]);
    run(&["convert", "--to", "pbt:blake3", &db, &pbt]).exits(2).refuses("a store already at");
    let (out, names) = (folder.path("out.pbt"), folder.path("out.names"));
    data(&["snapshot", "export", "--db", &pbt, "--out", &out, "--preimages", &names]);
    data(&["snapshot", "import", &out, &scene.place(form), "--preimages", &names]);
    data(&["catch-up", "--db", &pbt, &folder.write("no lists", "")]);
    run(&["import", "tapd", "--db", &scene.place(form), &db]).exits(2).refuses("mssmt_nodes");
    let leaf = format!(r#"{{"put": {{"0x{}": {{"value": "0x", "sum": "5"}}}}}}"#, "01".repeat(32));
    let leaves = folder.write("leaves", leaf);
    let sums = scene.place(form);
    run(&["root", "--tree", "sum", "--db", &sums, &leaves]).exits(0);
    run(&["root", "--tree", "sum", "--db", &sums, &folder.write("bad", "{")]).exits(2);
    run(&["prove", "--tree", "sum", "--db", &sums, "--all"]).exits(0);
    data(&["db", "remove", "--namespace", "default", "--db", &sums]);
    let (server, report) = (scene.place(form), folder.path("report.html"));
    data(&[
        "bench",
        "--workload",
        "transfers",
        "--keys",
        "50",
        "--blocks-count",
        "2",
        "--tree",
        "mpt",
        "--store",
        "postgres",
        "--postgres",
        &server,
        "--report",
        &report,
    ]);
    let html = fs::read_to_string(&report).unwrap();
    assert!(html.contains("--postgres"), "the command is in the report");
    refusals(scene, form);
}

/// Places that cannot be reached, or are none; arguments that are not understood.
fn refusals(scene: &Scene, form: Form) {
    let run = |args: &[&str]| scene.run(args, form);
    run(&["db", "info", "--db", &scene.address("nowhere", form)]).exits(2).refuses("schemas");
    let db = scene.place(form);
    run(&["db", "info", "--db", &db]).exits(2).refuses("there is no store at");
    run(&["db", "info", "--store", "redb", "--db", &db]).exits(2);
    for (from, to) in
        [("127.0.0.1", "127.0.0.2 7 x"), ("postgres?", "none?"), ("postgres:", "postgre:")]
    {
        run(&["db", "info", "--db", &db.replacen(from, to, 1)]).exits(2);
    }
    run(&["db", "info", "--db", &format!("{db}&sslmode=none")]).exits(2);
    // What clap itself refuses.
    let given = format!("--db={db}");
    for args in [
        &["db", "info", &db][..],
        &["db", "info", &given, &db],
        &["db", "info", &given, &given],
        &["replay", &given, "--cache", &db],
        &["bench", "--report", "x", &format!("--quiet={db}")],
        &[&db],
        &["vectors", "--store", &db],
        &["root", "--tree", &db, "-"],
    ] {
        run(args).exits(2);
    }
}

/// The verbs that say how to go on, interrupted.
#[test]
fn no_interrupted_verb_shows_a_password() {
    let Some(scene) = Scene::new() else { return };
    let owned = |args: &[&str]| args.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (user, folder) = (Form::User, &scene.folder);
    let db = scene.place(user);
    scene.data(&["replay", "--blocks-count", "60", "--db", &db], user);
    // A chain of a file: one that is made for the replay is nothing to go on from.
    let demo = folder.path("demo");
    scene.data(&["demo", &demo], user);
    let (genesis, blocks) = (format!("{demo}/genesis.json"), format!("{demo}/chain.rlp"));
    let chain = ["replay", "--genesis", &genesis, "--blocks", &blocks, "--db"];
    scene.interrupt(|| owned(&[&chain[..], &[&scene.place(user)]].concat()), None);
    scene.interrupt(|| owned(&["stage", "run", "--own", "--db", &db]), None);
    scene.interrupt(|| owned(&["convert", "--to", "pbt:blake3", &db, &scene.place(user)]), None);
    let (lines, part) = (folder.path("lines"), scene.place(user));
    let dump =
        ["stage", "dump", "--db", &db, "--from", "2", "--into", &part, "--diffs-out", &lines];
    scene.data(&dump, user);
    let state = folder.write("state", scene.run(&["db", "dump", "--db", &part], user).exits(0).out);
    let diffs = || {
        let db = scene.place(user);
        scene.data(&["db", "load", "--db", &db, &state], user);
        owned(&["stage", "run", "--chunk-blocks", "1", "--diffs", &lines, "--db", &db])
    };
    scene.interrupt(diffs, None);
    let pbt = scene.place(user);
    scene.data(&["convert", "--to", "pbt:blake3", &db, &pbt], user);
    let (out, names) = (folder.path("out.pbt"), folder.path("out.names"));
    let export = ["snapshot", "export", "--db", &pbt, "--out", &out, "--preimages", &names];
    scene.data(&export, user);
    scene.interrupt(|| owned(&export), None);
    scene.interrupt(|| owned(&["snapshot", "import", &out, &scene.place(user)]), None);
    // It waits for its input until the signal was sent.
    let hash = format!("0x{}", "77".repeat(32));
    let line = format!(
        r#"{{"number": 1000, "hash": "{hash}", "parent": "{hash}", "bal_hash": "{hash}", "bal": "0x"}}"#
    );
    scene.interrupt(|| owned(&["catch-up", "--db", &pbt, "-"]), Some(&line));
    assert_eq!(scene.found(), Vec::<String>::new());
}

#[test]
fn passwords_come_from_the_environment_or_a_passfile_and_wrong_ones_are_told() {
    let Some(scene) = Scene::new() else { return };
    let db = scene.place(Form::Environment);
    let replay = ["replay", "-q", "--blocks-count", "2", "--db", &db];
    let run = |set: &[(&str, &str)], args: &[&str]| {
        let mut command = scene.command(args, Form::User);
        command.envs(set.iter().copied());
        Ran::from(command.output().unwrap())
    };
    let hint = "hint: give the user's password in PGPASSWORD, in a passfile";
    run(&[], &replay).exits(2).refuses("there is none").says(hint);
    run(&[("PGPASSWORD", "wrong")], &replay).exits(2).refuses("PostgreSQL says").says(hint);
    let bench = ["bench", "--workload", "transfers", "--store", "postgres", "--postgres", &db];
    let source = scene.folder.path("source");
    run(&[], &["replay", "-q", "--blocks-count", "2", "--db", &source]).exits(0);
    let convert = ["convert", "--to", "pbt:blake3", &source, &db];
    let sums = scene.folder.path("sums");
    for verb in [
        &bench[..],
        &convert,
        &["db", "info", "--db", &db],
        &["import", "tapd", "--db", &sums, &db],
    ] {
        let ran = run(&[("PGPASSWORD", "wrong")], verb).exits(2).says(hint);
        assert!(!ran.err.contains("cables") && !ran.err.contains("wrong"), "{verb:?}: {ran:?}");
    }
    run(&[("PGPASSWORD", MARK)], &replay).exits(0);
    let file = scene.folder.write("passfile", format!("*:*:*:marked:{MARK}\n"));
    let given = [("PGPASSFILE", file.as_str())];
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let open = run(&given, &["db", "info", "--json", "--db", &db]).exits(2).says(hint);
    let warning = "warning: the password file ";
    assert_eq!(open.err.matches(warning).count(), 1, "{open:?}");
    assert!(open.out.contains("has group or world access"), "the envelope repeats it: {open:?}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    run(&given, &["db", "info", "--db", &db]).exits(0);
    let tapd = ["import", "tapd", "--db", &scene.folder.path("sums"), &db];
    run(&[], &tapd).exits(2).says(hint);
    run(&given, &tapd).exits(2).refuses("it has no tables");
}

#[test]
fn a_plain_connection_to_another_host_is_warned_of_once() {
    let Some(scene) = Scene::new() else { return };
    let Some(outside) = outside() else {
        println!("skipped: this machine has no address in a network");
        return;
    };
    let near = scene.place(Form::Environment);
    let far = near.replace("127.0.0.1", &outside.to_string());
    let replay = |db: &str| {
        scene.run(&["replay", "-q", "--blocks-count", "2", "--db", db], Form::Environment).exits(0)
    };
    let warning = "is not encrypted: the server has no TLS";
    assert_eq!(replay(&near).err, "");
    assert_eq!(replay(&far).err.matches(warning).count(), 1);
    assert!(!replay(&format!("{far}&sslmode=disable")).err.contains("encrypted"));
    let ran =
        scene.run(&["db", "info", "--db", &format!("{far}&sslmode=require")], Form::Environment);
    ran.exits(2).refuses("TLS").says("hint: sslmode=disable|prefer|require");
}
