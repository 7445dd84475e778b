//! What the fuzz targets do with a foreign input. Each function must return, whatever the bytes: no
//! panic, no hang, no memory beyond a multiple of the input. Some also hold two readings of one
//! input together.

#![forbid(unsafe_code)]

mod rebuilds;
pub mod requests;
mod rows;
mod seeds;

use std::collections::BTreeMap;

use alloy_primitives::keccak256;
use spinney_document::{Document, SpanClaim, SpanDocument};
use spinney_ipa::{Crs, Element};
use spinney_migrate::AccessList;
use spinney_replay::{
    BatchLine, BatchLines, BlockDiff, ChainReader, DiffReader, Genesis, SumLine, TraceReader,
    parse_alloc,
};
use spinney_state::sum::{SumError, SumTree};
use spinney_state::{Account, Changes};
use spinney_tree::verkle::json::Json as _;
use spinney_tree::{
    Batch, HashFunction, MemoryStore, PageStore, RootRecord, Snapshot, Table, Tree, TreeId,
    WriteSet,
    binary::proof::{BinaryTree, KeysProof, ProofError},
    mpt::{
        Mpt,
        proof::{AccountFields, AccountProof, Proof, RangeProof, SlotProof},
        reference,
    },
    pbt::Pbt,
    sum::{self, Claim, Leaf, Profile, SumNode, verify_many},
    ubt::Ubt,
    verkle::proof::{self as verkle, StateDiff, StemDiff, SuffixDiff},
};

pub use rebuilds::rebuilds;
pub use rows::{Rows, seal};
pub use seeds::write_all as write_seeds;

/// The tree that [`pages`] fuzzes.
pub const TREE: TreeId = TreeId(1);
/// Entries to read of a tree: pages that name one another must not make a walk endless, but they
/// may make it long.
const ENTRIES_MAX: usize = 10_000;

/// Page images: a store whose rows are the input, with sound checksums, opened, read, checked,
/// changed and committed to. The input is [`Rows`].
pub fn pages(input: &[u8]) {
    let Some(rows) = Rows::parse(input) else { return };
    let store = MemoryStore::new();
    let mut set = WriteSet::new();
    for (key, content) in &rows.pages {
        set.put(Table::Pages, key, seal(key, content));
    }
    set.put(Table::Roots, &RootRecord::key(TREE), rows.record(TREE));
    store.commit(&set).expect("memory");
    let snapshot = store.snapshot().expect("memory");
    let Ok(mut tree) = Tree::open(Mpt, TREE, &snapshot, 1 << 20) else { return };
    let mut keys = Vec::new();
    for entry in tree.entries(&snapshot, None, &[]).take(ENTRIES_MAX) {
        let Ok(entry) = entry else { break };
        keys.push(entry.key);
    }
    if keys.len() < ENTRIES_MAX {
        drop(tree.check(&snapshot, |_| {}));
    }
    change(&mut tree, &store, &keys, &rows.probe);
}

/// Batches that overwrite, add and remove, each alone, then committed.
fn change(tree: &mut Tree<Mpt>, store: &MemoryStore, keys: &[Vec<u8>], probe: &[u8]) {
    let overwrite = |batch: &mut Batch| {
        for key in keys.iter().take(32).step_by(3) {
            batch.put(key, b"another value that is over thirty-one bytes long");
        }
        if !keys.iter().take(32).step_by(3).any(|key| key == probe) {
            batch.put(probe, b"probe");
        }
    };
    let delete = |batch: &mut Batch| {
        for key in keys.iter().take(64).step_by(2) {
            batch.delete(key);
        }
    };
    let clear = |batch: &mut Batch| batch.delete_prefix(&probe[..probe.len().min(1)]);
    let kinds: [&dyn Fn(&mut Batch); 3] = [&overwrite, &delete, &clear];
    for fill in kinds {
        let mut batch = Batch::new();
        fill(&mut batch);
        let snapshot = store.snapshot().expect("memory");
        if let Ok(pending) = tree.prepare(&snapshot, None, batch) {
            drop(tree.get(&snapshot, Some(&pending), probe));
            drop(snapshot);
            drop(tree.commit(store, &pending, None));
        }
    }
}

/// Root records: as they are, and with a sound checksum.
pub fn root_record(input: &[u8]) {
    let key = RootRecord::key(TREE);
    for row in [input.to_vec(), rows::seal_behind(&key, input)] {
        let Ok(record) = RootRecord::decode(TREE, &row) else { continue };
        assert!(record.root.len() <= row.len());
        let store = MemoryStore::new();
        let mut set = WriteSet::new();
        set.put(Table::Roots, &key, row);
        store.commit(&set).expect("memory");
        drop(Tree::open(Mpt, TREE, &store.snapshot().expect("memory"), 1 << 20));
    }
}

