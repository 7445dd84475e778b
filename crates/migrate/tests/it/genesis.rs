//! The geneses of public networks, converted from their tries: roots that others computed, and
//! textbooks'.

use alloy_primitives::{B256, U256};
use spinney_ipa::Crs;
use spinney_migrate::{NameSource, Work, from_mpt, to_mpt};
use spinney_state::embed::Embedding;
use spinney_state::{Changes, MPT};
use spinney_tree::mpt::MptState;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::{self, Verkle};
use spinney_tree::{HashFunction, MemoryStore, PageStore, Tree};

use HashFunction::{Blake3, Sha256};

use crate::json::{allocation, shared, word};
use crate::made::{trie_of, worked};
use crate::textbook;

/// Converts a trie: the tree's root, and its store.
fn there<S: Embedding>(scheme: S, trie: &MemoryStore) -> (B256, MemoryStore) {
    let target = MemoryStore::new();
    let run = |work: &mut Work<'_>| from_mpt(trie, &target, scheme, NameSource::Store, work);
    let root = worked(16 << 20, run).unwrap().root;
    (root, target)
}

/// The Verkle tree of an allocation, by the book.
fn verkle_by_the_book(changes: &Changes) -> B256 {
    let crs = Crs::new();
    let mut book = textbook::Ubt::default();
    let stem = textbook::verkle_stem(&crs);
    book.apply(&|address: &[u8; 32], index: U256| stem(address, index), changes);
    verkle::reference::root(&crs, &book.leaves).into()
}

fn check(network: &str) {
    let Some(file) = shared(&format!("data/genesis/{network}.json")) else { return };
    let changes = allocation(&file["alloc"]);
    let trie = trie_of(&changes);
    let root_of = |store: &MemoryStore| -> B256 {
        Tree::open(MptState, MPT, &store.snapshot().unwrap(), 1 << 20).unwrap().root().into()
    };
    assert_eq!(root_of(&trie), word(&file["mptStateRoot"]), "{network}");
    let (ubt, _) = there(Ubt { hash: Sha256 }, &trie);
    assert_eq!(ubt, word(&file["bintrieRootSha256"]), "{network}");
    let scheme = Pbt { hash: Blake3 };
    let (pbt, converted) = there(scheme, &trie);
    assert_eq!(pbt, textbook::Pbt::of(&changes).root(Blake3), "{network}");
    assert_eq!(there(Verkle::shared(), &trie).0, verkle_by_the_book(&changes), "{network}");
    // And back: empty accounts too.
    let back = MemoryStore::new();
    let run = |work: &mut Work<'_>| to_mpt(&converted, &back, scheme, NameSource::Store, work);
    assert_eq!(worked(16 << 20, run).unwrap().counts.accounts, changes.accounts.len() as u64);
    assert_eq!(root_of(&back), word(&file["mptStateRoot"]), "{network}");
}

#[test]
fn mainnet_is_the_same_in_every_tree() {
    check("mainnet");
}

#[test]
fn sepolia_and_hoodi_are_the_same_in_every_tree() {
    check("sepolia");
    check("hoodi");
}
