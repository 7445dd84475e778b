//! The leaves of a document of a state, gathered for a tree that is built anew.

use std::io::Read;

use alloy_primitives::{Address, B256, U256, keccak256};
use spinney_pipeline::{Gather, PipelineError};
use spinney_state::{AccountChange, Preimages, leaf_of_slot, leaves_of};
use spinney_tree::{PageStore, StoreError, Table, WriteSet};

use crate::state_file::{StateFile, StateFileError, StateTaker, read_state_slots};

/// Code is committed whenever it takes so many bytes.
const NOTED_BYTES: usize = 16 << 20;

/// Why a leaf of a document could not be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatherError {
    /// It could not be sorted, or comes twice; or somebody asked for an end.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What was read of a document.
#[derive(Debug)]
#[non_exhaustive]
pub struct GatheredState {
    /// What it says of its state.
    pub file: StateFile,
    /// The preimages of its keys, which are not in the store yet.
    pub preimages: Preimages,
    /// Code that is not in the store yet: it is to go along with the last commit.
    pub codes: WriteSet,
}

/// Takes the leaves of a document slot by slot. Its code goes to the store at once, where it is
/// true of any state; also where the leaves are sorted already, since what was noted last time may
/// be lost. `progress` is told how many leaves there were, and the account, and may end it all by
/// [`PipelineError::Stopped`].
///
/// # Errors
/// If the document is none, the store or a file fails, or `progress` ends it.
pub fn gather_state(
    input: impl Read,
    gather: &mut Gather,
    preimages: Preimages,
    store: &impl PageStore,
    progress: impl FnMut(u64, Address) -> Result<(), PipelineError>,
) -> Result<GatheredState, StateFileError<GatherError>> {
    let mut leaves = GatherLeaves {
        store,
        gather,
        preimages,
        codes: WriteSet::new(),
        codes_bytes: 0,
        account: None,
        count: 0,
        progress,
    };
    let file = read_state_slots(input, &mut leaves)?;
    let GatherLeaves { preimages, codes, .. } = leaves;
    Ok(GatheredState { file, preimages, codes })
}

struct GatherLeaves<'a, P, F> {
    store: &'a P,
    gather: &'a mut Gather,
    preimages: Preimages,
    codes: WriteSet,
    codes_bytes: usize,
    /// The account whose slots come, and the hash of its address.
    account: Option<(Address, B256)>,
    /// Leaves so far.
    count: u64,
    progress: F,
}

impl<P: PageStore, F: FnMut(u64, Address) -> Result<(), PipelineError>> GatherLeaves<'_, P, F> {
    /// Goes on to the next leaf.
    fn taken(&mut self, address: Address) -> Result<(), GatherError> {
        self.count += 1;
        (self.progress)(self.count, address)?;
        if self.codes_bytes >= NOTED_BYTES {
            self.codes_bytes = 0;
            let mut set = std::mem::take(&mut self.codes);
            set.sort();
            self.store.commit(&set)?;
        }
        Ok(())
    }
}

impl<P: PageStore, F> StateTaker for GatherLeaves<'_, P, F>
where
    F: FnMut(u64, Address) -> Result<(), PipelineError>,
{
    type Error = GatherError;

    fn slot(&mut self, address: Address, slot: B256, value: U256) -> Result<(), GatherError> {
        let (_, account) = match self.account {
            Some(known) if known.0 == address => known,
            _ => *self.account.insert((address, keccak256(address))),
        };
        let Self { gather, preimages, .. } = self;
        let preimage = |hash: B256, value: &[u8]| preimages.push(&hash, value);
        leaf_of_slot(account, &slot, value, preimage, |key, value| gather.push(key, value))?;
        self.taken(address)
    }

    fn account(&mut self, address: Address, change: AccountChange) -> Result<(), GatherError> {
        let Self { gather, preimages, codes, codes_bytes, .. } = self;
        if let Some(code) = change.code.as_ref().filter(|code| !code.is_empty()) {
            *codes_bytes += 32 + code.len();
            codes.put(Table::Codes, keccak256(code).as_slice(), code.to_vec());
        }
        let preimage = |hash: B256, value: &[u8]| preimages.push(&hash, value);
        leaves_of(address, &change, preimage, |key, value| gather.push(key, value))?;
        self.taken(address)
    }
}

/// Whose key of the trie it is, in words, as a document tells: that of an account, or of a slot.
/// `None` if it names neither; what is wrong with it behind that place is of no use here.
pub fn whose_key(input: impl Read, key: &[u8]) -> Option<String> {
    let mut finder = KeyFinder { key, whose: None };
    let _ = read_state_slots(input, &mut finder);
    finder.whose
}

/// Finds out whose key it is.
struct KeyFinder<'k> {
    key: &'k [u8],
    whose: Option<String>,
}

impl StateTaker for KeyFinder<'_> {
    type Error = PipelineError;

    fn slot(&mut self, address: Address, slot: B256, _: U256) -> Result<(), PipelineError> {
        match self.key.split_at_checked(32) {
            Some((account, of_slot))
                if keccak256(slot).as_slice() == of_slot
                    && keccak256(address).as_slice() == account =>
            {
                self.whose = Some(format!("slot {slot} of account {address}"));
                Err(PipelineError::Stopped)
            }
            _ => Ok(()),
        }
    }

    fn account(&mut self, address: Address, _: AccountChange) -> Result<(), PipelineError> {
        if keccak256(address).as_slice() != self.key {
            return Ok(());
        }
        self.whose = Some(format!("account {address}"));
        Err(PipelineError::Stopped)
    }
}
