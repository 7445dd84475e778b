//! The partial trie against the textbook, and against the engine for the nodes it lacks.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use spinney_tree::mpt::partial::{NodeSource, PartialError, PartialTrie};
use spinney_tree::mpt::reference;

use crate::model::Entries;

fn key(n: u8) -> [u8; 32] {
    // Collisions at every depth.
    let mut key = [0x5a; 32];
    (key[0], key[9], key[31]) = (n & 0x70, n & 3, n >> 2 & 3);
    key
}

fn value(n: u8) -> Vec<u8> {
    vec![n; 1 + usize::from(n % 40)]
}

/// All nodes of a trie; those that were asked for.
struct All {
    nodes: BTreeMap<[u8; 32], Arc<[u8]>>,
    asked: RefCell<BTreeSet<[u8; 32]>>,
}

impl All {
    fn of(entries: &Entries) -> Self {
        let nodes = entries.keys().flat_map(|key| reference::proof(entries, key));
        let nodes = nodes.map(|rlp| (spinney_hash::keccak256(&rlp), Arc::from(rlp))).collect();
        Self { nodes, asked: RefCell::default() }
    }
}

impl NodeSource for All {
    type Rlp = Arc<[u8]>;

    fn node(&self, digest: &[u8; 32], _: &[u8]) -> Option<Arc<[u8]>> {
        self.asked.borrow_mut().insert(*digest);
        self.nodes.get(digest).cloned()
    }
}

type Values = Vec<Option<Vec<u8>>>;

/// The root after some operations, and what is read then.
fn run(
    entries: &Entries,
    source: &All,
    ops: &[(u8, Option<u8>)],
    reads: &[u8],
) -> Result<([u8; 32], Values), PartialError> {
    let mut trie = PartialTrie::new(reference::root(entries));
    for (n, to) in ops {
        match to {
            Some(to) => trie.put(source, &key(*n), &value(*to))?,
            None => trie.delete(source, &key(*n))?,
        }
    }
    let reads = reads.iter().map(|n| trie.get(source, &key(*n)));
    let reads = reads.collect::<Result<_, _>>()?;
    Ok((trie.root(), reads))
}

proptest! {
    #[test]
    fn a_partial_trie_is_the_textbooks_and_needs_each_node_it_asks_for(
        first in prop::collection::btree_map(any::<u8>(), any::<u8>(), 0..24),
        ops in prop::collection::vec((any::<u8>(), prop::option::of(any::<u8>())), 0..10),
        reads in prop::collection::vec(any::<u8>(), 0..6),
    ) {
        let entries: Entries = first.iter().map(|(n, to)| (key(*n).to_vec(), value(*to))).collect();
        let mut after = entries.clone();
        for (n, to) in &ops {
            match to {
                Some(to) => drop(after.insert(key(*n).to_vec(), value(*to))),
                None => drop(after.remove(&key(*n)[..])),
            }
        }
        let mut all = All::of(&entries);
        let (root, found) = run(&entries, &all, &ops, &reads).unwrap();
        prop_assert_eq!(root, reference::root(&after));
        for (n, found) in reads.iter().zip(&found) {
            prop_assert_eq!(found.as_ref(), after.get(&key(*n)[..]));
        }
        // Those asked for are enough, and each of them is needed.
        let asked = all.asked.take();
        all.nodes.retain(|digest, _| asked.contains(digest));
        prop_assert_eq!(run(&entries, &all, &ops, &reads).unwrap().0, root);
        for digest in &asked {
            let node = all.nodes.remove(digest).unwrap();
            let refused = run(&entries, &all, &ops, &reads).unwrap_err();
            prop_assert!(
                matches!(&refused, PartialError::Missing(missing) if missing.digest == *digest),
                "{refused}"
            );
            all.nodes.insert(*digest, node);
        }
    }
}

#[test]
fn nodes_too_deep_or_of_another_trie_are_malformed() {
    struct One(Vec<u8>);
    impl NodeSource for One {
        type Rlp = Vec<u8>;

        fn node(&self, digest: &[u8; 32], _: &[u8]) -> Option<Vec<u8>> {
            (spinney_hash::keccak256(&self.0) == *digest).then(|| self.0.clone())
        }
    }
    let get = |rlp: &[u8]| {
        let trie = PartialTrie::new(spinney_hash::keccak256(rlp));
        trie.get(&One(rlp.to_vec()), &key(0)).unwrap_err().to_string()
    };
    for rlp in [&[0xc2, 0x20, 0x01][..], &[0xc3, 0x82, 0x20, 0x5a], b"no node", &[]] {
        assert!(get(rlp).contains("malformed"), "{}", get(rlp));
    }
    let long = [&[0xe5, 0xa3, 0x00][..], &[0x5a; 34], &[0xc0]].concat();
    assert!(get(&long).contains("malformed"), "{}", get(&long));
    let missing = PartialTrie::new([7; 32]).get(&One(Vec::new()), &key(0)).unwrap_err();
    assert!(matches!(missing, PartialError::Missing(_)), "{missing}");
}
