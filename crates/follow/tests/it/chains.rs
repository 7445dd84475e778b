//! Chains that leave each other.

use std::collections::BTreeSet;

use alloy_eips::eip4895::Withdrawal;
use alloy_primitives::{Address, B256, Bloom};
use spinney_replay::{
    BlockReport, ChainBlock, Check, Genesis, Replay, ReplayError, SampleChain, SampleOptions,
    TextbookState,
};

/// Blocks behind a genesis: block 1 is the first.
#[derive(Clone)]
pub(crate) struct Chain {
    pub(crate) genesis: Genesis,
    pub(crate) blocks: Vec<ChainBlock>,
}

impl Chain {
    /// What everybody starts from.
    pub(crate) fn sample(count: u64) -> Self {
        let mut options = SampleOptions::default();
        options.block_count = count;
        options.transactions_per_block = 4;
        options.sender_count = 20;
        options.crowd_count = 50;
        let chain = SampleChain::new(options, TextbookState::new()).unwrap();
        let genesis = chain.genesis().clone();
        Self { genesis, blocks: chain.map(Result::unwrap).collect() }
    }

    fn replay(&self, count: usize) -> Replay<TextbookState> {
        let mut replay = Replay::start(&self.genesis, TextbookState::new()).unwrap();
        for block in &self.blocks[..count] {
            let report: Option<BlockReport> = replay.block(block).unwrap();
            assert!(report.is_some());
        }
        replay
    }

    /// The state after so many blocks.
    pub(crate) fn replayed(&self, count: usize) -> TextbookState {
        self.replay(count).into_state()
    }

    /// A chain that leaves this one behind a block, with so many blocks of a kind of their own:
    /// each gives something to somebody.
    pub(crate) fn fork(&self, at: usize, count: usize, kind: u64) -> Self {
        let mut replay = self.replay(at);
        let mut blocks = self.blocks[..at].to_vec();
        for _ in 0..count {
            let block = next(&mut replay, kind);
            blocks.push(block);
        }
        Self { genesis: self.genesis.clone(), blocks }
    }
}

/// The next block, whose root is the one that executing it comes to.
fn next(replay: &mut Replay<TextbookState>, kind: u64) -> ChainBlock {
    let parent = replay.head().clone();
    let number = parent.header.number + 1;
    let mut header = parent.header.clone();
    header.parent_hash = parent.hash;
    header.number = number;
    header.timestamp += 12;
    header.base_fee_per_gas =
        parent.header.next_block_base_fee(alloy_eips::eip1559::BaseFeeParams::ethereum());
    let params = alloy_eips::eip7840::BlobParams::osaka();
    header.excess_blob_gas = parent.header.next_block_excess_blob_gas(params);
    header.blob_gas_used = Some(0);
    header.gas_used = 0;
    header.gas_limit = parent.header.gas_limit;
    header.logs_bloom = Bloom::ZERO;
    header.receipts_root = alloy_consensus::constants::EMPTY_RECEIPTS;
    header.transactions_root = alloy_consensus::constants::EMPTY_TRANSACTIONS;
    header.ommers_hash = alloy_consensus::constants::EMPTY_OMMER_ROOT_HASH;
    header.requests_hash = Some(alloy_eips::eip7685::EMPTY_REQUESTS_HASH);
    header.parent_beacon_block_root = Some(B256::with_last_byte(kind as u8));
    header.extra_data = kind.to_be_bytes().to_vec().into();
    let withdrawal = Withdrawal {
        index: number,
        validator_index: kind,
        address: Address::with_last_byte(kind as u8),
        amount: number,
    };
    let withdrawals = vec![withdrawal];
    header.withdrawals_root =
        Some(alloy_consensus::proofs::calculate_withdrawals_root(&withdrawals));
    let body = alloy_consensus::BlockBody {
        transactions: Vec::new(),
        ommers: Vec::new(),
        withdrawals: Some(withdrawals.into()),
    };
    let made = |header| ChainBlock::new(alloy_consensus::Block { header, body: body.clone() });
    match replay.block(&made(header.clone())) {
        Err(ReplayError::BadBlock(bad)) if bad.what == Check::StateRoot => {
            header.state_root = bad.expected.parse().unwrap();
        }
        other => panic!("{:?}", other.map(drop)),
    }
    let block = made(header);
    replay.block(&block).unwrap().expect("it is new");
    block
}

/// Addresses that blocks give to.
pub(crate) fn addresses(blocks: &[ChainBlock]) -> BTreeSet<Address> {
    let mut found = BTreeSet::new();
    for block in blocks {
        let body = &block.block.body;
        found.extend(body.withdrawals.iter().flat_map(|all| all.iter().map(|one| one.address)));
        found.insert(block.block.header.beneficiary);
    }
    found
}
