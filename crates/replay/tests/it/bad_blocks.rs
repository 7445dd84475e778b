//! Blocks that are wrong: a typed error, and a state as if they had never been.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use alloy_consensus::{Header, proofs::calculate_transaction_root};
use alloy_primitives::{B256, Bloom, U256};
use alloy_rlp::Decodable;
use proptest::prelude::*;
use spinney_replay::{
    BLOCK_LEN_MAX, BadBlock, ChainBlock, ChainReader, Check, Event, Replay, ReplayError,
    RunOptions, SampleChain, SampleOptions, SourceError, TextbookState, Transaction, WorldState,
};

use crate::shared::{self, ALL_FORKS, Chain};

type Outcome = Result<(), ReplayError<std::convert::Infallible>>;

/// Replays `rlp` on the chain's genesis; also says what the state is afterwards.
fn replay(chain: &Chain, rlp: &[u8], read_ahead: usize) -> (Outcome, Replay<TextbookState>) {
    let mut replay = Replay::start(&chain.genesis, TextbookState::new()).unwrap();
    let mut options = RunOptions::default();
    options.read_ahead = read_ahead;
    let outcome = replay.run(ChainReader::new(rlp).unwrap(), &options, |_| {}).map(drop);
    (outcome, replay)
}

fn encode(blocks: &[ChainBlock]) -> Vec<u8> {
    blocks.iter().flat_map(ChainBlock::to_rlp).collect()
}

