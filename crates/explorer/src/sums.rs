//! Leaves of Merkle-sum trees: what `spinney_getSumProof` answers for one key.

use spinney_proof::sum::{Leaf, Profile, Proof, SumNode};

use crate::question::{Decimal, Fixed, HexBytes, Question, same};
use crate::refused::Refused;
use crate::shown::{Shown, ShownLeaf, ShownPath};

#[derive(serde::Deserialize)]
struct SumAnswer {
    tree: String,
    root: Fixed<32>,
    root_sum: Decimal,
    key: Fixed<32>,
    value: HexBytes,
    sum: Decimal,
    proof: HexBytes,
}

/// Checks a leaf, or that there is none, against a root and its sum.
pub(crate) fn check(profile: Profile, question: &Question) -> Result<Shown, Refused> {
    let answer: SumAnswer = question.answer()?;
    let (Fixed(key), Fixed(hash)) = (question.key()?, question.root);
    question.is_of(&answer.tree, answer.root)?;
    same("key", question.key()?, answer.key)?;
    let Decimal(sum) = question.root_sum.ok_or(Refused::Left("the sum of the root"))?;
    same("sum", sum, answer.root_sum.0)?;
    let root = SumNode { hash, sum };
    let leaf = Leaf { value: answer.value.0, sum: answer.sum.0 };
    let proof = Proof::decode(&answer.proof.0)?;
    if leaf.is_empty() {
        let _ = proof.verify_exclusion(profile, root, &key)?;
    } else {
        let _ = proof.verify_inclusion(profile, root, &key, &leaf)?;
    }
    let steps = proof.path(profile, &key, &leaf)?;
    let there = (!leaf.is_empty()).then(|| ShownLeaf {
        value: const_hex::encode_prefixed(&leaf.value),
        sum: leaf.sum.to_string(),
    });
    Ok(Shown {
        leaf: there,
        digit_bits: 1,
        bytes: answer.proof.0.len(),
        paths: vec![ShownPath::new("key", &key, steps)],
        ..Shown::default()
    })
}
