//! A chain of our own that looks like a real one, made from a seed.

mod assembler;
mod contracts;
mod random;
mod workload;

use std::collections::BTreeMap;

use alloy_consensus::{
    Block, BlockBody, EMPTY_OMMER_ROOT_HASH, Header, Transaction as _,
    proofs::{calculate_transaction_root, calculate_withdrawals_root},
};
use alloy_eips::{
    eip1559::BaseFeeParams,
    eip2935::{HISTORY_STORAGE_ADDRESS, HISTORY_STORAGE_CODE},
    eip4788::{BEACON_ROOTS_ADDRESS, BEACON_ROOTS_CODE},
    eip4844::DATA_GAS_PER_BLOB,
    eip7002::{WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS, WITHDRAWAL_REQUEST_PREDEPLOY_CODE},
    eip7251::{CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS, CONSOLIDATION_REQUEST_PREDEPLOY_CODE},
};
use alloy_primitives::{Address, Bytes, U256, keccak256};
use spinney_state::{AccountChange, Change, Changes};

use self::workload::Workload;
use crate::{
    config::{ChainConfig, Fork},
    error::ReplayError,
    evm::{BlockHashes, CodeCache},
    execute::{Chain, Stop, Transactions, execute},
    genesis::Genesis,
    rules::Head,
    senders::Signer,
    source::ChainBlock,
    world::{SealedBlock, WorldState},
};

const CHAIN_ID: u64 = 771_771;
const GAS_LIMIT: u64 = 36_000_000;
const GENESIS_TIME: u64 = 1_700_000_000;
const SLOT_SECONDS: u64 = 12;
const ETHER: u128 = 1_000_000_000_000_000_000;

/// What a sample chain is like. The same options give the same chain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleOptions {
    /// Where all chance comes from.
    pub seed: u64,
    /// Blocks after the genesis.
    pub block_count: u64,
    /// Transactions a block, as far as its gas goes (36 million).
    pub transactions_per_block: u64,
    /// Accounts that send; at least one is made.
    pub sender_count: usize,
    /// Other accounts of the genesis.
    pub crowd_count: usize,
}

impl Default for SampleOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            block_count: 200,
            transactions_per_block: 25,
            sender_count: 250,
            crowd_count: 2_000,
        }
    }
}

/// Makes the blocks of a sample chain, one by one, by executing them on a state of its own.
///
/// Transfers among accounts of which few are busy, a token, a contract whose storage grows and has
/// holes, contracts made by CREATE2, some of them destroyed in the transaction that makes them and
/// made again later, refused calls, blobs, delegations, withdrawals. All rules of Osaka hold from
/// the genesis on.
#[derive(Debug)]
pub struct SampleChain<S> {
    genesis: Genesis,
    state: S,
    head: Head,
    hashes: BlockHashes,
    workload: Workload,
    options: SampleOptions,
    failed: bool,
}

impl<S: WorldState> SampleChain<S> {
    /// Begins a chain on an empty state.
    ///
    /// # Errors
    ///
    /// The state fails.
    pub fn new(options: SampleOptions, mut state: S) -> Result<Self, ReplayError<S::Error>> {
        let sender_count = options.sender_count.max(1);
        let workload = Workload::new(CHAIN_ID, options.seed, sender_count, options.crowd_count);
        let genesis = genesis(&workload);
        let failed = |error| ReplayError::State { number: 0, error };
        let (header, hash) = (genesis.header.clone(), genesis.hash);
        let got = state.apply(&genesis.alloc).map_err(failed)?;
        if got != header.state_root {
            return Err(ReplayError::Genesis { expected: header.state_root, got });
        }
        state.seal(&SealedBlock::new(0, Some(hash), got, &genesis.alloc)).map_err(failed)?;
        state.commit().map_err(failed)?;
        let mut hashes = BlockHashes::default();
        hashes.push(0, hash);
        let head = Head::new(header, hash, U256::ZERO);
        Ok(Self { genesis, state, head, hashes, workload, options, failed: false })
    }

    /// The start of the chain, to replay it from.
    pub fn genesis(&self) -> &Genesis {
        &self.genesis
    }

    /// The state after the last block that was made.
    pub fn state(&self) -> &S {
        &self.state
    }

