//! Preimages of a whole state on their way to a store.

use std::path::Path;

use alloy_primitives::B256;
use spinney_pipeline::{Gather, Options, PipelineError, RunName, SortedLeaves};
use spinney_tree::{Table, WriteSet};

/// Preimages of a write set.
const AT_ONCE: usize = 1 << 17;

/// Sorts preimages by their hashes, in bounded memory. A store has those of neighbouring hashes in
/// one place: so each place is written once, however many there are.
///
/// ```
/// use alloy_primitives::{Address, keccak256};
/// use spinney_pipeline::{Options, RunName, Scratch};
/// use spinney_state::{MPT, Preimages};
/// use spinney_tree::{MemoryStore, PageStore, Snapshot, Table, Tree, mpt::MptState};
///
/// let (store, scratch) = (MemoryStore::new(), Scratch::new()?);
/// let tree = Tree::open(MptState, MPT, &store.snapshot()?, 0)?;
/// let run = RunName::of(&tree, b"two", &Options::default());
/// let mut preimages = Preimages::open(&scratch.beside("preimages"), run, 1 << 20)?;
/// for byte in [1, 2, 1] {
///     let address = Address::repeat_byte(byte);
///     preimages.push(&keccak256(address), address.as_slice())?;
/// }
/// let mut sorted = preimages.sort()?;
/// while let Some(set) = sorted.next_set()? {
///     store.commit(&set)?;
/// }
/// sorted.remove()?;
/// let hash = keccak256(Address::repeat_byte(2));
/// let row = store.snapshot()?.read(Table::Preimages, hash.as_slice())?.map(|row| row.to_vec());
/// assert_eq!(row.as_deref(), Some(Address::repeat_byte(2).as_slice()));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Preimages {
    gather: Gather,
    count: u64,
}

impl Preimages {
    /// Begins to sort those of a run, or goes on: the source has to push the same again, in the
    /// same order. What `memory` does not hold goes to files in `folder`.
    ///
    /// # Errors
    /// If a file cannot be read, made or removed.
    pub fn open(folder: &Path, run: RunName, memory: usize) -> Result<Self, PipelineError> {
        let mut options = Options::default();
        options.memory = memory;
        let gather = Gather::open(folder, run.beside(b"preimages"), options)?;
        Ok(Self { gather, count: 0 })
    }

    /// Takes what is behind a hash. It may come more than once.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn push(&mut self, hash: &B256, preimage: &[u8]) -> Result<(), PipelineError> {
        // No key may come twice.
        let mut key = [0; 40];
        key[..32].copy_from_slice(hash.as_slice());
        key[32..].copy_from_slice(&self.count.to_be_bytes());
        self.count += 1;
        self.gather.push(&key, preimage)
    }

    /// All that were pushed, in order of their hashes.
    ///
    /// # Errors
    /// If a file cannot be written or read.
    pub fn sort(self) -> Result<SortedPreimages, PipelineError> {
        Ok(SortedPreimages { leaves: self.gather.into_sorted()? })
    }
}

/// Preimages in order: see [`Preimages::sort`].
#[derive(Debug)]
pub struct SortedPreimages {
    leaves: SortedLeaves,
}

impl SortedPreimages {
    /// The next of them, for a commit of their own: they are true of any state.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn next_set(&mut self) -> Result<Option<WriteSet>, PipelineError> {
        let (mut set, mut last) = (WriteSet::new(), None);
        let mut count = 0;
        while let Some((key, preimage)) = self.leaves.leaf() {
            let (hash, _) = key.split_first_chunk::<32>().expect("they were pushed so");
            if last != Some(*hash) {
                if count == AT_ONCE {
                    break;
                }
                count += 1;
                last = Some(*hash);
                set.put(Table::Preimages, hash, preimage);
            }
            self.leaves.advance()?;
        }
        Ok((count > 0).then_some(set))
    }

    /// Removes the files that they lie in.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn remove(self) -> Result<(), PipelineError> {
        self.leaves.remove()
    }
}
