//! Reading vectors.

use std::path::Path;

use alloy_primitives::{Address, B256, Bytes, U256, hex, keccak256};
pub(crate) use serde_json::Value as Json;
use spinney_state::{AccountChange, Change, Changes};

/// A file of the shared data; where it is missing the test says so and is to return.
pub(crate) fn shared(name: &str) -> Option<Json> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(name);
    match std::fs::read(&path) {
        Ok(file) => Some(serde_json::from_slice(&file).expect("shared files are JSON")),
        Err(error) => {
            println!("skipped: {} cannot be read: {error}", path.display());
            None
        }
    }
}

pub(crate) fn list(json: &Json) -> &[Json] {
    json.as_array().expect("a list of the vectors")
}

pub(crate) fn text(json: &Json) -> &str {
    json.as_str().expect("a string of the vectors")
}

pub(crate) fn bytes(json: &Json) -> Bytes {
    hex::decode(text(json)).expect("hex of the vectors").into()
}

pub(crate) fn word(json: &Json) -> B256 {
    B256::from_slice(&bytes(json))
}

pub(crate) fn address(json: &Json) -> Address {
    Address::from_slice(&bytes(json))
}

/// A number in JSON, in decimal or in hex of any length.
pub(crate) fn number(json: &Json) -> U256 {
    match json {
        Json::Number(number) => U256::from(number.as_u64().expect("a number of 64 bits")),
        _ => {
            let text = text(json);
            let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |hex| (hex, 16));
            U256::from_str_radix(digits, radix).expect("a number of the vectors")
        }
    }
}

/// The same in 64 bits.
pub(crate) fn small(json: &Json) -> u64 {
    number(json).to()
}

/// The accounts of a genesis, as geth writes them.
pub(crate) fn allocation(alloc: &Json) -> Changes {
    let account = |(address, account): (&String, &Json)| {
        let code = account.get("code").map(bytes);
        let storage = account.get("storage").and_then(Json::as_object);
        let change = AccountChange {
            nonce: account.get("nonce").map(small),
            balance: account.get("balance").map(number),
            code_hash: code.as_ref().map(keccak256),
            code,
            storage: storage
                .into_iter()
                .flatten()
                .map(|(slot, value)| (slot.parse().unwrap(), word(value).into()))
                .collect(),
            fresh: false,
        };
        (address.parse().unwrap(), Change::Written(change))
    };
    Changes { accounts: alloc.as_object().unwrap().iter().map(account).collect() }
}
