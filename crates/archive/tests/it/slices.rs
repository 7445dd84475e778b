//! Slices of archives: what they hold is as the whole has it, and the rest is refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use alloy_primitives::{Address, B256, U256, keccak256};
use proptest::prelude::*;
use proptest::sample::Index;
use spinney_archive::{Archive, ArchiveError, AtBlock, Folder, Options, Wanted, Writer};
use spinney_state::embed::{BinaryState, Whole};
use spinney_state::{AccountChange, Change, Changes, State, StateRead as _};
use spinney_tree::{MemoryStore, PageStore, Snapshot as _, Table};

use crate::extend::{Error, PBT, block, blocks, chain, open, source};

/// Accounts of the chains, and slots of theirs.
fn accounts() -> impl Iterator<Item = Address> {
    (0..30_u8).map(|byte| Address::repeat_byte(byte.wrapping_mul(37)))
}

fn slots() -> Vec<B256> {
    (0..41_u64).chain([100, 1 << 40]).map(|slot| B256::from(U256::from(slot))).collect()
}

/// Accounts beside whose paths the others lie.
fn crowd(changes: &mut Changes) {
    for number in 0..1_500_u64 {
        let nonce = Some(number + 1);
        let slot = (B256::from(U256::from(1_000 + number)), U256::from(number + 1));
        let storage = [slot].into_iter().collect();
        let change = AccountChange { nonce, storage, ..AccountChange::default() };
        let address = Address::from_word(keccak256(number.to_be_bytes()));
        changes.accounts.insert(address, Change::Written(change));
    }
}

/// All that can be asked of an account at a block.
#[derive(Debug, PartialEq)]
struct Answer {
    account: Option<spinney_state::Account>,
    code: Option<Vec<u8>>,
    slots: Vec<U256>,
    proof: String,
    pbt: String,
}

fn answer(view: &AtBlock, address: Address) -> Result<Answer, Error> {
    let state = State::open(view.clone(), 1 << 20)?;
    let account = state.account(address)?;
    let code = match &account {
        Some(account) => state.code(account.code_hash)?.map(|code| code.to_vec()),
        None => None,
    };
    let values = slots().into_iter().map(|slot| state.storage(address, slot).map_err(Error::from));
    let values = values.collect::<Result<Vec<_>, _>>()?;
    let proof = state.prove(address, &slots())?;
    assert!(proof.verify(&state.root()).is_ok());
    let pbt = BinaryState::open(PBT, view.clone(), 1 << 20)?;
    let whole = Whole::new(PBT);
    let mut keys = whole.account_keys(&address);
    keys.extend(slots().iter().map(|slot| whole.slot_key(&address, slot)));
    let last = pbt.last()?;
    let proven = last.prove(&keys)?;
    let pbt = format!("{} {:?} {:?}", last.root(), proven.entries, proven.proof);
    Ok(Answer { account, code, slots: values, proof: format!("{proof:?}"), pbt })
}

fn is_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        let archive = cause.downcast_ref::<ArchiveError>();
        matches!(archive, Some(ArchiveError::Sliced { .. }))
    })
}

