//! The report as one page of HTML that asks for nothing outside itself.

use std::fmt::Write as _;

use base64::prelude::{BASE64_STANDARD, Engine as _};

use crate::found::{GLOSSARY, sentences};
use crate::measure::{BlockCost, Cell};
use crate::plot::{Axis, Line, Scale, bars, escape, gantt, key, lines};
use crate::report::{Report, Spread, human_bytes, human_micros, human_size};
use crate::stages::{STAGES, Stages};

const STYLE: &str = include_str!("page.css");

/// Points of a line over blocks: more are averaged.
const POINTS_MAX: usize = 160;

/// The page. Its figures stand beside it, in files of these names; without names they are in it.
///
/// # Errors
/// None but of JSON.
pub fn html(report: &Report, beside: Option<[&str; 2]>) -> serde_json::Result<String> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Spinney: {}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n\
         </head>\n<body>\n<main>\n",
        escape(&report.input)
    );
    page += &found(report);
    page += &headline(report);
    page += &beside_node_rows(report);
    page += "<div class=\"plots\">\n";
    for (title, told, figure) in figures(report) {
        page += &section(title, told, &figure);
    }
    page += "</div>\n";
    page += &report.stages.as_ref().map(stages).unwrap_or_default();
    page += &glossary();
    page += &head(report);
    page += &how(report);
    page += &downloads(report, beside)?;
    page += "</main>\n</body>\n</html>\n";
    Ok(page)
}

fn section(title: &str, told: &str, figure: &str) -> String {
    let (title, told) = (escape(title), escape(told));
    format!("<section><h2>{title}</h2><p>{told}</p><figure>{figure}</figure></section>\n")
}

/// What was found, and one chart.
fn found(report: &Report) -> String {
    let mut html = "<h1>State trees on the same blocks</h1>\n<p class=\"found\">".to_owned();
    html += &sentences(report).map(|sentence| escape(&sentence)).join(" ");
    html += "</p>\n";
    let told = "On average: reading what the block touches, deriving keys, applying the batch, \
                hashing, cutting pages, and the store's commit.";
    html + &section("Where the time of a block goes", told, &time_bars(report))
}

fn glossary() -> String {
    let mut html = "<h2>Words</h2>\n<dl>".to_owned();
    for (word, meaning) in GLOSSARY {
        let _ = write!(html, "<dt>{word}</dt><dd>{}</dd>", escape(meaning));
    }
    html + "</dl>\n"
}

fn head(report: &Report) -> String {
    let machine = &report.machine;
    let mut facts = vec![
        ("input", report.input.clone()),
        ("blocks", format!("{}, with {} transactions", report.blocks, report.transactions)),
        ("processor", machine.processor.clone().unwrap_or_else(|| "not told".into())),
        ("threads", machine.threads.to_string()),
        ("memory", machine.memory_bytes.map_or_else(|| "not told".into(), human_bytes)),
        ("system", machine.system.clone()),
        ("hash kernels", machine.hash_kernels.clone()),
        ("version", format!("spinney {}", report.version)),
        ("command", report.command.clone()),
    ];
    if report.execution_seconds > 0.0 {
        let seconds = human_micros(report.execution_seconds * 1e6);
        facts.insert(2, ("execution", format!("{seconds}, once for all trees")));
    }
    let mut html = "<h2>What was run, and where</h2>\n<dl>".to_owned();
    for (name, value) in facts {
        let _ = write!(html, "<dt>{name}</dt><dd>{}</dd>", escape(&value));
    }
    html + "</dl>\n"
}

