//! What a header and a body must be before anything is executed. Seals are not checked.
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

use std::cmp::Ordering;

use alloy_consensus::{
    EMPTY_OMMER_ROOT_HASH, Header, Transaction as _, TxType,
    constants::EMPTY_WITHDRAWALS,
    proofs::{calculate_ommers_root, calculate_transaction_root, calculate_withdrawals_root},
};
use alloy_eips::{eip1559::INITIAL_BASE_FEE, eip4844::DATA_GAS_PER_BLOB};
use alloy_primitives::{B64, B256, U256};

pub(crate) use crate::failure::{Failure, equal};
use crate::{
    amsterdam::check_given,
    config::{ChainConfig, Fork},
    dao,
    error::Check,
    source::ChainBlock,
};

/// The most bytes of extra data that a header may have.
pub(crate) const EXTRA_DATA_MAX: usize = 32;

const GAS_LIMIT_MIN: u64 = 5_000;
const GAS_LIMIT_MAX: u64 = i64::MAX as u64;
const GAS_LIMIT_BOUND_DIVISOR: u64 = 1_024;
const DIFFICULTY_MIN: u64 = 131_072;
/// EIP-7934: from Osaka on, the RLP of a block.
const OSAKA_BLOCK_LEN_MAX: u64 = (10 << 20) - (2 << 20);

/// The block that the next one must follow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// Its header.
    pub header: Header,
    /// Its hash.
    pub hash: B256,
    /// Its difficulty and that of all its ancestors.
    pub total_difficulty: U256,
}

impl Head {
    pub(crate) fn new(header: Header, hash: B256, total_difficulty: U256) -> Self {
        Self { header, hash, total_difficulty }
    }

    /// The head after `block`.
    pub(crate) fn next(&self, block: &ChainBlock) -> Self {
        let header = block.block.header.clone();
        let total_difficulty = self.total_difficulty.saturating_add(header.difficulty);
        Self { header, hash: block.hash, total_difficulty }
    }
}

/// Everything that is checked of a block of this fork, transactions apart.
pub(crate) fn checks(fork: Fork) -> Vec<Check> {
    let since = [
        (Fork::Frontier, Check::ParentHash),
        (Fork::Frontier, Check::Number),
        (Fork::Frontier, Check::Timestamp),
        (Fork::Frontier, Check::ExtraData),
        (Fork::Frontier, Check::Difficulty),
        (Fork::Frontier, Check::GasLimit),
        (Fork::Frontier, Check::GasUsed),
        (Fork::Frontier, Check::Ommers),
        (Fork::Frontier, Check::TransactionsRoot),
        (Fork::Frontier, Check::ReceiptsRoot),
        (Fork::Frontier, Check::LogsBloom),
        (Fork::Frontier, Check::StateRoot),
        (Fork::London, Check::BaseFee),
        (Fork::Shanghai, Check::WithdrawalsRoot),
        (Fork::Cancun, Check::BlobGasUsed),
        (Fork::Cancun, Check::ExcessBlobGas),
        (Fork::Prague, Check::SystemCall),
        (Fork::Prague, Check::RequestsHash),
        (Fork::Amsterdam, Check::AccessList),
    ];
    since.into_iter().filter(|(first, _)| *first <= fork).map(|(_, check)| check).collect()
}

fn present<T>(name: &'static str, wanted: bool, field: &Option<T>) -> Result<(), Failure> {
    let word = |present| if present { "a value" } else { "no value" };
    equal(Check::Field(name), word(wanted), word(field.is_some()))
}

/// The block follows its parent: looked at first, since all else depends on it.
pub(crate) fn check_link(parent: &Head, block: &ChainBlock) -> Result<(), Failure> {
    let header = &block.block.header;
    equal(Check::ParentHash, parent.hash, header.parent_hash)?;
    equal(Check::Number, parent.header.number.saturating_add(1), header.number)
}

/// Everything that needs no execution; but for ommers, see `ommers`.
pub(crate) fn check_block(
    config: &ChainConfig,
    fork: Fork,
    parent: &Head,
    block: &ChainBlock,
) -> Result<(), Failure> {
    check_link(parent, block)?;
    check_fields(fork, &block.block.header)?;
    check_header(config, fork, &parent.header, &block.block.header)?;
    check_blob_gas(config, fork, &parent.header, block)?;
    check_body(fork, block)
}