/// Chain files: blocks in RLP, plain or zstd. What is read of plain ones is written as it was.
pub fn blocks(input: &[u8]) {
    let Ok(reader) = ChainReader::new(input) else { return };
    let plain = !input.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
    for block in reader.take(1_000) {
        let Ok(block) = block else { break };
        let rlp = block.to_rlp();
        if plain {
            let from = block.offset as usize;
            assert_eq!(rlp, input[from..from + block.len as usize]);
        }
    }
}

/// Block-level access lists: what is canonical is written as it was, and says something of any
/// state.
pub fn access_lists(input: &[u8]) {
    let Ok(list) = AccessList::read(input, keccak256(input)) else { return };
    assert_eq!(list.to_rlp()[..], *input);
    let old = Account { nonce: 1, ..Account::EMPTY };
    for before in [None, Some(old)] {
        let changes = list.changes(|_| Ok::<_, ()>(before)).expect("the state is there");
        assert!(changes.accounts.len() <= input.len());
    }
}

/// What geth's `prestateTracer` says of blocks, a line each.
pub fn block_traces(input: &[u8]) {
    for trace in TraceReader::new(input).take(1_000) {
        let Ok(trace) = trace else { continue };
        let accounts = |changes: &Changes| changes.accounts.len();
        let sum = trace.transactions.iter().map(|transaction| accounts(&transaction.changes)).sum();
        assert!(accounts(&trace.changes()) <= sum);
    }
}

/// State differences, a line each. What is read and written is read as the same.
pub fn diffs(input: &[u8]) {
    for diff in DiffReader::new(input).take(10_000) {
        let Ok(diff) = diff else { continue };
        let line = diff.to_line();
        let again = BlockDiff::parse(line.as_bytes()).expect("a line of our own");
        assert_eq!(again.to_line(), line);
    }
}

/// Genesis files and allocations.
pub fn genesis(input: &[u8]) {
    if let Ok(genesis) = Genesis::parse(input) {
        let json = genesis.to_json();
        let again = Genesis::parse(json.as_bytes()).expect("a genesis of our own");
        assert_eq!(again.to_json(), json);
    }
    drop(parse_alloc(input));
}

/// All rows of a tree, for seeds and tests.
pub fn rows_of(store: &MemoryStore, tree: &Tree<Mpt>) -> Rows {
    let (low, high) = tree.page_range();
    let mut rows = Rows { root: tree.root().into(), probe: b"probe".to_vec(), pages: Vec::new() };
    let snapshot = store.snapshot().expect("memory");
    snapshot
        .scan(Table::Pages, &low, Some(&high), &mut |key, row| {
            rows.pages.push((key.to_vec(), row[rows::SUM_BYTES..].to_vec()));
            true
        })
        .expect("memory");
    rows
}

/// Proofs of keys, accounts and ranges, all read from one input: a key, then nodes, each behind its
/// length in two bytes. The root is the first node's digest, so that verifying goes on below it.
/// What is verified is what a second look says.
pub fn proofs(input: &[u8]) {
    let Some((&key_bytes, rest)) = input.split_first() else { return };
    let (key, mut rest) = rest.split_at(usize::from(key_bytes).min(rest.len()));
    let mut nodes = Vec::new();
    while let Some((len, behind)) = rest.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*len)).min(behind.len());
        nodes.push(behind[..len].to_vec());
        rest = &behind[len..];
    }
    let root = nodes.first().map_or([0; 32], |node| spinney_hash::keccak256(node));
    let proof = Proof::new(nodes.clone());
    if let Ok(verified) = proof.verify(&root, &[key]) {
        let value = verified.get(key).expect("it was asked for").map(<[u8]>::to_vec);
        let again = proof.verify(&root, &[key]).expect("it held");
        assert_eq!(again.get(key).expect("it was asked for"), value.as_deref());
    }
    let address = core::array::from_fn(|i| key.get(i).copied().unwrap_or(0));
    let slot = SlotProof { proof: proof.clone(), ..SlotProof::default() };
    for fields in [AccountFields::ABSENT, AccountFields::ABSENT_ZERO] {
        let storage_proof = vec![slot.clone()];
        let account_proof = proof.clone();
        drop(AccountProof { address, fields, account_proof, storage_proof }.verify(&root));
    }
    let entry = (key.to_vec(), vec![1; 40]);
    for (end, entries) in
        [(None, vec![]), (Some(key.to_vec()), vec![entry.clone()]), (None, vec![entry])]
    {
        let range = RangeProof { start: key.to_vec(), end, entries, nodes: nodes.clone() };
        drop(range.verify(&root));
    }
}

