//! Transcripts, inner product proofs and multiproofs, against the vectors and against mutation.

use proptest::prelude::*;
use serde_json::Value;
use spinney_ipa::{
    Crs, Element, Fr, InnerProductProof, MULTIPROOF_BYTES, Multiproof, Opening, ProofError,
    ProverOpening, Transcript,
};

use crate::commitments::{Draws, SMALL, all};
use crate::vectors::{bytes, drawn_polynomial, element, hex, list, load, scalar, scalars, text};

#[test]
fn challenges_of_the_vectors() {
    let Some(vectors) = load("ipa_multiproof.json") else { return };
    for case in list(&vectors, "transcript") {
        let mut transcript = Transcript::new(text(case, "label").as_bytes());
        let mut challenges = Vec::new();
        for step in list(case, "ops") {
            let label = step.as_array().and_then(|step| step.last()?.as_str()).expect("label");
            match step[0].as_str().expect("kind") {
                "scalar" => transcript.append_scalar(label.as_bytes(), &scalar(&step[1])),
                "point" => transcript.append_element(label.as_bytes(), &element(&step[1])),
                "domain" => transcript.domain_separator(label.as_bytes()),
                _ => challenges.push(transcript.challenge(label.as_bytes())),
            }
        }
        assert_eq!(challenges, scalars(list(case, "challenges_le")));
    }
}

#[test]
fn inner_product_proofs_of_the_vectors() {
    let Some(vectors) = load("ipa_multiproof.json") else { return };
    for (case, crs) in list(&vectors, "ipa").iter().flat_map(|case| all().map(|crs| (case, crs))) {
        let label = text(case, "transcript_label").as_bytes();
        let values: [Fr; 256] = scalars(list(case, "evals_le")).try_into().expect("256 values");
        let (point, value) = (scalar(&case["point_le"]), scalar(&case["y_le"]));
        let commitment = crs.commit(&values);
        assert_eq!(commitment.to_compressed(), bytes::<32>(&case["commitment"]));

        let mut transcript = Transcript::new(label);
        let proof = InnerProductProof::prove(crs, &mut transcript, &commitment, &values, point);
        assert_eq!(proof.to_bytes().to_vec(), hex(text(case, "proof")));
        let state = scalar(&case["challenge_state_after_le"]);
        assert_eq!(transcript.challenge(b"state"), state);

        let proof = InnerProductProof::from_bytes(&hex(text(case, "proof"))).expect("proof");
        let mut transcript = Transcript::new(label);
        assert_eq!(proof.verify(crs, &mut transcript, &commitment, point, value), Ok(()));
        assert_eq!(transcript.challenge(b"state"), state);
        let wrong =
            proof.verify(crs, &mut Transcript::new(label), &commitment, point, value + Fr::ONE);
        assert_eq!(wrong, Err(ProofError::DoesNotHold));
    }
}

fn openings(case: &Value, key: &str) -> Vec<Opening> {
    let opening = |query: &Value| Opening {
        commitment: element(&query["C"]),
        index: query["z"].as_u64().expect("index") as u8,
        value: scalar(&query["y_le"]),
    };
    list(case, key).iter().map(opening).collect()
}

#[test]
fn multiproofs_of_the_vectors_hold() {
    let Some(vectors) = load("ipa_multiproof.json") else { return };
    for (case, crs) in
        list(&vectors, "multiproof").iter().flat_map(|case| all().map(|crs| (case, crs)))
    {
        let bytes = hex(text(case, "proof"));
        let proof = Multiproof::from_bytes(&bytes).expect("proof");
        assert_eq!(proof.to_bytes().to_vec(), bytes);
        let mut transcript = Transcript::new(text(case, "transcript_label").as_bytes());
        assert_eq!(proof.verify(crs, &mut transcript, &openings(case, "queries")), Ok(()));
        assert_eq!(transcript.challenge(b"state"), scalar(&case["challenge_state_after_le"]));
    }
}

/// The two polynomials of go-ipa's test: 1 to 32 eight times over, and backwards.
fn ramps() -> [[Fr; 256]; 2] {
    [
        std::array::from_fn(|i| Fr::from(i as u64 % 32 + 1)),
        std::array::from_fn(|i| Fr::from(32 - i as u64 % 32)),
    ]
}

