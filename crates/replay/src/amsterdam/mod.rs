//! What Amsterdam asks of a block beside its transactions: gas in two dimensions, access lists, and
//! two more contracts of requests. What happens within a transaction is the EVM's.
//!
//! The rules are those of the EIPs: 7778 and 8037 (gas), 7928 (lists), 8282 (requests).

mod list;

use alloy_primitives::{Address, address};
use revm::{context::result::ResultGas, primitives::eip7825::TX_GAS_LIMIT_CAP};

pub(crate) use self::list::{ListBuilder, check_given, check_made};
use crate::{error::Check, rules::Failure};

/// Answers with deposits of builders, requests of type 3 (EIP-8282).
pub(crate) const BUILDER_DEPOSITS: Address = address!("0000bff46984e3725691fa540a8c7589300d8282");
/// Answers with exits of builders, requests of type 4 (EIP-8282).
pub(crate) const BUILDER_EXITS: Address = address!("000064d678505ad48f8ccb093bc65613800e8282");

/// The gas of a block's transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockGas {
    limit: u64,
    /// Whether growth of the state is counted apart.
    is_amsterdam: bool,
    /// What the transactions paid for.
    paid: u64,
    /// From Amsterdam on: what they used but for growth of the state, before refunds, and what that
    /// took.
    regular: u64,
    state: u64,
}

impl BlockGas {
    pub(crate) const fn new(limit: u64, is_amsterdam: bool) -> Self {
        Self { limit, is_amsterdam, paid: 0, regular: 0, state: 0 }
    }

    /// What receipts have: gas that was paid for so far.
    pub(crate) const fn paid(&self) -> u64 {
        self.paid
    }

    /// What the header has: from Amsterdam on the larger of both dimensions.
    pub(crate) fn used(&self) -> u64 {
        if self.is_amsterdam { self.regular.max(self.state) } else { self.paid }
    }

    /// Refuses a transaction whose gas may be more than is left in the block.
    pub(crate) fn check(&self, index: usize, gas_limit: u64) -> Result<(), Failure> {
        let fits = |what: &str, used: u64, wanted: u64| {
            let left = self.limit.saturating_sub(used);
            if wanted <= left {
                return Ok(());
            }
            let expected = format!("at most the {left} {what}gas that is left");
            Err(Failure::new(Check::Transaction(index), expected, wanted))
        };
        if !self.is_amsterdam {
            return fits("", self.paid, gas_limit);
        }
        // Of what is above the cap nothing can be used but for growth of the state.
        fits("regular ", self.regular, gas_limit.min(TX_GAS_LIMIT_CAP))?;
        fits("state ", self.state, gas_limit)
    }

    /// Counts a transaction that was executed.
    pub(crate) fn charge(&mut self, gas: &ResultGas) {
        self.paid = self.paid.saturating_add(gas.tx_gas_used());
        self.regular = self.regular.saturating_add(gas.block_regular_gas_used());
        self.state = self.state.saturating_add(gas.block_state_gas_used());
    }
}
