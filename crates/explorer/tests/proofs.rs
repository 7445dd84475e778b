//! Ten proofs of every kind (`testdata/explorer/proofs.json`, by `take.mjs`): what they show, and
//! that no byte of them can be another. The last test has Node load the verifier that is served.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn proofs() -> PathBuf {
    repository().join("testdata/explorer/proofs.json")
}

/// Questions, each with its answer as text.
fn questions() -> Vec<Value> {
    let file = std::fs::read_to_string(proofs()).expect("the proofs are there");
    let mut questions: Vec<Value> = serde_json::from_str(&file).expect("a list");
    for question in &mut questions {
        question["answer"] = question["answer"].to_string().into();
    }
    questions
}

fn check(question: &Value) -> Value {
    let answer = spinney_explorer::check(question.to_string().as_bytes());
    serde_json::from_str(&answer).expect("the answer is JSON")
}

/// Why a question is refused.
#[track_caller]
fn why(question: &Value) -> String {
    let outcome = check(question);
    assert_eq!(outcome["holds"], false, "{outcome}");
    outcome["why"].as_str().expect("it is said why").to_owned()
}

/// What a question shows.
#[track_caller]
fn shown(question: &Value) -> Value {
    let mut outcome = check(question);
    assert_eq!(outcome["holds"], true, "{outcome}");
    outcome["shown"].take()
}

#[test]
fn proofs_show_what_the_state_holds() {
    let shown: Vec<Value> = questions().iter().map(shown).collect();
    let [plain, nobody, mpt, ubt, ubt_none, pbt, pbt_none, verkle, leaf, no_leaf] = &shown[..]
    else {
        panic!("they are ten")
    };
    let number = |text: &Value| {
        let digits = text.as_str().expect("hex").trim_start_matches("0x").trim_start_matches('0');
        u128::from_str_radix(digits, 16).unwrap_or(0)
    };
    assert_eq!(number(&plain["account"]["balance"]), 0x53_e05c_e992_3d19);
    for absent in [nobody, ubt_none, pbt_none] {
        assert_eq!(absent["account"], Value::Null);
    }
    // One state in four trees.
    for other in [ubt, pbt, verkle] {
        for field in ["nonce", "codeHash"] {
            assert_eq!(other["account"][field], mpt["account"][field]);
        }
        assert_eq!(other["account"]["codeSize"], ubt["account"]["codeSize"]);
    }
    let slot = &mpt["slots"][0];
    assert!(slot.as_str().is_some_and(|slot| slot.len() > 60), "{mpt}");
    assert_eq!((&ubt["slots"][0], &verkle["slots"][0]), (slot, slot));
    assert!(pbt["slots"][0].is_string() && verkle["unsure"] == false, "{pbt} {verkle}");
    for absent in [&mpt["slots"][1], &pbt["slots"][1], &nobody["slots"][0]] {
        assert_eq!(*absent, Value::Null);
    }
    assert_eq!((&leaf["leaf"]["sum"], &no_leaf["leaf"]), (&json!("107"), &Value::Null));
}

#[test]
fn paths_lead_from_the_root_down() {
    for question in questions() {
        let shown = shown(&question);
        for (index, path) in shown["paths"].as_array().expect("paths").iter().enumerate() {
            let steps = path["steps"].as_array().expect("steps");
            let depths: Vec<u64> =
                steps.iter().map(|step| step["depth"].as_u64().expect("a depth")).collect();
            assert!(depths.is_sorted_by(|a, b| a < b), "{path}");
            let Some(first) = steps.first() else {
                // The storage of an account that is not there.
                assert_eq!((&shown["account"], &path["of"]), (&Value::Null, &json!("slot")));
                continue;
            };
            assert_eq!(first["depth"], 0);
            if question["tree"] != "mpt" || index == 0 {
                assert_eq!(first["digest"], question["root"], "{path}");
            }
            // Each digit is taken by one node, but where a sum tree has nothing beside the path.
            if question["tree"] != "sum" {
                for pair in steps.windows(2) {
                    let digits = pair[0]["digits"].as_u64().expect("digits");
                    let next = pair[0]["depth"].as_u64().expect("a depth") + digits;
                    let stem = pair[0]["kind"] == "stem" && question["tree"] == "verkle";
                    assert!(stem || pair[1]["depth"] == next, "{path}");
                }
            } else {
                assert_eq!(first["sum"], question["rootSum"]);
            }
        }
        let all: Vec<&Value> = shown["paths"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|path| path["steps"].as_array().into_iter().flatten())
            .collect();
        if question["tree"] == "mpt" {
            let bytes: u64 = all.iter().map(|step| step["bytes"].as_u64().expect("bytes")).sum();
            assert_eq!(shown["bytes"], bytes, "all nodes of an MPT proof lie on its paths");
        }
    }
}