#[test]
fn multiproofs_of_the_vectors_are_made() {
    let Some(vectors) = load("ipa_multiproof.json") else { return };
    // The polynomials are not written out but described: these are all that occur.
    let random = (0..20).map(|i| drawn_polynomial(&format!("mp-{i}")));
    let polynomials: Vec<[Fr; 256]> = ramps().into_iter().chain(random).collect();
    for case in list(&vectors, "multiproof") {
        let told = openings(case, "queries");
        for crs in all() {
            let commitments: Vec<_> = polynomials.iter().map(|values| crs.commit(values)).collect();
            let known: Vec<ProverOpening<'_>> = told
                .iter()
                .map(|opening| {
                    let Opening { commitment, index, .. } = *opening;
                    let which = commitments.iter().position(|c| *c == commitment);
                    let values = &polynomials[which.expect("a polynomial that is described")];
                    ProverOpening { commitment, values, index }
                })
                .collect();
            let mut transcript = Transcript::new(text(case, "transcript_label").as_bytes());
            let proof = Multiproof::prove(crs, &mut transcript, &known).expect("openings");
            assert_eq!(proof.to_bytes().to_vec(), hex(text(case, "proof")));
        }
    }
}

#[test]
fn tree_proofs_of_the_vectors_hold() {
    let Some(vectors) = load("proofs.json") else { return };
    let mut checked = 0;
    for case in list(&vectors, "proofs") {
        if !case["queries_in_transcript_order"].is_array() {
            continue;
        }
        let told = openings(case, "queries_in_transcript_order");
        let proof = Multiproof::from_bytes(&hex(text(case, "multiproof_bytes"))).expect("proof");
        for crs in all() {
            assert_eq!(proof.verify(crs, &mut Transcript::new(b"vt"), &told), Ok(()), "{case}");
        }
        checked += 1;
    }
    assert!(checked > 0);
}

/// A made-up proof: openings of random vectors, some of them at the same index or commitment.
fn made_up(crs: &Crs, count: usize) -> (Multiproof, Vec<Opening>) {
    let mut draws = Draws(count as u64 + 1);
    let vectors: Vec<[Fr; 256]> =
        (0..count.div_ceil(2)).map(|_| std::array::from_fn(|_| draws.scalar())).collect();
    let known: Vec<ProverOpening<'_>> = (0..count)
        .map(|i| {
            let values = &vectors[i / 2];
            ProverOpening { commitment: crs.commit(values), values, index: draws.word() as u8 }
        })
        .collect();
    let proof = Multiproof::prove(crs, &mut Transcript::new(b"vt"), &known).expect("openings");
    let told = known
        .iter()
        .map(|known| Opening {
            commitment: known.commitment,
            index: known.index,
            value: known.values[usize::from(known.index)],
        })
        .collect();
    (proof, told)
}

fn verify(proof: &Multiproof, told: &[Opening]) -> Result<(), ProofError> {
    proof.verify(&SMALL, &mut Transcript::new(b"vt"), told)
}

#[test]
fn made_up_proofs_hold_and_do_not_depend_on_the_table() {
    for count in [1, 2, 33] {
        let (proof, told) = made_up(&SMALL, count);
        assert_eq!(verify(&proof, &told), Ok(()));
        let bare = Crs::new();
        assert_eq!(made_up(&bare, count).0.to_bytes(), proof.to_bytes());
        assert_eq!(proof.verify(&bare, &mut Transcript::new(b"vt"), &told), Ok(()));
    }
}