/// A replay by stages: where the wall time went, and which stage was where.
fn stages(stages: &Stages) -> String {
    let busy = |stage| {
        let spans = stages.spans.iter().filter(|span| span.stage == stage);
        spans.map(|span| span.seconds).sum::<f64>()
    };
    let row = |(stage, name): (usize, &&str)| {
        let busy = busy(stage);
        let share = format!("{:.0} %", 100.0 * busy / stages.seconds.max(1e-9));
        [(*name).to_owned(), human_micros(busy * 1e6), share]
    };
    let rows: Vec<_> = STAGES.iter().enumerate().map(row).collect();
    let names = ["stage", "busy", "of the wall time"];
    let cpu = stages.cpu_seconds.map_or_else(String::new, |seconds| {
        format!(", {} of processor time", human_micros(seconds * 1e6))
    });
    let told = format!(
        "The blocks replayed into one store, mpt in a log, with {} threads: {} on the wall{cpu}, \
         the genesis apart. Each bar is a stage at a block, or a commit of many; bars that stand \
         above each other overlapped.",
        stages.threads,
        human_micros(stages.seconds * 1e6),
    );
    format!(
        "<section><h2>A replay, stage by stage</h2><p>{told}</p><figure>{}</figure>{}</section>",
        gantt(&STAGES, &stages.spans),
        table("Where the wall time goes", &names, &rows),
    )
}

/// The table of trees by stores.
fn headline(report: &Report) -> String {
    let names = [
        "tree",
        "store",
        "root p50",
        "root p99",
        "root max",
        "commit p50",
        "commit p99",
        "pages read",
        "pages written",
        "page bytes",
        "to write calls",
        "proof",
        "made in",
        "witness",
        "tree size",
        "file size",
        "CPU",
    ];
    let mut rows = Vec::new();
    for cell in &report.cells {
        let (root, commit) = (cell.spread(BlockCost::root_us), commit(cell));
        let max = cell.blocks.iter().map(BlockCost::root_us).fold(0.0, f64::max);
        let bytes = |value: f64| human_bytes(value.round() as u64);
        let proof_us: Vec<f64> = cell.blocks.iter().filter_map(|block| block.proof_us).collect();
        let made = Spread::of(proof_us).p50;
        let known = |value: Option<f64>| value.map_or_else(|| "-".into(), bytes);
        let cells = [
            cell.tree.clone(),
            cell.store.to_owned(),
            human_micros(root.p50),
            human_micros(root.p99),
            human_micros(max),
            human_micros(commit.p50),
            human_micros(commit.p99),
            format!("{:.1}", cell.mean(|block| block.pages_read as f64)),
            format!("{:.1}", cell.mean(|block| block.pages_written as f64)),
            bytes(cell.mean(|block| block.page_bytes as f64)),
            bytes(cell.mean(|block| block.written_bytes as f64)),
            known(cell.proof_bytes()),
            cell.proof_bytes().map_or_else(|| "-".into(), |_| human_micros(made)),
            known(cell.witness_bytes()),
            cell.sizes.last().map_or_else(String::new, |size| human_bytes(size.page_bytes)),
            if cell.file_bytes == 0 { "-".into() } else { human_bytes(cell.file_bytes) },
            cell.cpu_seconds.map_or_else(|| "-".into(), |seconds| human_micros(seconds * 1e6)),
        ];
        rows.push(cells);
    }
    table("A block: medians, 99 of 100, averages", &names, &rows)
}

/// Pages beside a store with a row a node, if that was counted.
fn beside_node_rows(report: &Report) -> String {
    if !report.settings.node_rows {
        return String::new();
    }
    let names = [
        "tree",
        "store",
        "pages",
        "page bytes",
        "to write calls",
        "node rows",
        "node bytes",
        "nodes to write calls",
        "times as many",
    ];
    let row = |cell: &Cell| {
        let bytes = |value: f64| human_bytes(value.round() as u64);
        let written = cell.mean(|block| block.written_bytes as f64);
        let rows_written = cell.node_rows(|block| block.node_row_written_bytes);
        let known =
            |value: Option<f64>, shown: &dyn Fn(f64) -> String| value.map_or("-".into(), shown);
        let plain = |value: f64| format!("{value:.1}");
        [
            cell.tree.clone(),
            cell.store.to_owned(),
            plain(cell.mean(|block| block.pages_written as f64)),
            bytes(cell.mean(|block| block.page_bytes as f64)),
            bytes(written),
            known(cell.node_rows(|block| block.node_rows), &plain),
            known(cell.node_rows(|block| block.node_row_bytes), &bytes),
            known(rows_written, &bytes),
            known(rows_written, &|rows| format!("{:.2}", rows / written)),
        ]
    };
    let rows: Vec<_> = report.cells.iter().map(row).collect();
    table("A block, beside a store with a row for each node: averages", &names, &rows)
}

