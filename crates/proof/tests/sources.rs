//! Reads the sources of every crate and holds them to the rules of CONTRIBUTING.md: no circle
//! between the files of a crate, no type name twice in a crate, no line over 100 columns, no
//! function over 70 lines, no struct over 12 fields without a line beside it that says `Fields:`
//! and why.
//!
//! What a crate still breaks is in [`EXCEPTIONS`], which may only shrink.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// How many breaches a crate may still have, at most. A crate that is not here may have none.
const EXCEPTIONS: &[(&str, Rule, usize)] = &[("migrate", Rule::Name, 2), ("proof", Rule::Name, 4)];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    /// Files that are in a circle.
    Circle,
    /// Names that two types have.
    Name,
    Columns,
    Function,
    Fields,
}

const COLUMNS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 70;
const FIELDS_MAX: usize = 12;

/// A breach, and where it is.
type Breach = (Rule, String);

/// A file of a crate, without its tests.
struct Source {
    /// Its place in the repository.
    name: String,
    /// Its module: empty for the root.
    module: Vec<String>,
    text: String,
}

impl Source {
    fn new(name: &str, within: &Path, text: &str) -> Self {
        let mut module: Vec<String> = within
            .with_extension("")
            .iter()
            .map(|part| part.to_str().expect("names in UTF-8").to_owned())
            .collect();
        if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&&last[..])) {
            module.pop();
        }
        let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        Self { name: name.to_owned(), module, text }
    }

    /// Lines without comments.
    fn code(&self) -> impl Iterator<Item = &str> {
        self.text.lines().map(|line| line.split("//").next().unwrap_or_default())
    }
}

/// A name of a file: where it stands for, and whether it only passes it on.
#[derive(Clone, Debug)]
struct Import {
    path: Vec<String>,
    alias: String,
    public: bool,
}

/// All paths of a `use` tree.
fn expand(tree: &str, prefix: &[String], public: bool, out: &mut Vec<Import>) {
    let (head, group) = match tree.split_once('{') {
        Some((head, rest)) => (head, Some(rest.strip_suffix('}').unwrap_or(rest))),
        None => (tree, None),
    };
    let (head, alias) = match head.split_once(" as ") {
        Some((head, alias)) => (head, Some(alias.trim().to_owned())),
        None => (head, None),
    };
    let parts = head.split("::").map(|part| part.trim().trim_start_matches("r#"));
    let mut path = prefix.to_vec();
    path.extend(parts.filter(|part| !part.is_empty()).map(str::to_owned));
    let Some(group) = group else {
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let alias = alias.or_else(|| path.last().cloned()).unwrap_or_default();
        out.push(Import { path, alias, public });
        return;
    };
    let (mut depth, mut from) = (0_usize, 0);
    for (at, symbol) in group.char_indices() {
        match symbol {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(group[from..at].trim(), &path, public, out);
                from = at + 1;
            }
            _ => {}
        }
    }
    if !group[from..].trim().is_empty() {
        expand(group[from..].trim(), &path, public, out);
    }
}

/// The imports of a file, and the paths that stand in its code.
fn imports(source: &Source) -> Vec<Import> {
    let code: String = source.code().flat_map(|line| [line, "\n"]).collect();
    let mut out = Vec::new();
    for item in code.split("\nuse ").skip(1) {
        expand(&item[..item.find(';').unwrap_or(0)].replace('\n', " "), &[], false, &mut out);
    }
    for item in code.split("\npub").skip(1) {
        let item = item.strip_prefix('(').map_or(item, |rest| &rest[rest.find(')').unwrap_or(0)..]);
        let item = item.trim_start_matches(')').trim_start();
        if let Some(tree) = item.strip_prefix("use ") {
            expand(&tree[..tree.find(';').unwrap_or(0)].replace('\n', " "), &[], true, &mut out);
        }
    }
    let is_path = |symbol: char| symbol.is_alphanumeric() || symbol == '_' || symbol == ':';
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].ends_with(is_path) {
                continue;
            }
            let rest = &code[at..];
            let path = &rest[..rest.find(|symbol| !is_path(symbol)).unwrap_or(rest.len())];
            expand(path, &[], false, &mut out);
        }
    }
    out
}

