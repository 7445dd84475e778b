//! Writes seeds for each target under `corpus/`: small real trees and chains, and what lies in
//! `../shared` where it does.

use std::{fs, io, path::Path};

use crate::{TREE, rows_of};
use spinney_ipa::Crs;
use spinney_migrate::AccessList;
use spinney_replay::{Replay, SampleChain, SampleOptions, TextbookState};
use spinney_tree::verkle::json::Json as _;
use spinney_tree::{
    Batch, HashFunction, MemoryStore, PageStore, RootRecord, Snapshot, Table, Tree,
    binary::proof::{BinaryTree, KeysProof},
    mpt::Mpt,
    pbt::Pbt,
    sum::{self, Leaf, Profile},
    ubt::Ubt,
    verkle::{Verkle, proof::StateDiff},
};

/// Longer inputs are cut: a fuzzer is quick where they are small.
const SEED_BYTES_MAX: usize = 32 << 10;

/// A request of each kind.
const REQUESTS: [(&str, &str); 6] = [
    (
        "batch",
        r#"[{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"},{"jsonrpc":"2.0","method":"spinney_trees","params":[]},{"jsonrpc":"2.0","id":"a","method":"rpc.discover"}]"#,
    ),
    (
        "proof",
        r#"{"jsonrpc":"2.0","id":1,"method":"eth_getProof","params":["0x00000000000000000000000000000000000000aa",["0x0","0x1"],"latest"]}"#,
    ),
    (
        "slot",
        r#"{"jsonrpc":"2.0","id":null,"method":"eth_getStorageAt","params":["0x00000000000000000000000000000000000000aa","0x1",{"blockNumber":"0x1"}]}"#,
    ),
    (
        "keys",
        r#"{"jsonrpc":"2.0","id":2,"method":"spinney_getProof","params":["pbt:blake3",{"address":"0x00000000000000000000000000000000000000aa","slots":["0x7"],"chunks":[0]},"earliest"]}"#,
    ),
    (
        "sum",
        r#"{"jsonrpc":"2.0","id":2,"method":"spinney_getSumProof","params":["a",["0x0000000000000000000000000000000000000000000000000000000000000001"]]}"#,
    ),
    ("witness", r#"{"jsonrpc":"2.0","id":2,"method":"debug_executionWitness","params":["0x4"]}"#),
];

type Error = Box<dyn std::error::Error>;

/// Writes them.
///
/// # Errors
/// If a file cannot be read or written.
pub fn write_all() -> Result<(), Error> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = here.join("corpus");
    trees(&corpus)?;
    binary_trees(&corpus)?;
    sum_trees(&corpus)?;
    verkle_tree(&corpus)?;
    chain(&corpus)?;
    for (name, body) in REQUESTS {
        write(&corpus, "requests", name, body.as_bytes())?;
    }
    write(&corpus, "rebuilds", "stopped", &crate::rebuilds::stopped())?;
    let shared = here.join("../../shared");
    if !shared.exists() {
        println!("no seeds from ../shared: it is not beside the checkout");
        return Ok(());
    }
    for (target, name, path) in [
        ("blocks", "chain-600", "data/chain-600/chain.rlp"),
        ("blocks", "all-forks", "data/chains/all-forks/chain.rlp"),
        ("diffs", "all-forks", "data/chains/all-forks/diffs.ndjson"),
        ("genesis", "chain-600", "data/chain-600/genesis.json"),
        ("genesis", "all-forks", "data/chains/all-forks/genesis.json"),
    ] {
        let bytes = fs::read(shared.join(path))?;
        write(&corpus, target, name, &bytes[..bytes.len().min(SEED_BYTES_MAX)])?;
    }
    Ok(())
}

