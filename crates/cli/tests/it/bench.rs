//! `bench`: the same figures for everybody, and a page that a browser shows.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Folder, chain_600, spinney};

const TREES: &str = "mpt,ubt:sha256,pbt:blake3,verkle";

fn bench(more: &[&str]) -> crate::support::Ran {
    spinney(&[&["bench", "-q", "--json"], more].concat())
}

fn sum(cell: &Value, figure: &str) -> f64 {
    let blocks = cell["blocks"].as_array().expect("blocks");
    blocks.iter().filter_map(|block| block[figure].as_f64()).sum()
}

#[test]
fn a_chain_is_measured_in_every_tree_and_store() {
    let Some(chain) = chain_600() else { return };
    let args = ["--genesis", &chain.genesis, "--blocks", &chain.blocks, "--to", "60"];
    let data = bench(&[&args[..], &["--tree", TREES, "--store", "memory,redb"]].concat());
    let data = data.exits(0).data();
    assert_eq!((&data["blocks"], &data["roots_checked"]), (&60.into(), &true.into()));
    let cells = data["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 8);
    let replay = ["replay", "-q", "--json", "--genesis", &chain.genesis, "--blocks", &chain.blocks];
    let replay = [&replay[..], &["--to", "60", "--tree", TREES]].concat();
    let run = spinney(&replay).exits(0).run();
    for (cell, tree) in cells.iter().zip(run["trees"].as_array().unwrap().iter().cycle()) {
        assert_eq!((&cell["tree"], &cell["root"]), (&tree["tree"], &tree["root"]));
        assert_eq!(cell["blocks"].as_array().unwrap().len(), 60);
        let redb = cell["store"] == "redb";
        assert_eq!(sum(cell, "written_bytes") > 0.0, redb, "a store in memory writes nothing");
        assert!(sum(cell, "page_bytes") > 0.0 && sum(cell, "hash_us") > 0.0);
        // Each block is proven, and has a witness with its code.
        for block in cell["blocks"].as_array().unwrap() {
            let bytes = |figure: &str| block[figure].as_u64().expect("each block is proven");
            assert!(bytes("proof_bytes") > 0, "{}: {block}", cell["tree"]);
            assert!(bytes("witness_bytes") > bytes("code_bytes"), "{}: {block}", cell["tree"]);
        }
        assert!(sum(cell, "code_bytes") > 0.0);
    }
    // What does not depend on time depends on the tree alone.
    for (memory, redb) in cells[..4].iter().zip(&cells[4..]) {
        for figure in ["touched", "pages_written", "page_bytes", "proof_bytes", "witness_bytes"] {
            assert_eq!(sum(memory, figure), sum(redb, figure), "{figure} of {}", redb["tree"]);
        }
    }
}

/// What a store writes that keeps a row for each node is counted beside, and what our pages
/// promise: logical bytes below what such a store hands to write calls for the same blocks, and
/// those of a Verkle tree not far above the trie's.
#[test]
fn pages_stay_below_a_row_for_each_node() {
    let Some(chain) = chain_600() else { return };
    let args = ["--genesis", &chain.genesis, "--blocks", &chain.blocks, "--to", "200"];
    let more = ["--tree", TREES, "--store", "redb,memory", "--prove-every", "0", "--node-rows"];
    let data = bench(&[&args[..], &more].concat()).exits(0).data();
    let cells = data["cells"].as_array().expect("cells");
    for cell in &cells[..4] {
        let [pages, written, rows, rows_written] =
            ["page_bytes", "written_bytes", "node_row_bytes", "node_row_written_bytes"]
                .map(|figure| sum(cell, figure));
        let tree = &cell["tree"];
        println!("{tree}: pages {pages}, to write calls {written}; rows {rows}, {rows_written}");
        assert!(2.0 * pages < rows_written, "{tree}: {pages} bytes of pages, {rows_written}");
        assert!(written / pages < rows_written / rows / 2.0, "{tree}: what the store adds");
        assert!(sum(cell, "node_rows") >= 200.0 && rows > 0.0);
    }
    for (redb, memory) in cells[..4].iter().zip(&cells[4..]) {
        assert_eq!(sum(redb, "node_row_bytes"), sum(memory, "node_row_bytes"));
        assert_eq!(sum(memory, "node_row_written_bytes"), 0.0, "in memory nothing is written");
    }
    let [trie, verkle] = [0, 3].map(|cell| sum(&cells[cell], "page_bytes"));
    assert!(verkle <= 1.5 * trie, "{verkle} bytes a Verkle tree, {trie} a trie");
}

/// The trie's witness of a block is the nodes that another maker lists for it, and its code; that
/// one adds what deletions need, and there are none in this chain.
#[test]
fn witnesses_are_those_of_the_verb() {
    let Some(chain) = chain_600() else { return };
    let folder = Folder::new();
    let out = folder.path("witnesses.ndjson");
    let args = ["--genesis", &chain.genesis, "--blocks", &chain.blocks];
    let verb = ["witness", "-q", "--range", "1..30", "--out", &out];
    spinney(&[&verb[..], &args].concat()).exits(0);
    let more = ["--to", "30", "--tree", "mpt", "--store", "memory"];
    let data = bench(&[&args[..], &more].concat()).exits(0).data();
    let blocks = data["cells"][0]["blocks"].as_array().expect("blocks").clone();
    let lines = std::fs::read_to_string(&out).expect("the witnesses are there");
    for (block, line) in blocks.iter().zip(lines.lines()) {
        let line: Value = serde_json::from_str(line).expect("it is JSON");
        let witness = &line["witness"];
        let bytes = |part: &str| -> usize {
            let all = witness[part].as_array().expect("a list");
            all.iter().map(|item| item.as_str().expect("hex").len() / 2 - 1).sum()
        };
        assert_eq!(block["number"], line["number"]);
        assert_eq!(block["code_bytes"], bytes("codes"), "block {}", block["number"]);
        assert_eq!(block["witness_bytes"], bytes("state") + bytes("codes"), "{}", block["number"]);
    }
}

#[test]
fn workloads_are_the_same_each_time() {
    for workload in ["transfers", "giant", "accounts", "deletes"] {
        let args = ["--workload", workload, "--keys", "500", "--blocks-count", "5"];
        let args =
            [&args[..], &["--operations", "30", "--tree", "mpt,pbt:blake3,ubt:sha256"]].concat();
        let roots = |more: &[&str]| {
            let data = bench(&[&args[..], &["--store", "memory"], more].concat()).exits(0).data();
            let cells = data["cells"].as_array().expect("cells").clone();
            cells.into_iter().map(|cell| cell["root"].clone()).collect::<Vec<_>>()
        };
        let first = roots(&[]);
        assert_eq!(first, roots(&["--commit-every", "all"]), "{workload}");
        assert_ne!(first, roots(&["--seed", "2"]), "{workload}");
    }
}

/// On a server, where nothing is left behind and no store is touched.
#[cfg(unix)]
#[test]
fn a_server_is_measured() {
    let Some(server) = crate::server::shared() else { return };
    let url = server.schema().0;
    let args = ["--workload", "deletes", "--keys", "300", "--blocks-count", "6"];
    let args = [&args[..], &["--tree", "mpt,ubt:sha256", "--postgres", &url]].concat();
    let data = bench(&[&args[..], &["--store", "memory,postgres"]].concat()).exits(0).data();
    let cells = data["cells"].as_array().expect("cells");
    for (memory, server) in cells[..2].iter().zip(&cells[2..]) {
        assert_eq!((&server["store"], &server["root"]), (&"postgres".into(), &memory["root"]));
        assert_eq!(sum(memory, "page_bytes"), sum(server, "page_bytes"));
        assert!(sum(server, "written_bytes") > 0.0);
    }
    spinney(&["db", "info", "--db", &url]).exits(2).refuses("no store");
    spinney(&["replay", "-q", "--blocks-count", "2", "--db", &url]).exits(0);
    let args = [&args[..], &["--store", "postgres"]].concat();
    bench(&args).exits(2).refuses("there is a store already");
    spinney(&["db", "check", "-q", "--db", &url]).exits(0);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    bench(&[]).exits(2).refuses("nothing to measure");
    let workload = ["--workload", "giant", "--keys", "10"];
    let with = |more: &[&str]| bench(&[&workload[..], more].concat());
    with(&["--store", "postgres"]).exits(2).refuses("nobody says where PostgreSQL is");
    with(&["--store", "paper"]).exits(2).refuses("no store paper");
    with(&["--tree", "sum"]).exits(2).refuses("holds leaves, and no accounts");
    with(&["--tree", "mpt,mpt"]).exits(2).refuses("given twice");
    with(&["--operations", "0"]).exits(2).refuses("a workload of nothing");
    with(&["--dir", "/nowhere/at/all"]).exits(2).refuses("cannot make a folder");
    with(&["--report", "/nowhere/at/all.html"]).exits(2).refuses("cannot write");
}

/// Put at the end of a page, it writes what the browser made of it.
const LOOK: &str = r#"<script>
addEventListener("load", () => {
  const faults = [];
  const plots = [...document.querySelectorAll("figure svg[role=img]")];
  for (const plot of plots) {
    const frame = plot.getBoundingClientRect();
    const marks = [...plot.querySelectorAll("polyline, path, rect")];
    const shown = marks.map((mark) => mark.getBoundingClientRect()).filter((box) => box.width > 0);
    const name = plot.getAttribute("aria-label");
    if (frame.width < 200 || frame.height < 60) faults.push(`${name} has no room`);
    if (shown.length === 0) faults.push(`${name} is empty`);
    for (const box of shown) {
      const within = box.left >= frame.left - 1 && box.right <= frame.right + 1
        && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
      if (!within) faults.push(`${name} is drawn outside of its frame`);
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) faults.push("the page is wider than the window");
  const asked = performance.getEntriesByType("resource").map((entry) => entry.name);
  const outside = asked.filter((name) => !name.startsWith("data:"));
  document.body.innerHTML = `<pre>seen: ${JSON.stringify({ width: innerWidth, plots: plots.length, faults, outside })}</pre>`;
});
</script>"#;

pub(crate) fn browser() -> Option<&'static str> {
    let known = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    let found = known.into_iter().find(|path| Path::new(path).exists());
    if found.is_none() {
        println!("skipped: there is no Chromium (apt-get install chromium)");
    }
    found
}

/// What the browser sees in a window so wide.
fn look(browser: &str, folder: &Folder, page: &str, width: u32) -> Value {
    let page = folder.write(&format!("{width}.html"), format!("{page}{LOOK}"));
    let out = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--dump-dom"])
        .arg(format!("--window-size={width},1200"))
        .arg(format!("--user-data-dir={}", folder.path(&format!("profile-{width}"))))
        .arg(format!("file://{page}"))
        .output()
        .expect("the browser runs");
    let out = String::from_utf8_lossy(&out.stdout).into_owned();
    let seen = out.split_once("seen: ").and_then(|(_, rest)| rest.split_once("</pre>"));
    let seen = seen.unwrap_or_else(|| panic!("the browser shows nothing: {out}")).0;
    serde_json::from_str(&seen.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))
        .expect("it is JSON")
}

