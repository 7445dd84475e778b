//! Write sets, sorted: few rows and many.

use std::collections::BTreeMap;

use proptest::prelude::*;
use spinney_tree::{Table, WriteSet};

proptest! {
    #[test]
    fn the_last_write_of_each_key_is_left_in_order(
        rows in prop::collection::vec(
            (0..Table::ALL.len(), prop::collection::vec(0u8..3, 0..12), any::<Option<u8>>()),
            0..40,
        ),
    ) {
        let mut set = WriteSet::new();
        let mut expected = BTreeMap::new();
        for (table, key, value) in rows {
            let table = Table::ALL[table];
            match value {
                Some(value) => set.put(table, &key, [value]),
                None => set.delete(table, &key),
            }
            expected.insert((table, key), value);
        }
        set.sort();
        let left = set.rows().map(|(table, key, value)| {
            ((table, key.to_vec()), value.map(|value| value[0]))
        });
        prop_assert_eq!(left.collect::<Vec<_>>(), expected.into_iter().collect::<Vec<_>>());
    }
}
