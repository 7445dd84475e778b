//! The smaller verbs, and what all have in common.

use crate::support::{Folder, Ran, command, shared, spinney, spinney_fed};

#[test]
fn the_roots_of_public_genesis_allocations() {
    for (name, root) in [
        ("mainnet", "0xd7f8974fb5ac78d9ac099b9ad5018bedc2ce0a72dad1827a1709da30580f0544"),
        ("sepolia", "0x5eb6e371a698b8d68f665192350ffcecbbbf322916f4b51bd79bb6887da3f494"),
    ] {
        let Some(file) = shared(&format!("data/genesis/{name}.json")) else { return };
        let ran = spinney(&["state-root", &file]).exits(0);
        assert_eq!((ran.out, ran.err), (format!("{root}\n"), String::new()));
        assert_eq!(spinney(&["state-root", "--json", &file]).exits(0).data()["root"], root);
    }
}

#[test]
fn an_allocation_is_read_strictly() {
    let empty = "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421\n";
    assert_eq!(spinney_fed(&["state-root", "-"], r#"{"alloc": {}}"#).exits(0).out, empty);
    let twice = r#"{"alloc": {"0x00000000000000000000000000000000000000aa": {"balance": "1"},
                    "00000000000000000000000000000000000000AA": {"balance": "2"}}}"#;
    spinney_fed(&["state-root", "-"], twice).exits(2).refuses("given twice");
    spinney_fed(&["state-root", "-"], "[]").exits(2).refuses("(-)");
    spinney(&["state-root", "/no/such/file"]).exits(2).refuses("cannot open /no/such/file");
    spinney(&["state-root", "/"]).exits(2).refuses("cannot open /");
    spinney(&["state-root", "--tree", "sum:bound", "-"])
        .exits(2)
        .refuses("a tree sum:bound holds leaves, and no accounts");
}

#[test]
fn vectors_that_come_along_and_those_of_a_directory() {
    let ran = spinney(&["vectors"]).exits(0);
    assert_eq!(ran.out.lines().count(), 5, "{ran:?}");
    assert!(ran.out.lines().all(|line| line.contains(" 0 failed")), "{ran:?}");
    spinney(&["vectors", "--dir", "/no/such/dir"]).exits(2).refuses("cannot read /no/such/dir");
    let Some(dir) = shared("vectors/mpt") else { return };
    let data = spinney(&["vectors", "--dir", &dir, "--quick", "--json"]).exits(0).data();
    let files = data["files"].as_array().expect("a list");
    assert_eq!(files.len(), 10, "{data}");
    for file in files {
        assert_eq!(file["failed"], 0, "{file}");
        assert!(file["checks"].as_u64() > Some(2), "{file}");
    }
}

#[test]
fn a_wrong_vector_is_found() {
    let folder = Folder::new();
    let doctored = spinney_vectors::EMBEDDED[1].1.replace("deriveSha\":[{\"item\"", "\
        deriveSha\":[{\"n\":0,\"root\":\"0x1111111111111111111111111111111111111111111111111111111111111111\"},\
        {\"item\"");
    folder.write("state.json", doctored);
    folder.write("other.json", "{}");
    let dir = folder.path("");
    let ran = spinney(&["vectors", "--dir", &dir]).exits(1).says("other.json: no vectors known");
    assert!(ran.out.contains("1 failed") && ran.out.contains("expected 0x1111"), "{ran:?}");
}

#[test]
fn help_and_version() {
    let version = spinney(&["--version"]).exits(0).out;
    let start = format!("spinney {}\ncommit: ", env!("CARGO_PKG_VERSION"));
    assert!(version.starts_with(&start) && version.contains("\nhash kernels: "), "{version}");
    let short = spinney(&["-V"]).exits(0).out;
    assert!(short.starts_with(&format!("spinney {} (", env!("CARGO_PKG_VERSION"))), "{short}");
    for verb in [
        &["replay"][..],
        &["root"],
        &["state-root"],
        &["prove"],
        &["verify"],
        &["witness"],
        &["db", "info"],
        &["db", "stats"],
        &["db", "check"],
        &["db", "dump"],
        &["db", "load"],
        &["db", "compact"],
        &["stage", "status"],
        &["stage", "unwind"],
        &["import", "state"],
        &["vectors"],
        &["completions"],
    ] {
        let ran = spinney(&[verb, &["--help"]].concat()).exits(0);
        assert!(ran.out.contains("Example") && ran.out.contains("spinney "), "{verb:?}: {ran:?}");
    }
    let completions = spinney(&["completions", "bash"]).exits(0).out;
    assert!(completions.contains("_spinney") && completions.contains("pbt:blake3"));
    let folder = Folder::new();
    spinney(&["reference", "--man", &folder.path("man")]).exits(0);
    let page = std::fs::read_to_string(folder.path("man/spinney-db-info.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("spinney db info"), "{page}");
}

#[test]
fn colours_only_where_they_are_wanted() {
    let args = ["state-root", "/no/such/file"];
    assert!(!spinney(&args).err.contains('\x1b'));
    let always = [&args[..], &["--color", "always"]].concat();
    assert!(spinney(&always).err.contains('\x1b'));
    let mut quiet = command(&args);
    let err = quiet.env("NO_COLOR", "1").output().unwrap().stderr;
    assert!(!err.contains(&0x1b));
}

#[test]
fn the_environment_stands_in_for_options() {
    let folder = Folder::new();
    let db = folder.path("db");
    spinney(&["replay", "-q", "--blocks-count", "1", "--db", &db]).exits(0);
    let output =
        command(&["db", "info"]).env("SPINNEY_DB", &db).env("SPINNEY_FORMAT", "csv").output();
    let output = output.unwrap();
    assert!(output.status.success());
    assert!(output.stdout.starts_with(b"id,namespace,tree,keys,"));
    // What is said on the command line counts.
    let mut replay = command(&["replay", "--json", "--store", "memory", "--blocks-count", "1"]);
    let replay =
        replay.envs([("SPINNEY_DB", &*db), ("SPINNEY_FORMAT", "csv"), ("SPINNEY_QUIET", "1")]);
    let ran = Ran::from(replay.output().unwrap()).exits(0);
    assert_eq!(ran.run()["store"], "memory");
    assert_eq!(ran.err, "");
}

#[test]
fn hash_kernels_are_named_and_change_no_root() {
    let version = |simd: &str| -> Ran {
        command(&["--version"]).env("SPINNEY_SIMD", simd).output().expect("the binary runs").into()
    };
    assert!(version("").exits(0).out.contains("hash kernels: keccak256="));
    assert!(version("portable").exits(0).out.contains("keccak256=portable"));
    let replay = |simd: &str| -> Ran {
        let mut sample = command(&["replay", "--json", "--blocks-count", "20"]);
        sample.env("SPINNEY_SIMD", simd).output().expect("the binary runs").into()
    };
    replay("mmx").exits(2).refuses("SPINNEY_SIMD=mmx");
    let expected = replay("portable").exits(0).run()["root"].clone();
    for simd in ["avx512", "avx2", "sha-ni"] {
        let ran = replay(simd);
        if ran.code == Some(2) {
            ran.refuses("SPINNEY_SIMD");
            println!("skipped: this processor has no {simd}");
        } else {
            assert_eq!(ran.exits(0).run()["root"], expected, "{simd}");
        }
    }
}

#[test]
fn vectors_hold_over_redb_opened_again_after_every_step() {
    let ran = spinney(&["vectors", "--redb"]).exits(0);
    assert!(ran.out.lines().all(|line| line.contains(" 0 failed")), "{ran:?}");
}
