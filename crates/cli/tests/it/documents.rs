//! The README and the tutorial: what they show is run, and what comes out is compared.
//!
//! A block of ` ```console ` holds commands (`$ ..`, going on behind a `\`) and what they print,
//! both streams. `[..]` in a line stands for anything, a line of `...` for any lines. All blocks of
//! one document run in one folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::Folder;

/// A command, and the lines that it prints.
#[derive(Debug, Default)]
struct Step {
    line: usize,
    command: String,
    expected: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut inside, mut goes_on) = (false, false);
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            (inside, goes_on) = (line == "```console", false);
        } else if !inside {
        } else if let Some(command) = line.strip_prefix("$ ").or(goes_on.then_some(line)) {
            if !goes_on {
                steps.push(Step { line: index + 1, ..Step::default() });
            }
            let step = steps.last_mut().unwrap();
            goes_on = command.ends_with('\\');
            step.command.push_str(command);
            step.command.push('\n');
        } else {
            steps.last_mut().expect("output follows a command").expected.push(line.to_owned());
        }
    }
    steps
}

/// Whether a line is what a pattern says.
fn fits(pattern: &str, line: &str) -> bool {
    let Some((first, rest)) = pattern.split_once("[..]") else { return pattern == line };
    let Some(line) = line.strip_prefix(first) else { return false };
    (0..=line.len()).any(|at| line.is_char_boundary(at) && fits(rest, &line[at..]))
}

fn all_fit(patterns: &[String], lines: &[&str]) -> bool {
    match patterns.split_first() {
        None => lines.is_empty(),
        Some((dots, rest)) if dots == "..." => {
            (0..=lines.len()).any(|at| all_fit(rest, &lines[at..]))
        }
        Some((pattern, rest)) => lines
            .split_first()
            .is_some_and(|(line, lines)| fits(pattern, line) && all_fit(rest, lines)),
    }
}

/// Runs a document's commands one after another.
fn run(document: &str) {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let (folder, bin) = (Folder::new(), Path::new(env!("CARGO_BIN_EXE_spinney")).parent().unwrap());
    let paths = std::env::join_paths(
        [bin.to_owned()]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let steps = steps(&text);
    assert!(!steps.is_empty(), "{document} shows no command");
    for step in &steps {
        let mut shell = Command::new("sh");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SPINNEY_")) {
            shell.env_remove(name);
        }
        let script = format!("exec 2>&1\n{}", step.command);
        let ran = shell
            .args(["-c", &script])
            .env("PATH", paths.as_ref().unwrap())
            .current_dir(folder.path(""))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let out = String::from_utf8(ran.stdout).unwrap();
        let lines: Vec<_> = out.lines().map(str::trim_end).collect();
        let expected: Vec<_> =
            step.expected.iter().map(|line| line.trim_end().to_owned()).collect();
        assert!(
            all_fit(&expected, &lines),
            "{document}:{}: {}prints\n{out}where the page shows\n{}",
            step.line,
            step.command,
            step.expected.join("\n")
        );
    }
}

#[test]
fn patterns_fit_what_they_say_and_nothing_else() {
    assert!(fits("a [..] c", "a b c") && fits("[..]", "") && !fits("a[..]c", "ab"));
    let patterns = ["a", "...", "z"].map(str::to_owned);
    assert!(all_fit(&patterns, &["a", "z"]) && all_fit(&patterns, &["a", "b", "c", "z"]));
    assert!(!all_fit(&patterns, &["a", "b"]) && !all_fit(&patterns, &["z"]));
}

#[test]
fn the_readme_does_what_it_shows() {
    run("README.md");
}

#[test]
fn the_tutorial_does_what_it_shows() {
    let pages = fs::read_dir(root().join("docs/tutorial")).unwrap();
    let mut pages: Vec<_> =
        pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    for page in pages.iter().filter(|page| page.ends_with(".md")) {
        let page = format!("docs/tutorial/{page}");
        // What is of the library alone is a test of `crates/spinney`.
        let text = fs::read_to_string(root().join(&page)).unwrap();
        if !text.contains("```rust") {
            run(&page);
        }
    }
}

