//! `import tapd`: the sum trees of a Taproot Assets database, each hash and sum of it verified.

use alloy_primitives::{B256, hex};
use clap::Args;
use serde_json::json;
use spinney_state::sum::{NAME_BYTES_MAX, SumBatch, SumTree};
use spinney_store::AnyStore;
use spinney_tapd::{Database, Report, TapdError};
use spinney_tree::sum::{Profile, SumNode};

use super::raw::BATCH_BYTES;
use crate::args::{AtArgs, FormatArgs, ModeArgs};
use crate::failure::{Exit, Failure};
use crate::hints::server_hint;
use crate::place_name::PlaceName;
use crate::ui::progress::{Progress, Unit};
use crate::ui::{Answer, Grid, Output};

/// What a leaf counts for, beside its value.
const LEAF_BYTES: usize = 300;
/// Findings that are shown of a damaged tree.
const SHOWN: usize = 20;

#[derive(Debug, Args)]
pub(crate) struct TapdArgs {
    #[command(flatten)]
    at: AtArgs,
    /// A tree to import; all of them if none is named. May be given several times.
    #[arg(long, value_name = "NAME")]
    namespace: Vec<String>,
    /// tapd's SQLite file, or postgres://user@host/database. It is only read; tapd may be running.
    #[arg(value_name = "DATABASE")]
    database: PlaceName,
    /// Import the sound leaves of a damaged tree into a new one, whose root is another; say the
    /// stored root, the new one, and each row that does not fit. Without this a damaged tree is
    /// refused.
    #[arg(long)]
    salvage: bool,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    pub(super) format: FormatArgs,
}

/// A tree that was imported.
struct Imported {
    name: String,
    root: SumNode,
    report: Report,
}

pub(super) fn run(args: &TapdArgs, output: &Output) -> anyhow::Result<Answer> {
    args.mode.heed();
    let place = args.at.place()?;
    place.must_be_new("trees are imported into a new --db")?;
    let mut database = open(&args.database).map_err(explain)?;
    let names = match &args.namespace[..] {
        [] => database.namespaces().map_err(explain)?.into_iter().map(|tree| tree.name).collect(),
        names => {
            let mut names = names.to_vec();
            names.sort();
            names.dedup();
            names
        }
    };
    check_names(&names)?;
    let mut imported = Vec::new();
    let store = place.create(output, |store| {
        for name in &names {
            let progress = Progress::new(output.quiet(), "import", Unit::Keys, None);
            let salvage = args.salvage;
            let into = (store, place.tree_cache());
            imported.push(import(&mut database, name, into, salvage, progress)?);
        }
        Ok(())
    })?;
    store.close()?;
    for Imported { name, root, report } in
        imported.iter().filter(|tree| tree.report.damage_count > 0)
    {
        let (leaves, count) = (report.leaves, report.damage_count);
        let stored = report.root.map_or("unknown".into(), |root| hex::encode_prefixed(root.hash));
        let new = hex::encode_prefixed(root.hash);
        output.warn(format!(
            "the tree \"{name}\" was damaged ({count} findings): its {leaves} sound leaves were \
             imported; stored root \
             {stored}, new root {new}"
        ));
        report.damage.iter().for_each(|damage| output.tell(&format!("  {damage}")));
        let more = count - report.damage.len() as u64;
        if more > 0 {
            output.tell(&format!("  and {more} more"));
        }
    }
    answer(&imported)
}

fn open(database: &PlaceName) -> Result<Database, TapdError> {
    match database {
        PlaceName::Server(address) => Database::postgres(address),
        PlaceName::Path(path) => Database::sqlite(path),
    }
}

