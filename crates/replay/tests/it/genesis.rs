//! Genesis files: the hashes of public chains, and what is refused.

use serde_json::{Value, json};
use spinney_replay::{
    Fork, Genesis, GenesisError, SampleChain, SampleOptions, TextbookState, parse_alloc,
};

use crate::shared;

/// Parses a genesis in both ways.
fn parse(file: &Value) -> Result<Genesis, GenesisError> {
    let text = file.to_string();
    let parsed = Genesis::parse(text.as_bytes());
    match (&parsed, Genesis::read_sorted(text.as_bytes(), 1 << 20)) {
        (Ok(whole), Ok((mut genesis, accounts))) => {
            assert_eq!(accounts.root(), genesis.header.state_root);
            assert_eq!(accounts.accounts(), whole.alloc.accounts.len() as u64);
            assert!(genesis.alloc.accounts.is_empty());
            genesis.alloc = whole.alloc.clone();
            assert_eq!(genesis, *whole);
        }
        (Err(whole), Err(sorted)) => {
            // What is wrong beside the accounts is found in JSON without places.
            let start = |error: &GenesisError| error.to_string()[..18].to_owned();
            assert_eq!(start(whole), start(&sorted));
        }
        (whole, sorted) => panic!("{whole:?} {sorted:?}"),
    }
    parsed
}

fn minimal(config: Value) -> Value {
    json!({"config": config, "gasLimit": "0x1000000", "difficulty": 1, "alloc": {}})
}

#[test]
fn public_chains_have_their_hashes() {
    let mainnet = json!({
        "config": {"chainId": 1},
        "nonce": "0x42",
        "extraData": "0x11bbe8db4e347b4e8c937c1c8370e4b5ed33adb3db69cbdb7a38e1e50b1b82fa",
        "gasLimit": "0x1388",
        "difficulty": "0x400000000",
    });
    let sepolia = json!({
        "config": {"chainId": 11_155_111, "londonBlock": 0},
        "timestamp": 1_633_267_481,
        "extraData": "0x5365706f6c69612c20417468656e732c204174746963612c2047726565636521",
        "gasLimit": "0x1c9c380",
        "difficulty": 131_072,
    });
    let hoodi = json!({
        "config": {"chainId": 560_048, "londonBlock": 0, "mergeNetsplitBlock": 0,
            "terminalTotalDifficulty": 0, "shanghaiTime": 0, "cancunTime": 0},
        "nonce": "0x1234",
        "timestamp": 1_742_212_800,
        "gasLimit": "0x2255100",
        "difficulty": "1",
    });
    let hashes = [
        (mainnet, "mainnet", "0xd4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3"),
        (sepolia, "sepolia", "0x25a5cc106eea7138acab33231d7160d69cb777ee0c2c553fcddf5138993e6dd9"),
        (hoodi, "hoodi", "0xbbe312868b376a3001692a646dd2d7d1e4406380dfd86b98aa8a34d1557c971b"),
    ];
    for (mut file, name, hash) in hashes {
        let Some(alloc) = shared::read(&format!("genesis/{name}.json")) else { return };
        let alloc: Value = serde_json::from_slice(&alloc).unwrap();
        file["alloc"] = alloc["alloc"].clone();
        let genesis = parse(&file).unwrap();
        assert_eq!(genesis.hash.to_string(), hash, "{name}");
        assert_eq!(Genesis::parse(genesis.to_json().as_bytes()).unwrap(), genesis);
    }
}

#[test]
fn a_genesis_survives_being_written_and_read() {
    let mut options = SampleOptions::default();
    options.sender_count = 2;
    let sample = SampleChain::new(options, TextbookState::new()).unwrap();
    let json = sample.genesis().to_json();
    assert_eq!(&Genesis::parse(json.as_bytes()).unwrap(), sample.genesis());
    for name in [shared::ALL_FORKS, shared::CHAIN_600] {
        let Some(chain) = shared::chain(name) else { return };
        let json = chain.genesis.to_json();
        assert_eq!(Genesis::parse(json.as_bytes()).unwrap(), chain.genesis);
    }
}

