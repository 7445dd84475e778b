//! `witness check`, `diff` and `minimize`.

use std::io::Write as _;
use std::path::PathBuf;

use alloy_primitives::B256;
use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use spinney_replay::{Diagnosis, Finding, GivenWitness, PartCounts, witness_differences};

use super::source::{Chain, ChainArgs, bytes, difficulty, first, witnesses};
use crate::args::FormatArgs;
use crate::failure::{Exit, Failure};
use crate::out_file::OutFile;
use crate::ui::{Format, Grid, Output, counted};

/// Say which rules of the canonical form witnesses break, a line each; the exit code is 1 where
/// they do.
///
/// Takes geth's, reth's and canonical JSON, one witness or many, and the SSZ that guests take. Each
/// block is executed on its witness alone, so what each node, code, key and header is needed for is
/// known: by a read, a write, a collapse, or not at all.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    spinney witness check witness.json --genesis genesis.json --blocks chain.rlp\n  \
    spinney witness check input.ssz --genesis genesis.json")]
pub(super) struct WitnessCheckArgs {
    /// The witnesses; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    chain: ChainArgs,
    #[command(flatten)]
    pub(super) format: FormatArgs,
}

/// Say in what two witnesses of one block differ, a line each; the exit code is 1 where they do.
///
/// With the chain it is said what each part that only one has is needed for.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    spinney witness diff geth.json spinney.json --genesis genesis.json --blocks chain.rlp")]
pub(super) struct DiffArgs {
    /// The first witness.
    #[arg(value_name = "FIRST")]
    first: PathBuf,
    /// The second witness.
    #[arg(value_name = "SECOND")]
    second: PathBuf,
    #[command(flatten)]
    chain: ChainArgs,
}

/// Write the canonical witness of a block out of one that holds more, or holds it in another order.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    spinney witness minimize padded.json --genesis genesis.json --blocks chain.rlp --out \
    canonical.json")]
