//! An archive in a bucket: writers and servers that are killed, and who asks the servers meanwhile.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use spinney_archive::Patience;

use crate::serve::archive::accounts;
use crate::serve::client::{Server, request, try_ask};
use crate::serve::{number, sample};
use crate::support::{Folder, Ran, command};
use crate::weed::{BUCKET, SECRET, Weed, options};

/// How often each process is killed, unless `SPINNEY_KILLS` says it.
const KILLS: usize = 2;
const SERVERS: usize = 3;
/// Requests a second, of all clients together.
const RATE: u32 = 200;
const CLIENTS: u32 = 4;
const BLOCKS: u64 = 400;
const TREES: &str = "mpt,pbt:blake3";

fn kills() -> usize {
    let kills = std::env::var("SPINNEY_KILLS").ok();
    kills.map_or(KILLS, |kills| kills.parse().expect("SPINNEY_KILLS is a number"))
}

/// Numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn time(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// A store, and a place in a bucket for its archive.
struct Bench {
    _folder: Folder,
    db: String,
    weed: Weed,
}

impl Bench {
    fn new() -> Option<Self> {
        let weed = Weed::start()?;
        let folder = Folder::new();
        let db = sample(&folder, &BLOCKS.to_string(), "all", &["--tree", TREES]);
        Some(Self { _folder: folder, db, weed })
    }

    fn variables(&self) -> Vec<(String, String)> {
        options(&self.weed.endpoint(), SECRET, Patience::default()).variables
    }

    fn spinney(&self, args: &[&str]) -> Ran {
        command(args).envs(self.variables()).output().expect("the binary runs").into()
    }

    /// Starts to add blocks, all but so many.
    fn build(&self, into: &str, behind: u64) -> std::process::Child {
        let behind = behind.to_string();
        let args =
            ["archive", "build", "-q", "--db", &self.db, "--into", into, "--behind", &behind];
        let mut build = command(&args);
        build.envs(self.variables()).stdout(Stdio::null()).stderr(Stdio::null());
        build.spawn().expect("the binary runs")
    }

    /// The last block that an archive holds.
    fn last(&self, archive: &str) -> Option<u64> {
        let info = self.spinney(&["archive", "info", archive, "--json"]);
        if info.code == Some(2) && info.err.contains("there is no archive") {
            return None;
        }
        info.exits(0).data()["last"].as_u64()
    }

    /// Checks all of it, and answers the roots of some blocks.
    fn roots(&self, archive: &str) -> Value {
        let verify = ["archive", "verify", archive, "--json", "--block"];
        let blocks = ["0", "--block", "57", "--block", "255", "--block", "256", "--block", "400"];
        self.spinney(&[&verify[..], &blocks].concat()).exits(0).data()["roots"].clone()
    }
}

#[test]
fn builds_into_a_bucket_that_are_killed_go_on() {
    let Some(bench) = Bench::new() else { return };
    let whole = format!("s3://{BUCKET}/whole");
    assert!(bench.build(&whole, BLOCKS / 10).wait().unwrap().success());
    let clock = Instant::now();
    assert!(bench.build(&whole, 0).wait().unwrap().success());
    let mut time = clock.elapsed();
    let undisturbed = bench.roots(&whole);
    let (kills, mut hit, mut numbers) = (kills() * 4, 0, Numbers(0x5eed));
    let clock = Instant::now();
    for kill in 0..kills {
        let archive = format!("s3://{BUCKET}/killed-{}", kill / 10);
        // A tenth of the chain more than the build before.
        let behind = BLOCKS * (9 - kill as u64 % 10) / 10;
        let (mut build, began) = (bench.build(&archive, behind), Instant::now());
        let until = time.mul_f64(numbers.below(1_000) as f64 / 1_000.0);
        while build.try_wait().unwrap().is_none() && began.elapsed() < until {
            thread::sleep(Duration::from_millis(1));
        }
        build.kill().unwrap();
        match build.wait().unwrap().success() {
            true => time = time.min(began.elapsed()),
            false => hit += 1,
        }
        if kill % 10 == 9 || kill + 1 == kills {
            assert!(bench.build(&archive, 0).wait().unwrap().success());
            assert_eq!(bench.roots(&archive), undisturbed);
        }
    }
    assert!(hit > 0, "no build was killed");
    eprintln!("{hit} of {kills} builds of up to {time:?} were killed, in {:?}", clock.elapsed());
}

/// What became of requests.
#[derive(Debug, Default)]
struct Counts {
    right: AtomicU64,
    /// Blocks that were not archived yet.
    not_there: AtomicU64,
    /// Nobody listened, or the answer was cut.
    cut: AtomicU64,
    /// The server said to try again.
    again: AtomicU64,
}

struct Clients<'a> {
    /// Where the servers listen; nobody does where there is none.
    servers: &'a [Mutex<Option<SocketAddr>>; SERVERS],
    /// Requests, the blocks that they are of, and what is answered.
    expected: &'a [(u64, Value, Value)],
    /// The last block that a writer has archived for sure.
    archived: &'a AtomicU64,
    running: &'a AtomicUsize,
    counts: Counts,
}

