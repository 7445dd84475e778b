use alloy_primitives::{Address, B256, keccak256};
use proptest::prelude::*;
use spinney_migrate::preimages::{Reader, Writer};
use spinney_migrate::{Digested, FileError, Flaw};

type Accounts = Vec<(Address, Vec<B256>)>;

/// In the order of the file.
fn sorted(mut accounts: Accounts) -> Accounts {
    accounts.sort_by_key(|(address, _)| keccak256(address));
    accounts.dedup_by_key(|(address, _)| *address);
    for (_, slots) in &mut accounts {
        slots.sort_by_key(|slot| keccak256(slot));
        slots.dedup();
    }
    accounts
}

fn some() -> Accounts {
    let account =
        |n: u8| (Address::repeat_byte(n), (0..n % 4).map(B256::repeat_byte).collect::<Vec<_>>());
    sorted((0..30).map(account).collect())
}

fn write(accounts: &Accounts) -> Result<(Digested, Vec<u8>), FileError> {
    let mut writer = Writer::new(Vec::new());
    for (address, slots) in accounts {
        writer.account(*address, slots.len() as u32)?;
        slots.iter().try_for_each(|slot| writer.slot(*slot))?;
    }
    writer.finish()
}

fn read(file: &[u8]) -> Result<(Digested, Accounts), FileError> {
    let mut reader = Reader::new(file);
    let mut accounts = Accounts::new();
    while let Some(account) = reader.account()? {
        assert_eq!(account.hash, keccak256(account.address));
        let mut slots = Vec::new();
        while let Some(slot) = reader.slot()? {
            slots.push(slot);
        }
        assert_eq!(slots.len() as u32, account.slots);
        accounts.push((account.address, slots));
    }
    Ok((reader.finish()?, accounts))
}

fn flaw<T: std::fmt::Debug>(result: Result<T, FileError>) -> Flaw {
    match result.unwrap_err() {
        FileError::Invalid { flaw, .. } => flaw,
        error => panic!("{error}"),
    }
}

/// The bytes of the EIP, put together by hand.
#[test]
fn the_file_is_what_the_proposal_says() {
    let accounts = some();
    let (written, file) = write(&accounts).unwrap();
    let record = |(address, slots): &(Address, Vec<B256>)| {
        let count = (slots.len() as u32).to_be_bytes();
        [address.as_slice(), &count, slots.concat().as_slice()].concat()
    };
    let expected: Vec<u8> = accounts.iter().flat_map(record).collect();
    assert_eq!(file, expected);
    assert_eq!(written, Digested { digest: keccak256(&file), bytes: file.len() as u64 });
    assert_eq!(read(&file).unwrap(), (written, accounts));
    assert_eq!(Reader::new(&file[..]).finish().unwrap(), written);
    assert_eq!(read(&[]).unwrap().0.digest, keccak256([]));
}

#[test]
fn what_is_out_of_order_is_not_written() {
    let accounts = some();
    let at = accounts.iter().position(|(_, slots)| slots.len() == 3).unwrap();
    let mut swapped = accounts.clone();
    swapped.swap(3, 4);
    assert!(matches!(flaw(write(&swapped)), Flaw::Order { what: "account", .. }));
    let mut twice = accounts.clone();
    twice.insert(5, accounts[5].clone());
    assert!(matches!(flaw(write(&twice)), Flaw::Order { what: "account", .. }));
    let mut slots = accounts.clone();
    slots[at].1.swap(0, 1);
    assert!(matches!(flaw(write(&slots)), Flaw::Order { what: "slot key", .. }));
    let mut writer = Writer::new(Vec::new());
    assert!(matches!(flaw(writer.slot(B256::ZERO)), Flaw::SlotCount { says: 0, has: 1, .. }));
    let mut writer = Writer::new(Vec::new());
    writer.account(accounts[0].0, 1).unwrap();
    let next = writer.account(accounts[1].0, 0);
    assert!(matches!(flaw(next), Flaw::SlotCount { says: 1, has: 0, .. }));
    assert!(matches!(flaw(writer.finish()), Flaw::SlotCount { says: 1, has: 0, .. }));
}

#[test]
fn truncated_files_are_refused() {
    let accounts = some();
    let (_, file) = write(&accounts).unwrap();
    let mut ends = vec![0];
    for (_, slots) in &accounts {
        ends.push(ends.last().unwrap() + 24 + 32 * slots.len());
    }
    for length in 0..file.len() {
        match read(&file[..length]) {
            Ok(_) => assert!(ends.contains(&length), "{length}"),
            error => assert!(matches!(flaw(error), Flaw::Truncated(_)), "{length}"),
        }
    }
    assert!(matches!(flaw(read(&[&file[..], &[0]].concat())), Flaw::Truncated("an account")));
}

#[test]
fn swapped_records_are_refused() {
    let accounts = some();
    let bytes = |(address, slots): &(Address, Vec<B256>)| {
        let count = (slots.len() as u32).to_be_bytes();
        [address.as_slice(), &count, slots.concat().as_slice()].concat()
    };
    for at in 1..accounts.len() {
        let mut swapped = accounts.clone();
        swapped.swap(at - 1, at);
        let file: Vec<u8> = swapped.iter().flat_map(bytes).collect();
        assert!(matches!(flaw(read(&file)), Flaw::Order { what: "account", .. }));
    }
}

proptest! {
    #[test]
    fn files_come_back_as_they_went(
        accounts in prop::collection::vec(
            (any::<[u8; 20]>(), prop::collection::vec(any::<[u8; 32]>(), 0..5)), 0..20,
        ),
    ) {
        let account = |(address, slots): ([u8; 20], Vec<[u8; 32]>)| {
            (address.into(), slots.into_iter().map(B256::from).collect())
        };
        let accounts = sorted(accounts.into_iter().map(account).collect());
        let (written, file) = write(&accounts).unwrap();
        prop_assert_eq!(read(&file).unwrap(), (written, accounts));
    }

    /// What is read of any bytes is what they say.
    #[test]
    fn bytes_that_are_read_are_what_is_written(
        at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let (_, mut file) = write(&some()).unwrap();
        let at = at.index(file.len());
        file[at] = byte;
        if let Ok((digested, accounts)) = read(&file) {
            prop_assert_eq!(write(&accounts).unwrap(), (digested, file));
        }
    }
}
