//! Calls that the protocol itself makes.

use alloy_eips::{
    eip7002::WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS, eip7251::CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS,
};
use alloy_primitives::{Bytes, hex};
use serde_json::json;
use spinney_replay::{Check, Fork};

use crate::made::Made;

/// Code that uses just this much gas and ends well: a loop of 26 gas a turn, and JUMPDESTs for the
/// rest.
pub(crate) fn burner(gas: u32) -> Bytes {
    let turns = (gas - 3) / 26;
    let rest = (gas - 3) % 26;
    let mut code = vec![0x63];
    code.extend(turns.to_be_bytes());
    // JUMPDEST, PUSH1 1, SWAP1, SUB, DUP1, PUSH1 5, JUMPI
    code.extend(hex!("5b60019003806005 57"));
    code.extend(vec![0x5b; rest as usize]);
    code.into()
}

#[test]
fn a_system_call_has_thirty_million_gas() {
    for fork in [Fork::Prague, Fork::Osaka] {
        let chain = |gas| {
            let withdrawals = WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS.to_string();
            let consolidations = CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS.to_string();
            Made::at(
                fork,
                json!({
                    withdrawals: {"code": burner(gas), "nonce": "0x1"},
                    consolidations: {"code": "0x00", "nonce": "0x1"},
                }),
            )
        };
        chain(30_000_000).block(Vec::new());
        let mut chain = chain(30_000_001);
        let proposal = chain.proposal(Vec::new(), Vec::new());
        let bad = chain.seal(proposal).unwrap_err();
        assert_eq!(bad.what, Check::SystemCall, "{fork:?}: {bad}");
        assert!(bad.got.contains("OutOfGas"), "{bad}");
    }
}