#[test]
fn the_pages_of_verbs_are_their_help() {
    let (folder, shown) = (Folder::new(), root().join("docs/reference/verbs"));
    crate::support::spinney(&["reference", &folder.path("")]).exits(0);
    let names = |folder: &Path| {
        let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
        let mut names: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let made = PathBuf::from(folder.path(""));
    let again = "write them again: cargo run -p spinney-cli -- reference docs/reference/verbs";
    assert_eq!(names(&made), names(&shown), "{again}");
    for name in names(&made) {
        let read = |folder: &Path| fs::read_to_string(folder.join(&name)).unwrap();
        assert!(read(&made) == read(&shown), "{name} is not what the verb's help says; {again}");
    }
}

/// All documents: those at the root, those of docs, of the crates, and of the comparisons.
fn documents() -> Vec<PathBuf> {
    let mut folders = vec![root(), root().join("bench-compare")];
    folders.extend(crates());
    let (mut found, mut below) = (Vec::new(), vec![root().join("docs")]);
    while let Some(folder) = below.pop() {
        let inside = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        below.extend(inside.filter(|path| path.is_dir()));
        folders.push(folder);
    }
    for folder in folders.iter().filter(|folder| folder.exists()) {
        let inside = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        found.extend(inside.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    found
}

/// The folders of all crates.
fn crates() -> Vec<PathBuf> {
    let inside = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    inside.filter(|path| path.join("Cargo.toml").exists()).collect()
}

/// Where the links of a text lead.
fn links(text: &str) -> impl Iterator<Item = &str> {
    prose(text)
        .flat_map(|line| line.split("](").skip(1))
        .map(|link| link.split(')').next().unwrap())
}

/// The lines of a document that are no code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}

/// What a heading is linked by.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    heading.trim_start_matches('#').trim().chars().filter_map(kept).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut count = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for target in links(&text) {
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = match file {
                "" => document.clone(),
                file => document.parent().unwrap().join(file),
            };
            let name = document.display();
            assert!(file.exists(), "{name}: the link {target} leads nowhere");
            if !heading.is_empty() {
                let text = fs::read_to_string(&file).unwrap();
                let found =
                    prose(&text).any(|line| line.starts_with('#') && anchor(line) == heading);
                assert!(found, "{name}: there is no heading for the link {target}");
            }
            count += 1;
        }
    }
    assert!(count > 20, "{count} links");
}

#[test]
fn lines_are_of_a_hundred_columns() {
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for line in prose(&text) {
            let wide = line.chars().count() > 100 && !line.starts_with('|');
            assert!(!wide || line.contains("](http"), "{}: {line}", document.display());
        }
    }
    let count = |name: &str| {
        let text = fs::read_to_string(root().join(name)).unwrap();
        (text.lines().count(), text.split_whitespace().count())
    };
    let (lines, words) = count("README.md");
    assert!(lines <= 150 && words <= 1_200, "README: {lines} lines, {words} words");
    let (_, words) = count("docs/design.md");
    assert!(words <= 6_000, "docs/design.md: {words} words");
}

#[test]
fn the_book_has_every_page_once() {
    let (docs, text) = (root().join("docs"), fs::read_to_string(root().join("docs/SUMMARY.md")));
    let text = text.unwrap();
    let listed: Vec<_> =
        links(&text).filter(|link| !link.is_empty()).map(|link| docs.join(link)).collect();
    let is_page = |path: &PathBuf| path.starts_with(&docs) && !path.ends_with("SUMMARY.md");
    for page in documents().into_iter().filter(is_page) {
        let count = listed.iter().filter(|link| **link == page).count();
        assert_eq!(count, 1, "docs/SUMMARY.md: {}", page.display());
    }
}

#[test]
fn the_page_of_the_environment_has_every_variable() {
    let docs = root().join("docs/reference");
    let page = fs::read_to_string(docs.join("environment.md")).unwrap();
    let mut seen = 0;
    for verb in fs::read_dir(docs.join("verbs")).unwrap() {
        let text = fs::read_to_string(verb.unwrap().path()).unwrap();
        for said in text.split("[env: ").skip(1) {
            let name = said.split(['=', ']']).next().unwrap();
            assert!(page.contains(&format!("`{name}`")), "environment.md lacks {name}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} variables");
}

#[test]
fn each_crate_has_what_a_package_needs() {
    for folder in crates() {
        let read = |path: PathBuf| {
            fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let manifest = String::from_utf8(read(folder.join("Cargo.toml"))).unwrap();
        let name = manifest.split("name = \"").nth(1).unwrap().split('"').next().unwrap();
        let readme = String::from_utf8(read(folder.join("README.md"))).unwrap();
        assert!(readme.starts_with(&format!("# {name}\n")), "{name}: the README is another's");
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(read(folder.join(licence)) == read(root().join(licence)), "{name}: {licence}");
        }
        for field in ["description = ", "keywords", "categories", "license"] {
            assert!(manifest.contains(&format!("\n{field}")), "{name}: no {field}");
        }
    }
}