/// Refuses names that a store cannot have, before anything is read.
fn check_names(names: &[String]) -> Result<(), Failure> {
    let Some(name) = names.iter().find(|name| !(1..=NAME_BYTES_MAX).contains(&name.len())) else {
        return Ok(());
    };
    let begins: String = name.chars().take(40).collect();
    Err(Failure::new(format!(
        "the namespace \"{}..\" of {} bytes, where 1 to {NAME_BYTES_MAX} are taken",
        begins,
        name.len()
    ))
    .hint("nothing was made; --namespace, given as often as need be, imports the other trees"))
}

/// Puts one tree into the store, in as many batches as its leaves take.
fn import(
    database: &mut Database,
    name: &str,
    (store, cache_bytes): (&AnyStore, usize),
    salvage: bool,
    mut progress: Progress,
) -> anyhow::Result<Imported> {
    let mut tree = SumTree::create(store, name, Profile::Compatible, cache_bytes)?;
    let (mut batch, mut bytes, mut leaves) = (SumBatch::new(), 0, 0);
    let report = database.read(name, &mut |key, leaf| {
        batch.put(&key, &leaf);
        bytes += LEAF_BYTES + leaf.value.len();
        leaves += 1;
        progress.update(leaves, || format!("tree {name}"));
        if bytes >= BATCH_BYTES {
            tree.apply(&mut std::mem::take(&mut batch))?;
            bytes = 0;
        }
        Ok::<_, anyhow::Error>(())
    });
    progress.finish();
    let report = report.map_err(|error| match error.downcast::<TapdError>() {
        Ok(error) => explain(error).into(),
        Err(error) => error,
    })?;
    if report.damage_count > 0 && !salvage {
        return Err(damaged(name, &report).into());
    }
    tree.apply(&mut batch)?;
    let (root, expected) = (tree.root(), report.root);
    // Each row's hash held; so this is our own failure, if it ever is one.
    if report.damage_count == 0 && expected.is_some_and(|expected| expected != root) {
        let what = format!("the tree \"{name}\" has another root than its database says");
        let hint = "this is a bug of spinney: its rows are sound; nothing was made";
        return Err(Failure::new(what).exit(Exit::No).hint(hint).into());
    }
    Ok(Imported { name: name.to_owned(), root, report })
}

fn damaged(name: &str, report: &Report) -> Failure {
    let shown = report.damage.iter().take(SHOWN).map(ToString::to_string);
    let more = report.damage_count.saturating_sub(SHOWN as u64);
    let more = (more > 0).then(|| format!("and {more} more"));
    Failure::new(format!("the tree \"{name}\" is damaged; {} leaves are sound", report.leaves))
        .details(shown.chain(more).collect())
        .exit(Exit::No)
        .hint("nothing was made; --salvage imports the sound leaves, --namespace the other trees")
}

fn explain(error: TapdError) -> Failure {
    let hint = match &error {
        TapdError::Server { source, .. } => server_hint(source),
        TapdError::NoTree { .. } => "--namespace takes one of those; without it all are imported",
        TapdError::Shared { .. } => "nothing was made; such a database is made by hand",
        TapdError::Missing(_) => "the database of tapd is tapd.db in its data folder",
        _ => "DATABASE is tapd's SQLite file, or postgres://user@host/database",
    };
    Failure::new(error.to_string()).hint(hint)
}

fn answer(imported: &[Imported]) -> anyhow::Result<Answer> {
    let tree = |Imported { name, root, report }: &Imported| {
        json!({
            "namespace": name, "root": B256::from(root.hash), "sum": root.sum.to_string(),
            "leaves": report.leaves, "rows": report.rows,
            "stored_root": report.root.map(|root| B256::from(root.hash)),
            "damage_count": report.damage_count,
            "damage": report.damage.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    };
    let trees: Vec<_> = imported.iter().map(tree).collect();
    let grid = Grid::of_records(&["namespace", "leaves", "sum", "root"], &trees);
    let answer = Answer::of(&json!({ "trees": trees }))?;
    Ok(match imported {
        [] => answer.csv(grid).line("the database has no trees"),
        _ => answer.grid(grid),
    })
}