/// The files that a file needs: those in which what it names is defined.
fn needs(sources: &[Source]) -> BTreeMap<usize, BTreeSet<usize>> {
    let files: BTreeMap<&[String], usize> =
        sources.iter().enumerate().map(|(at, source)| (&source.module[..], at)).collect();
    let all: Vec<Vec<Import>> = sources.iter().map(imports).collect();
    let absolute = |from: usize, path: &[String]| -> Option<Vec<String>> {
        let module = &sources[from].module;
        let mut base = match path.first().map(|first| &first[..]) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => module.clone(),
            Some(first) => {
                let child = [&module[..], &[first.to_owned()]].concat();
                return files.contains_key(&child[..]).then(|| [module, path].concat());
            }
            None => return None,
        };
        let mut rest = path;
        while let Some((first, behind)) = rest.split_first() {
            match &first[..] {
                "super" => drop(base.pop()),
                "crate" | "self" => {}
                _ => break,
            }
            rest = behind;
        }
        base.extend_from_slice(rest);
        Some(base)
    };
    // The file of the longest module that begins a path; through what passes a name on.
    let resolve = |from: usize, path: &[String]| -> Option<usize> {
        let (mut from, mut path) = (from, path.to_vec());
        for _ in 0..8 {
            let whole = absolute(from, &path)?;
            let len = (0..=whole.len()).rev().find(|&len| files.contains_key(&whole[..len]))?;
            let file = files[&whole[..len]];
            let Some(name) = whole.get(len) else { return Some(file) };
            let passed = all[file].iter().find(|import| import.public && import.alias == *name);
            let Some(passed) = passed else { return Some(file) };
            let next = [&passed.path[..], &whole[len + 1..]].concat();
            // Else it is another crate's.
            absolute(file, &next)?;
            (from, path) = (file, next);
        }
        None
    };
    let mut needs: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (from, imports) in all.iter().enumerate() {
        let found = imports.iter().filter(|import| !import.public);
        let found = found.filter_map(|import| resolve(from, &import.path));
        needs.entry(from).or_default().extend(found.filter(|to| *to != from));
    }
    needs
}

/// Files that lead to themselves.
fn circles(sources: &[Source]) -> Vec<Breach> {
    let needs = needs(sources);
    let reach = |from: usize| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            open.extend(needs[&at].iter().filter(|to| seen.insert(**to)));
        }
        seen
    };
    let reached: Vec<BTreeSet<usize>> = (0..sources.len()).map(reach).collect();
    let within = (0..sources.len()).filter(|at| reached[*at].contains(at));
    let breach = |at: usize| {
        let others = needs[&at].iter().filter(|to| reached[**to].contains(&at));
        let others: Vec<_> = others.map(|to| &sources[*to].name[..]).collect();
        (Rule::Circle, format!("{} needs {}", sources[at].name, others.join(", ")))
    };
    within.map(breach).collect()
}

/// Names that two types of a crate have.
fn names(sources: &[Source]) -> Vec<Breach> {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    let mut breaches = Vec::new();
    for source in sources {
        for line in source.code() {
            let item = match line.strip_prefix("pub") {
                Some(rest) => rest.split_once(' ').map_or("", |(_, item)| item),
                None => line,
            };
            let kinds = ["struct ", "enum ", "trait ", "type "];
            let Some(name) = kinds.iter().find_map(|kind| item.strip_prefix(kind)) else {
                continue;
            };
            let end = name.find(|symbol: char| !symbol.is_alphanumeric() && symbol != '_');
            let name = &name[..end.unwrap_or(name.len())];
            if let Some(first) = seen.insert(name.to_owned(), &source.name)
                && first != source.name
            {
                breaches.push((Rule::Name, format!("{name} in {first} and {}", source.name)));
            }
        }
    }
    breaches
}

/// What is wrong within one file: lengths.
fn lengths(source: &Source) -> Vec<Breach> {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut breaches = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let place = || format!("{}:{}", source.name, number + 1);
        if line.chars().count() > COLUMNS_MAX {
            breaches.push((Rule::Columns, place()));
        }
        let item = line.trim_start();
        if item.starts_with("//") || !line.ends_with('{') && !line.ends_with('(') {
            continue;
        }
        let indent = &line[..line.len() - item.len()];
        let end = || lines[number..].iter().position(|end| *end == format!("{indent}}}"));
        let words: Vec<&str> = item.split([' ', '(', '<']).collect();
        let is = |word| words.iter().take(5).any(|found| *found == word);
        if is("fn") && end().is_some_and(|end| end + 1 > FUNCTION_LINES_MAX) {
            breaches.push((Rule::Function, place()));
        }
        if is("struct") && line.ends_with('{') {
            let inner = format!("{indent}    ");
            let is_field = |line: &&&str| {
                line.strip_prefix(&inner).is_some_and(|field| {
                    !field.starts_with([' ', '/', '#']) && field.contains(": ")
                })
            };
            let fields = lines[number..].iter().take(end().unwrap_or(0)).filter(is_field).count();
            let said = lines[..number].iter().rev().take_while(|line| !line.is_empty());
            if fields > FIELDS_MAX && !said.into_iter().any(|line| line.contains("Fields:")) {
                breaches.push((Rule::Fields, place()));
            }
        }
    }
    breaches
}