/// Proofs of keys of binary trees: a byte that names tree and hash, the number of keys claimed,
/// each with its length before it and behind it its value, or that it is absent; then the proof. It
/// is verified against the root that it leads to: then it holds, says what was claimed, and under
/// no other root.
pub fn binary_proofs(input: &[u8]) {
    let Some((&[tree, count], mut rest)) = input.split_first_chunk() else { return };
    let mut entries = Vec::new();
    for _ in 0..count {
        let Some((&len, behind)) = rest.split_first() else { return };
        let (key, behind) = behind.split_at(usize::from(len).min(behind.len()));
        let Some((&present, behind)) = behind.split_first() else { return };
        rest = behind;
        let mut value = None;
        if present & 1 == 1 {
            let Some((word, behind)) = rest.split_first_chunk() else { return };
            (value, rest) = (Some(*word), behind);
        }
        entries.push((key.to_vec(), value));
    }
    let proof = KeysProof { entries, proof: rest.to_vec() };
    let hash = [HashFunction::Keccak256, HashFunction::Sha256, HashFunction::Blake3];
    let hash = hash[usize::from(tree >> 1) % 3];
    if tree & 1 == 0 {
        binary_proof(&Ubt { hash }, &proof);
    } else {
        binary_proof(&Pbt { hash }, &proof);
    }
}

fn binary_proof<S: BinaryTree>(tree: &S, proof: &KeysProof) {
    let Err(ProofError::Root { got, .. }) = proof.verify(tree, &[0x5a; 32]) else { return };
    let verified = proof.verify(tree, &got).expect("it leads there");
    for (key, value) in &proof.entries {
        assert_eq!(verified.get(key).expect("it was asked for"), value.as_ref());
    }
}

/// Proofs of sum trees: a key (32), a sum (8), the length of a value (1) and the value, then a
/// compressed proof. It is verified against the root that it leads to: then it holds, alone and
/// beside another, and written in full it leads to the same one.
pub fn sum_proofs(input: &[u8]) {
    let Some((key, rest)) = input.split_first_chunk::<32>() else { return };
    let Some((sum, rest)) = rest.split_first_chunk::<8>() else { return };
    let Some((&len, rest)) = rest.split_first() else { return };
    let (value, rest) = rest.split_at(usize::from(len).min(rest.len()));
    let leaf = Leaf { value: value.to_vec(), sum: u64::from_be_bytes(*sum) };
    let Ok(proof) = sum::Proof::decode(rest) else { return };
    assert_eq!(proof.encode(), rest);
    for profile in [Profile::Compatible, Profile::Bound] {
        let full = sum::Proof::decode_full(profile, &proof.encode_full(profile));
        let full = full.expect("one of our own");
        let root = proof.root(profile, key, &leaf);
        assert_eq!(full.root(profile, key, &leaf), root);
        let claimed = (!leaf.is_empty()).then_some(&leaf);
        let claim = Claim { key, leaf: claimed, proof: &proof };
        let many = |root| verify_many(profile, root, &[Claim { proof: &full, ..claim }, claim]);
        let Ok(root) = root else {
            many(SumNode { hash: [0; 32], sum: 0 }).expect_err("its sums overflow");
            continue;
        };
        many(root).expect("it leads there");
        many(SumNode { sum: !root.sum, ..root }).expect_err("it leads elsewhere");
        match claimed {
            Some(leaf) => {
                let _ = proof.verify_inclusion(profile, root, key, leaf).expect("as above");
            }
            None => {
                let _ = proof.verify_exclusion(profile, root, key).expect("as above");
            }
        }
    }
}

