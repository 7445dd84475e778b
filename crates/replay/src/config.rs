//! Which rules a block follows.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_eips::{eip6110::MAINNET_DEPOSIT_CONTRACT_ADDRESS, eip7840::BlobParams};
use alloy_primitives::{Address, U256};
use revm::primitives::hardfork::SpecId;

/// The forks that change how a block is executed or checked, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fork {
    /// From genesis.
    Frontier,
    /// EIP-2.
    Homestead,
    /// EIP-150, Tangerine Whistle.
    Eip150,
    /// EIP-155, -158 (161), -160 and -170, Spurious Dragon.
    Eip158,
    /// Receipts get a status.
    Byzantium,
    /// EIP-1283 among others; only where Petersburg does not follow at once.
    Constantinople,
    /// Takes EIP-1283 back.
    Petersburg,
    /// EIP-2200 among others.
    Istanbul,
    /// EIP-2929 and -2930.
    Berlin,
    /// EIP-1559 and -3529.
    London,
    /// The merge.
    Paris,
    /// Withdrawals.
    Shanghai,
    /// Blobs.
    Cancun,
    /// Requests and EIP-7702.
    Prague,
    /// EIP-7825, -7918 and -7934 among others.
    Osaka,
    /// Access lists of blocks and gas for state: EIP-7928 and EIP-8037 among others.
    Amsterdam,
}

impl Fork {
    /// The rules that the EVM knows this fork by.
    pub(crate) fn spec(self) -> SpecId {
        match self {
            Self::Frontier => SpecId::FRONTIER,
            Self::Homestead => SpecId::HOMESTEAD,
            Self::Eip150 => SpecId::TANGERINE,
            Self::Eip158 => SpecId::SPURIOUS_DRAGON,
            Self::Byzantium => SpecId::BYZANTIUM,
            // The EVM has no Constantinople of its own: `evm` gives it the older SSTORE.
            Self::Constantinople | Self::Petersburg => SpecId::PETERSBURG,
            Self::Istanbul => SpecId::ISTANBUL,
            Self::Berlin => SpecId::BERLIN,
            Self::London => SpecId::LONDON,
            Self::Paris => SpecId::MERGE,
            Self::Shanghai => SpecId::SHANGHAI,
            Self::Cancun => SpecId::CANCUN,
            Self::Prague => SpecId::PRAGUE,
            Self::Osaka => SpecId::OSAKA,
            Self::Amsterdam => SpecId::AMSTERDAM,
        }
    }
}

/// A fork that is not implemented: its blocks are refused, and those before it are not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownFork {
    /// Its name in the configuration, which ends in `Block` or in `Time`.
    pub name: String,
    /// Its first block, or the first timestamp.
    pub first: u64,
}

impl UnknownFork {
    pub(crate) const fn new(name: String, first: u64) -> Self {
        Self { name, first }
    }

    fn is_timed(&self) -> bool {
        self.name.ends_with("Time")
    }
}

/// When each fork of a chain begins, and what else its rules depend on.
// Fields: one for each fork.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChainConfig {
    /// The chain id.
    pub chain_id: u64,
    /// First block of Homestead.
    pub homestead_block: Option<u64>,
    /// The block of the DAO fork, where this chain takes it.
    pub dao_fork_block: Option<u64>,
    /// First block of EIP-150.
    pub eip150_block: Option<u64>,
    /// First block of EIP-155 and EIP-158, which no chain separates.
    pub eip158_block: Option<u64>,
    /// First block of Byzantium.
    pub byzantium_block: Option<u64>,
    /// First block of Constantinople.
    pub constantinople_block: Option<u64>,
    /// First block of Petersburg; with Constantinople where it is not given.
    pub petersburg_block: Option<u64>,
    /// First block of Istanbul.
    pub istanbul_block: Option<u64>,
    /// First block of Muir Glacier (difficulty alone).
    pub muir_glacier_block: Option<u64>,
    /// First block of Berlin.
    pub berlin_block: Option<u64>,
    /// First block of London.
    pub london_block: Option<u64>,
    /// First block of Arrow Glacier (difficulty alone).
    pub arrow_glacier_block: Option<u64>,
    /// First block of Gray Glacier (difficulty alone).
    pub gray_glacier_block: Option<u64>,
    /// First block after the merge, for chains that give no terminal total difficulty.
    pub merge_netsplit_block: Option<u64>,
    /// The total difficulty at which proof of work ends.
    pub terminal_total_difficulty: Option<U256>,
    /// First timestamp of Shanghai.
    pub shanghai_time: Option<u64>,
    /// First timestamp of Cancun.
    pub cancun_time: Option<u64>,
    /// First timestamp of Prague.
    pub prague_time: Option<u64>,
    /// First timestamp of Osaka.
    pub osaka_time: Option<u64>,
    /// First timestamp of Amsterdam.
    pub amsterdam_time: Option<u64>,
    /// Forks that the chain has and that are not implemented.
    pub unknown_forks: Vec<UnknownFork>,
    /// The contract whose logs are deposits (EIP-6110).
    pub deposit_contract: Address,
    /// From which timestamp on which blob parameters hold, in order of time.
    pub blob_schedule: Vec<(u64, BlobParams)>,
}