fn table<const N: usize>(caption: &str, names: &[&str; N], rows: &[[String; N]]) -> String {
    let mut html = format!("<div class=\"wide\"><table><caption>{caption}</caption><thead><tr>");
    names.iter().for_each(|name| html += &format!("<th>{name}</th>"));
    html += "</tr></thead><tbody>\n";
    for row in rows {
        html += "<tr>";
        row.iter().for_each(|cell| html += &format!("<td>{}</td>", escape(cell)));
        html += "</tr>\n";
    }
    html + "</tbody></table></div>\n"
}

/// What a commit took.
fn commit(cell: &Cell) -> Spread {
    let ends = cell.blocks.iter().filter(|block| block.encode_us + block.store_us > 0.0);
    Spread::of(ends.map(|block| block.encode_us + block.store_us).collect())
}

/// Axes by what runs along them.
fn axis(name: &'static str, scale: Scale, label: fn(f64) -> String) -> Axis {
    Axis { name, scale, label }
}

fn time_axis() -> Axis {
    axis("time", Scale::Log, human_micros)
}

/// Counts along an axis, as short as they can be said.
fn plain(value: f64) -> String {
    if value >= 1e6 {
        format!("{:.0}M", value / 1e6)
    } else if value >= 1e4 {
        format!("{:.0}k", value / 1e3)
    } else {
        format!("{value:.0}")
    }
}

/// A figure: its title, what it tells, and its picture.
type Figure = (&'static str, &'static str, String);

fn figure(
    (title, told): (&'static str, &'static str),
    (x, y): (Axis, Axis),
    made: Vec<Line>,
) -> Figure {
    (title, told, legend(&made) + &lines(title, &x, &y, &made))
}

fn figures(report: &Report) -> Vec<Figure> {
    let mut figures = costs(report);
    figures.extend(sizes(report));
    figures
}

/// What blocks cost.
fn costs(report: &Report) -> Vec<Figure> {
    let percent = |value| format!("{:.0} %", value * 100.0);
    let mut figures = vec![
        figure(
            (
                "Time to the root, distribution",
                "The share of blocks whose root was there within a time.",
            ),
            (time_axis(), axis("share of blocks", Scale::Linear, percent)),
            each(report, |cell| distribution(cell, BlockCost::root_us)),
        ),
        figure(
            (
                "Page bytes, distribution",
                "The share of commits that wrote so many logical bytes, keys and values of pages.",
            ),
            (
                axis("page bytes of a commit", Scale::Bytes, human_size),
                axis("share of commits", Scale::Linear, percent),
            ),
            one_store(report, |cell| distribution(cell, |block| block.page_bytes as f64)),
        ),
        figure(
            (
                "Time to the root, block by block",
                "Averages of neighbouring blocks where there are many.",
            ),
            (axis("block", Scale::Linear, plain), time_axis()),
            each(report, |cell| series(cell, BlockCost::root_us)),
        ),
        figure(
            (
                "Bytes handed to write calls, block by block",
                "With what the store adds: its own pages, its log, its checksums. In memory there \
             are none.",
            ),
            (axis("block", Scale::Linear, plain), axis("bytes", Scale::Bytes, human_size)),
            each(report, |cell| series(cell, |block| block.written_bytes as f64)),
        ),
    ];
    if report.settings.node_rows {
        let times = |value| format!("{value:.1}");
        let figure = figure(
            (
                "A row for each node, block by block",
                "Bytes that the same store hands to write calls where each node is a row of its \
                 own, over those that it hands to them here.",
            ),
            (axis("block", Scale::Linear, plain), axis("times as many", Scale::Linear, times)),
            each(report, |cell| {
                series_of(cell, |block| {
                    Some(block.node_row_written_bytes? as f64 / block.written_bytes.max(1) as f64)
                })
            }),
        );
        figures.push(figure);
    }
    figures
}

