use std::collections::BTreeMap;

use alloy_primitives::{B256, keccak256};
use alloy_rlp::Encodable as _;
use proptest::prelude::*;
use spinney_migrate::snapshot::{Leaf, Reader, Writer};
use spinney_migrate::{Digested, FileError, Flaw};
use spinney_tree::pbt::{Pbt, reference};
use spinney_tree::{HashFunction, bulk};

type Leaves = BTreeMap<Vec<u8>, [u8; 32]>;

const PBT: Pbt = Pbt { hash: HashFunction::Blake3 };

fn key(zone: u8, of: &[u8]) -> Vec<u8> {
    let [one, two] = [keccak256(of), keccak256(keccak256(of))];
    match zone {
        0xff => [&[zone], &one[..], &two[..], &[of[0]]].concat(),
        _ => [&[zone], &one[..], &[of[0]]].concat(),
    }
}

fn value(length: usize, byte: u8) -> [u8; 32] {
    let mut value = [0; 32];
    value[32 - length..].fill(byte);
    value
}

fn some() -> Leaves {
    let leaf = |n: u8| {
        let zone = [0x00, 0x01, 0xff][usize::from(n) % 3];
        (key(zone, &[n]), value(1 + usize::from(n) % 32, 1 + n % 255))
    };
    (0..90).map(leaf).collect()
}

fn root(leaves: &Leaves) -> [u8; 32] {
    let leaves: Vec<_> = leaves.iter().collect();
    bulk::root_of_sorted(&PBT, &leaves.iter().map(|(k, v)| (&k[..], &v[..])).collect::<Vec<_>>())
        .unwrap()
}

fn write(root: [u8; 32], leaves: &Leaves) -> (Digested, Vec<u8>) {
    let mut writer = Writer::new(Vec::new(), root, leaves.len() as u64).unwrap();
    for (key, value) in leaves {
        writer.leaf(key, value).unwrap();
    }
    writer.finish().unwrap()
}

fn read(file: &[u8]) -> Result<(B256, Leaves), FileError> {
    let mut reader = Reader::new(file)?;
    let mut leaves = Leaves::new();
    while let Some(Leaf { key, value }) = reader.leaf()? {
        leaves.insert(key, value);
    }
    let root = reader.root();
    assert_eq!(reader.leaves(), leaves.len() as u64);
    reader.finish()?;
    Ok((root, leaves))
}

fn flaw<T: std::fmt::Debug>(result: Result<T, FileError>) -> Flaw {
    match result.unwrap_err() {
        FileError::Invalid { flaw, .. } => flaw,
        error => panic!("{error}"),
    }
}

/// A record as the EIP has it, by another RLP writer.
fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    alloy_rlp::encode_list::<_, [u8]>(&[key, value], &mut out);
    out
}

#[test]
fn the_file_is_what_the_proposal_says() {
    let leaves = some();
    let root = root(&leaves);
    assert_eq!(root, reference::root(PBT.hash, &leaves));
    let (written, file) = write(root, &leaves);
    let mut by_hand = [&root[..], &90_u64.to_be_bytes()].concat();
    for (key, value) in &leaves {
        let number = alloy_primitives::U256::from_be_bytes(*value);
        let mut digits = Vec::new();
        number.encode(&mut digits);
        let plain = number.to_be_bytes_trimmed_vec();
        let record = record(key, &plain);
        assert!(record.ends_with(&digits), "a value is an integer of RLP");
        by_hand.extend(record);
    }
    assert_eq!(file, by_hand);
    assert_eq!(written, Digested { digest: keccak256(&file), bytes: file.len() as u64 });
    assert_eq!(read(&file).unwrap(), (B256::from(root), leaves));
    let checked = Reader::new(&file[..]).unwrap().check(PBT).unwrap();
    assert_eq!((checked.file, checked.leaves), (written, 90));
    let (_, empty) = write([0; 32], &Leaves::new());
    assert_eq!(Reader::new(&empty[..]).unwrap().check(PBT).unwrap().leaves, 0);
}