pub(crate) fn check_fields(fork: Fork, header: &Header) -> Result<(), Failure> {
    present("base fee", fork >= Fork::London, &header.base_fee_per_gas)?;
    present("withdrawals root", fork >= Fork::Shanghai, &header.withdrawals_root)?;
    present("blob gas used", fork >= Fork::Cancun, &header.blob_gas_used)?;
    present("excess blob gas", fork >= Fork::Cancun, &header.excess_blob_gas)?;
    present("parent beacon block root", fork >= Fork::Cancun, &header.parent_beacon_block_root)?;
    present("requests hash", fork >= Fork::Prague, &header.requests_hash)?;
    let is_amsterdam = fork >= Fork::Amsterdam;
    present("block access list hash", is_amsterdam, &header.block_access_list_hash)?;
    present("slot number", is_amsterdam, &header.slot_number)
}

pub(crate) fn check_header(
    config: &ChainConfig,
    fork: Fork,
    parent: &Header,
    header: &Header,
) -> Result<(), Failure> {
    if header.timestamp <= parent.timestamp {
        let expected = format_args!("later than {}", parent.timestamp).to_string();
        return Err(Failure::new(Check::Timestamp, expected, header.timestamp));
    }
    if header.extra_data.len() > EXTRA_DATA_MAX {
        let expected = format!("at most {EXTRA_DATA_MAX} bytes");
        return Err(Failure::new(Check::ExtraData, expected, header.extra_data.len()));
    }
    let since_dao = config.dao_fork_block.and_then(|first| header.number.checked_sub(first));
    if since_dao.is_some_and(|since| since < dao::EXTRA_DATA_BLOCK_COUNT)
        && *header.extra_data != *dao::EXTRA_DATA
    {
        let expected = "what the DAO fork asks for";
        return Err(Failure::new(Check::ExtraData, expected, &header.extra_data));
    }
    check_gas_limit(config, parent, header)?;
    equal(Check::Difficulty, difficulty(config, fork, parent, header), header.difficulty)?;
    if fork >= Fork::Paris {
        equal(Check::Field("nonce"), B64::ZERO, header.nonce)?;
        equal(Check::Ommers, EMPTY_OMMER_ROOT_HASH, header.ommers_hash)?;
    }
    if let Some(base_fee) = header.base_fee_per_gas {
        let parent_fee = parent.base_fee_per_gas.filter(|_| is_london(config, parent.number));
        let expected =
            parent_fee.map_or(u128::from(INITIAL_BASE_FEE), |fee| next_base_fee(fee, parent));
        equal(Check::BaseFee, expected, base_fee.into())?;
    }
    Ok(())
}

/// EIP-1559, in numbers that cannot overflow: up or down by at most an eighth.
fn next_base_fee(base_fee: u64, parent: &Header) -> u128 {
    let base_fee = u128::from(base_fee);
    // Never zero: gas limits have a minimum, and the genesis is held to it by its first child.
    let target = u128::from(parent.gas_limit / 2).max(1);
    let used = u128::from(parent.gas_used);
    let part = base_fee.saturating_mul(used.abs_diff(target)).checked_div(target);
    let delta = part.unwrap_or_default() / 8;
    match used.cmp(&target) {
        Ordering::Equal => base_fee,
        Ordering::Greater => base_fee.saturating_add(delta.max(1)),
        Ordering::Less => base_fee.saturating_sub(delta),
    }
}

fn is_london(config: &ChainConfig, number: u64) -> bool {
    config.london_block.is_some_and(|first| first <= number)
}

fn check_gas_limit(config: &ChainConfig, parent: &Header, header: &Header) -> Result<(), Failure> {
    let doubles = config.london_block == Some(header.number);
    let before = if doubles { parent.gas_limit.saturating_mul(2) } else { parent.gas_limit };
    let bound = before / GAS_LIMIT_BOUND_DIVISOR;
    let limit = header.gas_limit;
    if limit.abs_diff(before) >= bound || !(GAS_LIMIT_MIN..=GAS_LIMIT_MAX).contains(&limit) {
        let expected = format!("{before}, give or take less than {bound}");
        return Err(Failure::new(Check::GasLimit, expected, limit));
    }
    if header.gas_used > limit {
        let expected = format!("at most {limit}");
        return Err(Failure::new(Check::GasUsed, expected, header.gas_used));
    }
    Ok(())
}