#[test]
fn every_mutated_proof_is_refused() {
    let (proof, told) = made_up(&SMALL, 3);
    let bytes = proof.to_bytes();
    for position in 0..MULTIPROOF_BYTES {
        for flip in [1, 0x80] {
            let mut mutated = bytes;
            mutated[position] ^= flip;
            if let Ok(mutated) = Multiproof::from_bytes(&mutated) {
                assert_eq!(verify(&mutated, &told), Err(ProofError::DoesNotHold), "{position}");
            }
        }
    }
    for word in 0..MULTIPROOF_BYTES / 32 {
        let mut mutated = bytes;
        mutated[word * 32..][..32].fill(0);
        let mutated = Multiproof::from_bytes(&mutated).expect("the neutral element");
        assert_eq!(verify(&mutated, &told), Err(ProofError::DoesNotHold));
        let mut mutated = bytes;
        mutated.swap(word * 32, word * 32 + 1);
        if let Ok(mutated) = Multiproof::from_bytes(&mutated)
            && mutated != proof
        {
            assert_eq!(verify(&mutated, &told), Err(ProofError::DoesNotHold));
        }
    }
}

#[test]
fn every_mutated_statement_is_refused() {
    let (proof, told) = made_up(&SMALL, 4);
    let refused = |told: &[Opening]| verify(&proof, told).is_err();
    for i in 0..told.len() {
        let mut mutated = told.clone();
        mutated[i].value += Fr::ONE;
        assert!(refused(&mutated));
        let mut mutated = told.clone();
        mutated[i].index ^= 1;
        assert!(refused(&mutated));
        let mut mutated = told.clone();
        mutated[i].commitment += Element::generator();
        assert!(refused(&mutated));
        let mut mutated = told.clone();
        mutated[i].commitment = -mutated[i].commitment;
        assert!(refused(&mutated));
        let mut mutated = told.clone();
        mutated.remove(i);
        assert!(refused(&mutated));
        let mut mutated = told.clone();
        mutated.push(told[i]);
        assert!(refused(&mutated));
    }
    let mut mutated = told.clone();
    mutated.swap(0, 3);
    assert!(refused(&mutated));
    assert!(proof.verify(&SMALL, &mut Transcript::new(b"tv"), &told).is_err());
}

#[test]
fn lax_bytes_are_refused() {
    let (proof, _) = made_up(&SMALL, 1);
    let bytes = proof.to_bytes();
    for len in [0, 1, 32, 544, 575, 577, 608, 4096] {
        let mut other = bytes.to_vec();
        other.resize(len, 0);
        let expected = Err(ProofError::Length { got: len, expected: MULTIPROOF_BYTES });
        assert_eq!(Multiproof::from_bytes(&other).map(|_| ()), expected);
    }
    // The last scalar plus the order is the same residue, and fits 32 bytes.
    let mut last = Fr::MODULUS.map(u128::from);
    let mut carry = 0;
    for (i, limb) in last.iter_mut().enumerate() {
        let word = &bytes[544 + 8 * i..][..8];
        let sum = *limb + u128::from(u64::from_le_bytes(word.try_into().expect("8 bytes"))) + carry;
        (*limb, carry) = (sum & u128::from(u64::MAX), sum >> 64);
    }
    let mut lax = bytes;
    for (out, limb) in lax[544..].chunks_mut(8).zip(last) {
        out.copy_from_slice(&(limb as u64).to_le_bytes());
    }
    assert_eq!(Multiproof::from_bytes(&lax), Err(ProofError::Scalar));
}

#[test]
fn no_openings_are_no_proof() {
    let (proof, _) = made_up(&SMALL, 1);
    assert_eq!(verify(&proof, &[]), Err(ProofError::NoOpenings));
    let none = Multiproof::prove(&SMALL, &mut Transcript::new(b"vt"), &[]);
    assert_eq!(none, Err(ProofError::NoOpenings));
}

proptest! {
    #[test]
    fn foreign_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
        let _ = Multiproof::from_bytes(&bytes);
        let _ = InnerProductProof::from_bytes(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Proofs made of valid points, which decode and must be refused later.
    #[test]
    fn proofs_of_other_points_are_refused(factors in proptest::array::uniform18(any::<u64>())) {
        let (_, told) = made_up(&SMALL, 2);
        let mut bytes = Vec::new();
        for factor in &factors[..17] {
            let point = Element::generator() * Fr::from(*factor);
            bytes.extend(point.to_compressed());
        }
        bytes.extend(Fr::from(factors[17]).to_le_bytes());
        let proof = Multiproof::from_bytes(&bytes).expect("valid points");
        prop_assert_eq!(verify(&proof, &told), Err(ProofError::DoesNotHold));
    }
}
