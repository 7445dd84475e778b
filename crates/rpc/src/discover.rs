//! The methods as `rpc.discover` names them, in the form of OpenRPC.

use serde_json::{Value, json};

/// A method: its name, its params (with a `?` where none is needed), and what it answers.
struct Method {
    name: &'static str,
    params: &'static [&'static str],
    summary: &'static str,
}

const fn method(
    name: &'static str,
    params: &'static [&'static str],
    summary: &'static str,
) -> Method {
    Method { name, params, summary }
}

const METHODS: [Method; 18] = [
    method("eth_chainId", &[], "The chain's id, as the server was told"),
    method("eth_blockNumber", &[], "The last block whose state the store holds"),
    method("eth_getBalance", &["address", "block?"], "An account's balance in wei"),
    method("eth_getTransactionCount", &["address", "block?"], "An account's nonce"),
    method("eth_getCode", &["address", "block?"], "An account's code"),
    method("eth_getStorageAt", &["address", "slot", "block?"], "The value of a slot"),
    method(
        "eth_getProof",
        &["address", "slots", "block?"],
        "An account and slots, proven (EIP-1186)",
    ),
    method("net_version", &[], "The chain's id, in decimal"),
    method("web3_clientVersion", &[], "The name and version of this program"),
    method("debug_executionWitness", &["block?"], "A block's execution witness, where one is kept"),
    method("debug_executionWitnessByBlockHash", &["hash"], "The same, by the block's hash"),
    method("debug_proofsSyncStatus", &[], "The first and the last block whose states are kept"),
    method("spinney_getRoot", &["tree", "block?"], "The root of a tree at a block"),
    method(
        "spinney_getProof",
        &["tree", "keys", "block?"],
        "Keys of a UBT, a PBT or a Verkle tree, or those that hold an account, proven",
    ),
    method("spinney_getSumProof", &["namespace", "keys"], "Leaves of a Merkle-sum tree, proven"),
    method("spinney_trees", &[], "All trees of the store, with their roots"),
    method("spinney_status", &[], "The blocks kept, and what the server was told of the chain"),
    method("rpc.discover", &[], "This document"),
];

/// The name of a method, if it is one.
pub(crate) fn known(name: &str) -> Option<&'static str> {
    METHODS.iter().map(|method| method.name).find(|known| *known == name)
}

pub(crate) fn document() -> Value {
    let methods = METHODS.iter().map(|method| {
        let params = method.params.iter().map(|param| {
            let (name, required) = match param.strip_suffix('?') {
                Some(name) => (name, false),
                None => (*param, true),
            };
            json!({ "name": name, "required": required, "schema": {} })
        });
        json!({
            "name": method.name,
            "summary": method.summary,
            "paramStructure": "by-position",
            "params": params.collect::<Vec<_>>(),
            "result": { "name": "result", "schema": {} },
        })
    });
    json!({
        "openrpc": "1.3.2",
        "info": { "title": "Spinney", "version": env!("CARGO_PKG_VERSION") },
        "methods": methods.collect::<Vec<_>>(),
    })
}