/// The difficulty of a block, by the rules of its fork.
fn difficulty(config: &ChainConfig, fork: Fork, parent: &Header, header: &Header) -> U256 {
    if fork >= Fork::Paris {
        return U256::ZERO;
    }
    let step = parent.difficulty.wrapping_shr(11);
    // Later than the parent: checked before.
    let elapsed = header.timestamp.saturating_sub(parent.timestamp);
    let (up, down) = match fork {
        Fork::Frontier if elapsed < 13 => (1, 0),
        Fork::Frontier => (0, 1),
        Fork::Homestead | Fork::Eip150 | Fork::Eip158 => notches(1, elapsed / 10),
        _ if parent.ommers_hash == EMPTY_OMMER_ROOT_HASH => notches(1, elapsed / 9),
        _ => notches(2, elapsed / 9),
    };
    let raised = parent.difficulty.saturating_add(step.saturating_mul(U256::from(up)));
    let adjusted = raised
        .saturating_sub(step.saturating_mul(U256::from(down)))
        .max(U256::from(DIFFICULTY_MIN));
    let period = header.number.saturating_sub(config.bomb_delay(header.number)) / 100_000;
    if period < 2 {
        return adjusted;
    }
    let bomb =
        U256::ONE.checked_shl(usize::try_from(period.saturating_sub(2)).unwrap_or(usize::MAX));
    adjusted.saturating_add(bomb.unwrap_or(U256::MAX))
}

/// How many steps up and down: `most - taken`, down to -99.
fn notches(most: u64, taken: u64) -> (u64, u64) {
    (most.saturating_sub(taken), taken.saturating_sub(most).min(99))
}

fn check_blob_gas(
    config: &ChainConfig,
    fork: Fork,
    parent: &Header,
    block: &ChainBlock,
) -> Result<(), Failure> {
    let header = &block.block.header;
    let (Some(used), Some(excess)) = (header.blob_gas_used, header.excess_blob_gas) else {
        return Ok(());
    };
    let Some(params) = config.blob_params(header.timestamp) else { return Ok(()) };
    let transactions = block.block.body.transactions.iter();
    let blob_count: u64 = transactions
        .filter_map(|transaction| transaction.blob_versioned_hashes())
        .map(|hashes| hashes.len() as u64)
        .sum();
    if blob_count > params.max_blob_count {
        let expected = format!("at most {} blobs", params.max_blob_count);
        return Err(Failure::new(Check::BlobGasUsed, expected, format!("{blob_count} blobs")));
    }
    equal(Check::BlobGasUsed, blob_count.saturating_mul(DATA_GAS_PER_BLOB), used)?;
    let mut params = *params;
    if fork < Fork::Osaka {
        params.blob_base_cost = 0;
    }
    // The first block with blobs has a parent without.
    let (parent_excess, parent_used) =
        (parent.excess_blob_gas.unwrap_or(0), parent.blob_gas_used.unwrap_or(0));
    if parent_excess.checked_add(parent_used).is_none() {
        return Err(Failure::new(Check::ExcessBlobGas, "64 bits", "more"));
    }
    let expected = params.next_block_excess_blob_gas_osaka(
        parent_excess,
        parent_used,
        parent.base_fee_per_gas.unwrap_or(0),
    );
    equal(Check::ExcessBlobGas, expected, excess)
}

