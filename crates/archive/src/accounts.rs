//! Accounts of an archive, proven in its trees.

use alloy_primitives::Address;
use spinney_state::embed::{BinaryState, EmbedError, Whole};
use spinney_state::{State, StateError, TreeName};
use spinney_tree::mpt::proof::ProofError;
use spinney_tree::pbt::Pbt;
use spinney_tree::{KeyProofs as _, KeysFault, RootRecord, SharedStore};

use crate::archive::AtBlock;

/// Memory for the pages of a tree.
const TREE_CACHE_BYTES: usize = 16 << 20;

/// Why accounts are not as an archive has them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountsError {
    /// What is proven of an account does not lead to the root.
    #[error("the proof of {address} in {tree} does not lead to the root: {why}")]
    Proof {
        /// The account.
        address: Address,
        /// The tree.
        tree: TreeName,
        /// Why not.
        why: String,
    },
    /// The state could not be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// A tree could not be opened.
    #[error(transparent)]
    Tree(#[from] EmbedError),
}

impl AtBlock {
    /// Proves accounts in one of the trees in which an account's keys lie together, and verifies
    /// the proofs against the root of the tree. In other trees nothing is looked at.
    ///
    /// # Errors
    /// If a proof does not hold, or something cannot be read.
    pub fn verify_accounts(
        &self,
        record: &RootRecord,
        addresses: &[Address],
    ) -> Result<(), AccountsError> {
        let Some(tree) = TreeName::of(record.scheme) else { return Ok(()) };
        let wrong = |address: &Address, why: String| {
            Err(AccountsError::Proof { address: *address, tree, why })
        };
        let store = SharedStore::new(self.clone());
        match tree {
            TreeName::Mpt => {
                let state = State::open(store, TREE_CACHE_BYTES)?;
                for address in addresses {
                    let verified = state.prove(*address, &[])?.verify(&state.root()).map(drop);
                    verified.or_else(|error: ProofError| wrong(address, error.to_string()))?;
                }
            }
            TreeName::Pbt(hash) => {
                let state = BinaryState::open(Pbt { hash }, store, TREE_CACHE_BYTES)?;
                let (last, of) = (state.last()?, Whole::new(Pbt { hash }));
                for address in addresses {
                    let proof = last.prove(&of.account_keys(address))?;
                    let verified = Pbt { hash }.verify_keys(&last.root().0, &proof).map(drop);
                    verified.or_else(|error: KeysFault| wrong(address, error.to_string()))?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