pub(super) struct MinimizeArgs {
    /// The witnesses; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    chain: ChainArgs,
    /// Where the canonical ones go, a line each, all or none of them; without it, to standard
    /// output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What is said of one witness. Fields: a line of JSON is flat.
#[derive(Debug, Serialize)]
struct WitnessReport {
    block: u64,
    hash: B256,
    canonical: bool,
    /// Whether the block could be executed on it.
    executed: bool,
    #[serde(flatten)]
    parts: PartCounts,
    bytes: usize,
    findings: Vec<Finding>,
    /// Findings beyond those that are listed.
    more: usize,
}

fn need_chain(args: &ChainArgs) -> anyhow::Result<Chain> {
    let what = "which rules the block follows is not known (--genesis)";
    let hint = "give --genesis, and --blocks with it unless the file is the input of a guest";
    Ok(Chain::open(args)?.ok_or_else(|| Failure::new(what).hint(hint))?)
}

/// Examines a witness, with what is wrong with its encoding.
fn examine(
    chain: &mut Chain,
    given: &GivenWitness,
) -> anyhow::Result<(spinney_replay::ChainBlock, Diagnosis)> {
    let block = chain.block_of(given)?;
    let config = &chain.genesis.config;
    let mut diagnosis = given.witness.examine(config, difficulty(&block), &block);
    for finding in &given.findings {
        diagnosis.findings.push(finding.clone());
    }
    Ok((block, diagnosis))
}

pub(super) fn check(args: &WitnessCheckArgs, output: &Output) -> anyhow::Result<Exit> {
    let mut chain = need_chain(&args.chain)?;
    let (mut count, mut ill) = (0_u64, 0_u64);
    for given in witnesses(&args.file)? {
        let given = given.with_context(|| format!("in {}", args.file.display()))?;
        let (block, diagnosis) = examine(&mut chain, &given)?;
        count += 1;
        ill += u64::from(!diagnosis.is_canonical());
        let header = &block.block.header;
        let findings: Vec<_> = diagnosis.findings.iter().cloned().collect();
        let report = WitnessReport {
            block: header.number,
            hash: block.hash,
            canonical: diagnosis.is_canonical(),
            executed: diagnosis.canonical.is_some(),
            parts: diagnosis.parts,
            bytes: bytes(&given.witness),
            more: diagnosis.findings.count() - findings.len(),
            findings,
        };
        print(&report, output)?;
    }
    if count == 0 {
        let what = format!("{} holds no witness", args.file.display());
        return Err(Failure::new(what).hint("spinney witness --block N makes one").into());
    }
    Ok(if ill == 0 { Exit::Ok } else { Exit::No })
}

fn print(report: &WitnessReport, output: &Output) -> anyhow::Result<()> {
    match output.format() {
        Format::Json => output.json(report)?,
        Format::Csv => {
            let mut grid = Grid::new(&["block", "kind", "what"]);
            for told in &report.findings {
                let block = report.block.to_string();
                grid.row(vec![block, told.kind.name().to_owned(), told.what.clone()]);
            }
            output.grid(&grid)?;
        }
        Format::Table => {
            let block = report.block;
            let PartCounts { reads, writes, collapses, surplus, codes, headers, .. } = report.parts;
            let parts = format!(
                "nodes of reads {reads}, writes {writes}, collapses {collapses}, surplus \
                 {surplus}; codes {codes}; headers {headers}; {} bytes",
                report.bytes
            );
            let word = match (report.canonical, report.executed) {
                (true, _) => format!("canonical ({parts})"),
                (false, true) => format!("sufficient, not canonical ({parts})"),
                (false, false) => "not sufficient".to_owned(),
            };
            output.line(&format!("block {block}: {word}"))?;
            for told in &report.findings {
                output.line(&format!("  {}: {}", told.kind.name(), told.what))?;
            }
            if report.more > 0 {
                output.line(&format!("  and {} more", report.more))?;
            }
        }
    }
    Ok(())
}

pub(super) fn diff(args: &DiffArgs, output: &Output) -> anyhow::Result<Exit> {
    let (a, b) = (first(&args.first)?, first(&args.second)?);
    let mut chain = Chain::open(&args.chain)?;
    let mut look = |given: &GivenWitness| match &mut chain {
        Some(chain) => examine(chain, given).map(|(_, diagnosis)| Some(diagnosis)),
        None => Ok(None),
    };
    let (of_a, of_b) = (look(&a)?, look(&b)?);
    let mut lines = witness_differences((&a.witness, &b.witness), (of_a.as_ref(), of_b.as_ref()));
    for (side, given, other) in [("first", &a, &b), ("second", &b, &a)] {
        let only = given.findings.iter().filter(|finding| !other.findings.contains(finding));
        lines.extend(only.map(|finding| format!("form: the {side}: {}", finding.what)));
    }
    for line in &lines {
        output.line(line)?;
    }
    if lines.is_empty() {
        output.note("the witnesses are equal");
    }
    Ok(if lines.is_empty() { Exit::Ok } else { Exit::No })
}

pub(super) fn minimize(args: &MinimizeArgs, output: &Output) -> anyhow::Result<Exit> {
    let mut chain = need_chain(&args.chain)?;
    let mut out = OutFile::begin(args.out.as_deref())?;
    let (mut count, mut before, mut after) = (0_u64, 0, 0);
    for given in witnesses(&args.file)? {
        let given = given.with_context(|| format!("in {}", args.file.display()))?;
        let (block, diagnosis) = examine(&mut chain, &given)?;
        let number = block.block.header.number;
        let Some(canonical) = &diagnosis.canonical else {
            let why = diagnosis.findings.iter().next().map(ToString::to_string);
            let what = format!("block {number} cannot be executed on the witness");
            return Err(Failure::new(what)
                .because(anyhow::anyhow!(why.unwrap_or_default()))
                .hint("spinney witness check says all that is wrong with it")
                .exit(Exit::No)
                .into());
        };
        writeln!(out, "{}", serde_json::to_string(canonical)?).context("writing a witness")?;
        count += 1;
        before += bytes(&given.witness);
        after += bytes(canonical);
    }
    out.finish().context("writing the witnesses")?;
    output.note(&format!(
        "{}, {before} bytes before and {after} after",
        counted(count, "witness", "witnesses")
    ));
    Ok(Exit::Ok)
}
