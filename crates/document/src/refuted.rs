//! Why what a document claims is not so.

use alloy_primitives::Address;
use spinney_proof::NotProven;
use spinney_proof::span::SpanError;
use spinney_state::TreeName;
use spinney_state::embed::EmbedError;
use spinney_tree::KeysFault;
use spinney_tree::mpt::proof::ProofError;
use spinney_tree::verkle::proof::ProofFault;

/// Why a claim does not hold.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refuted {
    /// A proof of a Merkle Patricia trie.
    #[error(transparent)]
    Trie(#[from] ProofError),
    /// A proof of keys of another tree.
    #[error(transparent)]
    Keys(#[from] KeysFault),
    /// The witness of a Verkle block.
    #[error(transparent)]
    Witness(#[from] ProofFault),
    /// A proof over time in a Merkle Patricia trie.
    #[error(transparent)]
    TrieSpan(#[from] SpanError<ProofError>),
    /// A proof over time in another tree.
    #[error(transparent)]
    KeysSpan(#[from] SpanError<KeysFault>),
    /// What was not proven was asked for.
    #[error(transparent)]
    NotProven(#[from] NotProven),
    /// The keys that were proven do not answer what is said to have been asked.
    #[error("its keys are not those of account {0}, its slots and its code")]
    OtherKeys(Address),
    /// What stands under the keys of an account is none.
    #[error(transparent)]
    NoAccount(#[from] EmbedError),
    /// The proof is one of another kind of tree.
    #[error("the document says tree {0}, and its proof is of another kind")]
    OtherKind(TreeName),
}