fn check_body(fork: Fork, block: &ChainBlock) -> Result<(), Failure> {
    let (header, body) = (&block.block.header, &block.block.body);
    let transactions_root = calculate_transaction_root(&body.transactions);
    equal(Check::TransactionsRoot, transactions_root, header.transactions_root)?;
    equal(Check::Ommers, calculate_ommers_root(&body.ommers), header.ommers_hash)?;
    match (&body.withdrawals, header.withdrawals_root) {
        (Some(withdrawals), Some(root)) => {
            let expected = if withdrawals.is_empty() {
                EMPTY_WITHDRAWALS
            } else {
                calculate_withdrawals_root(withdrawals)
            };
            equal(Check::WithdrawalsRoot, expected, root)?;
        }
        (withdrawals, root) => present("withdrawals", root.is_some(), withdrawals)?,
    }
    if fork >= Fork::Osaka && block.network_len() > OSAKA_BLOCK_LEN_MAX {
        let expected = format!("at most {OSAKA_BLOCK_LEN_MAX} bytes");
        return Err(Failure::new(Check::Field("length"), expected, block.network_len()));
    }
    check_given(fork >= Fork::Amsterdam, block)?;
    for (index, transaction) in body.transactions.iter().enumerate() {
        let since = match transaction.tx_type() {
            TxType::Legacy => Fork::Frontier,
            TxType::Eip2930 => Fork::Berlin,
            TxType::Eip1559 => Fork::London,
            TxType::Eip4844 => Fork::Cancun,
            TxType::Eip7702 => Fork::Prague,
        };
        if fork < since {
            let got = format!("type {} at {fork:?}", transaction.tx_type());
            return Err(Failure::new(Check::Transaction(index), "a type of its fork", got));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difficulty_after(
        config: &ChainConfig,
        fork: Fork,
        number: u64,
        parent: u128,
        elapsed: u64,
    ) -> u128 {
        let parent = Header { difficulty: U256::from(parent), timestamp: 1, ..Header::default() };
        let header = Header { number, timestamp: 1 + elapsed, ..Header::default() };
        difficulty(config, fork, &parent, &header).to()
    }

    fn mainnet() -> ChainConfig {
        ChainConfig {
            byzantium_block: Some(4_370_000),
            constantinople_block: Some(7_280_000),
            muir_glacier_block: Some(9_200_000),
            london_block: Some(12_965_000),
            arrow_glacier_block: Some(13_773_000),
            gray_glacier_block: Some(15_050_000),
            ..ChainConfig::osaka(1)
        }
    }

    #[test]
    fn difficulty_follows_mainnet() {
        let of = |fork, number, parent, elapsed| {
            difficulty_after(&mainnet(), fork, number, parent, elapsed)
        };
        // Blocks 1 and 1,000,000, the second with a bomb of 2^8.
        assert_eq!(of(Fork::Frontier, 1, 17_179_869_184, 1_438_269_988), 17_171_480_576);
        let million = of(Fork::Frontier, 1_000_000, 12_555_463_106_190, 16);
        assert_eq!(million, 12_549_332_509_227);
    }

    #[test]
    fn difficulty_moves_by_notches_down_to_a_minimum() {
        let config = ChainConfig { byzantium_block: Some(9), ..mainnet() };
        let of = |fork, parent, elapsed| difficulty_after(&config, fork, 5, parent, elapsed);
        let parent = 2_048_000;
        assert_eq!(of(Fork::Frontier, parent, 12), 2_049_000);
        assert_eq!(of(Fork::Frontier, parent, 13), 2_047_000);
        assert_eq!(of(Fork::Homestead, parent, 9), 2_049_000);
        assert_eq!(of(Fork::Homestead, parent, 19), 2_048_000);
        assert_eq!(of(Fork::Homestead, parent, 20), 2_047_000);
        assert_eq!(of(Fork::Homestead, parent, 100_000), 1_949_000);
        assert_eq!(of(Fork::Byzantium, parent, 8), 2_049_000);
        assert_eq!(of(Fork::Byzantium, parent, 9), 2_048_000);
        assert_eq!(of(Fork::Frontier, 131_072, 13), 131_072);
        assert_eq!(of(Fork::Paris, parent, 1), 0);
    }

    #[test]
    fn the_bomb_is_put_off() {
        let config = mainnet();
        // The parent's difficulty stays as it is: what is added is the bomb.
        let bomb = |fork, number| difficulty_after(&config, fork, number, 1 << 60, 9) - (1 << 60);
        assert_eq!(bomb(Fork::Byzantium, 4_370_000), 1 << 11);
        assert_eq!(bomb(Fork::Constantinople, 7_280_000), 1 << 20);
        assert_eq!(bomb(Fork::Istanbul, 9_200_000), 1);
        assert_eq!(bomb(Fork::Istanbul, 9_199_999), 1 << 39);
        assert_eq!(bomb(Fork::London, 12_965_000), 1 << 30);
        assert_eq!(bomb(Fork::London, 13_773_000), 1 << 28);
    }

    #[test]
    fn base_fee_moves_by_an_eighth_and_never_overflows() {
        let of = |base_fee, gas_used| {
            let parent = Header { gas_limit: 10_000, gas_used, ..Header::default() };
            next_base_fee(base_fee, &parent)
        };
        assert_eq!(of(800, 5_000), 800);
        assert_eq!(of(800, 10_000), 900);
        assert_eq!(of(800, 0), 700);
        assert_eq!(of(7, 5_001), 8);
        assert!(of(u64::MAX, u64::MAX) > u128::from(u64::MAX));
    }
}
