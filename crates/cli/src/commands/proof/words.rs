//! Proofs of keys of the binary trees and of the Verkle tree, and of accounts in them.

use alloy_primitives::{Address, B256, Bytes, U64, U256};
use serde::Serialize;
use serde_json::{Value, json};
use spinney_cli::document::{Asked, Claim, WitnessClaim, WordsClaim};
use spinney_state::Account;
use spinney_state::embed::{BinaryState, Embedding, KeptTree, Word};
use spinney_tree::binary::proof::VerifiedKeys;
use spinney_tree::mpt::proof::AccountFields;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::verkle::proof::{Proof, ProofFault, StateDiff};
use spinney_tree::{KeyProofs, KeysFault, PageStore, SharedStore};

use super::args::{Held, ProveArgs};
use super::facts::Fact;
use crate::failure::Failure;
use crate::trees::{self, Name};

/// Proofs of keys; with an address, of the keys that hold that account.
#[derive(Debug, Serialize)]
pub(super) struct WordsDocument {
    tree: String,
    root: B256,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<U64>,
    #[serde(flatten)]
    account: Option<Asked>,
    keys: Vec<Bytes>,
    values: Vec<Option<B256>>,
    proof: Bytes,
}

/// The keys of the slots and the chunks of code that are asked for.
fn keys_below<S: Embedding>(asked: &Asked, scheme: &S, code_hash: &B256) -> Vec<Vec<u8>> {
    let slots = asked.slots.iter().map(|slot| scheme.slot_key(&asked.address, slot));
    let chunk = |chunk: &u32| scheme.chunk_key(&asked.address, code_hash, *chunk);
    slots.chain(asked.chunks.iter().map(chunk)).collect()
}

/// Makes the document that was asked for.
pub(super) fn prove(
    args: &ProveArgs,
    name: Name,
    held: &Held<'_, impl PageStore>,
) -> anyhow::Result<WordsDocument> {
    trees::record_of(&held.store.snapshot()?, name, &held.name)?;
    match name {
        Name::Ubt(hash) => prove_in(args, name, Ubt { hash }, held),
        Name::Pbt(hash) => prove_in(args, name, Pbt { hash }, held),
        Name::Verkle => prove_in(args, name, Verkle::shared(), held),
        Name::Mpt | Name::Sum(_) => unreachable!("it has proofs of its own"),
    }
}

fn prove_in<S: Embedding + KeyProofs>(
    args: &ProveArgs,
    name: Name,
    scheme: S,
    held: &Held<'_, impl PageStore>,
) -> anyhow::Result<WordsDocument> {
    args.check_not_hashed(name)?;
    let state = BinaryState::open(scheme, SharedStore::new(held.store), held.cache_bytes)?;
    let kept = args.number()?.map_or_else(|| state.last(), |number| state.at(number))?;
    let account = args.asked();
    let keys = match &account {
        Some(asked) => account_keys(asked, state.scheme(), &kept)?,
        None => args.keys.iter().map(|key| key.to_vec()).collect(),
    };
    check_once(&keys)?;
    let proof = kept.prove(&keys)?;
    let values = keys.iter().map(|key| Ok(kept.leaf(key)?.map(B256::from)));
    let values = values.collect::<anyhow::Result<_>>()?;
    Ok(WordsDocument {
        tree: name.to_string(),
        root: kept.root(),
        block: kept.block().map(|block| U64::from(block.number)),
        account,
        keys: keys.into_iter().map(Bytes::from).collect(),
        values,
        proof: proof.proof.into(),
    })
}

/// The keys that hold an account, and those of its slots: the same at every block.
pub(super) fn span_keys<S: Embedding>(asked: &Asked, scheme: &S) -> Vec<Vec<u8>> {
    let mut keys = scheme.account_keys(&asked.address);
    keys.extend(keys_below(asked, scheme, &B256::ZERO));
    keys
}

/// Refuses a key that is given twice.
pub(super) fn check_once(keys: &[Vec<u8>]) -> Result<(), Failure> {
    let mut sorted: Vec<_> = keys.iter().collect();
    sorted.sort_unstable();
    let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) else { return Ok(()) };
    let what = format!("key {} is given twice", Bytes::copy_from_slice(pair[0]));
    Err(Failure::new(what).hint("give each key, slot and chunk once"))
}

