//! State differences: the same roots as execution, and the same content.

use alloy_primitives::{Address, B256, Bytes, U256, address, keccak256};
use spinney_replay::{
    BlockDiff, DiffError, DiffEvent, DiffReader, DiffReplayError, Replay, RunOptions,
    TextbookState, WorldState, check_changes, parse_alloc, replay_diffs,
};
use spinney_state::{AccountChange, Change, Changes, EMPTY_CODE_HASH, StateRead};

use crate::shared::{self, ALL_FORKS};

const ALICE: Address = address!("00000000000000000000000000000000000a11ce");

fn all_forks() -> Option<Vec<BlockDiff>> {
    let lines = shared::read(&format!("{ALL_FORKS}/diffs.ndjson"))?;
    let diffs: Vec<_> = DiffReader::new(lines.as_slice()).collect::<Result<_, _>>().unwrap();
    assert_eq!(diffs.len(), 213);
    Some(diffs)
}

#[test]
fn applying_differences_gives_the_roots_of_the_headers() {
    let (Some(diffs), Some(chain)) = (all_forks(), shared::chain(ALL_FORKS)) else { return };
    let mut state = TextbookState::new();
    state.apply(&chain.genesis.alloc).unwrap();
    for (diff, block) in diffs.iter().zip(chain.blocks()) {
        check_changes(&state, &diff.changes).unwrap();
        let root = state.apply(&diff.changes).unwrap();
        assert_eq!(root, block.block.header.state_root, "block {}", diff.number);
        assert_eq!(Some(root), diff.state_root);
    }
}

#[test]
fn execution_derives_the_same_differences() {
    let (Some(diffs), Some(chain)) = (all_forks(), shared::chain(ALL_FORKS)) else { return };
    let mut replay = Replay::start(&chain.genesis, TextbookState::new()).unwrap();
    for (diff, block) in diffs.iter().zip(chain.blocks()) {
        let report = replay.block(&block).unwrap().unwrap();
        assert_eq!(diff.number, report.number);
        let got = normal(&report.changes);
        let expected = normal(&diff.changes);
        for address in expected.accounts.keys().chain(got.accounts.keys()) {
            let (expected, got) = (expected.accounts.get(address), got.accounts.get(address));
            assert_eq!(expected, got, "block {}, {address}", diff.number);
        }
    }
}

/// Leaves the freedom out that a difference has: a fresh account says what it is anyway.
fn normal(changes: &Changes) -> Changes {
    let mut changes = changes.clone();
    for change in changes.accounts.values_mut() {
        if let Change::Written(change) = change
            && change.fresh
            && change.code_hash == Some(EMPTY_CODE_HASH)
        {
            (change.code, change.code_hash) = (None, None);
        }
    }
    changes
}

#[test]
fn a_line_survives_being_written_and_read() {
    let Some(diffs) = all_forks() else { return };
    for diff in diffs {
        assert_eq!(BlockDiff::parse(diff.to_line().as_bytes()).unwrap(), diff);
    }
}

#[test]
fn differences_are_replayed_committed_and_resumed() {
    let (Some(diffs), Some(chain)) = (all_forks(), shared::chain(ALL_FORKS)) else { return };
    let mut state = TextbookState::new();
    state.apply(&chain.genesis.alloc).unwrap();
    let mut options = RunOptions::default();
    options.last = Some(100);
    options.commit_every = 30;
    let mut commits = Vec::new();
    let run = |state: &mut _, head, diffs: &[BlockDiff], options: &_, commits: &mut Vec<u64>| {
        replay_diffs(state, head, diffs.iter().cloned().map(Ok), options, |event| {
            if let DiffEvent::Committed { number, .. } = event {
                commits.push(number);
            }
        })
    };
    let summary = run(&mut state, None, &diffs, &options, &mut commits).unwrap();
    assert_eq!((summary.block_count, summary.root_count), (100, 100));
    assert_eq!(commits, [30, 60, 90, 100]);

    // A wrong root takes its block back, and keeps those before it.
    let mut wrong = diffs.clone();
    wrong[149].state_root = Some(B256::ZERO);
    options.last = None;
    let error = run(&mut state, Some(100), &wrong, &options, &mut commits).unwrap_err();
    assert!(matches!(error, DiffReplayError::StateRoot { number: 150, .. }), "{error}");
    assert_eq!(commits, [30, 60, 90, 100, 130, 149]);
    assert_eq!(Some(state.root()), diffs[148].state_root);

    let summary = run(&mut state, Some(149), &diffs, &options, &mut commits).unwrap();
    assert_eq!((summary.block_count, commits.last()), (64, Some(&213)));
    let twice = [diffs[3].clone(), diffs[3].clone()];
    let error = run(&mut state, Some(213), &twice, &options, &mut commits).unwrap_err();
    assert!(matches!(error, DiffReplayError::Order { after: 4, got: 4 }), "{error}");

    // What is missing cannot be made good later: neither after the state, nor between two lines.
    let next = |number: u64| BlockDiff::new(number, Changes::default(), None);
    let mut gap = |numbers: &[u64]| {
        let diffs: Vec<_> = numbers.iter().map(|number| next(*number)).collect();
        run(&mut state, Some(213), &diffs, &options, &mut commits).unwrap_err().to_string()
    };
    assert_eq!(gap(&[215]), "expected block 214, got block 215: the blocks between are missing");
    assert_eq!(
        gap(&[214, 216]),
        "expected block 215, got block 216: the blocks between are missing"
    );
    assert_eq!(state.root(), diffs[212].state_root.unwrap());
}

