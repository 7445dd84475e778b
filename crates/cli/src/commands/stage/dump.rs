//! `stage dump`: the state before a range of blocks, in a store of its own.

use std::io::Write as _;
use std::path::Path;

use alloy_primitives::B256;
use spinney_pipeline::Latest;
use spinney_replay::BlockDiff;
use spinney_state::{MPT, State, copy_table};
use spinney_store::Frozen;
use spinney_tree::mpt::MptState;
use spinney_tree::{PageStore, SharedStore, Snapshot, Table, Tree, WriteSet};

use super::StageDumpArgs;
use super::run::{Built, Work, is_stopped};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::out_file::OutFile;
use crate::stores::Mode;
use crate::trees;
use crate::ui::progress::{Progress, Unit};
use crate::ui::{Answer, Output};

/// Memory for pages of each of the stores.
const CACHE_BYTES: usize = 64 << 20;

pub(super) fn run(args: &StageDumpArgs, output: &Output) -> anyhow::Result<Answer> {
    let place = args.stores.source(CACHE_BYTES)?;
    let into = args.stores.target(CACHE_BYTES)?;
    let before = args.from.checked_sub(1).ok_or_else(|| {
        Failure::new("there is no state before block 0 (--from)").hint("--from 1 is the first one")
    })?;
    if into.exists()? {
        let what = format!("there is a store already at {}", into.name());
        return Err(Failure::new(what).hint("a dump goes to a new TARGET").into());
    }
    let store = place.open(Mode::Look)?;
    let store = SharedStore::new(Frozen::of(&store)?);
    check_mpt_alone(&store.snapshot()?)?;
    let state = State::open(store.clone(), place.tree_cache())?;
    let kept = state.at(before)?;
    let interrupt = Interrupt::listen()?;
    let scratch = args.work.scratch.at(into.location.as_ref())?;
    // What can be refused is refused before a store is made.
    let lines = match &args.diffs_out {
        None => None,
        Some(file) => Some((lines(args, &state, scratch.path())?, OutFile::begin(Some(file))?)),
    };
    let mut built = None;
    let made = into.create(output, |fresh| {
        let mut tree = Tree::open(MptState, MPT, &fresh.snapshot()?, into.tree_cache())?;
        let options = args.work.options();
        let work = Work { store: fresh, interrupt: &interrupt, output };
        let source = [b"dump", kept.root().as_slice()].concat();
        let mut gather = work.gather(scratch.path(), &tree, &source, options)?;
        let mut progress = Progress::new(output.quiet(), "gather", Unit::Keys, None);
        let entries = kept.tree().entries(kept.snapshot(), kept.pending(), b"");
        for (count, entry) in (1..).zip(entries) {
            let entry = entry?;
            work.goes_on()?;
            gather.push(&entry.key, &entry.value)?;
            progress.update(count, || "leaves".into());
        }
        progress.finish();
        for table in [Table::Codes, Table::Preimages] {
            copy_table(kept.snapshot(), table, fresh)?;
        }
        if let Some(genesis) = state.genesis()? {
            let mut set = WriteSet::new();
            set.put(Table::Meta, b"genesis", genesis.to_vec());
            gather.take_along(set);
        }
        let report = work.rebuild(gather, &mut tree, kept.block(), Some(kept.root().0))?;
        built = Some(Built::of(&report, B256::from(tree.root()), tree.block()));
        Ok(())
    });
    if made.is_err() {
        // The store went, and what was sorted for it is of no use; the first error says more.
        let _ = scratch.forget();
    }
    let made = match made {
        Err(error) if is_stopped(&error) => {
            output.tell("nothing was made; the same command begins anew");
            return Ok(Answer::interrupted());
        }
        made => made?,
    };
    made.close()?;
    if let Some((mut lines, mut out)) = lines {
        lines.each::<anyhow::Error>(|_, line| Ok(out.write_all(line)?))?;
        out.finish()?;
    }
    built.expect("what made the store built it").answer()
}

/// Refuses a store whose other trees would stay behind.
fn check_mpt_alone(snapshot: &impl Snapshot) -> anyhow::Result<()> {
    let others = trees::records(snapshot)?.into_iter().filter(|(id, _)| *id != MPT);
    let others: Vec<_> = others
        .map(|(id, record)| record.map_or(id.to_string(), |record| trees::name_of(record.scheme)))
        .collect();
    if !others.is_empty() {
        let what =
            format!("the store holds {}, which would stay behind (SOURCE)", others.join(", "));
        let hint = "a dump is of mpt alone; spinney import state --tree takes what spinney db \
                    dump prints of a block into several trees";
        return Err(Failure::new(what).hint(hint).into());
    }
    Ok(())
}

/// What the blocks of the range did, by their numbers: lines of state differences, on disk where
/// they are many.
fn lines<P: PageStore>(
    args: &StageDumpArgs,
    state: &State<P>,
    scratch: &Path,
) -> anyhow::Result<Latest> {
    let head = state.block().map_or(0, |block| block.number);
    let to = args.to.unwrap_or(head);
    if to < args.from {
        let what = format!("the range ends at block {to}, before it begins (--from {})", args.from);
        return Err(Failure::new(what).hint("--to N is the last block of the range").into());
    }
    let memory = args.work.options().memory / 2;
    let mut lines = Latest::new(&scratch.with_extension("lines"), memory);
    let mut next = to + 1;
    state.differences::<anyhow::Error>(args.from - 1, to, |block, root, changes| {
        if block.number + 1 != next {
            let what = format!(
                "the history has no block {}: it went in together with a later one, without a root \
                 of its own",
                next - 1
            );
            return Err(Failure::new(what)
                .hint("leave out --diffs-out, or begin behind it")
                .into());
        }
        next = block.number;
        let mut line = BlockDiff::new(block.number, changes, Some(root)).to_line();
        line.push('\n');
        Ok(lines.put(&block.number.to_be_bytes(), line.as_bytes())?)
    })?;
    Ok(lines)
}