#[test]
fn a_browser_shows_the_page() {
    let folder = Folder::new();
    let path = folder.path("out.html");
    let args = ["--workload", "transfers", "--keys", "300", "--blocks-count", "40"];
    let more = ["--operations", "20", "--tree", TREES, "--store", "redb,sqlite"];
    bench(&[&args[..], &more, &["--node-rows", "--report", &path]].concat()).exits(0);
    let page = std::fs::read_to_string(&path).expect("the page is there");
    assert!(page.len() < 300_000, "{} bytes", page.len());
    let [json, csv] = ["out.json", "out.csv"].map(|name| {
        assert!(page.contains(&format!("href=\"{name}\"")), "{name} is not linked");
        std::fs::read_to_string(folder.path(name)).expect("the figures are beside it")
    });
    let figures: Value = serde_json::from_str(&json).expect("it is JSON");
    let cells = figures["cells"].as_array().expect("cells");
    let blocks: usize = cells.iter().map(|cell| cell["blocks"].as_array().unwrap().len()).sum();
    assert_eq!(csv.lines().count(), blocks + 1);
    // It opens with what was found.
    let (found, rest) = page.split_once("<p class=\"found\">").expect("what was found");
    let found = (found.len(), rest.split_once("</p>").expect("it ends").0);
    assert!(found.0 < 10_000 && found.1.matches(". ").count() == 2, "{found:?}");
    for outside in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "the page asks for {outside}");
    }
    let Some(browser) = browser() else { return };
    // A window as wide as a desk's, and the narrowest that the browser makes: about a phone's.
    for width in [1_200, 500] {
        let seen = look(browser, &folder, &page, width);
        assert_eq!(seen["plots"], 9, "{seen}");
        assert_eq!(seen["faults"], serde_json::json!([]), "{seen}");
        assert_eq!(seen["outside"], serde_json::json!([]), "{seen}");
    }
    // A page without marks would be noticed.
    let empty = page.replace("<polyline", "<g").replace("</polyline>", "</g>");
    let empty = empty.replace("<path", "<g");
    let seen = look(browser, &folder, &empty, 1_201);
    assert_eq!(seen["faults"].as_array().map(Vec::len), Some(8), "{seen}");
}
