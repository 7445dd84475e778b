//! Accounts and slots in the Merkle Patricia trie: what `eth_getProof` answers.

use spinney_hash::keccak256;
use spinney_proof::mpt::{AccountFields, AccountProof, Proof, SlotProof};

use crate::question::{Fixed, HexBytes, Number, Question, same};
use crate::refused::Refused;
use crate::shown::{Shown, ShownPath, quantity};

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccountAnswer {
    address: Fixed<20>,
    nonce: Number,
    balance: Number,
    storage_hash: Fixed<32>,
    code_hash: Fixed<32>,
    account_proof: Vec<HexBytes>,
    storage_proof: Vec<SlotAnswer>,
}

#[derive(serde::Deserialize)]
struct SlotAnswer {
    key: Number,
    value: Number,
    proof: Vec<HexBytes>,
}

fn nodes(list: Vec<HexBytes>) -> Proof {
    Proof::new(list.into_iter().map(|HexBytes(node)| node).collect())
}

/// Checks an account and its slots against a state root.
pub(crate) fn check(question: &Question) -> Result<Shown, Refused> {
    let answer: AccountAnswer = question.answer()?;
    same("address", question.address()?, answer.address)?;
    if !question.slots.iter().eq(answer.storage_proof.iter().map(|slot| &slot.key)) {
        return Err(Refused::Slots);
    }
    let (nonce, root) = (low_half(&answer.nonce.0), &question.root.0);
    let slot = |slot: SlotAnswer| SlotProof {
        key: slot.key.0,
        value: slot.value.0,
        proof: nodes(slot.proof),
    };
    let sent = AccountProof {
        address: answer.address.0,
        fields: AccountFields {
            nonce: nonce.ok_or_else(|| too_large(&answer.nonce))?,
            balance: answer.balance.0,
            storage_hash: answer.storage_hash.0,
            code_hash: answer.code_hash.0,
        },
        account_proof: nodes(answer.account_proof),
        storage_proof: answer.storage_proof.into_iter().map(slot).collect(),
    };
    let verified = sent.verify(root)?;
    let key = keccak256(&sent.address);
    let mut paths = vec![ShownPath::new("account", &key, sent.account_proof.path(root, &key)?)];
    let mut shown = Shown { digit_bits: 4, ..Shown::default() };
    shown.account = verified.account().map(Into::into);
    let below = verified.account().map(|fields| fields.storage_hash);
    for slot in &sent.storage_proof {
        let key = keccak256(&slot.key);
        let steps = match &below {
            Some(root) => slot.proof.path(root, &key)?,
            None => Vec::new(),
        };
        paths.push(ShownPath::new("slot", &key, steps));
        let is_there = slot.value != [0; 32];
        shown.slots.push(is_there.then(|| quantity(&slot.value)));
    }
    shown.paths = paths;
    let proofs = [&sent.account_proof].into_iter();
    let proofs = proofs.chain(sent.storage_proof.iter().map(|slot| &slot.proof));
    shown.bytes = proofs.flat_map(Proof::nodes).map(Vec::len).sum();
    Ok(shown)
}

/// A number that fits 64 bits.
fn low_half(word: &[u8; 32]) -> Option<u64> {
    let (high, low) = word.split_last_chunk::<8>()?;
    high.iter().all(|byte| *byte == 0).then(|| u64::from_be_bytes(*low))
}

fn too_large(nonce: &Number) -> Refused {
    let got = quantity(&nonce.0);
    Refused::Other { what: "nonce", asked: "of 64 bits".into(), got }
}