#[test]
fn numbers_beyond_64_bits_are_exact() {
    let config = r#"{"chainId": 1, "terminalTotalDifficulty": 58750000000000000000001}"#;
    let file =
        minimal(json!({})).to_string().replace(r#""config":{}"#, &format!(r#""config":{config}"#));
    let genesis = Genesis::parse(file.as_bytes()).unwrap();
    let terminal = genesis.config.terminal_total_difficulty.unwrap();
    assert_eq!(terminal.to_string(), "58750000000000000000001");
}

#[test]
fn forks_follow_numbers_then_difficulty_then_time() {
    let config = json!({"chainId": 1, "homesteadBlock": 3, "eip150Block": null,
        "londonBlock": 5, "terminalTotalDifficulty": 100, "shanghaiTime": 50, "osakaTime": 70});
    let config = parse(&minimal(config)).unwrap().config;
    let fork = |number, time, difficulty: u64| {
        config.fork(number, time, alloy_primitives::U256::from(difficulty))
    };
    assert_eq!(fork(2, 99, 99), Fork::Frontier);
    assert_eq!(fork(4, 99, 99), Fork::Homestead);
    assert_eq!(fork(5, 99, 99), Fork::London);
    assert_eq!(fork(5, 49, 100), Fork::Paris);
    assert_eq!(fork(5, 50, 100), Fork::Shanghai);
    assert_eq!(fork(5, 70, 100), Fork::Osaka);
}

#[test]
fn what_is_not_supported_or_wrong_is_named() {
    let refused = [
        (json!({"chainId": 1, "someNewBlock": 0}), "someNewBlock"),
        (json!({"chainId": 1, "someNewTime": "soon"}), "someNewTime"),
        (json!({"chainId": 1, "clique": {"period": 15}}), "clique"),
        (json!({"chainId": 1, "eip155Block": 5, "eip158Block": 6}), "eip155Block"),
        (json!({}), "chainId"),
        (json!({"chainId": 1, "londonBlock": "soon"}), "londonBlock"),
        (
            json!({"chainId": 1, "cancunTime": 1, "blobSchedule":
            {"cancun": {"target": 3, "max": 6, "baseFeeUpdateFraction": 0}}}),
            "cancun",
        ),
        (json!({"chainId": 1, "cancunTime": 9, "pragueTime": 8}), "blobSchedule"),
    ];
    for (config, name) in refused {
        let error = parse(&minimal(config)).unwrap_err().to_string();
        assert!(error.contains(name), "{name}: {error}");
    }
    let mut absurd = minimal(json!({"chainId": 1}));
    absurd["blobGasUsed"] = json!(u64::MAX);
    assert!(parse(&absurd).unwrap_err().to_string().contains("blobGasUsed"));
    parse(&minimal(json!({"chainId": 1, "amsterdamTime": null, "ethash": {}}))).unwrap();
}

#[test]
fn an_allocation_is_read_strictly() {
    let address = "00000000000000000000000000000000000a11ce";
    let twice = format!(r#"{{"alloc": {{"{address}": {{}}, "0x{address}": {{}}}}}}"#);
    let bad = [
        twice.as_str(),
        r#"{"alloc": {"a11ce": {}}}"#,
        r#"{"alloc": {"0x00000000000000000000000000000000000a11ce": {"balance": "-1"}}}"#,
        r#"{"alloc": {"0x00000000000000000000000000000000000a11ce": {"balance": 1.5}}}"#,
        r#"{"alloc": {"0x00000000000000000000000000000000000a11ce": {"nonce": "0x10000000000000000"}}}"#,
        r#"{"alloc": []}"#,
        "",
    ];
    for json in bad {
        assert!(parse_alloc(json.as_bytes()).is_err(), "{json}");
    }
    let zero = format!(r#"{{"alloc": {{"{address}": {{"storage": {{"0x0": "0x00"}}}}}}}}"#);
    let changes = parse_alloc(zero.as_bytes()).unwrap();
    assert_eq!(changes.accounts.len(), 1);
}