/// Changes the header of block `number`; what the replay says to it.
fn with_bad_header(chain: &Chain, number: usize, change: impl Fn(&mut Header)) -> BadBlock {
    let mut blocks = chain.blocks();
    blocks.truncate(number + 1);
    let before = blocks[number - 1].block.header.parent_hash;
    let root_before = match number {
        1 => chain.genesis.header.state_root,
        _ => blocks[number - 2].block.header.state_root,
    };
    change(&mut blocks[number - 1].block.header);
    let offset = encode(&blocks[..number - 1]).len() as u64;
    let (outcome, replay) = replay(chain, &encode(&blocks), 0);
    assert_eq!(replay.head().hash, before);
    assert_eq!(replay.state().root(), root_before, "something of block {number} stayed");
    assert_eq!(replay.state().layer_count(), 0, "the good blocks are committed");
    let Err(ReplayError::BadBlock(bad)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((bad.number, bad.offset), (blocks[number - 1].block.header.number, offset));
    assert_eq!(bad.hash, blocks[number - 1].block.header.hash_slow());
    *bad
}

#[test]
fn what_execution_determines_is_checked() {
    let Some(chain) = shared::chain(ALL_FORKS) else { return };
    // One block before Byzantium, with a layer a transaction, and one of Osaka.
    for number in [9, 205] {
        let bad = with_bad_header(&chain, number, |header| header.state_root.0[5] ^= 1);
        assert_eq!(bad.what, Check::StateRoot);
        assert_ne!(bad.expected, bad.got);
        let bad = with_bad_header(&chain, number, |header| header.gas_used += 1);
        assert_eq!(bad.what, Check::GasUsed);
        let bad = with_bad_header(&chain, number, |header| header.receipts_root.0[31] ^= 1);
        assert_eq!(bad.what, Check::ReceiptsRoot);
        let flip = |header: &mut Header| header.logs_bloom = Bloom(!header.logs_bloom.0);
        assert_eq!(with_bad_header(&chain, number, flip).what, Check::LogsBloom);
    }
    let bad = with_bad_header(&chain, 205, |header| header.requests_hash = Some(B256::ZERO));
    assert_eq!(bad.what, Check::RequestsHash);
}

#[test]
fn what_the_parent_and_the_body_determine_is_checked() {
    let Some(chain) = shared::chain(ALL_FORKS) else { return };
    type Edit = fn(&mut Header);
    let edits: [(usize, Check, Edit); 19] = [
        (9, Check::ParentHash, |header| header.parent_hash = B256::ZERO),
        (9, Check::Number, |header| header.number += 1),
        (9, Check::Timestamp, |header| header.timestamp = 0),
        (9, Check::Difficulty, |header| header.difficulty += U256::ONE),
        (60, Check::Difficulty, |header| header.difficulty -= U256::ONE),
        (150, Check::Difficulty, |header| header.difficulty = U256::ONE),
        (9, Check::GasLimit, |header| header.gas_limit *= 2),
        (9, Check::GasUsed, |header| header.gas_used = header.gas_limit + 1),
        (9, Check::ExtraData, |header| header.extra_data = vec![0; 33].into()),
        (9, Check::TransactionsRoot, |header| header.transactions_root = B256::ZERO),
        (9, Check::Ommers, |header| header.ommers_hash = B256::ZERO),
        (9, Check::Field("base fee"), |header| header.base_fee_per_gas = Some(7)),
        (140, Check::BaseFee, |header| header.base_fee_per_gas = Some(7)),
        (165, Check::WithdrawalsRoot, |header| header.withdrawals_root = Some(B256::ZERO)),
        (180, Check::BlobGasUsed, |header| header.blob_gas_used = Some(131_072 * 5)),
        (180, Check::ExcessBlobGas, |header| header.excess_blob_gas = Some(1)),
        (190, Check::Field("nonce"), |header| header.nonce.0[0] = 1),
        (190, Check::Field("requests hash"), |header| header.requests_hash = None),
        (190, Check::Field("parent beacon block root"), |header| {
            header.parent_beacon_block_root = None;
            header.requests_hash = None;
        }),
    ];
    for (number, what, edit) in edits {
        let bad = with_bad_header(&chain, number, edit);
        assert_eq!(bad.what, what, "block {number}: {bad}");
    }
}

#[test]
fn a_changed_transaction_is_found() {
    let Some(chain) = shared::chain(ALL_FORKS) else { return };
    let mut blocks = chain.blocks();
    blocks.truncate(20);
    blocks[19].block.body.transactions.pop().unwrap();
    let (outcome, _) = replay(&chain, &encode(&blocks), 2);
    let Err(ReplayError::BadBlock(bad)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((bad.number, bad.what), (20, Check::TransactionsRoot));
    // Sent twice: the nonce of the second one is used up.
    let twice = blocks[19].block.body.transactions[0].clone();
    blocks[19].block.body.transactions.push(twice);
    let root = calculate_transaction_root(&blocks[19].block.body.transactions);
    blocks[19].block.header.transactions_root = root;
    let (outcome, replay) = replay(&chain, &encode(&blocks), 2);
    let Err(ReplayError::BadBlock(bad)) = outcome else { panic!("{outcome:?}") };
    let last = blocks[19].block.body.transactions.len() - 1;
    assert_eq!((bad.number, bad.what), (20, Check::Transaction(last)));
    assert_eq!(replay.state().root(), blocks[18].block.header.state_root);
}

#[test]
fn a_missing_block_breaks_the_link() {
    let Some(chain) = shared::chain(ALL_FORKS) else { return };
    let mut blocks = chain.blocks();
    blocks.truncate(10);
    let missing = blocks.remove(6);
    let (outcome, replay) = replay(&chain, &encode(&blocks), 4);
    let Err(ReplayError::BadBlock(bad)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((bad.number, bad.what), (8, Check::ParentHash));
    assert_eq!(bad.got, missing.hash.to_string());
    assert_eq!(bad.expected, replay.head().hash.to_string());
    assert_eq!(replay.state().root(), blocks[5].block.header.state_root);
}

#[test]
fn a_file_that_is_cut_off_says_where() {
    let Some(chain) = shared::chain(ALL_FORKS) else { return };
    let mut blocks = chain.blocks();
    blocks.truncate(3);
    let rlp = encode(&blocks);
    let offset = blocks[2].offset;
    assert_eq!(offset, encode(&blocks[..2]).len() as u64);
    for cut in [offset + 1, offset + 2, offset + 3, offset + 500, rlp.len() as u64 - 1] {
        let (outcome, replay) = replay(&chain, &rlp[..cut as usize], 0);
        let Err(ReplayError::Source(SourceError::Truncated { offset: at, expected, got })) =
            outcome
        else {
            panic!("{cut}: {outcome:?}")
        };
        assert_eq!((at, got), (offset, cut - offset));
        assert!(expected > got);
        assert_eq!(replay.state().root(), blocks[1].block.header.state_root);
    }
}

#[test]
fn trailing_and_malformed_bytes_are_refused() {
    let Some(chain) = shared::chain(ALL_FORKS) else { return };
    let mut blocks = chain.blocks();
    blocks.truncate(2);
    let rlp = encode(&blocks);
    let end = rlp.len() as u64;
    let with = |tail: &[u8]| replay(&chain, &[rlp.as_slice(), tail].concat(), 0).0;

    let outcome = with(&[0]);
    assert!(
        matches!(outcome, Err(ReplayError::Source(SourceError::NotABlock { offset, got: 0 }))
            if offset == end),
        "{outcome:?}"
    );
    // An empty list, and one that holds a byte.
    for tail in [&[0xc0][..], &[0xc1, 0x01]] {
        let outcome = with(tail);
        assert!(
            matches!(outcome, Err(ReplayError::Source(SourceError::Malformed { offset, .. }))
                if offset == end),
            "{outcome:?}"
        );
    }
    // Promises far more than memory holds: refused before anything is read.
    let outcome = with(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    assert!(
        matches!(outcome, Err(ReplayError::Source(SourceError::TooLong { offset, expected, .. }))
            if offset == end && expected == BLOCK_LEN_MAX),
        "{outcome:?}"
    );
    // A byte too many inside the list of the block.
    let mut block = blocks[1].to_rlp();
    assert_eq!(block[0], 0xf9);
    let len = u16::from_be_bytes([block[1], block[2]]) + 1;
    block[1..3].copy_from_slice(&len.to_be_bytes());
    block.push(0);
    let (outcome, replay) = replay(&chain, &[blocks[0].to_rlp(), block].concat(), 0);
    let Err(ReplayError::Source(SourceError::Malformed { offset, block, .. })) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((offset, block), (blocks[1].offset, Some((2, blocks[1].hash))));
    assert_eq!(replay.state().root(), blocks[0].block.header.state_root);
}

/// The string around a typed transaction has a length of its own, which has to be right.
#[test]
fn a_wrong_length_around_a_typed_transaction_is_refused() {
    use alloy_eips::eip2718::{Encodable2718, Typed2718};
    let Some(chain) = shared::chain(ALL_FORKS) else { return };
    let mut tried = 0;
    for block in chain.blocks() {
        let raw = block.to_rlp();
        let typed = block.block.body.transactions.iter().filter(|tx| !tx.is_legacy());
        for transaction in typed {
            let inner = transaction.encoded_2718();
            let at = raw.windows(inner.len()).position(|part| part == inner).unwrap();
            let mut wrong = raw.clone();
            wrong[at - 1] ^= 0x10;
            let read = ChainReader::new(&wrong[..]).unwrap().next().unwrap();
            assert!(read.is_err(), "block {}", block.block.header.number);
            tried += 1;
        }
    }
    assert!(tried > 50, "{tried} typed transactions");
}

#[test]
fn a_stopped_replay_goes_on_where_it_stood() {
    let Some(chain) = shared::chain(ALL_FORKS) else { return };
    let stop = AtomicBool::new(false);
    let mut options = RunOptions::default();
    options.stop = Some(&stop);
    let mut first = Replay::start(&chain.genesis, TextbookState::new()).unwrap();
    let summary = first
        .run(chain.reader(), &options, |event| {
            if matches!(event, Event::Block(report) if report.number == 50) {
                stop.store(true, Ordering::Relaxed);
            }
        })
        .unwrap();
    assert!(summary.stopped);
    assert_eq!((summary.block_count, first.head().header.number), (50, 50));
    assert_eq!(first.state().layer_count(), 0);

    let (number, hash) = (50, first.head().hash);
    let state = first.into_state();
    let mut second = Replay::resume(&chain.genesis, state.clone(), number, hash).unwrap();
    let summary = second.run(chain.reader(), &RunOptions::default(), |_| {}).unwrap();
    assert_eq!((summary.block_count, second.head().header.number), (163, 213));
    assert_eq!(second.state().root(), second.head().header.state_root);

    let mut wrong = Replay::resume(&chain.genesis, state, number, B256::ZERO).unwrap();
    let outcome = wrong.run(chain.reader(), &RunOptions::default(), |_| {});
    assert!(matches!(outcome, Err(ReplayError::Resume { number: 50, got: Some(_), .. })));
}

#[test]
fn a_compressed_chain_is_read_alike() {
    let Some(chain) = shared::chain(ALL_FORKS) else { return };
    let compressed = zstd::encode_all(chain.rlp.as_slice(), 3).unwrap();
    let blocks: Vec<_> =
        ChainReader::new(compressed.as_slice()).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(blocks, chain.blocks());
    let cut = &compressed[..compressed.len() / 2];
    let last = ChainReader::new(cut).unwrap().last().unwrap();
    assert!(
        matches!(last, Err(SourceError::Io { .. } | SourceError::Truncated { .. })),
        "{last:?}"
    );
}

/// A replay, and the block that comes next.
struct Before {
    replay: Replay<TextbookState>,
    block: ChainBlock,
}

/// Replays that stand before blocks of all ages.
fn before_blocks() -> Option<&'static [Before]> {
    static BEFORE: OnceLock<Option<Vec<Before>>> = OnceLock::new();
    let before = BEFORE.get_or_init(|| {
        let chain = shared::chain(ALL_FORKS)?;
        let mut replay = Replay::start(&chain.genesis, TextbookState::new()).unwrap();
        let mut before = Vec::new();
        for block in chain.blocks() {
            let number = block.block.header.number;
            let wanted = number % 6 == 1 && !block.block.body.transactions.is_empty();
            if wanted {
                before.push(Before { replay: replay.clone(), block: block.clone() });
            }
            replay.block(&block).unwrap();
        }
        Some(before)
    });
    before.as_deref()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Changed transactions under a root that covers them, so that they are executed.
    #[test]
    fn mutated_transactions_never_panic(
        which in any::<prop::sample::Index>(),
        transaction in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
    ) {
        let Some(before) = before_blocks() else { return Ok(()) };
        let Before { replay, block } = &before[which.index(before.len())];
        let mut replay = replay.clone();
        let mut block = block.block.clone();
        let transactions = &mut block.body.transactions;
        let index = transaction.index(transactions.len());
        let mut rlp = alloy_rlp::encode(&transactions[index]);
        for (at, value) in edits {
            let at = at.index(rlp.len());
            rlp[at] ^= value;
        }
        let Ok(changed) = Transaction::decode(&mut rlp.as_slice()) else { return Ok(()) };
        transactions[index] = changed;
        block.header.transactions_root = calculate_transaction_root(transactions);
        let (state, head) = (replay.state().clone(), replay.head().clone());
        if let Err(error) = replay.block(&ChainBlock::new(block)) {
            prop_assert!(matches!(error, ReplayError::BadBlock(_)), "{}", error);
            prop_assert!(*replay.state() == state);
            prop_assert_eq!(replay.head(), &head);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn mutated_chains_never_panic(
        first in 0_usize..200,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let Some(chain) = shared::chain(ALL_FORKS) else { return Ok(()) };
        let blocks = chain.blocks();
        let offset = blocks[first].offset as usize;
        let end = blocks[first + 4].offset as usize;
        // Four blocks out of the chain, where the state has nothing of what came before.
        let mut bytes = chain.rlp[offset..end].to_vec();
        for (index, value) in edits {
            let index = index.index(bytes.len());
            bytes[index] ^= value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let mut genesis = chain.genesis;
        if first > 0 {
            genesis.header = blocks[first - 1].block.header.clone();
            genesis.header.state_root = chain_root(&genesis);
            genesis.hash = blocks[first - 1].hash;
        }
        let mut replay = Replay::start(&genesis, TextbookState::new()).unwrap();
        let mut options = RunOptions::default();
        options.read_ahead = 0;
        let before = replay.state().root();
        let outcome = replay.run(ChainReader::new(bytes.as_slice()).unwrap(), &options, |_| {});
        if outcome.is_err() && replay.head().hash == genesis.hash {
            prop_assert_eq!(replay.state().root(), before);
        }
    }
}

fn chain_root(genesis: &spinney_replay::Genesis) -> B256 {
    TextbookState::new().apply(&genesis.alloc).unwrap()
}

/// Who gave the genesis of another chain can begin again with the right one.
#[test]
fn a_genesis_that_no_block_follows_is_not_committed() {
    let sample = |seed| {
        let mut options = SampleOptions::default();
        (options.seed, options.block_count) = (seed, 3);
        let mut chain = SampleChain::new(options, TextbookState::new()).unwrap();
        let genesis = chain.genesis().clone();
        (genesis, chain.by_ref().map(Result::unwrap).collect::<Vec<_>>())
    };
    let ((genesis, blocks), (other, _)) = (sample(1), sample(2));
    let stop = AtomicBool::new(true);
    let mut spoilt = blocks.clone();
    spoilt[0].block.header.gas_used += 1;
    // What is above `last`, or comes after somebody asked to stop, is not executed.
    for (last, stop) in [(None, None), (Some(0), None), (None, Some(&stop))] {
        let mut options = RunOptions::default();
        (options.last, options.stop) = (last, stop);
        let run = |genesis, blocks: &[ChainBlock]| {
            let mut replay = Replay::start(genesis, TextbookState::new()).unwrap();
            let blocks = blocks.iter().cloned().map(Ok);
            let outcome = replay.run(blocks.collect::<Vec<_>>().into_iter(), &options, |event| {
                assert!(matches!(event, Event::Block(_) | Event::Committed { .. }), "{event:?}");
            });
            (outcome, replay.state().layer_count())
        };
        let (outcome, layers) = run(&other, &blocks);
        let Err(ReplayError::BadBlock(bad)) = outcome else { panic!("{outcome:?}") };
        assert_eq!((bad.number, bad.what, layers), (1, Check::ParentHash, 1));
        let (outcome, layers) = run(&genesis, &blocks);
        assert!(outcome.is_ok() && layers == 0, "{outcome:?}");
        let executes = last.is_none() && stop.is_none();
        let (outcome, layers) = run(&genesis, &spoilt);
        assert_eq!((outcome.is_ok(), layers), (!executes, usize::from(executes)));
    }
}
