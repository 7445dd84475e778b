//! Disks that fill up while a store is made: it is there and sound, or it is not there.
//!
//! Each disk is a tmpfs in a mount namespace of its own, so that nothing stays of it; where no such
//! can be made, the tests are skipped.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::support::{Folder, Ran, spinney};

/// KiB of the disks that are tried.
const SIZES: [u32; 5] = [100, 300, 700, 1_500, 3_000];

/// A small disk, in the place of a folder; only processes that enter its namespace see it.
struct Disk {
    /// Holds the namespace.
    holder: Child,
    _stdin: ChildStdin,
    enter: &'static [&'static str],
    folder: Folder,
}

impl Disk {
    /// Makes a disk of so many KiB. Says so, and answers nothing, where that is not possible.
    fn new(kib: u32) -> Option<Self> {
        let folder = Folder::new();
        // Root may mount; others may in a user namespace, where the system lets them have one.
        let ways: [(&[&str], &[&str]); 2] =
            [(&["-m"], &["-m"]), (&["-Urm"], &["-U", "-m", "--preserve-credentials"])];
        for (unshare, enter) in ways {
            let script = format!("mount -t tmpfs -o size={kib}k tmpfs \"$0\" && echo made && cat");
            let mut holder = Command::new("unshare");
            holder.args(unshare).args(["sh", "-c", &script]).arg(folder.path(""));
            let pipes = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let Ok(mut holder) = pipes.spawn() else { break };
            let _stdin = holder.stdin.take().expect("it was asked for");
            let mut line = String::new();
            let out = holder.stdout.as_mut().expect("it was asked for");
            BufReader::new(out).read_line(&mut line).expect("it says whether it is made");
            if line == "made\n" {
                return Some(Self { holder, _stdin, enter, folder });
            }
            holder.wait().expect("it ends");
        }
        println!("skipped: no tmpfs can be mounted here");
        None
    }

    fn path(&self, name: &str) -> String {
        self.folder.path(name)
    }

    /// A command on the disk.
    fn command(&self, program: &str, args: &[&str]) -> Command {
        let id = self.holder.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(self.enter).args(["-t", &id, program]).args(args);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SPINNEY_")) {
            command.env_remove(name);
        }
        command
    }

    fn spinney(&self, args: &[&str]) -> Ran {
        let mut command = self.command(env!("CARGO_BIN_EXE_spinney"), args);
        command.output().expect("the binary runs").into()
    }

    /// Makes the disk larger.
    fn grow(&self) {
        let root = self.path("");
        let mount = self.command("mount", &["-o", "remount,size=64m", &root]).status();
        assert!(mount.expect("it runs").success());
    }

    /// The names on the disk.
    fn names(&self) -> Vec<String> {
        let root = PathBuf::from(format!("/proc/{}/root{}", self.holder.id(), self.path("")));
        let mut names = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("it can be listed") {
                let path = entry.expect("it can be listed").path();
                let name = path.strip_prefix(&root).expect("it is below").to_string_lossy();
                names.push(name.into_owned());
                if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        names.sort();
        names
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // With its last process the namespace goes, and the disk.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Runs a command over disks of all sizes, and again where there is more room. `may_stay` says that
/// a store may be there after a failure, as far as it got.
fn try_sizes(what: &str, kind: &str, may_stay: bool, args: impl Fn(&Disk) -> Vec<String>) {
    let mut figures = Vec::new();
    for kib in SIZES {
        let Some(disk) = Disk::new(kib) else { return };
        let args = args(&disk);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let ran = disk.spinney(&args);
        let names = disk.names();
        let at = format!("{what} into {kind} with {kib} KiB: {ran:?}, {names:?}");
        let db = disk.path("db");
        let there = names.iter().any(|name| name == "db");
        let check = || {
            let sound = disk.spinney(&["db", "check", "-q", "--json", "--db", &db]);
            assert!(sound.code == Some(0), "{at}: {sound:?}");
        };
        match ran.code {
            Some(0) => {
                disk.grow();
                check();
                figures.push(format!("{kib} whole"));
                continue;
            }
            Some(2) if there && may_stay => {
                disk.grow();
                check();
                figures.push(format!("{kib} in part"));
            }
            Some(2) if !there => figures.push(format!("{kib} {}", names.join(" "))),
            _ => panic!("{at}"),
        }
        assert!(ran.err.contains("hint: make room") && !ran.err.contains("a bug"), "{at}");
        disk.grow();
        let again = disk.spinney(&args);
        assert!(again.code == Some(0), "{at}: {again:?}");
        check();
    }
    println!("{what} into {kind}, KiB: {}", figures.join(", "));
}

fn owned(args: &[&str]) -> Vec<String> {
    args.iter().map(ToString::to_string).collect()
}

const KINDS: [&str; 3] = ["log", "redb", "sqlite"];

#[test]
fn a_conversion_onto_a_full_disk_is_whole_or_not_there() {
    let folder = Folder::new();
    let source = folder.path("source");
    spinney(&["replay", "-q", "--blocks-count", "40", "--db", &source]).exits(0);
    for kind in KINDS {
        let convert = ["convert", "-q", "--to", "pbt:blake3", "--to-store", kind, &source];
        try_sizes("convert", kind, false, |disk| {
            owned(&[&convert[..], &[&disk.path("db")]].concat())
        });
    }
}

#[test]
fn an_import_onto_a_full_disk_is_whole_or_not_there() {
    let folder = Folder::new();
    let source = folder.path("source");
    spinney(&["replay", "-q", "--blocks-count", "40", "--db", &source]).exits(0);
    let dump = folder.write("dump", spinney(&["db", "dump", "--db", &source]).exits(0).out);
    for kind in KINDS {
        let import = ["import", "state", "-q", "--number", "40", "--store", kind, &dump, "--db"];
        try_sizes("import state", kind, false, |disk| {
            owned(&[&import[..], &[&disk.path("db")]].concat())
        });
    }
}

#[test]
fn a_first_replay_onto_a_full_disk_is_sound_or_not_there() {
    // What was committed stays, and is sound: with a commit at the end alone, the genesis and block
    // 1.
    for (kind, every) in [("log", "5"), ("log", "all"), ("redb", "5"), ("sqlite", "all")] {
        let replay = ["replay", "-q", "--blocks-count", "40", "--commit-every", every];
        try_sizes(&format!("replay by {every}"), kind, true, |disk| {
            owned(&[&replay[..], &["--store", kind, "--db", &disk.path("db")]].concat())
        });
    }
}