#[test]
fn every_form_of_a_field_is_read() {
    let line = br#"{"number": "0x7", "accounts": {
        "0x00000000000000000000000000000000000a11ce": {"nonce": 1, "balance": "0x5",
            "code": "0x6001", "storage": {"0x01": "0xff", "02": "0x0"}, "fresh": true},
        "0x00000000000000000000000000000000000000b0": {},
        "0x00000000000000000000000000000000000000c0": null},
        "roots": {"pbt:blake3": "0x0101010101010101010101010101010101010101010101010101010101010101"}}"#;
    let diff = BlockDiff::parse(line).unwrap();
    assert_eq!((diff.number, diff.state_root), (7, None));
    assert_eq!(diff.roots["pbt:blake3"], B256::repeat_byte(1));
    let code = Bytes::from_static(&[0x60, 0x01]);
    let alice = AccountChange {
        fresh: true,
        nonce: Some(1),
        balance: Some(U256::from(5)),
        code_hash: Some(keccak256(&code)),
        code: Some(code),
        storage: [(1, 255), (2, 0)]
            .map(|(slot, value)| (B256::from(U256::from(slot)), U256::from(value)))
            .into(),
    };
    let changes: Vec<_> = diff.changes.accounts.into_values().collect();
    let empty = Change::Written(AccountChange::default());
    assert_eq!(changes, [empty, Change::Deleted, Change::Written(alice)]);
}

#[test]
fn what_is_wrong_with_a_line_is_said_with_its_number() {
    let account = r#""0x00000000000000000000000000000000000a11ce""#;
    let bad = [
        format!(r#"{{"number": 1, "accounts": {{{account}: {{"nonce": null}}}}}}"#),
        format!(r#"{{"number": 1, "accounts": {{{account}: {{"nonse": 1}}}}}}"#),
        format!(r#"{{"number": 1, "accounts": {{{account}: {{}}, {account}: null}}}}"#),
        format!(r#"{{"number": 1, "accounts": {{{account}: {{"nonce": -1}}}}}}"#),
        format!(
            r#"{{"number": 1, "accounts": {{{account}: {{"storage": {{"0x1": 1, "0x01": 2}}}}}}}}"#
        ),
        format!(r#"{{"number": 1, "accounts": {{{account}: {{"code": "0x6"}}}}}}"#),
        r#"{"number": 1, "accounts": {"0xa11ce": {}}}"#.to_owned(),
        r#"{"accounts": {}}"#.to_owned(),
        "null".to_owned(),
        "{".to_owned(),
    ];
    for line in bad {
        let file = format!("{{\"number\": 1, \"accounts\": {{}}}}\n\n{line}\n");
        let mut reader = DiffReader::new(file.as_bytes());
        assert!(reader.next().unwrap().is_ok());
        let error = reader.next().unwrap().unwrap_err();
        assert!(matches!(error, DiffError::Json { line: 3, .. }), "{line}: {error}");
    }
}

#[test]
fn storage_alone_needs_an_account() {
    let line = br#"{"number": 1, "accounts": {"0x00000000000000000000000000000000000a11ce":
        {"storage": {"0x1": "0x1"}}}}"#;
    let changes = BlockDiff::parse(line).unwrap().changes;
    let mut state = TextbookState::new();
    let error = check_changes(&state, &changes).unwrap_err();
    assert!(error.to_string().to_lowercase().contains("a11ce"), "{error}");
    let empty = br#"{"number": 1, "accounts": {"0x00000000000000000000000000000000000a11ce": {}}}"#;
    state.apply(&BlockDiff::parse(empty).unwrap().changes).unwrap();
    assert!(state.account(ALICE).unwrap().is_some_and(|account| account.is_empty()));
    check_changes(&state, &changes).unwrap();
}

#[test]
fn allocations_of_public_chains_have_their_roots() {
    let roots = [
        ("mainnet", "0xd7f8974fb5ac78d9ac099b9ad5018bedc2ce0a72dad1827a1709da30580f0544"),
        ("sepolia", "0x5eb6e371a698b8d68f665192350ffcecbbbf322916f4b51bd79bb6887da3f494"),
        ("hoodi", "0xda87d7f5f91c51508791bbcbd4aa5baf04917830b86985eeb9ad3d5bfb657576"),
    ];
    for (name, root) in roots {
        let Some(json) = shared::read(&format!("genesis/{name}.json")) else { return };
        let got = TextbookState::new().apply(&parse_alloc(&json).unwrap()).unwrap();
        assert_eq!(got.to_string(), root, "{name}");
    }
}

#[test]
fn arrays_are_no_objects() {
    for line in [
        r#"[7, {}]"#,
        r#"{"number": 7, "accounts": {"0x0000000000000000000000000000000000000001": [true]}}"#,
    ] {
        assert!(BlockDiff::parse(line.as_bytes()).is_err(), "{line}");
    }
    assert!(parse_alloc(br#"[{}]"#).is_err());
}