#[test]
fn no_byte_can_be_another() {
    for question in questions() {
        let text = question["answer"].as_str().expect("text").to_owned();
        let block = text.find("\"block\"").unwrap_or(text.len());
        let mut changed = 0;
        for (at, _) in text.match_indices("0x") {
            // The number of the block is no part of what is proven.
            if (block..block + 12).contains(&at) {
                continue;
            }
            let digits = text[at + 2..].bytes().take_while(u8::is_ascii_hexdigit).count();
            for at in (at + 2..at + 2 + digits).step_by(2) {
                let digit = if text.as_bytes()[at] == b'3' { "4" } else { "3" };
                let mut question = question.clone();
                question["answer"] = format!("{}{digit}{}", &text[..at], &text[at + 1..]).into();
                let why = why(&question);
                assert!(!why.contains("cannot be read"), "{why}");
                changed += 1;
            }
        }
        assert!(changed > 100, "{question}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let question = &questions()[3];
    let asked = |field: &str, value: Value| {
        let mut other = question.clone();
        other[field] = value;
        why(&other)
    };
    assert!(asked("tree", json!("ubt:md5")).contains("no tree is called \"ubt:md5\""));
    for tree in ["ubt:keccak", "ubt:blake3", "pbt:keccak", "verkle"] {
        // Its keys are others, unless the tree is another already.
        let why = asked("tree", json!(tree));
        assert!(why.contains("about tree ubt:sha256") || why.contains("the keys in"), "{why}");
    }
    assert!(asked("tree", json!("pbt:sha256")).contains("about tree ubt:sha256, and tree pbt"));
    assert!(asked("root", json!(format!("0x{:064}", 1))).contains("the answer is about root 0x67"));
    assert!(asked("address", json!(format!("0x{:040}", 1))).contains("about address 0x0000f908"));
    assert!(asked("slots", json!(["0x2"])).contains("the slots in the answer are not those"));
    assert!(asked("address", Value::Null).contains("leaves out the address"));
    for (answer, said) in [
        ("", "cannot be read: EOF"),
        ("{}", "missing field"),
        (r#"{"tree": "ubt:sha256", "tree": "x"}"#, "duplicate field"),
        (r#"{"root": "0x12"}"#, "1 bytes, where 32 belong"),
        (r#"{"root": "12"}"#, "no hex: it has no 0x before"),
        (&"[".repeat(100_000), "cannot be read"),
    ] {
        let why = asked("answer", json!(answer));
        assert!(why.contains(said), "{why}");
    }
    let [broken] = ["{"].map(|question| spinney_explorer::check(question.as_bytes()));
    assert!(broken.contains("the question is malformed"), "{broken}");
}

#[test]
fn the_verifier_that_is_served_refuses_every_changed_byte() {
    if Command::new("node").arg("--version").output().is_err() {
        println!("skipped: there is no Node.js here (apt-get install nodejs)");
        return;
    }
    let served = repository().join("crates/rpc/src/explorer");
    let mut node = Command::new("node");
    node.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bytes.mjs"));
    node.args([served.join("verifier.js"), served.join("verifier.wasm"), proofs()]);
    let ran = node.output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(said.starts_with("10 proofs hold; 10"), "{said}");
}