/// Proofs of keys of a Verkle tree: a root (32), the number of stems, each with its 31 bytes, the
/// number of its suffixes, and of each the byte, whether there is a value (bit 0) and a new one
/// (bit 1), and those; then the proof as rust-verkle writes it. A root that is a point is written
/// as it was read; the proof and the values in both forms too. What holds gives a root after it,
/// and holds under no other root.
pub fn verkle_proofs(input: &[u8]) {
    let Some((root, rest)) = input.split_first_chunk::<32>() else { return };
    if let Ok(point) = Element::from_compressed(root) {
        assert_eq!(point.to_compressed(), *root);
        assert_eq!(Element::from_uncompressed_trusted(&point.to_uncompressed()), Ok(point));
    }
    let Some((diff, rest)) = state_diff(rest) else { return };
    assert_eq!(StateDiff::from_json(&diff.to_json()).expect("values of our own"), diff);
    let Ok(proof) = verkle::Proof::from_bytes(rest) else { return };
    assert_eq!(proof.to_bytes(), rest);
    assert_eq!(verkle::Proof::from_json(&proof.to_json()).expect("a proof of our own"), proof);
    let crs = Crs::new();
    let Ok(verified) = proof.verify(&crs, root, &diff) else { return };
    for (key, entry) in diff.entries() {
        assert_eq!(verified.get(&key), Some(entry.current));
    }
    verified.post_root(&crs).expect("what was verified has all nodes on the paths");
    let other = Element::IDENTITY.to_compressed();
    assert!(*root == other || proof.verify(&crs, &other, &diff).is_err());
}

/// Values as [`verkle_proofs`] takes them, in any order, and what is behind them.
fn state_diff(input: &[u8]) -> Option<(StateDiff, &[u8])> {
    let (&count, mut rest) = input.split_first()?;
    let mut stems = Vec::new();
    for _ in 0..count {
        let (stem, behind) = rest.split_first_chunk::<31>()?;
        let (&count, behind) = behind.split_first()?;
        rest = behind;
        let mut suffixes = Vec::new();
        for _ in 0..count {
            let (&[suffix, present], behind) = rest.split_first_chunk()?;
            rest = behind;
            let mut values = [None; 2];
            for (bit, value) in values.iter_mut().enumerate() {
                if present >> bit & 1 == 1 {
                    let (word, behind) = rest.split_first_chunk()?;
                    (*value, rest) = (Some(*word), behind);
                }
            }
            suffixes.push(SuffixDiff { suffix, current: values[0], new: values[1] });
        }
        stems.push(StemDiff { stem: *stem, suffixes });
    }
    Some((StateDiff(stems), rest))
}

/// Proof documents of any tree, in JSON.
pub fn documents(input: &[u8]) {
    drop(Document::parse(input));
    match SpanDocument::parse(input).map(|document| document.claim) {
        Ok(SpanClaim::Account(span)) => drop(span.verify(|_, _| true)),
        Ok(SpanClaim::Keys { span, .. }) => {
            drop(span.verify(&Pbt { hash: HashFunction::Blake3 }, |_, _| true));
        }
        Err(_) => {}
    }
}

/// Traces, a batch a line, into a tree: its root is the textbook's of what it then holds.
pub fn traces(input: &[u8]) {
    let store = MemoryStore::new();
    let snapshot = store.snapshot().expect("memory");
    let tree = Tree::open(Mpt, TREE, &snapshot, 1 << 20).expect("an empty store");
    let mut state = None;
    let mut lines = BatchLines::new(input);
    while let Ok(Some(line)) = lines.next_line() {
        let Ok(line) = BatchLine::parse(line) else { break };
        let Ok(next) = tree.prepare(&snapshot, state.as_ref(), line.batch(false)) else { break };
        state = Some(next);
    }
    let Some(state) = state else { return };
    let entries = tree.entries(&snapshot, Some(&state), &[]);
    let held: BTreeMap<_, _> = entries
        .map(|entry| entry.expect("memory"))
        .map(|entry| (entry.key, entry.value.to_vec()))
        .collect();
    assert_eq!(state.root(), reference::root(&held));
}

/// Traces of leaves with sums, a batch a line, into a tree: its root is the textbook's of what it
/// then holds.
pub fn sum_traces(input: &[u8]) {
    let store = MemoryStore::new();
    let mut tree = SumTree::create(&store, "fuzz", Profile::Compatible, 1 << 20).expect("memory");
    let mut lines = BatchLines::new(input);
    while let Ok(Some(line)) = lines.next_line() {
        let Ok(line) = SumLine::parse(line) else { break };
        if tree.apply(&mut line.batch()).is_err() {
            break;
        }
    }
    let mut held = sum::reference::Leaves::new();
    let visited = tree.visit(|key, leaf| {
        held.insert(key, leaf);
        Ok::<_, SumError>(true)
    });
    visited.expect("memory");
    let root = sum::reference::root(Profile::Compatible, &held);
    assert_eq!(tree.root(), root.expect("what a tree holds does not overflow"));
}
