use std::sync::Arc;

use alloy_primitives::B256;
use spinney_tree::mpt::partial::NodeSource;

/// Where the nodes of a state come from: of the accounts' trie, or of the storage below an account.
pub(super) trait StateNodes {
    fn node(&self, account: Option<B256>, digest: &[u8; 32], path: &[u8]) -> Option<Arc<[u8]>>;
}

/// The nodes of one trie of a state.
pub(super) struct TrieNodes<'a, N> {
    pub(super) nodes: &'a N,
    /// The account whose storage it is, by the digest of its address.
    pub(super) account: Option<B256>,
}

impl<N: StateNodes> NodeSource for TrieNodes<'_, N> {
    fn node(&self, digest: &[u8; 32], path: &[u8]) -> Option<Arc<[u8]>> {
        self.nodes.node(self.account, digest, path)
    }
}
