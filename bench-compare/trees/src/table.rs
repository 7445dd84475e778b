//! The table, and the same as JSON.

use std::{fs::File, path::Path};

use serde::Serialize;

use crate::Error;
use crate::driver::{Outcome, Series};
use crate::meter::Cost;

/// The columns of the README; what else is measured is in the JSON.
const HEADER: [&str; 10] = [
    "what",
    "peer",
    "CPU, ours",
    "CPU, peer",
    "ratio",
    "wall, ratio",
    "allocations, ours",
    "peer",
    "peak, ours",
    "peer",
];

/// Prints medians, one line a peer, as a Markdown table.
pub fn print(leaves: usize, outcomes: &[Outcome]) {
    println!(
        "{leaves} leaves, keys of 32 bytes and values of 78; medians; CPU is user and system time of the \
         process, garbage collection included;\nallocations are calls; peak is resident \
         memory beyond the inputs, the live tree included; keccak on {}\n",
        spinney_hash::backends()
    );
    println!("| {} |", HEADER.join(" | "));
    println!("|{}", "---|".repeat(HEADER.len()));
    for outcome in outcomes {
        let ours = outcome.series.iter().find(|series| series.ours).map(median);
        let peers: Vec<&Series> = outcome.series.iter().filter(|series| !series.ours).collect();
        if peers.is_empty() {
            print_line(outcome, "-", ours.as_ref(), None);
        }
        for peer in peers {
            print_line(outcome, peer.label, ours.as_ref(), Some(&median(peer)));
        }
    }
}

fn print_line(outcome: &Outcome, label: &str, ours: Option<&Cost>, peer: Option<&Cost>) {
    let per = outcome.per as f64;
    let each = |cost: Option<&Cost>, field: fn(&Cost) -> u64| Some(field(cost?) as f64 / per);
    let ratio = |field: fn(&Cost) -> u64| match (each(ours, field), each(peer, field)) {
        (Some(ours), Some(peer)) if peer > 0.0 => format!("{:.2}", ours / peer),
        _ => "-".into(),
    };
    let cpu: fn(&Cost) -> u64 = |cost| cost.cpu_ns;
    let wall: fn(&Cost) -> u64 = |cost| cost.wall_ns;
    let allocs: fn(&Cost) -> u64 = |cost| cost.allocs;
    let peak = |cost: Option<&Cost>| size(cost.map(|cost| cost.peak_bytes as f64));
    let cells = [
        told(&outcome.name),
        label.into(),
        time(each(ours, cpu)),
        time(each(peer, cpu)),
        ratio(cpu),
        ratio(wall),
        count(each(ours, allocs)),
        count(each(peer, allocs)),
        peak(ours),
        peak(peer),
    ];
    println!("| {} |", cells.join(" | "));
}

/// A case in the words of the README.
fn told(name: &str) -> String {
    let (case, given) = name.split_once('/').unwrap_or((name, ""));
    let number = |what: &str| {
        let value = given.split(' ').find_map(|one| one.strip_prefix(what)?.strip_prefix('='));
        value.and_then(|value| value.parse().ok()).map_or_else(String::new, whole)
    };
    let (keys, stems) = (number("keys"), number("stems"));
    match (case, &keys[..]) {
        ("mpt::bulk_root", _) => "root of sorted leaves".into(),
        ("mpt::load", _) => format!("live tree of {} leaves, loaded", number("leaves")),
        ("mpt::root", "1") => "one update and the root, live tree".into(),
        ("mpt::root", _) => format!("{keys} updates and the root"),
        ("mpt::write_set", _) => format!("write set of {keys}"),
        ("mpt::commit", _) => format!("write set of {keys}, and written to memory"),
        ("mpt::prove", _) => "making a proof".into(),
        ("mpt::verify", _) => "checking a proof".into(),
        ("mpt::blocks" | "ubt::blocks" | "pbt::blocks", _) => {
            let tree = case.split("::").next().unwrap_or_default();
            format!("{tree}: a change, in blocks of {} upon blocks, commits too", number("changes"))
        }
        ("mpt::blocks_reads" | "ubt::blocks_reads" | "pbt::blocks_reads", _) => {
            let tree = case.split("::").next().unwrap_or_default();
            format!("{tree}: a read between them")
        }
        ("pbt::load", _) | ("ubt::load", "") if stems.is_empty() => {
            format!("live tree of {} leaves, loaded ({case})", number("leaves"))
        }
        ("ubt::load", _) => format!("UBT of {stems} stems of one value, loaded"),
        ("ubt::commit", "1") => format!("one update among {stems} stems, root and write set"),
        ("ubt::commit", _) => format!("{keys} updates in {stems} stems, root and write set"),
        ("ubt::root", "1") => format!("one update among {stems} stems, root"),
        ("ubt::root", _) => format!("root of {} fresh entries, two threads", number("fresh")),
        ("ubt::prove", _) => format!("UBT of {stems} stems: a proof of {keys} keys"),
        ("ubt::verify", _) => "checking it".into(),
        _ => name.into(),
    }
}

/// A number with commas.
fn whole(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The median of each figure by itself; of peaks the largest.
fn median(series: &Series) -> Cost {
    let of = |field: fn(&Cost) -> u64| {
        let mut all: Vec<u64> = series.rounds.iter().map(field).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    Cost {
        root: String::new(),
        cpu_ns: of(|cost| cost.cpu_ns),
        wall_ns: of(|cost| cost.wall_ns),
        allocs: of(|cost| cost.allocs),
        alloc_bytes: of(|cost| cost.alloc_bytes),
        peak_bytes: series.rounds.iter().map(|cost| cost.peak_bytes).max().unwrap_or_default(),
    }
}

fn time(ns: Option<f64>) -> String {
    scaled(ns, &[(1e9, " s"), (1e6, " ms"), (1e3, " us"), (1.0, " ns")])
}

fn size(bytes: Option<f64>) -> String {
    const KIB: f64 = 1024.0;
    let units = [(KIB * KIB * KIB, " GiB"), (KIB * KIB, " MiB"), (KIB, " KiB"), (1.0, " B")];
    scaled(bytes, &units)
}

/// As a whole number, with three digits that count.
fn count(number: Option<f64>) -> String {
    let Some(number) = number else { return "-".into() };
    let unit = 10_f64.powf((number.max(1.0).log10().floor() - 2.0).max(0.0));
    whole(((number / unit).round() * unit) as u64)
}

/// A figure in the largest unit of which it is at least one, with three digits that count.
fn scaled(figure: Option<f64>, units: &[(f64, &str)]) -> String {
    let Some(figure) = figure else { return "-".into() };
    let unit = units.iter().find(|(size, _)| figure >= *size);
    let (size, name) = unit.or(units.last()).copied().unwrap_or((1.0, ""));
    let scaled = figure / size;
    let decimals = if scaled >= 100.0 { 0 } else { usize::from(scaled < 10.0) + 1 };
    format!("{scaled:.decimals$}{name}")
}

/// All rounds of all cases, and what they were measured on.
#[derive(Serialize)]
struct Report<'a> {
    schema_version: u32,
    leaves: usize,
    backends: String,
    outcomes: &'a [Outcome],
}

/// Writes all rounds to a file.
pub fn write_json(path: &Path, leaves: usize, outcomes: &[Outcome]) -> Result<(), Error> {
    let backends = spinney_hash::backends().to_string();
    let report = Report { schema_version: 1, leaves, backends, outcomes };
    serde_json::to_writer_pretty(File::create(path)?, &report)?;
    Ok(())
}