    fn make(&mut self) -> Result<ChainBlock, ReplayError<S::Error>> {
        let number = self.head.header.number + 1;
        let withdrawals = self.workload.withdrawals();
        let count = self.options.transactions_per_block;
        let (transactions, senders) = self.workload.transactions(number, count, GAS_LIMIT);
        let blobs = transactions.iter().filter_map(|one| one.blob_versioned_hashes());
        let blob_count = blobs.map(|hashes| hashes.len() as u64).sum::<u64>();
        let parent = &self.head.header;
        let config = &self.genesis.config;
        let excess_blob_gas = config
            .blob_params(parent.timestamp + SLOT_SECONDS)
            .and_then(|params| parent.next_block_excess_blob_gas(*params));
        let header = Header {
            parent_hash: self.head.hash,
            ommers_hash: EMPTY_OMMER_ROOT_HASH,
            beneficiary: self.workload.proposer(),
            transactions_root: calculate_transaction_root(&transactions),
            number,
            gas_limit: GAS_LIMIT,
            timestamp: parent.timestamp + SLOT_SECONDS,
            extra_data: Bytes::from_static(b"spinney sample"),
            mix_hash: self.workload.hash(),
            base_fee_per_gas: parent.next_block_base_fee(BaseFeeParams::ethereum()),
            withdrawals_root: Some(calculate_withdrawals_root(&withdrawals)),
            blob_gas_used: Some(blob_count * DATA_GAS_PER_BLOB),
            excess_blob_gas,
            parent_beacon_block_root: Some(self.workload.hash()),
            ..Header::default()
        };
        let body = BlockBody { transactions, ommers: Vec::new(), withdrawals: Some(withdrawals) };
        let mut block = ChainBlock::new(Block::new(header, body));
        let failed = |error| ReplayError::State { number, error };
        let codes = CodeCache::default();
        let chain = Chain { config, hashes: &self.hashes, codes: &codes, steps: false };
        let signers = block.block.body.transactions.iter().zip(senders);
        let signers: Vec<_> =
            signers.map(|(transaction, sender)| Signer::of(transaction, sender)).collect();
        let signed = Transactions::Signed(&signers);
        let outcome = execute(&chain, Fork::Osaka, &block, signed, &mut self.state).map_err(
            |stop| match stop {
                Stop::Ancestors => ReplayError::Ancestors { number },
                Stop::Unsupported(rules) => ReplayError::Unsupported { number, rules },
                Stop::Bad(failure) => ReplayError::BadBlock(failure.of(&block)),
                Stop::Evm(message) => ReplayError::Evm { number, message },
                Stop::State(error) => failed(error),
            },
        )?;
        let receipts = outcome.receipts.expect("they were executed");
        let header = &mut block.block.header;
        header.state_root = outcome.state_root;
        header.gas_used = receipts.gas_used;
        header.receipts_root = receipts.root;
        header.logs_bloom = receipts.logs_bloom;
        header.requests_hash = receipts.requests.map(|requests| requests.hash());
        let block = ChainBlock::new(block.block);
        let hash = Some(block.hash);
        self.state
            .seal(&SealedBlock::new(number, hash, outcome.state_root, &outcome.changes))
            .map_err(failed)?;
        self.state.commit().map_err(failed)?;
        self.head = self.head.next(&block);
        self.hashes.push(number, block.hash);
        Ok(block)
    }
}

impl<S: WorldState> Iterator for SampleChain<S> {
    type Item = Result<ChainBlock, ReplayError<S::Error>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.head.header.number >= self.options.block_count {
            return None;
        }
        let block = self.make();
        self.failed = block.is_err();
        Some(block)
    }
}

fn genesis(workload: &Workload) -> Genesis {
    let mut accounts = BTreeMap::new();
    let mut put = |address: Address, nonce: u64, balance: u128, code: Option<&Bytes>| {
        let change = AccountChange {
            nonce: Some(nonce),
            balance: Some(U256::from(balance)),
            code_hash: code.map(keccak256),
            code: code.cloned(),
            ..AccountChange::default()
        };
        accounts.insert(address, Change::Written(change));
    };
    for (rank, address) in workload.crowd().iter().enumerate() {
        put(*address, 0, ETHER / (rank as u128 + 1), None);
    }
    for address in workload.senders() {
        put(address, 0, 10_000 * ETHER, None);
    }
    let contracts = [
        (BEACON_ROOTS_ADDRESS, &BEACON_ROOTS_CODE),
        (HISTORY_STORAGE_ADDRESS, &HISTORY_STORAGE_CODE),
        (WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS, &WITHDRAWAL_REQUEST_PREDEPLOY_CODE),
        (CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS, &CONSOLIDATION_REQUEST_PREDEPLOY_CODE),
    ];
    for (address, code) in contracts {
        put(address, 1, 0, Some(code));
    }
    let header = Header {
        gas_limit: GAS_LIMIT,
        timestamp: GENESIS_TIME,
        extra_data: Bytes::from_static(b"spinney sample"),
        ..Header::default()
    };
    Genesis::new(ChainConfig::osaka(CHAIN_ID), header, Changes { accounts })
}