impl Clients<'_> {
    fn ask(&self, seed: u64) {
        let (mut numbers, began) = (Numbers(seed), Instant::now());
        let mut due = Duration::ZERO;
        while self.running.load(Ordering::Acquire) > 0 {
            thread::sleep(due.saturating_sub(began.elapsed()));
            due += Duration::from_secs(1) * CLIENTS / RATE;
            let server = &self.servers[numbers.below(SERVERS as u64) as usize];
            let Some(address) = *server.lock().unwrap() else {
                self.counts.cut.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let (block, request, expected) =
                &self.expected[numbers.below(self.expected.len() as u64) as usize];
            let archived = self.archived.load(Ordering::Acquire);
            self.judge(try_ask(address, &request.to_string()), *block <= archived, expected);
        }
    }

    fn judge(&self, answer: std::io::Result<(u16, Value)>, is_there: bool, expected: &Value) {
        let counts = &self.counts;
        let count = match answer {
            Err(error) => {
                let kinds = [
                    ErrorKind::ConnectionRefused,
                    ErrorKind::ConnectionReset,
                    ErrorKind::UnexpectedEof,
                    ErrorKind::BrokenPipe,
                ];
                assert!(kinds.contains(&error.kind()), "{error}");
                &counts.cut
            }
            Ok((503, _)) => &counts.again,
            Ok((status, answer)) => {
                assert_eq!(status, 200, "{answer}");
                match answer["error"]["code"].as_i64() {
                    None => {
                        assert_eq!(&answer["result"], expected, "a wrong answer");
                        &counts.right
                    }
                    // A server looks for new blocks now and then.
                    Some(-32001) if !is_there => &counts.not_there,
                    Some(code) => panic!("{code}: {answer}"),
                }
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// One of those that are counted as running, until it ends, however it does: whoever waits for the
/// last of them waits for no more than there are.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How long the last blocks may be archived before all servers answer of them.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

#[test]
fn servers_over_a_bucket_are_killed_beside_a_writer() {
    let Some(bench) = Bench::new() else { return };
    let archive = format!("s3://{BUCKET}/served");
    assert!(bench.build(&archive, BLOCKS / 2).wait().unwrap().success());
    let clock = Instant::now();
    assert!(bench.build(&archive, BLOCKS / 2 - 20).wait().unwrap().success());
    // Some of the writers end before they are killed.
    let life = clock.elapsed().as_millis() as u64 * 2;
    let archived = AtomicU64::new(bench.last(&archive).unwrap());
    let store = Server::start(&bench.db, &[]);
    let accounts = accounts(&bench.db);
    let mut numbers = Numbers(0xb10c);
    let expected = (0..150).map(|_| {
        let block = numbers.below(BLOCKS + 1);
        let account = &accounts[numbers.below(accounts.len() as u64) as usize];
        let at = number(block);
        let (method, params) = match numbers.below(4) {
            0 => ("eth_getBalance", json!([account, at])),
            1 => ("eth_getStorageAt", json!([account, "0x0", at])),
            2 => {
                let asked = json!({ "address": account, "slots": ["0x0", "0x1"] });
                ("spinney_getProof", json!(["pbt:blake3", asked, at]))
            }
            _ => ("eth_getProof", json!([account, ["0x0", "0x1"], at])),
        };
        (block, request(method, &params), store.call(method, params))
    });
    let expected: Vec<_> = expected.collect();
    let (kills, servers) = (kills(), [const { Mutex::new(None) }; SERVERS]);
    let running = AtomicUsize::new(SERVERS);
    let clients = Clients {
        servers: &servers,
        expected: &expected,
        archived: &archived,
        running: &running,
        counts: Counts::default(),
    };
    let (mut starts, builds) = (Vec::new(), AtomicUsize::new(0));
    thread::scope(|scope| {
        let serve = |at: usize| {
            let mut numbers = Numbers(0x5e41 + at as u64);
            let mut starts = Vec::new();
            let _running = Running(&running);
            for _ in 0..kills {
                let began = Instant::now();
                let variables = bench.variables();
                let server = Server::of_archive_with(&archive, &[], &variables);
                starts.push(began.elapsed());
                *servers[at].lock().unwrap() = Some(server.address());
                thread::sleep(numbers.time(300, 1_500));
                // It is killed where it goes, and clients are still asking.
                drop(server);
                *servers[at].lock().unwrap() = None;
            }
            starts
        };
        let served: Vec<_> = (0..SERVERS).map(|at| scope.spawn(move || serve(at))).collect();
        for seed in 1..=u64::from(CLIENTS) {
            let clients = &clients;
            scope.spawn(move || clients.ask(seed));
        }
        scope.spawn(|| {
            let mut numbers = Numbers(0x3717);
            let (mut behind, mut waiting) = (BLOCKS / 2 - 20, VecDeque::new());
            while running.load(Ordering::Acquire) > 0 || builds.load(Ordering::Relaxed) < kills {
                behind = behind.saturating_sub(numbers.below(BLOCKS / kills as u64));
                let mut build = bench.build(&archive, behind);
                thread::sleep(numbers.time(1, life));
                build.kill().unwrap();
                build.wait().unwrap();
                builds.fetch_add(1, Ordering::Relaxed);
                waiting.push_back((Instant::now(), bench.last(&archive).unwrap()));
                while let Some((since, last)) = waiting.front().copied()
                    && since.elapsed() > SEEN_WITHIN
                {
                    archived.store(last, Ordering::Release);
                    waiting.pop_front();
                }
            }
        });
        for served in served {
            starts.extend(served.join().unwrap());
        }
    });
    let counts = &clients.counts;
    assert!(counts.right.load(Ordering::Relaxed) > 20, "{counts:?}");
    starts.sort_unstable();
    eprintln!(
        "{counts:?}; {} servers started in {:?} to {:?}; {} writers of some {life} ms came to {}",
        starts.len(),
        starts[0],
        starts[starts.len() - 1],
        builds.load(Ordering::Relaxed),
        bench.last(&archive).unwrap(),
    );
    assert!(bench.build(&archive, 0).wait().unwrap().success());
    assert_eq!(bench.last(&archive), Some(BLOCKS));
    bench.roots(&archive);
}
