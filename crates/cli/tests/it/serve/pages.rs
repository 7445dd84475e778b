//! The pages of methods and metrics say what a server has.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::client::{Server, error_of};
use super::sample;
use crate::support::{Folder, spinney};

pub(crate) fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    fs::read_to_string(path).expect("the page is there")
}

/// What the first cells of tables have in backquotes.
pub(crate) fn first_cells(page: &str) -> BTreeSet<&str> {
    page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

#[test]
fn the_page_of_methods_has_all_of_them() {
    let folder = Folder::new();
    let server = Server::start(&sample(&folder, "2", "all", &[]), &[]);
    let page = document("rpc.md");
    let headings: Vec<_> =
        page.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`')).collect();
    let discovered = server.call("rpc.discover", json!([]));
    let methods = discovered["methods"].as_array().unwrap();
    let names: Vec<_> = methods.iter().map(|method| method["name"].as_str().unwrap()).collect();
    assert_eq!(names, headings);
    // Each of them is one, and takes as many params as it says.
    for method in methods {
        let name = method["name"].as_str().unwrap();
        let most = method["params"].as_array().unwrap().len();
        let params = Value::from(vec![Value::Null; most + 1]);
        let (code, why) = server.refused(name, params.clone());
        let is_named = why.contains("too many") || why.contains("missing value for param");
        assert!(code == -32602 && is_named, "{name}: {why}");
        let section = page.split(&format!("### `{name}`")).nth(1).unwrap();
        let section = section.split("\n##").next().unwrap();
        for param in method["params"].as_array().unwrap() {
            let param = format!("`{}`", param["name"].as_str().unwrap());
            assert!(section.contains(&param), "{name} does not tell of {param}");
        }
    }
    let codes = first_cells(page.split("## Errors").nth(1).unwrap().split("\n## ").next().unwrap());
    let known = "-32000 -32001 -32002 -32003 -32005 -32600 -32601 -32602 -32603 -32700 4444";
    assert_eq!(codes, known.split(' ').collect());
    let help = spinney(&["serve", "--help"]).exits(0).out;
    let limits = page.split("## Limits").nth(1).unwrap().split("\n## ").next().unwrap();
    let options: Vec<_> = limits.split('`').filter(|word| word.starts_with("--")).collect();
    assert!(options.len() > 5, "{options:?}");
    for option in options {
        assert!(help.contains(option), "{option} is no option");
    }
}

/// Metrics that have a sample.
pub(crate) fn names_of(text: &str) -> BTreeSet<&str> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| line.split(['{', ' ']).next().unwrap())
        .map(|name| {
            ["_bucket", "_sum", "_count"].iter().fold(name, |n, end| n.trim_end_matches(end))
        })
        .collect()
}

#[test]
fn the_page_of_metrics_has_all_of_them() {
    let folder = Folder::new();
    let db = sample(&folder, "2", "all", &[]);
    let server = Server::start(&db, &["--metrics", "127.0.0.1:0"]);
    assert_eq!(server.call("eth_blockNumber", json!([])), "0x2");
    assert_eq!(server.refused("eth_getBalance", json!([])).0, -32602);
    assert_eq!(server.refused("eth_oak", json!([])).0, -32601);
    assert_eq!(server.refused("eth_chainId", json!([])).0, -32000);
    assert_eq!(server.refused("spinney_getRoot", json!(["mpt", "0x7"])).0, -32001);
    assert_eq!(error_of(&server.post("{").json()).0, -32700);
    assert_eq!(
        server.send("POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").status,
        415
    );
    let text = server.scrape();
    let names = names_of(&text);
    let page = document("metrics.md");
    let cells = first_cells(&page);
    let told: BTreeSet<&str> =
        cells.iter().copied().filter(|cell| cell.starts_with("spinney_")).collect();
    assert_eq!(names, told, "{text}");
    for line in text.lines() {
        for label in ["outcome=\"", "reason=\""] {
            if let Some(value) = line.split(label).nth(1).and_then(|rest| rest.split('"').next()) {
                assert!(cells.contains(value), "the page does not tell of {label}{value}\"");
            }
        }
    }
    for sample in [
        "spinney_rpc_requests_total{method=\"eth_blockNumber\",outcome=\"ok\"} 1",
        "spinney_rpc_requests_total{method=\"unknown\",outcome=\"no_method\"} 1",
        "spinney_rpc_requests_total{method=\"eth_getBalance\",outcome=\"invalid_params\"} 1",
        "spinney_rpc_refused_total{reason=\"content_type\"} 1",
        "spinney_head_block 2",
        "spinney_rpc_panics_total 0",
    ] {
        assert!(text.lines().any(|line| line == sample), "{sample} is not in {text}");
    }
    let bytes = text.lines().find_map(|line| line.strip_prefix("spinney_store_bytes ")).unwrap();
    assert!(bytes.parse::<u64>().unwrap() > 1_000, "{bytes}");
    assert!(text.ends_with("# EOF\n"));
}
