//! `root`: traces.

use crate::support::{Folder, assert_sound, spinney, spinney_fed};

const DOE: &str = r#"{"put": {"0x646f65": "0x7265696e64656572"}}"#;
const DOGS: &str =
    r#"{"put": {"0x646f67": "0x7075707079", "0x646f67676c6573776f727468": "0x636174"}}"#;
const ROOT: &str = "0x8aad789dff2f538bca5d8ea56e8abe10f4c7ba3a5dea95fea4cd6e7c3a1168d3";
const EMPTY: &str = "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421";

#[test]
fn a_line_a_batch() {
    let ran = spinney_fed(&["root", "-"], &format!("{DOE}\n\n{DOGS}\n")).exits(0);
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1], format!(r#"{{"batch": 2, "commit": 2, "root": "{ROOT}"}}"#));
    assert_eq!(ran.err, "");
    let gone = r#"{"del": ["0x646f65", "0x00"]}"#;
    let ran = spinney_fed(&["root", "-"], &format!("{DOE}\n{gone}")).exits(0);
    assert!(ran.out.ends_with(&format!("\"root\": \"{EMPTY}\"}}\n")), "{ran:?}");
}

#[test]
fn a_store_continues_and_dumps() {
    let folder = Folder::new();
    let (db, one, two) = (folder.path("db"), folder.write("1", DOE), folder.write("2", DOGS));
    spinney(&["root", "--db", &db, &one]).exits(0);
    let ran = spinney(&["root", "--db", &db, &two]).exits(0);
    assert_eq!(ran.out, format!("{{\"batch\": 1, \"commit\": 2, \"root\": \"{ROOT}\"}}\n"));
    assert_sound(&db);
    let dump = spinney(&["db", "dump", "--db", &db]).exits(0);
    assert_eq!(dump.out.lines().count(), 3);
    assert!(dump.out.starts_with(r#"{"key":"0x646f65","value":"0x7265696e64656572"}"#), "{dump:?}");
    let info = spinney(&["db", "info", "--json", "--db", &db]).exits(0).data();
    assert_eq!(
        (&info["trees"][0]["keys"], &info["trees"][0]["root"]),
        (&"raw".into(), &ROOT.into())
    );
    // What holds raw keys is no state.
    for args in [
        &["replay", "--blocks-count", "1", "--db", &db][..],
        &["root", "--state", "--db", &db, "-"],
    ] {
        spinney(args).exits(2).refuses("mpt over raw keys, not mpt over Ethereum state");
    }
}

#[test]
fn hashed_keys_are_those_of_the_secure_trie() {
    // The test `dogs` of Ethereum's secure trie tests.
    let ran = spinney_fed(&["root", "--hash-keys", "-"], &format!("{DOE}\n{DOGS}")).exits(0);
    let root = "0xd4cd937e4a4368d7931a9cf51686b7e10abb3dce38a39000fd7902a092b64585";
    assert!(ran.out.contains(root), "{ran:?}");
}

#[test]
fn a_bad_line_ends_it_and_the_lines_before_stay() {
    let long_key = format!(r#"{{"put": {{"0x{}": "0x00"}}}}"#, "ab".repeat(8_193));
    for (bad, what) in [
        (r#"{"put": {"0xaa": "0x01", "0xAA": "0x02"}}"#, "key 0xaa is put twice"),
        (r#"{"put": {"0xaa": "0x01"}, "del": ["0xaa"]}"#, "key 0xaa is both put and deleted"),
        (r#"{"del": ["0xaa", "0xaa"]}"#, "key 0xaa is deleted twice"),
        (r#"{"put": {"aa": "0x01"}}"#, "does not begin with 0x"),
        (r#"{"put": {"0xa": "0x01"}}"#, "is not hex"),
        (r#"{"puts": {}}"#, "unknown field `puts`"),
        (r#"{"put": "#, "EOF while parsing"),
        (&long_key, "a key of 8193 bytes; the limit is 8192"),
    ] {
        let folder = Folder::new();
        let db = folder.path("db");
        let input = format!("{DOE}\n{DOGS}\n{bad}\n{DOE}\n");
        let ran = spinney_fed(&["root", "--db", &db, "-"], &input).exits(2);
        let ran = ran.refuses(what).refuses("line 3: ").says("committed and printed");
        assert_eq!(ran.out.lines().count(), 2, "{ran:?}");
        let info = spinney(&["db", "info", "--json", "--db", &db]).exits(0).data();
        assert_eq!(
            (&info["trees"][0]["commit"], &info["trees"][0]["root"]),
            (&2.into(), &ROOT.into())
        );
    }
}

#[test]
fn state_differences_are_checked() {
    let address = "0x00000000000000000000000000000000000000aa";
    let line = |number: u64, fields: &str| {
        format!(r#"{{"number": {number}, "accounts": {{"{address}": {fields}}}}}"#) + "\n"
    };
    let made = line(1, r#"{"balance": "0x5"}"#);
    let ran = spinney_fed(&["root", "--state", "-"], &(made.clone() + &line(2, "null"))).exits(0);
    assert!(ran.out.lines().last().unwrap().contains(EMPTY), "{ran:?}");
    let refuse = |second: &str, code: i32, what: &str| {
        let ran = spinney_fed(&["root", "--state", "-"], &(made.clone() + second)).exits(code);
        assert_eq!(ran.refuses("line 2: ").refuses(what).out.lines().count(), 1);
    };
    refuse(&line(1, "null"), 2, "expected a block after 1, got 1");
    refuse(&line(2, r#"{"nonsense": 1}"#), 2, "unknown field");
    let wrong = format!(r#"{{"number": 2, "accounts": {{}}, "stateRoot": "{EMPTY}"}}"#);
    refuse(&wrong, 1, "state root: expected 0x56e81f");
    let storage = line(1, r#"{"storage": {"0x01": "0x02"}}"#);
    spinney_fed(&["root", "--state", "-"], &storage).exits(2).refuses("line 1: account");
}
