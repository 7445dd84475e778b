//! Sample chains: valid by the path that checks all others, and the same for the same seed.

use std::io::Cursor;
use std::time::Instant;

use spinney_replay::{
    BlockReport, ChainBlock, ChainReader, Event, Replay, RunOptions, SampleChain, SampleOptions,
    TextbookState,
};
use spinney_state::{Change, EMPTY_CODE_HASH};

fn options(block_count: u64) -> SampleOptions {
    let mut options = SampleOptions::default();
    options.block_count = block_count;
    options
}

fn make(options: SampleOptions) -> (SampleChain<TextbookState>, Vec<ChainBlock>) {
    let mut sample = SampleChain::new(options, TextbookState::new()).unwrap();
    let blocks = sample.by_ref().collect::<Result<_, _>>().unwrap();
    (sample, blocks)
}

#[test]
fn a_sample_replays_through_its_file() {
    let started = Instant::now();
    let (sample, blocks) = make(SampleOptions::default());
    let transactions: usize = blocks.iter().map(|block| block.block.body.transactions.len()).sum();
    println!("{} blocks, {transactions} transactions: {:?}", blocks.len(), started.elapsed());
    assert_eq!(blocks.len(), 200);
    assert!(transactions > 4_500, "{transactions}");

    let rlp: Vec<u8> = blocks.iter().flat_map(ChainBlock::to_rlp).collect();
    let last = |bytes: &[u8]| ChainReader::last_number(Cursor::new(bytes));
    assert_eq!(last(&rlp), Some(200));
    assert_eq!(last(&rlp[blocks[0].to_rlp().len()..]), Some(200));
    // Of what is cut off, compressed or nothing, reading tells.
    let compressed = zstd::encode_all(&rlp[..], 1).unwrap();
    assert_eq!([&rlp[..rlp.len() - 1], &rlp[1..], &compressed, &[]].map(last), [None; 4]);
    let mut replay = Replay::start(sample.genesis(), TextbookState::new()).unwrap();
    let mut reports = Vec::new();
    let reader = ChainReader::new(rlp.as_slice()).unwrap();
    let mut options = RunOptions::default();
    options.recover_threads = 2;
    let summary = replay
        .run(reader, &options, |event| {
            if let Event::Block(report) = event {
                reports.push(report.clone());
            }
        })
        .unwrap();
    println!("{summary:?}");
    assert_eq!(summary.transaction_count, transactions as u64);
    assert!(replay.state() == sample.state());
    looks_real(&reports);
    // The factory: a nonce counts what it made, also what was destroyed at once.
    let accounts = replay.state().accounts();
    let made = accounts
        .filter(|(_, account, _)| account.code_hash != EMPTY_CODE_HASH)
        .map(|(_, account, _)| account.nonce)
        .max()
        .unwrap();
    let codes: Vec<_> = reports
        .iter()
        .flat_map(|report| report.changes.accounts.values())
        .filter_map(|change| match change {
            Change::Written(change) => change.code.as_ref(),
            Change::Deleted => None,
        })
        .collect();
    let delegations = codes.iter().filter(|code| code.starts_with(&[0xef, 0x01])).count();
    let cleared = codes.iter().filter(|code| code.is_empty()).count();
    let kept = (codes.len() - delegations - cleared) as u64;
    println!("{made} contracts made, {kept} kept; {delegations} delegations, {cleared} cleared");
    assert!(kept > 80 && made > kept + 80);
    assert!(delegations > 10);
}

/// What the sample promises is in it.
fn looks_real(reports: &[BlockReport]) {
    let changes = || reports.iter().flat_map(|report| report.changes.accounts.values());
    let written = || {
        changes().filter_map(|change| match change {
            Change::Written(change) => Some(change),
            Change::Deleted => None,
        })
    };
    let slots = || written().flat_map(|change| change.storage.values());
    let cleared = slots().filter(|value| value.is_zero()).count();
    println!("{} accounts, {} slots, {cleared} cleared", changes().count(), slots().count());
    assert!(slots().count() > 8_000);
    assert!(cleared > 100);
}

#[test]
fn a_seed_gives_one_chain() {
    let hashes = |options| {
        let (_, blocks) = make(options);
        blocks.iter().map(|block| block.hash).collect::<Vec<_>>()
    };
    let mut other = options(5);
    other.seed = 2;
    assert_eq!(hashes(options(5)), hashes(options(5)));
    assert_ne!(hashes(options(5)), hashes(other));
}