fn account_keys<S: Embedding, P: PageStore>(
    asked: &Asked,
    scheme: &S,
    kept: &KeptTree<'_, S, P>,
) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut keys = scheme.account_keys(&asked.address);
    let leaves = keys.iter().map(|key| kept.leaf(key)).collect::<Result<Vec<_>, _>>()?;
    let account = scheme.read_account(&asked.address, &leaves)?;
    if account.is_none() && !asked.chunks.is_empty() {
        let what = format!("account {} is not there, and has no code (--chunk)", asked.address);
        return Err(Failure::new(what).hint("leave out --chunk").into());
    }
    let code_hash = account.map(|(account, _)| account.code_hash).unwrap_or_default();
    keys.extend(keys_below(asked, scheme, &code_hash));
    Ok(keys)
}

/// The stems of a Verkle tree whose absence no proof can show.
pub(super) fn unsure(name: Name, claim: &Claim) -> Vec<Bytes> {
    let stems = match claim {
        Claim::Witness(claim) => claim.proof.unsure_stems(&claim.diff),
        Claim::Words(claim) if name == Name::Verkle => {
            let key = |(key, value): &(Vec<u8>, Option<Word>)| Some((*key.first_chunk()?, *value));
            let diff = StateDiff::of(claim.proof.entries.iter().filter_map(key));
            Proof::from_bytes(&claim.proof.proof)
                .map_or_else(|_| Vec::new(), |proof| proof.unsure_stems(&diff))
        }
        _ => Vec::new(),
    };
    stems.into_iter().map(|stem| Bytes::copy_from_slice(&stem)).collect()
}