/// How large trees, proofs and witnesses are.
fn sizes(report: &Report) -> Vec<Figure> {
    vec![
        figure(
            ("Size of the tree", "Pages with their keys, against accounts and slots."),
            (
                axis("accounts and slots", Scale::Log, plain),
                axis("page bytes", Scale::Bytes, human_size),
            ),
            one_store(report, |cell| {
                cell.sizes
                    .iter()
                    .map(|size| (size.entries as f64, size.page_bytes as f64))
                    .collect()
            }),
        ),
        figure(
            (
                "Proofs of what a block touches",
                "Bytes of one proof of all accounts and slots that the block read or wrote, values \
         included.",
            ),
            (
                axis("accounts and slots touched", Scale::Log, plain),
                axis("bytes", Scale::Bytes, human_size),
            ),
            one_store(report, |cell| {
                let proven =
                    |block: &BlockCost| Some((block.touched as f64, block.proof_bytes? as f64));
                let mut points: Vec<_> = cell.blocks.iter().filter_map(proven).collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                points
            }),
        ),
        figure(
            (
                "Witnesses, block by block",
                "Bytes that the block takes to be executed without a state: a proof of all that it \
         touches, before it, and the codes that it read, whole, where it was executed.",
            ),
            (axis("block", Scale::Linear, plain), axis("bytes", Scale::Bytes, human_size)),
            one_store(report, |cell| {
                series_of(cell, |block| block.witness_bytes.map(|bytes| bytes as f64))
            }),
        ),
    ]
}

const PARTS: [&str; 6] = ["read", "keys", "apply", "hash", "encode", "store"];

fn time_bars(report: &Report) -> String {
    let names: Vec<_> = report.cells.iter().map(Cell::name).collect();
    let parts = |cell: &Cell| {
        let parts: [fn(&BlockCost) -> f64; 6] = [
            |block| block.read_us,
            |block| block.keys_us,
            |block| block.apply_us,
            |block| block.hash_us,
            |block| block.encode_us,
            |block| block.store_us,
        ];
        parts.into_iter().map(|part| cell.mean(part)).collect()
    };
    let values: Vec<Vec<f64>> = report.cells.iter().map(parts).collect();
    let mut html = "<p class=\"legend\">".to_owned();
    for (index, part) in PARTS.iter().enumerate() {
        let _ = write!(html, "<span class=\"b{index}\">{part}</span> ");
    }
    html + "</p>" + &bars("Where the time of a block goes", &names, &PARTS, &values, human_micros)
}

/// A line a cell: a colour a tree, dashes for every store but the first.
fn each(report: &Report, points: impl Fn(&Cell) -> Vec<(f64, f64)>) -> Vec<Line> {
    let mut trees: Vec<&str> = Vec::new();
    let first = report.cells.first().map_or("", |cell| cell.store);
    let line = |cell| {
        let Cell { tree, store, .. }: &Cell = cell;
        let known = trees.iter().position(|known| known == tree);
        let colour = known.unwrap_or_else(|| {
            trees.push(tree);
            trees.len() - 1
        });
        Line { name: cell.name(), colour, dashed: *store != first, points: points(cell) }
    };
    report.cells.iter().map(line).collect()
}

/// A line a tree, of what does not depend on the store.
fn one_store(report: &Report, points: impl Fn(&Cell) -> Vec<(f64, f64)>) -> Vec<Line> {
    let all = each(report, points);
    let of_first = all.into_iter().filter(|line| !line.dashed);
    of_first
        .map(|mut line| {
            line.name.truncate(line.name.find(" in ").unwrap_or(line.name.len()));
            line
        })
        .collect()
}

fn distribution(cell: &Cell, figure: impl Fn(&BlockCost) -> f64) -> Vec<(f64, f64)> {
    let mut values: Vec<_> = cell.blocks.iter().map(figure).filter(|value| *value > 0.0).collect();
    values.sort_by(f64::total_cmp);
    let count = values.len();
    let step = count.div_ceil(POINTS_MAX).max(1);
    let at = |index: usize| (values[index], (index + 1) as f64 / count as f64);
    let shown = (0..count).step_by(step);
    shown.chain(count.checked_sub(1)).map(at).collect()
}