/// A slice answers as the whole does for its accounts, and refuses the others.
fn is_slice(whole: &Archive, slice: &Archive, addresses: &BTreeSet<Address>) {
    slice.check(|_| ()).unwrap();
    let (first, last) = slice.blocks();
    let mut refused = 0;
    for number in first..=last {
        let (there, here) = (whole.at(number).unwrap(), slice.at(number).unwrap());
        for address in accounts() {
            let is_in = addresses.contains(&address);
            assert_eq!(slice.check_account(&address.into_array()).is_ok(), is_in);
            // Of all accounts a few are enough.
            if !is_in && (number + u64::from(address[0])) % 5 != 0 {
                continue;
            }
            let expected = answer(&there, address).unwrap();
            match answer(&here, address) {
                // What is answered of others is not wrong either.
                Ok(answer) => assert_eq!(answer, expected, "{address} at block {number}"),
                Err(error) => {
                    assert!(!is_in && is_refused(&*error), "{address} at block {number}: {error}");
                    refused += 1;
                }
            }
        }
        assert_eq!(slice.block(number).unwrap(), Some(block(number)));
        assert_eq!(slice.number_of(&block(number).hash).unwrap(), Some(number));
        for table in [Table::Pages, Table::Codes, Table::Preimages] {
            assert!(is_refused(&here.scan(table, &[], None, &mut |_, _| true).unwrap_err()));
        }
        for (low, high) in [(&b""[..], None), (b"w", Some(&b"witness/1"[..])), (b"a", None)] {
            let scanned = here.scan(Table::Meta, low, high, &mut |_, _| true);
            assert!(is_refused(&scanned.unwrap_err()));
        }
        let meta = |view: &AtBlock| {
            let mut rows = Vec::new();
            let mut take = |key: &[u8], row: &[u8]| {
                rows.push((key.to_vec(), row.to_vec()));
                true
            };
            view.scan(Table::Meta, b"a", Some(b"w"), &mut take).unwrap();
            rows
        };
        assert_eq!(meta(&there), meta(&here));
    }
    for beyond in [first.wrapping_sub(1), last + 1] {
        assert!(matches!(slice.at(beyond), Err(ArchiveError::Outside { .. })));
    }
    assert!(refused > 0 || addresses.len() > 5 || last - first < 9);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn accounts_of_a_slice_are_as_in_the_whole(
        blocks in blocks(),
        at in any::<[Index; 2]>(),
        wanted in prop::collection::vec(any::<Index>(), 1..6),
        merges in prop_oneof![Just(vec![2, 2]), Just(vec![16, 8])],
        pruned in any::<Index>(),
    ) {
        let mut blocks = blocks;
        crowd(&mut blocks[0]);
        let stores = chain(&blocks);
        let newest = stores.len() as u64 - 1;
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [objects, target] = folders.each_ref().map(|it| Arc::new(Folder::new(it.path())));
        let mut options = Options::default();
        options.merges = merges;
        let store = |number: u64| stores[number as usize].clone();
        let mut writer =
            Writer::begin(objects, options, source(store(newest)), 0).unwrap();
        for number in (0..newest).step_by(4).chain([newest]) {
            writer.extend(source(store(number)), 0, |_, _| ()).unwrap();
        }
        let whole = writer.archive(1 << 20).unwrap();
        let all: Vec<_> = accounts().collect();
        let addresses: BTreeSet<Address> = wanted.iter().map(|at| *at.get(&all)).collect();
        let mut blocks = at.map(|at| at.index(stores.len()) as u64);
        blocks.sort_unstable();
        let mut wanted = Wanted::default();
        wanted.addresses = addresses.iter().map(|address| address.into_array()).collect();
        (wanted.first, wanted.last) = (Some(blocks[0]), Some(blocks[1]));
        whole.slice(target.clone(), &wanted, |_, _| ()).unwrap();
        let slice = Archive::open(target.clone(), 1 << 20).unwrap();
        prop_assert_eq!(slice.blocks(), (blocks[0], blocks[1]));
        is_slice(&whole, &slice, &addresses);

        let mut writer = Writer::open(target, Options::default()).unwrap();
        writer.prune(blocks[0] + pruned.index((blocks[1] - blocks[0]) as usize + 1) as u64).unwrap();
        prop_assert!(slice.refresh().unwrap());
        is_slice(&whole, &slice, &addresses);
        // A slice of the slice.
        let folder = tempfile::tempdir().unwrap();
        let smaller = Arc::new(Folder::new(folder.path()));
        let mut one = Wanted::default();
        one.addresses = wanted.addresses[..1].to_vec();
        slice.slice(smaller.clone(), &one, |_, _| ()).unwrap();
        let smaller = Archive::open(smaller, 1 << 20).unwrap();
        is_slice(&whole, &smaller, &addresses.iter().take(1).copied().collect());
    }
}