/// Why a claim does not hold.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refuted {
    #[error(transparent)]
    Proof(#[from] KeysFault),
    #[error("its keys are not those of account {0}, its slots and its code")]
    OtherKeys(Address),
    #[error(transparent)]
    NoAccount(#[from] spinney_state::embed::EmbedError),
}

/// Checks a claim, and says what it shows.
pub(super) fn verify(root: &B256, name: Name, claim: &WordsClaim) -> Result<Vec<Fact>, Refuted> {
    match name {
        Name::Ubt(hash) => verify_in(root, &Ubt { hash }, claim),
        Name::Pbt(hash) => verify_in(root, &Pbt { hash }, claim),
        Name::Verkle => verify_in(root, &Verkle::without_table(), claim),
        Name::Mpt | Name::Sum(_) => unreachable!("it has proofs of its own"),
    }
}

fn verify_in<S: Embedding + KeyProofs>(
    root: &B256,
    scheme: &S,
    claim: &WordsClaim,
) -> Result<Vec<Fact>, Refuted> {
    let verified = scheme.verify_keys(&root.0, &claim.proof)?;
    let Some(asked) = &claim.account else {
        let shown = |(key, value): (&[u8], Option<&Word>)| {
            let key = Bytes::copy_from_slice(key);
            let line = format!("{key}: {}", describe(value));
            Fact { line, fields: json!({ "key": key, "value": word_of(value) }) }
        };
        return Ok(verified.iter().map(shown).collect());
    };
    let claimed: Vec<_> = claim.proof.entries.iter().map(|(key, _)| key.clone()).collect();
    let fields = scheme.account_keys(&asked.address);
    let other = || Refuted::OtherKeys(asked.address);
    let leaves = fields.iter().map(|key| Ok(verified.get(key).map_err(|_| other())?.copied()));
    let leaves: Vec<_> = leaves.collect::<Result<_, Refuted>>()?;
    let account = scheme.read_account(&asked.address, &leaves)?;
    let code_hash = account.map(|(account, _)| account.code_hash).unwrap_or_default();
    let rest = keys_below(asked, scheme, &code_hash);
    if claimed != [&fields[..], &rest].concat() || (account.is_none() && !asked.chunks.is_empty()) {
        return Err(other());
    }
    let line = format!("account {}: {}", asked.address, of_account(account));
    let fields = json!({ "address": asked.address, "account": account.map(account_of) });
    let mut all = vec![Fact { line, fields }];
    all.extend(below(asked, &rest, &verified));
    Ok(all)
}

/// Checks an execution witness, and says what it shows, the root after its changes included.
pub(super) fn verify_witness(root: &B256, claim: &WitnessClaim) -> Result<Vec<Fact>, ProofFault> {
    let verkle = Verkle::without_table();
    let verified = claim.proof.verify(verkle.crs(), &root.0, &claim.diff)?;
    let mut all = Vec::new();
    for (key, entry) in claim.diff.entries() {
        let (key, value) = (B256::from(key), entry.current.as_ref());
        let mut line = format!("{key}: {}", describe(value));
        let mut fields = json!({ "key": key, "value": word_of(value) });
        if entry.new.is_some() {
            line += &format!(", becomes {}", describe(entry.new.as_ref()));
            fields["becomes"] = json!(word_of(entry.new.as_ref()));
        }
        all.push(Fact { line, fields });
    }
    let root = B256::from(verified.post_root(verkle.crs())?);
    let line = format!("root after it: {root}");
    all.push(Fact { line, fields: json!({ "root_after": root }) });
    Ok(all)
}

/// What is shown of slots and chunks, whose keys are given in order.
fn below(asked: &Asked, keys: &[Vec<u8>], verified: &VerifiedKeys) -> Vec<Fact> {
    let value = |key: &Vec<u8>| verified.get(key).expect("it is one of the keys");
    let (slots, chunks) = keys.split_at(asked.slots.len());
    let slot = |(slot, key): (&B256, &Vec<u8>)| {
        let line = format!("slot {slot}: {}", of_slot(value(key)));
        Fact { line, fields: json!({ "slot": slot, "value": word_of(value(key)) }) }
    };
    let chunk = |(chunk, key): (&u32, &Vec<u8>)| {
        let line = format!("chunk {chunk}: {}", describe(value(key)));
        Fact { line, fields: json!({ "chunk": chunk, "value": word_of(value(key)) }) }
    };
    let slots = asked.slots.iter().zip(slots).map(slot);
    slots.chain(asked.chunks.iter().zip(chunks).map(chunk)).collect()
}

/// What a tree says of an account.
pub(super) fn of_account(account: Option<(Account, u32)>) -> String {
    account.map_or_else(
        || "absent".into(),
        |(account, code_size)| {
            format!(
                "nonce {}, balance {}, code size {code_size}, code hash {}",
                account.nonce, account.balance, account.code_hash
            )
        },
    )
}

/// The same for programs.
pub(super) fn account_of((account, code_size): (Account, u32)) -> Value {
    json!({
        "nonce": account.nonce,
        "balance": account.balance.to_string(),
        "code_size": code_size,
        "code_hash": account.code_hash,
    })
}

/// A leaf for programs.
pub(super) fn word_of(value: Option<&Word>) -> Option<B256> {
    value.map(|word| B256::from(*word))
}

/// What a slot's leaf says.
pub(super) fn of_slot(value: Option<&Word>) -> String {
    value.map_or_else(|| "absent".into(), |word| format!("{:#x}", U256::from_be_bytes(*word)))
}

pub(super) fn describe(value: Option<&Word>) -> String {
    value.map_or_else(|| "absent".into(), |word| B256::from(*word).to_string())
}

/// What a Merkle Patricia trie says of an account.
pub(super) fn of_fields(account: Option<&AccountFields>) -> String {
    let Some(account) = account else { return "absent".into() };
    format!(
        "nonce {}, balance {}, storage hash {}, code hash {}",
        account.nonce,
        U256::from_be_bytes(account.balance),
        B256::from(account.storage_hash),
        B256::from(account.code_hash)
    )
}

/// The same for programs.
pub(super) fn fields_of(account: &AccountFields) -> Value {
    json!({
        "nonce": account.nonce,
        "balance": U256::from_be_bytes(account.balance).to_string(),
        "storage_hash": B256::from(account.storage_hash),
        "code_hash": B256::from(account.code_hash),
    })
}