#[test]
fn what_is_no_leaf_is_not_written() {
    let mut writer = Writer::new(Vec::new(), [0; 32], 2).unwrap();
    let (low, high) = (key(0, b"a").min(key(0, b"b")), key(0, b"a").max(key(0, b"b")));
    let zone = |zone: u8, length: usize| {
        let mut key = vec![0xaa; length];
        key[0] = zone;
        key
    };
    for (bad, said) in [
        (zone(0, 33), "zone has keys of 34"),
        (zone(1, 66), "zone has keys of 34"),
        (zone(0xff, 34), "zone has keys of 66"),
        (zone(2, 34), "no such zone"),
        (vec![], "no such zone"),
    ] {
        let refused = flaw(writer.leaf(&bad, &value(1, 1))).to_string();
        assert!(refused.contains(said), "{refused}");
    }
    assert_eq!(flaw(writer.leaf(&high, &[0; 32])), Flaw::Leaf("a value of zero is no leaf"));
    writer.leaf(&high, &value(32, 1)).unwrap();
    for again in [&low, &high] {
        assert!(matches!(flaw(writer.leaf(again, &value(1, 1))), Flaw::Order { .. }));
    }
    assert_eq!(flaw(writer.finish().map(drop)), Flaw::LeafCount { says: 2, has: 1 });
}

/// Other ways to write the same leaf.
#[test]
fn what_is_not_canonical_is_refused() {
    let (storage, header) = (key(0xff, b"a"), key(0x00, b"a"));
    let whole = |record: Vec<u8>| [&[0; 32][..], &1_u64.to_be_bytes(), &record].concat();
    let refused = |record: Vec<u8>| flaw(read(&whole(record))).to_string();
    assert!(read(&whole(record(&storage, &[7]))).is_ok());
    let body = &record(&header, &[7])[1..];
    let long = [&[0xf8, body.len() as u8], body].concat();
    assert!(refused(long).contains("its length is not the shortest"));
    assert!(refused(record(&header, &[0, 7])).contains("leading zero"));
    assert!(refused(record(&header, &[])).contains("zero"));
    assert!(refused(record(&header, &[7; 33])).contains("longer than 32"));
    let byte = [&[0xc0 + 35 + 2], &body[..35], &[0x81, 0x07]].concat();
    assert!(refused(byte).contains("value is no canonical string"));
    let more = [&[0xc0 + 37], body, &[0x01]].concat();
    assert!(refused(more).contains("goes on behind its value"));
    assert!(refused([&[0xf8, 200][..], &[0; 200]].concat()).contains("longer than any"));
    assert!(refused(vec![0xf9, 1, 0]).contains("no list"));
    assert!(refused(vec![0x83, 1, 2, 3]).contains("no list"));
}

#[test]
fn every_truncation_and_every_swap_is_refused() {
    let leaves = some();
    let (_, file) = write(root(&leaves), &leaves);
    for length in 0..file.len() {
        let error = Reader::new(&file[..length]).and_then(|reader| reader.check(PBT));
        assert!(
            matches!(flaw(error), Flaw::Truncated(_) | Flaw::LeafCount { .. }),
            "cut off at {length}",
        );
    }
    let more = [&file[..], &[0xc0]].concat();
    assert_eq!(flaw(read(&more)), Flaw::Trailing);
    let records: Vec<_> = leaves.iter().map(|(k, v)| record(k, digits(v))).collect();
    for at in 1..records.len() {
        let mut swapped = records.clone();
        swapped.swap(at - 1, at);
        let file = [&file[..40], &swapped.concat()].concat();
        assert!(matches!(flaw(read(&file)), Flaw::Order { .. }));
    }
}

fn digits(value: &[u8; 32]) -> &[u8] {
    &value[value.iter().take_while(|byte| **byte == 0).count()..]
}

/// Every byte in turn takes another value: nothing passes the check.
#[test]
fn every_changed_byte_is_refused() {
    let leaves = some();
    let (_, file) = write(root(&leaves), &leaves);
    for at in 0..file.len() {
        for change in [0x01, 0x80] {
            let mut changed = file.clone();
            changed[at] ^= change;
            let checked = Reader::new(&changed[..]).and_then(|reader| reader.check(PBT));
            assert!(checked.is_err(), "byte {at}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn files_come_back_as_they_went(
        leaves in prop::collection::vec((0..3_usize, any::<u8>(), 1..33_usize, 1..=255_u8), 0..40),
    ) {
        let leaf = |(zone, of, length, byte)| (key([0, 1, 0xff][zone], &[of]), value(length, byte));
        let leaves: Leaves = leaves.into_iter().map(leaf).collect();
        let root = root(&leaves);
        let (written, file) = write(root, &leaves);
        let checked = Reader::new(&file[..]).unwrap().check(PBT).unwrap();
        prop_assert_eq!((checked.file, checked.root), (written, B256::from(root)));
        prop_assert_eq!(read(&file).unwrap().1, leaves);
    }
}