fn breaches(sources: &[Source]) -> Vec<Breach> {
    let mut all = circles(sources);
    all.extend(names(sources));
    all.extend(sources.iter().flat_map(lengths));
    all
}

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry of it").path();
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            out.push(path);
        }
    }
}

fn read(krate: &Path) -> Vec<Source> {
    let (mut paths, root) = (Vec::new(), krate.join("src"));
    files(&root, &mut paths);
    paths.sort();
    let is_test = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == "tests");
    let source = |path: PathBuf| {
        let within = path.strip_prefix(&root).expect("it is below it");
        let name = format!("{}/src/{}", krate.file_name()?.to_str()?, within.to_str()?);
        Some(Source::new(&name, within, &fs::read_to_string(&path).expect("a source")))
    };
    paths.into_iter().filter(|path| !is_test(path)).filter_map(source).collect()
}

#[test]
fn sources_keep_the_rules() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of all crates");
    let mut said = Vec::new();
    let mut folders: Vec<PathBuf> = Vec::new();
    folders.extend(fs::read_dir(crates).expect("crates").map(|entry| entry.expect("one").path()));
    folders.sort();
    for folder in folders.iter().filter(|folder| folder.join("src").is_dir()) {
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
        let mut by_rule: BTreeMap<Rule, Vec<String>> = BTreeMap::new();
        for (rule, what) in breaches(&read(folder)) {
            by_rule.entry(rule).or_default().push(what);
        }
        for (rule, found) in by_rule {
            let known = EXCEPTIONS.iter().find(|known| known.0 == name && known.1 == rule);
            let allowed = known.map_or(0, |known| known.2);
            if found.len() > allowed {
                let list = found.join("\n    ");
                said.push(format!(
                    "(\"{name}\", {rule:?}, {}), allowed {allowed}:\n    {list}",
                    found.len()
                ));
            }
        }
    }
    assert!(said.is_empty(), "{}", said.join("\n"));
}

fn source(within: &str, text: &str) -> Source {
    Source::new(within, Path::new(within), text)
}

/// The rules that these files break.
fn broken(files: &[(&str, &str)]) -> Vec<Rule> {
    let sources: Vec<_> = files.iter().map(|(name, text)| source(name, text)).collect();
    breaches(&sources).into_iter().map(|(rule, _)| rule).collect()
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    let root = ("lib.rs", "mod a;\nmod b;\npub use b::B;\n");
    let a = ("a.rs", "\nuse crate::B;\npub struct A(B);\n");
    assert_eq!(broken(&[root, a, ("b.rs", "\npub struct B;\n")]), []);
    for circle in [
        "\nuse crate::a::A;\npub struct B;\n",
        "\nuse super::{a::{A}};\npub struct B;\n",
        "\npub struct B(Box<crate::a::A>);\n",
    ] {
        assert_eq!(broken(&[root, a, ("b.rs", circle)]), [Rule::Circle; 2], "{circle}");
    }
    let test = "\npub struct B;\n\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n";
    assert_eq!(broken(&[root, a, ("b.rs", test)]), []);
}

#[test]
fn names_and_lengths_are_counted() {
    let file = |text: &str| broken(&[("lib.rs", text)]);
    let twice = [("a.rs", "\npub(crate) struct A;\n"), ("b.rs", "\nenum A {}\n")];
    assert_eq!(broken(&twice), [Rule::Name]);
    assert_eq!(file(&"x".repeat(101)), [Rule::Columns]);
    assert_eq!(file(&"x".repeat(100)), []);
    let function = |lines: usize| format!("fn f() {{\n{}}}\n", "    x;\n".repeat(lines - 2));
    assert_eq!((file(&function(70)), file(&function(71))), (vec![], vec![Rule::Function]));
    let fields = |count: usize| format!("struct S {{\n{}}}\n", "    x: u8,\n".repeat(count));
    assert_eq!((file(&fields(12)), file(&fields(13))), (vec![], vec![Rule::Fields]));
    assert_eq!(file(&format!("// Fields: for a test.\n{}", fields(13))), []);
}
