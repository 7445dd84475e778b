//! Keys, encodings and roots that others computed.

use alloy_primitives::{Address, B256, U256, keccak256};
use spinney_state::embed::{BasicData, BinaryState, EmbedError, Embedding, chunkify, pbt, ubt};
use spinney_state::{AccountChange, Change, Changes};
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::{HashFunction, MemoryStore};

use HashFunction::{Blake3, Sha256};

use super::json::{Json, address, allocation, bytes, list, number, shared, small, text, word};
use super::textbook;

#[test]
fn ubt_keys_are_geths() {
    let Some(file) = shared("vectors/binary/ubt_state.json") else { return };
    let mut checked = 0;
    for case in list(&file["treeKeys"]) {
        let account = address(&case["address"]);
        let mut check = |key: [u8; 32], expected: &Json| {
            assert_eq!(B256::from(key), word(expected), "{account}");
            checked += 1;
        };
        let header = ubt::header(Sha256, &account);
        check(ubt::key(header, ubt::BASIC_DATA), &case["basicData"]);
        check(ubt::key(header, ubt::CODE_HASH), &case["codeHash"]);
        for slot in list(&case["storage"]) {
            check(ubt::slot_key(Sha256, &account, &word(&slot["slot"])), &slot["key"]);
        }
        for chunk in list(&case["codeChunk"]) {
            let index = small(&chunk["chunk"]) as u32;
            check(ubt::chunk_key(Sha256, &account, index), &chunk["key"]);
        }
    }
    assert_eq!(checked, 112);
}

#[test]
fn code_is_cut_into_chunks() {
    let mut checked = 0;
    let mut check = |code: &Json, chunks: &[u8]| {
        let cut: Vec<_> = chunkify(&bytes(code)).collect();
        assert_eq!(cut.as_flattened(), chunks, "{code}");
        checked += 1;
    };
    let Some(file) = shared("vectors/binary/ubt_state.json") else { return };
    for case in list(&file["chunkify"]) {
        check(&case["code"], &bytes(&case["chunks"]));
    }
    let Some(file) = shared("vectors/binary/pbt_published.json") else { return };
    for case in list(&file["chunkify_code"]) {
        let chunks: Vec<u8> = list(&case["chunks"]).iter().flat_map(bytes).collect();
        check(&case["code"], &chunks);
    }
    assert_eq!(checked, 128);
}

#[test]
fn pbt_keys_and_basic_data_are_the_eips() {
    let Some(file) = shared("vectors/binary/pbt_published.json") else { return };
    let keys = &file["embedding"];
    let account = address(&keys["address20"]);
    let header = |place| pbt::header_key(Blake3, &account, place);
    assert_eq!(header(pbt::BASIC_DATA)[..], bytes(&keys["basic_data_key"]));
    assert_eq!(header(pbt::CODE_HASH)[..], bytes(&keys["code_hash_key"]));
    assert_eq!(header(pbt::DELEGATION)[..], bytes(&keys["delegation_key"]));
    for (slot, key) in keys["storage_slot_keys"].as_object().unwrap() {
        let slot = U256::from_str_radix(slot, 10).unwrap();
        assert_eq!(pbt::slot_key(Blake3, &account, &B256::from(slot))[..], bytes(key), "{slot}");
    }
    let code_hash = word(&keys["code_hash"]);
    for (index, key) in keys["code_chunk_keys_computed_by_us"].as_object().unwrap() {
        let index = index.parse().unwrap();
        assert_eq!(pbt::chunk_key(Blake3, &code_hash, index)[..], bytes(key), "{index}");
    }
    for case in list(&file["encode_basic_data"]) {
        let data = BasicData {
            code_size: small(&case["code_size"]) as u32,
            nonce: small(&case["nonce"]),
            balance: number(&case["balance"]).to(),
        };
        assert_eq!(data.encode()[..], bytes(&case["encoded"]));
        assert_eq!(BasicData::decode(&data.encode()), Some(data));
    }
}

#[test]
fn pbt_keys_are_those_of_the_cross_check() {
    let file: Json =
        serde_json::from_str(include_str!("../../../../vectors/data/ubt_pbt_crosscheck.json"))
            .unwrap();
    let keys = &file["eip8297_keys_blake3"];
    let (account, code_hash) = (address(&keys["address20"]), word(&keys["codeHash"]));
    let slot = |slot: u64| pbt::slot_key(Blake3, &account, &B256::from(U256::from(slot)));
    let header = |place| pbt::header_key(Blake3, &account, place).to_vec();
    for (name, key) in [
        ("header_basic_data", header(0)),
        ("header_code_hash", header(1)),
        ("delegation", header(2)),
        ("slot5", slot(5)),
        ("slot1000", slot(1000)),
        ("chunk5", pbt::chunk_key(Blake3, &code_hash, 5).to_vec()),
        ("chunk300", pbt::chunk_key(Blake3, &code_hash, 300).to_vec()),
    ] {
        assert_eq!(key, bytes(&keys[name]), "{name}");
    }
}

