//! What verbs print, against the schemas of docs/reference/schemas.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::fake_node::FakeNode;
use crate::support::{Folder, command};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/schemas")
}

fn schema(name: &str) -> Value {
    let file = folder().join(format!("{name}.json"));
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Whether a text is what a pattern says. The schemas have these and no others.
fn fits(pattern: &str, text: &str) -> bool {
    let digits = text.strip_prefix("0x");
    let small = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    match pattern {
        "^0x[0-9a-f]{64}$" => digits.is_some_and(|d| d.len() == 64 && d.chars().all(small)),
        "^0x[0-9a-f]*$" => digits.is_some_and(|d| d.chars().all(small)),
        "^0x[0-9a-fA-F]{40}$" => {
            digits.is_some_and(|d| d.len() == 40 && d.chars().all(|c| c.is_ascii_hexdigit()))
        }
        "^(mpt|ubt|pbt|verkle|sum)(:[a-z0-9]+)?$" => {
            let (tree, hash) = text.split_once(':').unwrap_or((text, "x"));
            ["mpt", "ubt", "pbt", "verkle", "sum"].contains(&tree) && !hash.is_empty()
        }
        other => panic!("a schema has the pattern {other}, which this test does not know"),
    }
}

fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("a schema has the type {other}, and there is none"),
    }
}