/// Trees of every shape that pages have: empty, one entry, prefixes of one another, long keys and
/// values, enough for groups and pages of their own.
fn trees(corpus: &Path) -> Result<(), Error> {
    let long = |byte: u8, len: usize| vec![byte; len];
    let spread = |count: u32, key_bytes: usize, value_bytes: usize| -> Vec<(Vec<u8>, Vec<u8>)> {
        let key = |i: u32| {
            let mixed = u64::from(i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            mixed.into_iter().cycle().take(key_bytes).collect()
        };
        (0..count).map(|i| (key(i), long(i as u8 | 1, value_bytes))).collect()
    };
    let shapes: [(&str, Vec<(Vec<u8>, Vec<u8>)>); 7] = [
        ("one", spread(1, 32, 78)),
        ("few", spread(5, 8, 3)),
        ("dogs", ["do", "dog", "doge", "horse"].map(|key| (key.into(), b"value".into())).into()),
        ("prefixes", (1..40).map(|len| (long(7, len), long(9, len))).collect()),
        ("overflow", vec![(long(1, 900), long(2, 5_000)), (long(1, 901), long(3, 300))]),
        ("forks", (0..20).map(|i| ([long(4, 70), vec![i]].concat(), long(i, 400))).collect()),
        ("many", spread(300, 32, 78)),
    ];
    for (name, entries) in shapes {
        let store = MemoryStore::new();
        let mut tree = Tree::open(Mpt, TREE, &store.snapshot()?, 1 << 20)?;
        let mut batch = Batch::new();
        for (key, value) in &entries {
            batch.put(key, value);
        }
        let pending = tree.prepare(&store.snapshot()?, None, batch)?;
        tree.commit(&store, &pending, None)?;
        let rows = rows_of(&store, &tree);
        let snapshot = store.snapshot()?;
        let record = snapshot.read(Table::Roots, &RootRecord::key(TREE))?.ok_or("a record")?;
        // A target that never gets past the record would find nothing.
        assert_eq!(record, rows.record(TREE), "the root record of the targets is out of date");
        write(corpus, "pages", name, &rows.to_bytes())?;
        write(corpus, "root_record", name, &record[..record.len() - 8])?;
        write(corpus, "root_record", &format!("{name}-sealed"), record)?;
        write(corpus, "traces", name, trace(&entries).as_bytes())?;
        for (key, which) in entries.iter().map(|entry| &entry.0).zip(0..3) {
            let absent = [&key[..key.len() - 1], &[0xee]].concat();
            for (key, kind) in [(key, "present"), (&absent, "absent")] {
                let nodes = tree.prove(&snapshot, None, &[key])?.into_nodes();
                let proof = proof(key, &nodes);
                write(corpus, "proofs", &format!("{name}-{which}-{kind}"), &proof)?;
            }
        }
    }
    Ok(())
}

/// Proofs of keys of binary trees, present and absent, and documents of them.
fn binary_trees(corpus: &Path) -> Result<(), Error> {
    let hash = HashFunction::Sha256;
    binary_tree(corpus, Ubt { hash }, 2)?;
    binary_tree(corpus, Pbt { hash }, 3)
}

/// Proofs of leaves of a sum tree, and of keys without any.
fn sum_trees(corpus: &Path) -> Result<(), Error> {
    let leaf = |n: u8| Leaf { value: vec![n; usize::from(n % 40)], sum: u64::from(n) << (n % 56) };
    let key = |n: u8| [n.wrapping_mul(0x9d); 32];
    let leaves = (1..60).map(|n| (key(n), leaf(n))).collect();
    let asked: Vec<_> = [1, 7, 40, 77].map(key).into();
    let (_, proofs) = sum::reference::prove(Profile::Compatible, &leaves, &asked)?;
    for (at, (key, proof)) in asked.iter().zip(&proofs).enumerate() {
        let Leaf { value, sum } = leaves.get(key).cloned().unwrap_or_default();
        let proof = proof.encode();
        let seed = [&key[..], &sum.to_be_bytes(), &[value.len() as u8], &value, &proof].concat();
        write(corpus, "sum_proofs", &at.to_string(), &seed)?;
    }
    let hex = |key: &[u8; 32]| key.map(|byte| format!("{byte:02x}")).concat();
    let put = |(key, leaf): (&[u8; 32], &Leaf)| {
        let (key, sum) = (hex(key), leaf.sum);
        format!(r#"{{"put": {{"0x{key}": {{"value": "0xaa", "sum": "{sum}"}}}}}}"#)
    };
    let mut lines: Vec<_> = leaves.iter().take(6).map(put).collect();
    lines.push(format!(r#"{{"del": ["0x{}"]}}"#, hex(&asked[0])));
    Ok(write(corpus, "sum_traces", "leaves", lines.join("\n").as_bytes())?)
}

/// Proofs of keys of a Verkle tree, present and absent in every way, with new values; and the same
/// as witnesses of blocks.
fn verkle_tree(corpus: &Path) -> Result<(), Error> {
    let store = MemoryStore::new();
    let verkle = Verkle::new(Crs::new().into());
    let tree = Tree::open(verkle, TREE, &store.snapshot()?, 1 << 20)?;
    let key = |stem: u8, end: u8, suffix: u8| {
        let mut key = [stem; 32];
        (key[30], key[31]) = (end, suffix);
        key
    };
    let mut batch = Batch::new();
    // Two stems that fork at once, two that share 30 bytes, values in both halves.
    for (stem, end, suffix) in [(1, 1, 0), (1, 1, 7), (1, 1, 200), (2, 2, 3), (2, 9, 255)] {
        batch.put(&key(stem, end, suffix), &[suffix; 32]);
    }
    let state = tree.prepare(&store.snapshot()?, None, batch)?;
    let asked = [
        vec![key(1, 1, 7)],
        vec![key(1, 1, 8), key(1, 1, 201)],
        vec![key(3, 3, 3)],
        vec![key(1, 2, 0), key(2, 3, 3)],
        vec![key(1, 1, 0), key(1, 1, 200), key(2, 2, 3), key(2, 9, 255), key(77, 7, 7)],
    ];
    for (at, keys) in asked.iter().enumerate() {
        let (proof, mut diff) = tree.prove(&store.snapshot()?, Some(&state), keys)?;
        diff.set_new(&keys[0], [9; 32]);
        let seed = [&state.root()[..], &diff_bytes(&diff), &proof.to_bytes()].concat();
        write(corpus, "verkle_proofs", &at.to_string(), &seed)?;
        let document =
            format!("{{\"stateDiff\":{},\"verkleProof\":{}}}", diff.to_json(), proof.to_json());
        write(corpus, "documents", &format!("witness-{at}"), document.as_bytes())?;
    }
    Ok(())
}

/// Values as the target reads them.
fn diff_bytes(diff: &StateDiff) -> Vec<u8> {
    let mut bytes = vec![diff.0.len() as u8];
    for stem in &diff.0 {
        bytes.extend_from_slice(&stem.stem);
        bytes.push(stem.suffixes.len() as u8);
        for entry in &stem.suffixes {
            let present = u8::from(entry.current.is_some()) | u8::from(entry.new.is_some()) << 1;
            bytes.extend_from_slice(&[entry.suffix, present]);
            for value in [entry.current, entry.new].iter().flatten() {
                bytes.extend_from_slice(value);
            }
        }
    }
    bytes
}

/// `name` is the byte that the target knows tree and hash by.
fn binary_tree<S: BinaryTree>(corpus: &Path, scheme: S, name: u8) -> Result<(), Error> {
    let store = MemoryStore::new();
    let kind = scheme.id().to_string();
    let tree = Tree::open(scheme, TREE, &store.snapshot()?, 1 << 20)?;
    let key = |stem: u8, last: u8| {
        let mut key = [stem.wrapping_mul(0x9d); 32];
        key[31] = last;
        key
    };
    let mut batch = Batch::new();
    for (stem, last) in [(0, 0), (0, 7), (0, 200), (1, 1), (2, 2), (3, 3), (40, 4)] {
        batch.put(&key(stem, last), &[last | 1; 32]);
    }
    let state = tree.prepare(&store.snapshot()?, None, batch)?;
    let asked = [
        vec![key(0, 7)],
        vec![key(0, 8)],
        vec![key(9, 9)],
        vec![key(0, 0), key(0, 200), key(3, 3), key(40, 5), key(77, 7)],
    ];
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    for (at, keys) in asked.iter().enumerate() {
        let KeysProof { entries, proof } = tree.prove(&store.snapshot()?, Some(&state), keys)?;
        let mut bytes = vec![name, entries.len() as u8];
        for (key, value) in &entries {
            bytes.push(key.len() as u8);
            bytes.extend_from_slice(key);
            bytes.push(u8::from(value.is_some()));
            bytes.extend_from_slice(value.as_ref().map_or(&[][..], |word| word));
        }
        bytes.extend_from_slice(&proof);
        write(corpus, "binary_proofs", &format!("{name}-{at}"), &bytes)?;
        let keys: Vec<_> = entries.iter().map(|(key, _)| format!("\"0x{}\"", hex(key))).collect();
        let value = |value: &Option<[u8; 32]>| match value {
            Some(word) => format!("\"0x{}\"", hex(word)),
            None => "null".into(),
        };
        let values: Vec<_> = entries.iter().map(|(_, word)| value(word)).collect();
        let document = format!(
            "{{\"tree\":\"{kind}\",\"root\":\"0x{}\",\"keys\":[{}],\"values\":[{}],\"proof\":\"0x{}\"}}",
            hex(&state.root()),
            keys.join(","),
            values.join(","),
            hex(&proof)
        );
        write(corpus, "documents", &format!("{name}-{at}"), document.as_bytes())?;
    }
    let account = r#"{"tree":"mpt","address":"0x00000000000000000000000000000000deadbeef","balance":"0x0","nonce":"0x0","codeHash":"0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470","storageHash":"0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421","accountProof":["0x80"],"storageProof":[{"key":"0x1","value":"0x0","proof":[]}]}"#;
    write(corpus, "documents", "account", account.as_bytes())?;
    let key = r#"{"result":{"tree":"mpt","key":"0x01","value":null,"proof":["0x80"]}}"#;
    write(corpus, "documents", "key", key.as_bytes())?;
    Ok(())
}

/// Puts, a line each, then deletions of every other key.
fn trace(entries: &[(Vec<u8>, Vec<u8>)]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let put = |(key, value): &(Vec<u8>, Vec<u8>)| {
        format!("{{\"put\": {{\"0x{}\": \"0x{}\"}}}}\n", hex(key), hex(value))
    };
    let del = |(key, _): &(Vec<u8>, Vec<u8>)| format!("{{\"del\": [\"0x{}\"]}}\n", hex(key));
    entries.iter().take(20).map(put).chain(entries.iter().take(20).step_by(2).map(del)).collect()
}

/// What the target of proofs reads: a key, and nodes, each behind its length.
fn proof(key: &[u8], nodes: &[Vec<u8>]) -> Vec<u8> {
    let len = key.len().min(255);
    let mut bytes = [&[len as u8], &key[..len]].concat();
    for node in nodes {
        bytes.extend_from_slice(&u16::try_from(node.len()).unwrap_or(u16::MAX).to_be_bytes());
        bytes.extend_from_slice(node);
    }
    bytes
}

fn chain(corpus: &Path) -> Result<(), Error> {
    let mut options = SampleOptions::default();
    options.block_count = 3;
    let sample = SampleChain::new(options, TextbookState::new())?;
    write(corpus, "genesis", "sample", sample.genesis().to_json().as_bytes())?;
    let mut chain = Vec::new();
    for block in sample {
        chain.extend_from_slice(&block?.to_rlp());
    }
    write(corpus, "blocks", "sample", &chain)?;
    lists(corpus)?;
    let diff = br#"{"number":1,"accounts":{"0x00000000000000000000000000000000000000aa":{"fresh":true,"nonce":"0x1","balance":"0x2","code":"0x60","storage":{"0x1":"0x2"}},"0x00000000000000000000000000000000000000bb":null},"stateRoot":"0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421"}"#;
    write(corpus, "diffs", "small", diff)?;
    Ok(())
}

/// Access lists of a sample chain, and a trace of each kind.
fn lists(corpus: &Path) -> Result<(), Error> {
    let mut options = SampleOptions::default();
    options.block_count = 3;
    let sample = SampleChain::new(options, TextbookState::new())?;
    let mut replay = Replay::start(sample.genesis(), TextbookState::new())?;
    replay.keep_steps(true);
    for block in sample {
        let Some(report) = replay.block(&block?)? else { continue };
        let steps = report.steps.iter().map(|step| (step.index, &step.changes));
        let list = AccessList::of(steps, &report.changes, &report.replaced)?;
        write(corpus, "access_lists", &format!("sample-{}", report.number), &list.to_rlp())?;
    }
    let item = r#"{"pre":{"0x00000000000000000000000000000000000000aa":{"balance":"0x5","nonce":1,"storage":{"0x1":"0x2"}},"0x00000000000000000000000000000000000000bb":{"code":"0x60"}},"post":{"0x00000000000000000000000000000000000000aa":{"balance":"0x0"},"0x00000000000000000000000000000000000000cc":{"codeHash":"0x0000000000000000000000000000000000000000000000000000000000000000"}}}"#;
    let lines = [
        ("list", format!("[{item}]")),
        ("answer", format!(r#"{{"jsonrpc":"2.0","id":1,"result":[{{"result":{item}}}]}}"#)),
        ("chain", format!(r#"{{"block":"0x7","traces":[{{"result":{item}}}]}}"#)),
    ];
    for (name, line) in lines {
        write(corpus, "block_traces", name, line.as_bytes())?;
    }
    Ok(())
}

fn write(corpus: &Path, target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let folder = corpus.join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), bytes)
}
