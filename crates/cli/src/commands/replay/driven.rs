//! States that blocks are put into: one at a time, or in chunks; and what is refused before.

use spinney_replay::{Genesis, WorldState};
use spinney_state::{Chunks, Reader, State, StateError};
use spinney_store::AnyStore;
use spinney_tree::PageStore;

use crate::failure::Failure;
use crate::trees::{self, TreeSet};

/// A state over a store of the command's.
pub(crate) trait Driven: WorldState<Error = StateError> + Send {
    type Store: PageStore + Clone;

    fn kept(&self) -> &State<Self::Store>;
    fn kept_mut(&mut self) -> &mut State<Self::Store>;

    /// Whoever reads the last commit beside the state, where blocks are executed ahead of their
    /// roots.
    fn reader(&mut self) -> Option<Reader<Self::Store>> {
        None
    }
}

impl<P: PageStore + Clone> Driven for State<P> {
    type Store = P;

    fn kept(&self) -> &Self {
        self
    }

    fn kept_mut(&mut self) -> &mut Self {
        self
    }

    fn reader(&mut self) -> Option<Reader<P>> {
        Self::reader(self)
    }
}

/// What is gathered has no roots to wait for.
impl<P: PageStore + Clone> Driven for Chunks<P> {
    type Store = P;

    fn kept(&self) -> &State<P> {
        self.state()
    }

    fn kept_mut(&mut self) -> &mut State<P> {
        self.state_mut()
    }
}

/// Refuses the genesis of another chain at once, where the store knows its own.
pub(super) fn check_genesis(
    state: &State<impl PageStore>,
    genesis: &Genesis,
) -> anyhow::Result<()> {
    match state.genesis()? {
        Some(own) if own != genesis.hash => {
            let what = format!(
                "the store was filled from the genesis {own}, and this one is {} (--genesis)",
                genesis.hash
            );
            let hint = "give the genesis that the store was filled from, or a new --db";
            Err(Failure::new(what).hint(hint).into())
        }
        _ => Ok(()),
    }
}

/// Trees of a store go together: none is left behind, and none comes later.
pub(crate) fn check_trees(store: &AnyStore, trees: &TreeSet) -> anyhow::Result<()> {
    let snapshot = store.snapshot()?;
    let held = trees::held(&snapshot)?;
    if trees::of_states(&snapshot)?.is_empty() || held == *trees {
        return Ok(());
    }
    let what = format!("the store holds {held}, not {trees} (--tree)");
    let hint = format!("go on with --tree {held}, or begin anew in a new --db");
    Err(Failure::new(what).hint(hint).into())
}

/// Refuses to keep witnesses where no tree has them.
pub(crate) fn check_witnesses(keep: Option<u64>, trees: &TreeSet) -> Result<(), Failure> {
    if trees.has_mpt() || keep.unwrap_or(0) == 0 {
        return Ok(());
    }
    Err(Failure::new(format!("no witnesses are made of {trees} (--keep-witnesses)"))
        .hint("they are of mpt: give --tree mpt along, or leave out --keep-witnesses"))
}

/// Refuses a store that is past the last block wanted, or that nobody can say the block of.
pub(crate) fn check_head(state: &State<impl PageStore>, to: Option<u64>) -> Result<(), Failure> {
    match (state.block(), to) {
        (None, _) if state.commit_number() > 0 => {
            Err(Failure::new("the store holds a state, but not of which block")
                .hint("replay into a new --db"))
        }
        (Some(head), Some(to)) if to < head.number => {
            let what = format!("the store is at block {}, past --to {to}", head.number);
            Err(Failure::new(what)
                .hint("spinney stage unwind --db DIR --to N goes back; or replay into a new --db"))
        }
        _ => Ok(()),
    }
}
