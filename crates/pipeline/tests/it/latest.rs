//! Keys with the value that each was given last, in memory and in runs.

use std::collections::BTreeMap;

use proptest::prelude::*;
use spinney_pipeline::{Latest, PipelineError};

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0u8..3, 0..5)
}

proptest! {
    /// Against a map in memory, whatever the memory: reads on the way, prefixes, and all in the
    /// end.
    #[test]
    fn any_puts_read_as_those_of_a_map(
        puts in prop::collection::vec((key(), prop::collection::vec(any::<u8>(), 0..9)), 0..60),
        memory in prop_oneof![Just(0), Just(300), Just(1 << 20)],
        prefix in key(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let spill = dir.path().join("spill");
        let mut latest = Latest::new(&spill, memory);
        let mut map = BTreeMap::new();
        for (key, value) in &puts {
            latest.put(key, value).unwrap();
            map.insert(key.clone(), value.clone());
            let mut behind = key.clone();
            behind.push(0);
            for key in [key, &behind] {
                prop_assert_eq!(latest.get(key).unwrap(), map.get(key).cloned());
            }
        }
        let below = map.clone().into_iter().filter(|(key, _)| key.starts_with(&prefix));
        prop_assert_eq!(latest.below(&prefix).unwrap(), below.collect());
        prop_assert!(latest.keys() >= map.len() as u64);
        let mut seen = Vec::new();
        latest.each::<PipelineError>(|key, value| {
            seen.push((key.to_vec(), value.to_vec()));
            Ok(())
        }).unwrap();
        prop_assert_eq!(seen, map.into_iter().collect::<Vec<_>>());
        latest.clear().unwrap();
        prop_assert_eq!(latest.get(&prefix).unwrap(), None);
        prop_assert!(!spill.exists());
    }
}

/// Runs of so many blocks that most of them are passed over; and what a killed process left is no
/// part of them.
#[test]
fn keys_are_found_in_any_block() {
    let dir = tempfile::tempdir().unwrap();
    let spill = dir.path().join("spill");
    std::fs::create_dir(&spill).unwrap();
    std::fs::write(spill.join("run-000007"), b"left").unwrap();
    let mut latest = Latest::new(&spill, 300_000);
    let key = |n: u32| (2 * n).to_be_bytes();
    for n in 0..9_000 {
        latest.put(&key(n), &[n as u8; 40]).unwrap();
    }
    assert!(latest.spilled() > 300_000, "several blocks: {}", latest.spilled());
    assert!(!spill.join("run-000007").exists());
    for n in 0..9_000 {
        assert_eq!(latest.get(&key(n)).unwrap(), Some(vec![n as u8; 40]));
        assert_eq!(latest.get(&(2 * n + 1).to_be_bytes()).unwrap(), None);
    }
}
