//! The embedding of EIP-6800 against keys, encodings and roots that go-verkle, geth and rust-verkle
//! computed.

use alloy_primitives::{Address, B256, KECCAK256_EMPTY, U256, keccak256};
use spinney_ipa::Crs;
use spinney_state::embed::verkle::{AccountKeys, legacy_header, pedersen, slot_key};
use spinney_state::embed::{BasicData, chunkify, ubt};
use spinney_tree::bulk;
use spinney_tree::verkle::Verkle;

use super::json::{Json, address, bytes, list, number, shared, small, word};

#[test]
fn verkle_keys_are_the_eips() {
    let Some(file) = shared("vectors/verkle/tree_keys.json") else { return };
    let crs = Crs::new();
    for case in list(&file["pedersen_hash"]) {
        let hash = pedersen(&crs, &bytes(&case["input"])).unwrap();
        assert_eq!(B256::from(hash), word(&case["hash"]), "{}", case["len"]);
    }
    assert_eq!(pedersen(&crs, &[0; 4_081]), None);
    for case in list(&file["accounts"]) {
        let keys = AccountKeys::new(&crs, &address(&case["address"]));
        let header = keys.stem(&crs, &[0; 32]);
        let check = |key: [u8; 32], expected: &Json| assert_eq!(B256::from(key), word(expected));
        check(ubt::key(header, ubt::BASIC_DATA), &case["basic_data_key"]);
        check(ubt::key(header, ubt::CODE_HASH), &case["code_hash_key"]);
        for chunk in list(&case["code_chunk_keys"]) {
            let (index, place) = ubt::chunk_position(small(&chunk["chunk"]) as u32);
            check(ubt::key(keys.stem(&crs, &index), place), &chunk["key"]);
        }
        for slot in list(&case["storage_keys"]) {
            check(slot_key(&crs, &keys, &word(&slot["slot_be"])), &slot["key"]);
        }
    }
    for case in list(&file["basic_data"]) {
        let data = BasicData {
            code_size: small(&case["code_size"]) as u32,
            nonce: small(&case["nonce"]),
            balance: number(&case["balance_dec"]).to(),
        };
        assert_eq!(B256::from(data.encode()), word(&case["value"]));
    }
    for case in list(&file["chunkify"]) {
        let chunks: Vec<_> = list(&case["chunks"]).iter().map(word).collect();
        let code = bytes(&case["code"]);
        assert!(chunkify(&code).map(B256::from).eq(chunks), "{}", case["name"]);
    }
}

#[test]
fn verkle_keys_are_geths_and_rust_verkles() {
    let Some(file) = shared("vectors/verkle/upstream/misc_constants.json") else { return };
    let crs = Crs::new();
    for case in list(&file["pedersen_hash64"]) {
        assert_eq!(
            B256::from(pedersen(&crs, &bytes(&case["input"])).unwrap()),
            word(&case["hash"])
        );
    }
    let case = &file["go_geth_TestGetTreeKey"];
    let keys = AccountKeys::of_word(&crs, &word(&case["address32"]));
    let index = (U256::from(1) << 129usize) + U256::from(3);
    let key = ubt::key(keys.stem(&crs, &index.to_be_bytes()), 1);
    assert_eq!(B256::from(key), word(&case["key"]));
}

#[test]
fn the_genesis_of_a_test_network_has_its_root() {
    let Some(constants) = shared("vectors/verkle/upstream/misc_constants.json") else { return };
    let Some(genesis) = shared("vectors/verkle/upstream/devnet6_genesis.json") else { return };
    let verkle = Verkle::shared();
    let mut leaves: Vec<([u8; 32], [u8; 32])> = Vec::new();
    for (account, held) in genesis["alloc"].as_object().unwrap() {
        let keys = AccountKeys::new(verkle.crs(), &account.parse::<Address>().unwrap());
        let header = keys.stem(verkle.crs(), &[0; 32]);
        let code = held.get("code").map(bytes).unwrap_or_default();
        let code_hash = if code.is_empty() { KECCAK256_EMPTY } else { keccak256(&code) };
        let nonce = held.get("nonce").map_or(0, small);
        let fields = legacy_header(number(&held["balance"]), nonce, code_hash, code.len() as u64);
        leaves.extend(fields.map(|(place, leaf)| (ubt::key(header, place), leaf)));
        for (chunk, leaf) in (0..).zip(chunkify(&code)) {
            let (index, place) = ubt::chunk_position(chunk);
            leaves.push((ubt::key(keys.stem(verkle.crs(), &index), place), leaf));
        }
        for (slot, value) in held.get("storage").and_then(Json::as_object).into_iter().flatten() {
            let slot = B256::from(U256::from_str_radix(&slot[2..], 16).unwrap());
            leaves.push((slot_key(verkle.crs(), &keys, &slot), number(value).to_be_bytes()));
        }
    }
    leaves.sort_unstable();
    let root = bulk::root_of_sorted(&verkle, &leaves).unwrap();
    let name = "devnet6_genesis_root (legacy 5-leaf header layout)";
    assert_eq!(B256::from(root), word(&constants[name]));
}
