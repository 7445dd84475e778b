//! Files of sorted leaves: interrupted, a run that can go on keeps them, and all others remove
//! them.
#![cfg(unix)]

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Folder, Ran, assert_sound, command, spinney};

/// Blocks of the sample chain: enough that sorting takes a while.
const BLOCKS: &str = "60";

/// Names of files below a folder; what goes meanwhile is passed over.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(files(&path));
        }
        found.push(path.to_str().expect("text").to_owned());
    }
    found.sort();
    found
}

/// A folder with a store in it, and one for temporary files.
struct Scene {
    folder: Folder,
    tmp: String,
}

impl Scene {
    fn new() -> Self {
        let folder = Folder::new();
        let tmp = folder.path("tmp");
        fs::create_dir(&tmp).expect("it can be made");
        spinney(&["replay", "-q", "--blocks-count", BLOCKS, "--db", &folder.path("db")]).exits(0);
        Self { folder, tmp }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("TMPDIR", &self.tmp);
        command
    }

    /// Interrupts a command once it has sorted leaves in a file; it may be done by then, so that it
    /// is tried again.
    #[track_caller]
    fn interrupt(&self, args: &[&str], undo: impl Fn()) -> Ran {
        for _ in 0..20 {
            let before = files(Path::new(&self.folder.path("")));
            let mut command = self.command(args);
            let mut child =
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
            let sorts = || {
                let now = files(Path::new(&self.folder.path("")));
                now.into_iter().any(|name| name.contains("/run-") && !before.contains(&name))
            };
            while !sorts() && child.try_wait().expect("it can be asked").is_none() {
                std::thread::yield_now();
            }
            let id = child.id().to_string();
            let _ = Command::new("kill").args(["-INT", &id]).stderr(Stdio::null()).status();
            let ran = Ran::from(child.wait_with_output().expect("it ends"));
            if ran.code == Some(3) {
                return ran;
            }
            let _ = ran.exits(0);
            undo();
        }
        panic!("it was always done before: {args:?}");
    }
}

#[test]
fn what_cannot_go_on_leaves_no_scratch_files() {
    let scene = Scene::new();
    let (db, pbt) = (scene.folder.path("db"), scene.folder.path("pbt"));
    spinney(&["convert", "-q", "--to", "pbt:blake3", &db, &pbt]).exits(0);
    let (out, names) = (scene.folder.path("out"), scene.folder.path("names"));
    let export = ["snapshot", "export", "-q", "--db", &pbt, "--out", &out, "--preimages", &names];
    spinney(&export).exits(0);
    let into = scene.folder.path("into");
    let before = files(Path::new(&scene.folder.path("")));
    for args in [
        &["convert", "--dry-run", "--memory", "64k", "--to", "verkle", &db, &into][..],
        &["stage", "dump", "--memory", "16k", "--db", &db, "--from", "40", "--into", &into],
        &["snapshot", "verify", "--memory", "64k", &out, "--preimages", &names],
    ] {
        let undo = || drop(fs::remove_dir_all(&into));
        let ran = scene.interrupt(args, undo);
        assert_eq!(files(Path::new(&scene.folder.path(""))), before, "{args:?}: {ran:?}");
    }
}

/// On the way to a server leaves are sorted in a folder of a random name.
#[test]
fn what_goes_to_a_server_leaves_no_scratch_files() {
    let Some(server) = crate::server::shared() else { return };
    let scene = Scene::new();
    let db = scene.folder.path("db");
    let before = files(Path::new(&scene.folder.path("")));
    let (url, schema) = server.schema();
    let convert = ["convert", "-q", "--memory", "64k", "--to", "pbt:blake3", &db, &url];
    let session = RefCell::new(server.session(&schema));
    let drop_tables = "DROP TABLE spinney_rows, spinney_store";
    let undo = || session.borrow_mut().batch_execute(drop_tables).expect("they go");
    let _ = scene.interrupt(&convert, undo);
    assert_eq!(files(Path::new(&scene.folder.path(""))), before);
    Ran::from(scene.command(&convert).output().expect("it runs")).exits(0);
    assert_eq!(files(Path::new(&scene.folder.path(""))), before);
}

#[test]
fn what_goes_on_removes_its_scratch_files_in_the_end() {
    let scene = Scene::new();
    let db = scene.folder.path("db");
    let dump = scene.folder.write("dump", spinney(&["db", "dump", "--db", &db]).exits(0).out);
    let (pbt, new, scratch) =
        (scene.folder.path("pbt"), scene.folder.path("new"), scene.folder.path("scratch"));
    let small = ["--memory", "64k"];
    for (args, store) in [
        (&["convert", "--to", "pbt:blake3", &db, &pbt][..], &pbt),
        (&["convert", "--to", "verkle", &db, &new, "--scratch", &scratch], &new),
        (&["stage", "run", "--own", "--db", &db], &db),
        (&["stage", "run", "--state", &dump, "--db", &new], &new),
    ] {
        let _ = fs::remove_dir_all(&new);
        let args = [args, &small, &["-q"]].concat();
        let all = || files(Path::new(&scene.folder.path("")));
        // Segments of a log come and go.
        let lasting = || all().into_iter().filter(|name| !name.contains("/seg-"));
        let before: Vec<_> = lasting().collect();
        let undo = || {
            if store != &db {
                fs::remove_dir_all(store).expect("it was made");
            }
        };
        let ran = scene.interrupt(&args, undo).says("continue with: spinney ");
        let kept = all();
        assert!(kept.iter().any(|name| name.contains("/run-")), "{args:?}: {ran:?}, {kept:?}");
        Ran::from(scene.command(&args).output().expect("it runs")).exits(0);
        assert_sound(store);
        let is_new = |name: &String| !before.contains(name) && name.starts_with(&**store);
        let after: Vec<_> = lasting().filter(|name| !is_new(name)).collect();
        assert_eq!(after, before, "{args:?}");
    }
}
