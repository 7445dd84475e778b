//! Notes the commit that a build is of, for `--version`.
//!
//! Builds for development leave it out, since each commit would have them build anew.
//! `SPINNEY_COMMIT` says it where there is no repository.

use std::env;
use std::process::Command;

fn git(words: &[&str]) -> Option<String> {
    let out = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    out.status.success().then(|| text.trim().to_owned())
}

fn main() {
    println!("cargo:rerun-if-env-changed=SPINNEY_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    let said = env::var("SPINNEY_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let found = || {
        if !is_release {
            return Some("a build for development".to_owned());
        }
        // The head moves with commits, and names what else does.
        let head = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
        println!("cargo:rerun-if-changed={head}");
        git(&["rev-parse", "--short=12", "HEAD"])
    };
    let commit = said.or_else(found).unwrap_or_else(|| "commit not known".to_owned());
    println!("cargo:rustc-env=SPINNEY_COMMIT={commit}");
}
