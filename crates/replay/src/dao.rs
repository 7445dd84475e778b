//! The DAO fork: whose balances it moved, and where to.

use alloy_primitives::{Address, address};

/// Takes all that is moved.
pub(crate) const REFUND: Address = address!("bf4ed7b27f1d666546e30d74d50d173d20bca754");

/// Accounts that lose their balance.
pub(crate) const DRAINED: [Address; 0] = [];