impl ChainConfig {
    /// A chain that has all forks up to Osaka from its genesis on, with the blob parameters of
    /// mainnet's Osaka.
    pub fn osaka(chain_id: u64) -> Self {
        Self {
            chain_id,
            homestead_block: Some(0),
            dao_fork_block: None,
            eip150_block: Some(0),
            eip158_block: Some(0),
            byzantium_block: Some(0),
            constantinople_block: Some(0),
            petersburg_block: Some(0),
            istanbul_block: Some(0),
            muir_glacier_block: Some(0),
            berlin_block: Some(0),
            london_block: Some(0),
            arrow_glacier_block: Some(0),
            gray_glacier_block: Some(0),
            merge_netsplit_block: Some(0),
            terminal_total_difficulty: Some(U256::ZERO),
            shanghai_time: Some(0),
            cancun_time: Some(0),
            prague_time: Some(0),
            osaka_time: Some(0),
            amsterdam_time: None,
            unknown_forks: Vec::new(),
            deposit_contract: MAINNET_DEPOSIT_CONTRACT_ADDRESS,
            blob_schedule: vec![(0, BlobParams::osaka())],
        }
    }

    /// The fork of a block. `total_difficulty` is that of its parent.
    pub fn fork(&self, number: u64, timestamp: u64, total_difficulty: U256) -> Fork {
        if !self.is_merged(number, total_difficulty) {
            return self.fork_by_number(number);
        }
        let timed = [
            (self.amsterdam_time, Fork::Amsterdam),
            (self.osaka_time, Fork::Osaka),
            (self.prague_time, Fork::Prague),
            (self.cancun_time, Fork::Cancun),
            (self.shanghai_time, Fork::Shanghai),
        ];
        timed
            .into_iter()
            .find(|(time, _)| time.is_some_and(|time| time <= timestamp))
            .map_or(Fork::Paris, |(_, fork)| fork)
    }

    /// A fork of a block that is not implemented.
    pub(crate) fn unknown_fork(&self, number: u64, timestamp: u64) -> Option<&UnknownFork> {
        self.unknown_forks.iter().find(|fork| match fork.is_timed() {
            true => fork.first <= timestamp,
            false => fork.first <= number,
        })
    }

    fn is_merged(&self, number: u64, total_difficulty: U256) -> bool {
        match self.terminal_total_difficulty {
            Some(terminal) => total_difficulty >= terminal,
            None => self.merge_netsplit_block.is_some_and(|first| first <= number),
        }
    }

    /// The fork of a block of proof of work.
    pub(crate) fn fork_by_number(&self, number: u64) -> Fork {
        let petersburg = self.petersburg_block.or(self.constantinople_block);
        let numbered = [
            (self.london_block, Fork::London),
            (self.berlin_block, Fork::Berlin),
            (self.istanbul_block, Fork::Istanbul),
            (petersburg, Fork::Petersburg),
            (self.constantinople_block, Fork::Constantinople),
            (self.byzantium_block, Fork::Byzantium),
            (self.eip158_block, Fork::Eip158),
            (self.eip150_block, Fork::Eip150),
            (self.homestead_block, Fork::Homestead),
        ];
        numbered
            .into_iter()
            .find(|(block, _)| block.is_some_and(|block| block <= number))
            .map_or(Fork::Frontier, |(_, fork)| fork)
    }

    /// By how many blocks the difficulty bomb is put off.
    pub(crate) fn bomb_delay(&self, number: u64) -> u64 {
        let delays = [
            (self.gray_glacier_block, 11_400_000),
            (self.arrow_glacier_block, 10_700_000),
            (self.london_block, 9_700_000),
            (self.muir_glacier_block, 9_000_000),
            (self.constantinople_block, 5_000_000),
            (self.byzantium_block, 3_000_000),
        ];
        delays
            .into_iter()
            .find(|(block, _)| block.is_some_and(|block| block <= number))
            .map_or(0, |(_, delay)| delay)
    }

    /// The blob parameters of a block, from Cancun on.
    pub(crate) fn blob_params(&self, timestamp: u64) -> Option<&BlobParams> {
        self.blob_schedule
            .iter()
            .rev()
            .find(|(time, _)| *time <= timestamp)
            .map(|(_, params)| params)
    }
}
