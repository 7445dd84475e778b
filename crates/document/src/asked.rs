//! What is asked of an account in a tree whose values are words, and the keys that answer it.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_primitives::{Address, B256};
use serde::Serialize;
use spinney_state::embed::{EmbedError, Embedding, Word};

/// An account of such a tree, and what is asked of it beside its fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(clippy::exhaustive_structs, reason = "nothing else has keys")]
pub struct Asked {
    /// The account.
    pub address: Address,
    /// Slots.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<B256>,
    /// Chunks of its code, by index.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<u32>,
}

impl Asked {
    /// The keys of the slots and the chunks of code.
    pub(crate) fn keys_below<S: Embedding>(&self, scheme: &S, code_hash: &B256) -> Vec<Vec<u8>> {
        let slots = self.slots.iter().map(|slot| scheme.slot_key(&self.address, slot));
        let chunk = |chunk: &u32| scheme.chunk_key(&self.address, code_hash, *chunk);
        slots.chain(self.chunks.iter().map(chunk)).collect()
    }

    /// The keys that hold the account, then those of its slots: the same at every block.
    pub fn keys_at_any_block<S: Embedding>(&self, scheme: &S) -> Vec<Vec<u8>> {
        let mut keys = scheme.account_keys(&self.address);
        keys.extend(self.keys_below(scheme, &B256::ZERO));
        keys
    }

    /// The keys that hold the account, then those of its slots and of the chunks of its code, in a
    /// tree that `leaf` reads. `None` where chunks are asked of an account that is not there.
    ///
    /// # Errors
    /// Those of `leaf`; or what it reads is no account.
    pub fn keys<S: Embedding, E: From<EmbedError>>(
        &self,
        scheme: &S,
        leaf: impl FnMut(&Vec<u8>) -> Result<Option<Word>, E>,
    ) -> Result<Option<Vec<Vec<u8>>>, E> {
        let mut keys = scheme.account_keys(&self.address);
        let leaves = keys.iter().map(leaf).collect::<Result<Vec<_>, _>>()?;
        let account = scheme.read_account(&self.address, &leaves)?;
        if account.is_none() && !self.chunks.is_empty() {
            return Ok(None);
        }
        let code_hash = account.map(|(account, _)| account.code_hash).unwrap_or_default();
        keys.extend(self.keys_below(scheme, &code_hash));
        Ok(Some(keys))
    }
}