/// What of a value is not as a schema says; the part of JSON Schema that ours are written in.
fn wrong(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let no = |what: String| Some(format!("{at}: {what}: {value}"));
    for (keyword, rule) in schema.as_object().expect("a schema is an object") {
        let found = match &keyword[..] {
            "$schema" | "title" | "description" => None,
            "type" => {
                let names = rule.as_array().map_or_else(|| vec![rule], |all| all.iter().collect());
                let fits = names.iter().any(|name| is_of(value, name.as_str().unwrap()));
                if fits { None } else { no(format!("is not of {rule}")) }
            }
            "const" => {
                if value == rule {
                    None
                } else {
                    no(format!("is not {rule}"))
                }
            }
            "minimum" => match value.as_f64() {
                Some(number) if number < rule.as_f64().unwrap() => no("is too small".into()),
                _ => None,
            },
            "pattern" => match value.as_str() {
                Some(text) if !fits(rule.as_str().unwrap(), text) => no(format!("is not {rule}")),
                _ => None,
            },
            "items" => value
                .as_array()
                .into_iter()
                .flatten()
                .enumerate()
                .find_map(|(index, item)| wrong(rule, item, &format!("{at}[{index}]"))),
            "required" => match value.as_object() {
                Some(fields) => rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .find(|name| !fields.contains_key(name.as_str().unwrap()))
                    .and_then(|name| no(format!("lacks {name}"))),
                None => None,
            },
            "properties" | "patternProperties" => None,
            "additionalProperties" => {
                value.as_object().into_iter().flatten().find_map(|(name, part)| {
                    let at = format!("{at}.{name}");
                    if let Some(rule) = schema["properties"].get(name) {
                        return wrong(rule, part, &at);
                    }
                    let patterns = schema["patternProperties"].as_object().into_iter().flatten();
                    let rules: Vec<_> =
                        patterns.filter(|(pattern, _)| fits(pattern, name)).collect();
                    match rules.first() {
                        Some((_, rule)) => wrong(rule, part, &at),
                        None if rule == true => None,
                        None => Some(format!("{at}: no such field is said")),
                    }
                })
            }
            other => panic!("a schema has the keyword {other}, which this test does not know"),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

#[track_caller]
fn check(name: &str, value: &Value) {
    if let Some(what) = wrong(&schema(name), value, "") {
        panic!("{name}.json: {what}");
    }
}

/// A folder in which verbs run, and the schemas that their outputs were held to.
struct Bench {
    folder: Folder,
    seen: BTreeSet<String>,
}

impl Bench {
    fn run(&self, line: &str) -> String {
        self.ends(line, 0)
    }

    /// Runs a verb that ends with an exit code.
    fn ends(&self, line: &str, code: i32) -> String {
        let line = line.replace("CHAIN", "--genesis d/genesis.json --blocks d/chain.rlp");
        let words: Vec<_> = ["-q"].into_iter().chain(line.split_whitespace()).collect();
        let ran = command(&words).current_dir(self.folder.path("")).output().unwrap();
        let (out, err) =
            (String::from_utf8(ran.stdout).unwrap(), String::from_utf8_lossy(&ran.stderr));
        assert_eq!(ran.status.code(), Some(code), "{line}: {err}{out}");
        out
    }

    /// Runs a verb, and checks its envelope and what is in it.
    fn verb(&mut self, name: &str, line: &str) {
        self.answers(name, line, 0);
    }

    /// The same of one that ends with an exit code.
    fn answers(&mut self, name: &str, line: &str, code: i32) {
        let out = self.ends(&format!("{line} --json"), code);
        let envelope: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        check("envelope", &envelope);
        check(name, &envelope["data"]);
        self.seen.insert(name.to_owned());
    }

    fn lines(&mut self, name: &str, text: &str) {
        assert!(!text.is_empty(), "{name}: there is nothing to check");
        text.lines().for_each(|line| check(name, &serde_json::from_str(line).unwrap()));
        self.seen.insert(name.to_owned());
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path(file)).unwrap()
    }

    /// What a verb prints, as a file.
    fn keep(&self, file: &str, line: &str) {
        self.folder.write(file, self.run(line));
    }
}

#[test]
fn verbs_print_what_their_schemas_say() {
    let mut bench = Bench { folder: Folder::new(), seen: BTreeSet::from(["envelope".to_owned()]) };
    bench.verb("demo", "demo d");
    bench.verb("doctor", "doctor");
    bench.verb("replay", "replay --tree mpt,pbt:blake3 CHAIN --db state");
    bench.verb("replay", "replay CHAIN --to 20 --threads 1");
    bench.verb("replay", "replay CHAIN --db mpt --to 50 --bal-out first.ndjson");
    let server = crate::serve::client::Server::start(&bench.folder.path("state"), &[]);
    let remote = format!("--state-from http://{} --block 50", server.address());
    bench.verb("replay", &format!("replay CHAIN {remote}"));
    drop(server);
    let events = bench.run("replay CHAIN --db events --commit-every 10 --to 40 --events");
    let more = bench.run("replay CHAIN --db events --events");
    let all = |text: &str| {
        let lines: Vec<_> = text.lines().collect();
        lines[..lines.len() - 1].iter().map(|line| format!("{line}\n")).collect::<String>()
    };
    bench.lines("events", &(all(&events) + &all(&more)));
    for (name, file) in
        [("traces", "d/traces.ndjson"), ("lists", "d/lists.ndjson"), ("lists", "first.ndjson")]
    {
        bench.lines(name, &bench.read(file));
    }
    bench.verb("state-root", "state-root d/genesis.json");
    bench.verb("state-root", "state-root --tree verkle d/genesis.json");
    let account = "0x100ba66A4ed81db56d86104f53Aa0Cf96c5cC4CA";
    bench.run(&format!("prove --db state --address {account} --out proof.json"));
    bench.verb("verify", "verify proof.json");
    for (tree, more) in [("mpt", "--from 10 --to 30"), ("pbt:blake3", "--slot 0x0")] {
        bench.run(&format!(
            "prove --db state --tree {tree} --address {account} {more} --out p.json"
        ));
        bench.verb("verify", "verify p.json");
    }
    bench.run("witness CHAIN --from 59 --out witnesses.ndjson");
    let checked = bench.run("witness check witnesses.ndjson CHAIN --json");
    bench.lines("witness-check", &checked);
    bench.verb("db-copy", "db copy state log --target-store log");
    bench.run("replay CHAIN --db kept --to 5 --keep-commits all");
    bench.verb("db-info", "db info --db kept");
    bench.verb("db-stats", "db stats --db kept");
    bench.verb("db-info", "db info --db state");
    bench.verb("db-stats", "db stats --db state");
    bench.verb("db-stats", "db stats --db log");
    bench.verb("db-check", "db check --db state");
    bench.verb("db-ship", "db ship log shipped");
    bench.verb("archive-build", "archive build --db state --into archive");
    bench.verb("archive-info", "archive info archive");
    bench.verb("archive-verify", "archive verify archive");
    bench.verb("archive-verify", "archive verify archive --blocks d/chain.rlp");
    bench.verb("archive-restore", "archive restore archive then --block 20");
    bench.run("archive build --db state --into newer --from 40");
    bench.verb("archive-backfill", "archive backfill newer --from archive");
    bench.verb(
        "archive-slice",
        "archive slice archive slice --address 0x100ba66A4ed81db56d86104f53Aa0Cf96c5cC4CA",
    );
    bench.verb("archive-info", "archive info slice");
    bench.verb("archive-prune", "archive prune slice --keep 40");
    bench.verb("archive-prune", "archive prune archive --keep 30");
    bench.verb("archive-prune", "archive prune archive --keep 30");
    bench.verb("db-compact", "db compact --db mpt");
    bench.keep("dump.json", "db dump --db mpt");
    bench.verb("db-load", "db load --db loaded dump.json");
    bench.verb("import-state", "import state --db imported --number 50 dump.json");
    bench.verb("import-tapd", "import tapd --db sums d/assets.db");
    bench.verb("db-info", "db info --db sums");
    let key = format!("0x{}", "11".repeat(32));
    bench.run(&format!("prove --db sums --namespace issuance-demo {key} --out p.json"));
    bench.verb("verify", "verify p.json");
    bench.keep("sums.ndjson", "db dump --db sums --namespace issuance-demo");
    bench.verb("db-load", "db load --db sums2 --tree sum --namespace again sums.ndjson");
    bench.verb("db-remove", "db remove --db sums --namespace issuance-demo");
    bench.verb("stage-status", "stage status --db mpt");
    bench.verb("stage-dump", "stage dump mpt dumped --from 30 --diffs-out diffs.ndjson");
    bench.lines("differences", &bench.read("diffs.ndjson"));
    bench.verb("stage-run", "stage run --db dumped --diffs diffs.ndjson");
    bench.verb("stage-run", "stage run --db mpt --own");
    bench.verb("stage-unwind", "stage unwind --db mpt --to 45");
    bench.verb("convert", "convert --tree pbt:blake3 mpt pbt");
    bench.verb("convert", "convert --tree ubt:sha256 mpt ubt --dry-run");
    bench.verb("catch-up", "catch-up --db pbt d/lists.ndjson");
    bench.verb("snapshot-export", "snapshot export --db pbt --out s.pbt --preimages s.pre");
    bench.verb("snapshot-verify", "snapshot verify s.pbt");
    bench.verb("snapshot-verify", "snapshot verify s.pbt --preimages s.pre");
    bench.verb("snapshot-import", "snapshot import s.pbt imported-pbt --preimages s.pre");
    let (genesis, blocks) = crate::follow::chain_of(&bench.folder.path("d"));
    let node = FakeNode::start(&genesis, &blocks, true);
    let follow = format!("follow {} --genesis d/genesis.json --db followed", node.url());
    bench.verb("follow", &format!("{follow} --to 30"));
    let events = bench.run(&format!("{follow} --to 60 --events --serve 127.0.0.1:0"));
    bench.lines("follow-events", &all(&events));
    let node = crate::bisect::faulty_node(&genesis, &blocks);
    let faulty = format!("follow {} --genesis d/genesis.json --db faulty", node.url());
    bench.lines("follow-events", &all(&bench.ends(&format!("{faulty} --events"), 1)));
    bench.answers("bisect", &format!("bisect {} --db followed --all 9", node.url()), 1);
    bench.verb("bisect", &format!("bisect {} --db followed --to 30", node.url()));
    bench.verb("vectors", "vectors --quick");
    bench.verb("bench", "bench CHAIN --tree mpt,pbt:blake3 --store memory --to 5");
    bench.verb("bench", "bench CHAIN --tree mpt --store redb --node-rows --to 3");
    let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    let names = files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned());
    assert_eq!(
        bench.seen,
        names.collect::<BTreeSet<_>>(),
        "a schema without a run, or the other way round"
    );
}

/// Verbs that print documents or lines of their own, or nothing: what is new takes --json, or is
/// named here.
const BARE: [&str; 13] = [
    "archive",
    "completions",
    "db",
    "db-dump",
    "import",
    "prove",
    "root",
    "serve",
    "snapshot",
    "stage",
    "witness",
    "witness-diff",
    "witness-minimize",
];

/// A verb that forgets its --json, or has no schema, would be noticed here.
#[test]
fn every_verb_reports_by_a_schema() {
    let pages = folder().join("../verbs");
    let mut bare = BTreeSet::new();
    for page in fs::read_dir(pages).unwrap() {
        let text = fs::read_to_string(page.unwrap().path()).unwrap();
        for part in text.split("# spinney ").skip(1) {
            let name = part.lines().next().unwrap().replace(' ', "-");
            if part.lines().any(|line| line.trim() == "--json") {
                assert!(folder().join(format!("{name}.json")).exists(), "{name} has no schema");
            } else {
                bare.insert(name);
            }
        }
    }
    assert_eq!(bare, BARE.map(str::to_owned).into());
}

#[test]
fn failures_and_usage_errors_are_envelopes_too() {
    let folder = Folder::new();
    let nowhere = folder.path("nowhere");
    for words in [
        &["db", "info", "--json", "--db", &nowhere][..],
        &["db", "info", "--format", "json", "--db", &nowhere, "--cache", "much"],
        &["replay", "--events", "--no-such-option"],
        &["db", "--json"],
    ] {
        let ran = crate::support::spinney(words).exits(2);
        let envelope: Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
        check("envelope", &envelope);
        assert_eq!(envelope["success"], false);
        assert_eq!(envelope["errors"].as_array().unwrap().len(), 1);
    }
    let mut plain = command(&["db", "info", "--db", &nowhere]);
    let ran = crate::support::Ran::from(plain.env("SPINNEY_CACHE", "much").output().unwrap());
    ran.exits(2).says("SPINNEY_CACHE in the environment");
    let mut plain = command(&["prove", "--db", &nowhere, "0x00"]);
    let ran = crate::support::Ran::from(plain.env("SPINNEY_TREE", "oak").output().unwrap());
    ran.exits(2).says("SPINNEY_TREE=oak");
}

#[test]
fn a_report_goes_to_a_file_whole_or_not_at_all() {
    let folder = Folder::new();
    let (db, out) = (folder.path("db"), folder.path("out"));
    let replay = ["replay", "-q", "--blocks-count", "3", "--db", &db, "--out", &out];
    assert_eq!(crate::support::spinney(&replay).exits(0).out, "");
    let envelope: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
    check("envelope", &envelope);
    let info = ["db", "info", "--db", &db, "--format", "csv", "--out", &out];
    crate::support::spinney(&info).exits(0);
    assert!(fs::read_to_string(&out).unwrap().contains(",mpt,"));
    let nowhere = folder.path("no/such/folder");
    let info = ["db", "info", "--db", &db, "--out", &nowhere];
    crate::support::spinney(&info).exits(2).refuses("cannot write");
}
