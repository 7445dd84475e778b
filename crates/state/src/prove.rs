//! Proofs of accounts and slots, in whatever state they are asked for; the witnesses that are kept.

use alloy_primitives::{Address, B256};
use rayon::prelude::*;
use spinney_tree::mpt::proof::AccountProof;
use spinney_tree::mpt::{MptState, PathNodes};
use spinney_tree::{Operation, PageStore, Pending, Snapshot, Table, Tree};

use crate::error::StateError;
use crate::history::KeptState;
use crate::lazy::LazySnapshot;
use crate::mpt_state::State;
use crate::witnesses::{KeptWitness, key};

/// From so many keys on, threads share their paths; and how many parts each is to have.
const SPLIT_KEYS: usize = 1_024;
const PARTS_EACH: usize = 4;

/// A state to come back to: see [`State::mark`]. It holds what was applied until then, and is good
/// until a later state is committed.
#[derive(Clone, Debug)]
pub struct Mark(Option<Pending<MptState>>);

impl Mark {
    /// What was done to the trie since the last commit: see [`Pending::operations`].
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        self.0.iter().flat_map(Pending::operations)
    }
}

impl<P: PageStore> State<P> {
    /// Proves an account and some of its slots, present or absent, in all that was applied.
    ///
    /// ```
    /// use alloy_primitives::{Address, B256, U256};
    /// use spinney_state::{AccountChange, Change, Changes, State};
    /// use spinney_tree::MemoryStore;
    ///
    /// let mut state = State::open(MemoryStore::new(), 1 << 20)?;
    /// let rich = AccountChange { balance: Some(U256::from(5)), ..AccountChange::default() };
    /// let mut changes = Changes::default();
    /// changes.accounts.insert(Address::ZERO, Change::Written(rich));
    /// let root = state.apply(&changes)?;
    /// let verified = state.prove(Address::ZERO, &[B256::ZERO])?.verify(&root)?;
    /// assert_eq!(verified.account().unwrap().balance[31], 5);
    /// assert_eq!(verified.slot(&[0; 32])?, [0; 32]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the store fails or is damaged.
    pub fn prove(&self, address: Address, slots: &[B256]) -> Result<AccountProof, StateError> {
        let mut proofs = self.prove_many(&[(address, slots.to_vec())])?;
        Ok(proofs.pop().expect("one account, one proof"))
    }

    /// The same for many accounts, in one walk.
    ///
    /// # Errors
    /// If the store fails or is damaged.
    pub fn prove_many(
        &self,
        wanted: &[(Address, Vec<B256>)],
    ) -> Result<Vec<AccountProof>, StateError> {
        prove_in(self.mpt()?, &LazySnapshot::new(&self.store), self.top(), wanted)
    }

    /// Remembers the state as it is, with all that was applied.
    pub fn mark(&self) -> Mark {
        Mark(self.top().cloned())
    }

    /// The nodes of a marked state on the paths of hashed keys: accounts of 32 bytes, slots of 64
    /// (account, slot). Of many keys the threads of the current rayon pool each take some: of each
    /// of these parts all nodes, a parent before its children. What lies on paths of two parts is
    /// in both.
    ///
    /// # Errors
    /// If a later state was committed since the mark, or the store fails or is damaged.
    pub fn path_nodes<K: AsRef<[u8]>>(
        &self,
        mark: &Mark,
        keys: &[K],
    ) -> Result<Vec<PathNodes>, StateError> {
        let (tree, store, state) = (self.mpt()?, &self.store, mark.0.as_ref());
        let walk = |keys: &[&[u8]]| tree.path_nodes(&LazySnapshot::new(store), state, keys);
        let mut keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let threads = rayon::current_num_threads();
        if keys.len() < SPLIT_KEYS || threads == 1 {
            return Ok(vec![walk(&keys)?]);
        }
        // Keys that lie together share most of their paths.
        keys.sort_unstable();
        let each = keys.len().div_ceil(threads * PARTS_EACH);
        Ok(keys.par_chunks(each).map(walk).collect::<Result<Vec<_>, _>>()?)
    }
}

impl<P: PageStore> State<P> {
    /// Keeps the witnesses of the last so many blocks that have one
    /// [attached](Self::attach_witness); with 0, none, and the next commit removes those that are
    /// there. Where nobody says, what is there stays.
    pub const fn keep_witnesses(&mut self, count: u64) {
        self.witnesses.keep(count);
    }

    /// Whether witnesses are kept, and can be made: they are of a Merkle Patricia trie.
    pub fn keeps_witnesses(&self) -> bool {
        self.witnesses.keeps_any() && self.has_mpt()
    }

    /// Has the next commit keep the witness of the block that was sealed last.
    pub fn attach_witness(&mut self, witness: &KeptWitness) {
        if let Some((_, block)) = self.sealed.last() {
            self.witnesses.add(*block, witness);
        }
    }

    /// The state that the last sealed block left, to come back to, and its root.
    pub fn mark_sealed(&self) -> (Mark, B256) {
        let layers = self.sealed.last().map_or(0, |(layers, _)| *layers);
        let pending: Option<&Pending<MptState>> = match layers.checked_sub(1) {
            Some(last) => self.layers.get(last).and_then(|layer| layer.pending.as_ref()),
            None => None,
        };
        let committed = || self.mpt.as_ref().map_or([0; 32], |mpt| mpt.root());
        (Mark(pending.cloned()), pending.map_or_else(committed, Pending::root).into())
    }
}

/// The witness of a block, if a store keeps it: the hash that its block has, and the witness.
///
/// # Errors
/// If the store cannot be read, or what it keeps is no witness.
pub fn kept_witness(
    snapshot: &impl Snapshot,
    number: u64,
) -> Result<Option<(B256, KeptWitness)>, StateError> {
    let Some(row) = snapshot.read(Table::Meta, &key(number))? else { return Ok(None) };
    match KeptWitness::read(&row) {
        Ok((hash, witness)) => Ok(Some((hash.into(), witness))),
        Err(error) => Err(StateError::Witness { block: number, what: error.to_string() }),
    }
}

impl<P: PageStore> KeptState<'_, P> {
    /// Proves an account and some of its slots, present or absent, in this state.
    ///
    /// # Errors
    /// If the store fails or is damaged.
    pub fn prove(&self, address: Address, slots: &[B256]) -> Result<AccountProof, StateError> {
        let mut proofs = self.prove_many(&[(address, slots.to_vec())])?;
        Ok(proofs.pop().expect("one account, one proof"))
    }

    /// The same for many accounts, in one walk.
    ///
    /// # Errors
    /// If the store fails or is damaged.
    pub fn prove_many(
        &self,
        wanted: &[(Address, Vec<B256>)],
    ) -> Result<Vec<AccountProof>, StateError> {
        prove_in(self.tree(), self.snapshot(), self.pending(), wanted)
    }
}

fn prove_in(
    tree: &Tree<MptState>,
    snapshot: &impl Snapshot,
    state: Option<&Pending<MptState>>,
    wanted: &[(Address, Vec<B256>)],
) -> Result<Vec<AccountProof>, StateError> {
    let words = |slots: &Vec<B256>| slots.iter().map(|slot| slot.0).collect();
    let wanted: Vec<_> =
        wanted.iter().map(|(address, slots)| (address.into_array(), words(slots))).collect();
    Ok(tree.prove_accounts(snapshot, state, &wanted)?)
}