/// What an operation of the state cases does.
fn change(op: &Json) -> Change {
    let mut change = AccountChange::default();
    match text(&op["op"]) {
        "account" => {
            change.nonce = Some(small(&op["nonce"]));
            change.balance = Some(number(&op["balance"]));
        }
        "code" => {
            let code = bytes(&op["code"]);
            change.code_hash = Some(keccak256(&code));
            change.code = Some(code);
        }
        "storage" => drop(change.storage.insert(word(&op["slot"]), number(&op["value"]))),
        "deleteStorage" => drop(change.storage.insert(word(&op["slot"]), U256::ZERO)),
        "deleteAccount" => return Change::Deleted,
        other => panic!("an operation of another kind: {other}"),
    }
    Change::Written(change)
}

/// The roots after both lists of operations, one layer each.
fn roots<S: Embedding>(scheme: S, case: &Json) -> [B256; 2] {
    let mut state = BinaryState::open(scheme, MemoryStore::new(), 1 << 20).unwrap();
    ["ops", "ops2"].map(|ops| {
        for op in list(&case[ops]) {
            let changes = Changes { accounts: [(address(&op["addr"]), change(op))].into() };
            state.apply(&changes).unwrap();
        }
        let root = state.root();
        state.commit(None).unwrap();
        assert_eq!(state.check(|_| {}).unwrap(), []);
        assert_eq!(state.root(), root);
        root
    })
}

#[test]
fn states_have_the_roots_of_geth_and_of_the_cross_check() {
    let Some(file) = shared("vectors/binary/ubt_state.json") else { return };
    let Some(cross) = shared("vectors/binary/ubt_pbt_crosscheck.json") else { return };
    for (case, cross) in list(&file["cases"]).iter().zip(list(&cross["state"])) {
        assert_eq!(case["name"], cross["name"]);
        let sha256 = roots(Ubt { hash: Sha256 }, case);
        assert_eq!(sha256, [word(&case["root_sha256"]), word(&case["root2_sha256"])]);
        for (field, roots) in [
            ("eip7864_old_layout_sha256", sha256),
            ("eip7864_old_layout_blake3", roots(Ubt { hash: Blake3 }, case)),
            ("eip8297_blake3", roots(Pbt { hash: Blake3 }, case)),
        ] {
            let expected: Vec<_> = list(&cross[field]).iter().map(word).collect();
            assert_eq!(roots[..], expected, "{}, {field}", case["name"]);
        }
    }
}

fn root_of<S: Embedding>(scheme: S, changes: &Changes) -> B256 {
    BinaryState::open(scheme, MemoryStore::new(), 1 << 20).unwrap().apply(changes).unwrap()
}

#[test]
fn genesis_allocations_have_the_published_ubt_roots_and_the_textbooks_pbt_roots() {
    for (network, accounts) in [("mainnet", 8_893), ("sepolia", 15), ("hoodi", 335)] {
        let Some(file) = shared(&format!("data/genesis/{network}.json")) else { return };
        let changes = allocation(&file["alloc"]);
        assert_eq!(changes.accounts.len(), accounts);
        let root = root_of(Ubt { hash: Sha256 }, &changes);
        assert_eq!(root, word(&file["bintrieRootSha256"]), "{network}");
        let expected = textbook::Pbt::of(&changes).root(Blake3);
        assert_eq!(root_of(Pbt { hash: Blake3 }, &changes), expected, "{network}");
    }
}

#[test]
fn geths_own_genesis_has_its_root() {
    let Some(file) = shared("vectors/binary/ubt_published.json") else { return };
    let named = |case: &&Json| case["name"] == "genesis UBT";
    let case = list(&file["vectors"]).iter().find(named).unwrap();
    let root = root_of(Ubt { hash: Sha256 }, &allocation(&case["state"]));
    assert_eq!(root, word(&case["root_sha256"]));
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    fn refused<S: Embedding>(scheme: S) {
        let mut state = BinaryState::open(scheme, MemoryStore::new(), 1 << 20).unwrap();
        let mut apply = |change| {
            let changes = Changes {
                accounts: [(Address::with_last_byte(7), Change::Written(change))].into(),
            };
            let refused = state.apply(&changes).unwrap_err();
            assert_eq!((state.layer_count(), state.root()), (0, B256::ZERO));
            refused
        };
        let balance = Some(U256::from(1) << 128);
        let error = apply(AccountChange { balance, ..AccountChange::default() });
        assert!(matches!(error, EmbedError::Balance { .. }), "{error}");
        let code_hash = Some(B256::repeat_byte(1));
        let error = apply(AccountChange { code_hash, ..AccountChange::default() });
        assert!(matches!(error, EmbedError::CodeUnknown { .. }), "{error}");
        let code = Some(vec![1].into());
        let error = apply(AccountChange { code_hash, code, ..AccountChange::default() });
        assert!(matches!(error, EmbedError::CodeHash { .. }), "{error}");
    }
    refused(Ubt { hash: Sha256 });
    refused(Pbt { hash: Blake3 });
}
