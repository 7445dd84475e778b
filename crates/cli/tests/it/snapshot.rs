//! `snapshot`: the files of EIP-8347, on several ways.

use std::fs;

use crate::support::{Chain, Folder, all_forks, assert_sound, chain_600, spinney};

/// Replayed and exported; converted and exported; imported and exported: the same files.
fn check(chain: &Chain, number: &str) {
    let folder = Folder::new();
    let (db, both) = (folder.path("db"), folder.path("both"));
    let (pbt, imported, again) =
        (folder.path("pbt"), folder.path("imported"), folder.path("again"));
    chain.replay(&["--db", &db, "--to", number]).exits(0);
    chain.replay(&["--tree", "mpt,pbt:blake3", "--db", &both, "--to", number]).exits(0);
    let convert = ["convert", "-q", "--json", "--to", "pbt:blake3", &db, &pbt];
    let converted = spinney(&convert).exits(0).data();
    let export = |db: &str, name: &str| {
        let (out, names) =
            (folder.path(&format!("{name}.out")), folder.path(&format!("{name}.names")));
        let args = [
            "snapshot",
            "export",
            "-q",
            "--json",
            "--db",
            db,
            "--out",
            &out,
            "--preimages",
            &names,
        ];
        let data = spinney(&args).exits(0).data();
        (fs::read(out).unwrap(), fs::read(names).unwrap(), data)
    };
    let (snapshot, preimages, data) = export(&both, "replayed");
    assert_eq!(data["snapshot"]["digest"], converted["snapshot_digest"]);
    assert!(export(&pbt, "converted") == (snapshot.clone(), preimages.clone(), data.clone()));

    let (out, names) = (folder.path("replayed.out"), folder.path("replayed.names"));
    let root = converted["source_root"].as_str().expect("text").to_owned();
    let checks = [&out, "--preimages", &names, "--state-root", &root];
    let verify = ["snapshot", "verify", "-q", "--json"];
    let found = spinney(&[&verify[..], &checks].concat()).exits(0).data();
    for count in ["accounts", "slots", "codes", "leaves", "root"] {
        assert_eq!(found[count], converted[count], "{count}");
    }
    assert_eq!((&found["snapshot"], &found["preimages"]), (&data["snapshot"], &data["preimages"]));
    spinney(&["snapshot", "verify", "-q", &out]).exits(0);

    let import = ["snapshot", "import", "-q", "--json", "--number", number, checks[0], &imported];
    let made = spinney(&[&import[..], &checks[1..]].concat()).exits(0).data();
    assert_eq!(made["state_root"], root);
    assert_sound(&imported);
    assert!(export(&imported, "imported") == (snapshot, preimages, data));
    let back =
        ["convert", "-q", "--json", "--from", "pbt:blake3", "--to", "mpt", &imported, &again];
    assert_eq!(spinney(&back).exits(0).data()["root"], root);
}

#[test]
fn all_forks_as_files() {
    if let Some(chain) = all_forks() {
        check(&chain, "213");
    }
}

#[test]
fn chain_600_as_files() {
    if let Some(chain) = chain_600() {
        check(&chain, "300");
    }
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let [db, pbt, target] = ["db", "pbt", "target"].map(|name| folder.path(name));
    chain.replay(&["--db", &db, "--to", "150"]).exits(0);
    let (names, out) = (folder.path("names"), folder.path("out"));
    let export = ["snapshot", "export", "-q", "--db", &db];
    spinney(&[&export[..], &["--out", &out]].concat()).exits(2).refuses("holds no pbt");
    // The preimages of another block.
    spinney(&[&export[..], &["--preimages", &names]].concat()).exits(0);
    chain.replay(&["--db", &db]).exits(0);
    spinney(&["convert", "-q", "--to", "pbt:blake3", &db, &pbt]).exits(0);
    let export = ["snapshot", "export", "-q", "--json", "--db", &pbt, "--out", &out];
    spinney(&export).exits(0);
    let import = ["snapshot", "import", "-q", &out, &target, "--preimages", &names];
    spinney(&import).exits(1).refuses("names is refused");
    assert!(!std::path::Path::new(&target).exists());
    let right = folder.path("right");
    spinney(&["snapshot", "export", "-q", "--db", &db, "--preimages", &right]).exits(0);
    let zeros = format!("0x{}", "0".repeat(64));
    let verify = ["snapshot", "verify", "-q", &out, "--preimages", &right, "--state-root", &zeros];
    spinney(&verify).exits(1).says("root of mpt: expected 0x0000");
    let mut bytes = fs::read(&out).unwrap();
    bytes.push(0xc0);
    let longer = folder.write("longer", bytes);
    spinney(&["snapshot", "verify", "-q", &longer]).exits(1).says("goes on behind its last record");
    let verify = ["snapshot", "verify", "-q", "--tree", "pbt:sha256", &out];
    spinney(&verify).exits(1).says("the leaves have the root");
    spinney(&["snapshot", "verify", "--tree", "mpt", &out]).exits(2).refuses("not of mpt");
    spinney(&["snapshot", "verify", "/no/such/file"]).exits(2).refuses("cannot open");
    let wrong = ["convert", "-q", "--to", "pbt:sha256", "--preimages", &names, &db, &target];
    assert!(!fs::exists(folder.path("target.part")).unwrap(), "what was refused does not stay");
    spinney(&wrong).exits(1).says("preimage");
}