fn series(cell: &Cell, figure: impl Fn(&BlockCost) -> f64) -> Vec<(f64, f64)> {
    series_of(cell, |block| Some(figure(block)))
}

/// A point for neighbouring blocks, of those among them that have the figure.
fn series_of(cell: &Cell, figure: impl Fn(&BlockCost) -> Option<f64>) -> Vec<(f64, f64)> {
    let step = cell.blocks.len().div_ceil(POINTS_MAX).max(1);
    let point = |blocks: &[BlockCost]| {
        let known: Vec<f64> = blocks.iter().filter_map(&figure).collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        (blocks[0].number as f64, mean)
    };
    cell.blocks.chunks(step).map(point).filter(|(_, value)| *value > 0.0).collect()
}

fn legend(made: &[Line]) -> String {
    let mut html = "<p class=\"legend\">".to_owned();
    for Line { name, colour, dashed, .. } in made {
        let _ = write!(html, "<span>{}{}</span> ", key(*colour, *dashed), escape(name));
    }
    html + "</p>"
}

fn how(report: &Report) -> String {
    let settings = report.settings;
    let roots = if report.roots_checked {
        "The root of the Merkle Patricia trie was compared with that of each header or line that \
         gives one."
    } else {
        "No roots were given to compare with."
    };
    let proofs = match settings.prove_every {
        0 => "Nothing was proven.".to_owned(),
        every => format!(
            "Of {every} blocks one is proven, if it ends a commit, and its witness made, if it \
             begins one; that time is in no other figure. Nodes that only a deletion needs are in \
             no witness."
        ),
    };
    let rows = if settings.node_rows {
        "<li>Node rows are what a store writes that keeps each node as a row of its own, by its \
         path, in the encodings of geth and go-verkle, or as EIP-7864 and EIP-8297 hash them \
         (docs/design.md): their number, their keys and nodes, and what a second store of the same \
         kind, with the same commits, hands to write calls for them. A page holds neighbours that \
         did not change, so page bytes may well be more than node bytes; what counts is what the \
         store makes of either.</li>"
    } else {
        ""
    };
    format!(
        "<aside><h2>How this was measured, and what was not</h2><ul>\
         <li>Blocks are executed once, in memory; what they read and changed is then given to each \
         tree, \
         alone in a new store, without history and preimages: the same reads, the same writes.</li>\
         <li>{} blocks a commit; {} of memory for pages, of which half is the store's. {roots}</li>\
         <li>Reading comes before applying, so that applying finds its pages in memory; reads \
         wrote nothing \
         in any run: that is asserted.</li>\
         <li>Hashing is summed over threads, and in a Verkle tree it is arithmetic. Times are wall \
         times of \
         one run on a machine that may have had other work; they are no guarantee, and differ from \
         run to \
         run. Page bytes, pages and proofs do not.</li>\
         <li>Bytes handed to write calls are counted where they leave the store; what a file \
         system or a \
         disk makes of them was not measured, nor was peak memory. {proofs}</li>{rows}\
         </ul></aside>\n",
        settings.commit_every,
        human_bytes(settings.cache_bytes as u64),
    )
}

/// The figures themselves: beside the page, or in links that hold them.
fn downloads(report: &Report, beside: Option<[&str; 2]>) -> serde_json::Result<String> {
    let (json, csv) = match beside {
        Some([json, csv]) => (escape(json), escape(csv)),
        None => {
            let json = BASE64_STANDARD.encode(serde_json::to_string(report)?);
            let csv = BASE64_STANDARD.encode(report.csv());
            (format!("data:application/json;base64,{json}"), format!("data:text/csv;base64,{csv}"))
        }
    };
    Ok(format!(
        "<p class=\"downloads\"><a download=\"spinney.json\" href=\"{json}\">All figures as \
         JSON</a> <a download=\"spinney.csv\" href=\"{csv}\">Blocks as CSV</a></p>\n"
    ))
}
