//! The table of ratios.

use crate::work::Line;
use crate::{Error, SIDES};

/// What is measured, and over how many keys the tree then is.
const CASES: [(&str, &str); 6] = [
    ("load", "insert and commit"),
    ("root", "update, root alone"),
    ("written", "update, root and write set"),
    ("update", "update and write set; go-verkle's root alone"),
    ("prove", "make a proof"),
    ("verify", "verify it"),
];

pub(crate) fn print(lines: &[(&str, usize, Line)]) -> Result<(), Error> {
    println!(
        "| what | keys | tree | ours, IFMA | ours, portable | go-verkle | IFMA / go | portable / go |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (case, name) in CASES {
        let mut rows: Vec<(usize, usize)> = lines
            .iter()
            .filter(|(_, _, line)| line.case == case)
            .map(|(_, tree, line)| (line.keys, *tree))
            .collect();
        rows.sort_unstable();
        rows.dedup();
        for (keys, tree) in rows {
            let of = |side: &str| {
                let found = |l: &&(&str, usize, Line)| {
                    (l.0, l.1, &l.2.case[..], l.2.keys) == (side, tree, case, keys)
                };
                lines.iter().filter(found).map(|l| &l.2).collect::<Vec<_>>()
            };
            let sides = SIDES.map(of);
            agree(&sides, name)?;
            // Loads and updates are told for one key, proofs as they are.
            let each = if matches!(case, "prove" | "verify") { 1.0 } else { keys as f64 };
            let [ifma, portable, go] = sides.map(|lines| least(&lines) / each / 1e3);
            println!(
                "| {name} | {keys} | {tree} | {} | {} | {} | {:.3} | {:.3} |",
                micros(ifma),
                micros(portable),
                micros(go),
                ifma / go,
                portable / go
            );
        }
    }
    let memory: Vec<_> = lines.iter().filter(|(_, _, line)| line.case == "memory").collect();
    for (side, tree, line) in memory {
        println!(
            "{side}: {:.0} bytes of resident memory a key of {tree}",
            line.bytes as f64 / *tree as f64
        );
    }
    Ok(())
}

/// All sides came to the same.
fn agree(sides: &[Vec<&Line>; 3], name: &str) -> Result<(), Error> {
    let checks = |lines: &Vec<&Line>| lines.iter().map(|l| l.check.clone()).collect::<Vec<_>>();
    if sides.iter().any(|lines| checks(lines) != checks(&sides[0])) {
        return Err(format!("{name}: the sides do not agree").into());
    }
    Ok(())
}

/// What other work on the machine added least to.
fn least(lines: &[&Line]) -> f64 {
    lines.iter().map(|line| line.cpu_ns).min().unwrap_or_default() as f64
}

fn micros(us: f64) -> String {
    if us < 1e3 { format!("{us:.1} us") } else { format!("{:.2} ms", us / 1e3) }
}