#[test]
fn what_cannot_be_sliced_or_added_to_a_slice_is_refused() {
    let change = |number: u64| {
        let written = |to: u8| {
            let balance = Some(U256::from(number + u64::from(to) + 1));
            let change = AccountChange { balance, ..AccountChange::default() };
            (Address::repeat_byte(to), Change::Written(change))
        };
        let mut changes = Changes { accounts: (0..200).map(written).collect() };
        crowd(&mut changes);
        changes
    };
    let stores = chain(&(0..6).map(change).collect::<Vec<_>>());
    let folder = tempfile::tempdir().unwrap();
    let objects = |name: &str| Arc::new(Folder::new(folder.path().join(name)));
    let begin =
        || Writer::begin(objects("whole"), Options::default(), source(stores[4].clone()), 0);
    let mut writer = begin().unwrap();
    writer.extend(source(stores[4].clone()), 0, |_, _| ()).unwrap();
    let whole = writer.archive(1 << 20).unwrap();
    let slice = |name: &str, addresses: &[u8], blocks: (Option<u64>, Option<u64>)| {
        let mut wanted = Wanted::default();
        wanted.addresses = addresses.iter().map(|byte| [*byte; 20]).collect();
        (wanted.first, wanted.last) = blocks;
        whole.slice(objects(name), &wanted, |_, _| ())
    };
    let refused = |addresses: &[u8], blocks, words: &str| {
        let error = slice("refused", addresses, blocks).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(!folder.path().join("refused").exists(), "nothing is left");
    };
    refused(&[], (None, None), "no account is named");
    refused(&[1], (None, Some(5)), "blocks 0 to 4, not block 5");
    refused(&[1], (Some(3), Some(2)), "block 3 comes after block 2");
    slice("slice", &[1, 250], (Some(1), None)).unwrap();
    assert!(matches!(slice("slice", &[1], (None, None)), Err(ArchiveError::Exists { .. })));

    // Neither an account that is there, nor one that is not, is answered for.
    let sliced = Archive::open(objects("slice"), 1 << 20).unwrap();
    for other in [2, 251] {
        let error = sliced.check_account(&[other; 20]).unwrap_err().to_string();
        assert!(error.contains("is a slice of 2 accounts, and account 0x"), "{error}");
    }
    let state = State::open(sliced.at(2).unwrap(), 1 << 20).unwrap();
    // Some lie in the pages of the two, and what those say of them is not wrong.
    let refused = (2..=250_u8).filter(|byte| {
        let account = state.account(Address::repeat_byte(*byte));
        account.is_err_and(|error| is_refused(&error))
    });
    let refused = refused.count();
    assert!(refused > 150, "{refused}");
    let there = State::open(sliced.at(2).unwrap(), 1 << 20).unwrap();
    assert!(there.account(Address::repeat_byte(250)).unwrap().is_none());
    assert!(is_refused(&sliced.at(2).unwrap().read(Table::Codes, &[7; 32]).unwrap_err()));

    // Nothing is added to it, in front or behind.
    let mut writer = Writer::open(objects("slice"), Options::default()).unwrap();
    let error = writer.window(5, 5).unwrap_err().to_string();
    assert!(error.contains("it is a slice"), "{error}");
    let error = writer.extend(source(stores[5].clone()), 0, |_, _| ()).unwrap_err().to_string();
    assert!(error.contains("it is a slice"), "{error}");
    let error = writer.join(&whole).unwrap_err().to_string();
    assert!(error.contains("is a slice of some accounts"), "{error}");
    // A slice is a format of its own, and says so.
    let manifest = sliced.manifest();
    assert_eq!((manifest.format, whole.manifest().format), (4, 3));
    assert_eq!(manifest.slice.unwrap().addresses[0], "01".repeat(20));
    assert_eq!(
        open(sliced.at(4).unwrap()).unwrap().root(),
        open(whole.at(4).unwrap()).unwrap().root()
    );

    // Of raw keys, and of trees whose slots lie anywhere, there are no slices.
    let store = MemoryStore::new();
    let none =
        Writer::create(objects("none"), Options::default(), block(1), &store.snapshot().unwrap());
    let none = none.unwrap().archive(1 << 20).unwrap();
    let mut wanted = Wanted::default();
    wanted.addresses = vec![[1; 20]];
    let error = none.slice(objects("of-none"), &wanted, |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("neither an MPT nor a PBT"), "{error}");
}

/// A proof that an account is not there shows what stands in its place.
#[test]
fn accounts_that_are_not_there_are_proven_by_what_stands_there() {
    let mut changes = Changes::default();
    // Much storage of few accounts: forks deep below where others leave.
    for number in 0..6_u64 {
        let slot = |slot: u64| (B256::from(U256::from(slot << 20)), U256::from(slot));
        let storage = (1..500).map(slot).collect();
        let change = AccountChange { nonce: Some(1), storage, ..AccountChange::default() };
        let address = Address::from_word(keccak256([b"full", &number.to_be_bytes()[..]].concat()));
        changes.accounts.insert(address, Change::Written(change));
    }
    let stores = chain(&[changes]);
    let folder = tempfile::tempdir().unwrap();
    let objects = |name: String| Arc::new(Folder::new(folder.path().join(name)));
    let (options, snapshot) = (Options::default(), stores[0].clone());
    let writer = Writer::begin(objects("whole".into()), options, source(snapshot), 0).unwrap();
    let whole = writer.archive(1 << 20).unwrap();
    let mut beside = 0;
    for number in 0..60_u64 {
        let address =
            Address::from_word(keccak256([b"nobody", &number.to_be_bytes()[..]].concat()));
        let mut wanted = Wanted::default();
        wanted.addresses = vec![address.into_array()];
        let target = objects(number.to_string());
        let sliced = whole.slice(target.clone(), &wanted, |_, _| ()).unwrap();
        beside += sliced.slice.unwrap().beside.len();
        let slice = Archive::open(target, 1 << 20).unwrap();
        let (there, here) = (whole.at(0).unwrap(), slice.at(0).unwrap());
        assert_eq!(answer(&here, address).unwrap(), answer(&there, address).unwrap());
    }
    assert!(beside > 0, "no proof has a page of others");
}
