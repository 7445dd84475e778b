//! libsecp256k1 and the recovery in Rust answer alike.

use alloy_consensus::{TxEip1559, TxEip2930, TxEip4844, TxEip7702, TxLegacy};
use alloy_eips::eip7702::Authorization;
use alloy_primitives::{TxKind, keccak256};
use k256::ecdsa::SigningKey;

use super::{recover::recover as in_rust, *};

const ORDER: U256 = uint!(0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141_U256);

/// How many signatures are compared.
fn count() -> u64 {
    std::env::var("SPINNEY_SIGNATURES").map_or(2_000, |count| count.parse().expect("a number"))
}

/// Bytes that follow from a number.
fn random(seed: u64, what: u8) -> B256 {
    keccak256([&seed.to_be_bytes()[..], &[what]].concat())
}

fn sign(key: &SigningKey, hash: B256) -> Signature {
    let (signature, recovery) = key.sign_prehash_recoverable(hash.as_slice()).unwrap();
    let (r, s) = signature.split_bytes();
    let (r, s) = (U256::from_be_slice(&r), U256::from_be_slice(&s));
    Signature::new(r, s, recovery.is_y_odd())
}

fn address_of(key: &SigningKey) -> Address {
    let point = key.verifying_key().to_encoded_point(false);
    Address::from_slice(&keccak256(&point.as_bytes()[1..])[12..])
}

/// A transaction of the kind that a number asks for, with its signature: of the legacy ones some
/// have a chain id, and so another v.
fn signed(seed: u64, key: &SigningKey) -> (Transaction, Signature) {
    let input = random(seed, 1).to_vec().into();
    let (nonce, gas_limit, to) = (seed, 21_000 + seed, Address::from_word(random(seed, 2)));
    let chain_id = u64::from_be_bytes(random(seed, 3)[..8].try_into().unwrap()) >> 8;
    macro_rules! signed {
        ($transaction:expr) => {{
            let transaction = $transaction;
            let signature = sign(key, transaction.signature_hash());
            (transaction.into_signed(signature).into(), signature)
        }};
    }
    match seed % 6 {
        0 => signed!(TxLegacy { nonce, gas_limit, input, to: to.into(), ..TxLegacy::default() }),
        1 => {
            let chain_id = Some(chain_id);
            let to = TxKind::Create;
            signed!(TxLegacy { chain_id, nonce, gas_limit, input, to, ..TxLegacy::default() })
        }
        2 => {
            signed!(TxEip2930 {
                chain_id,
                nonce,
                gas_limit,
                input,
                to: to.into(),
                ..Default::default()
            })
        }
        3 => {
            signed!(TxEip1559 {
                chain_id,
                nonce,
                gas_limit,
                input,
                to: to.into(),
                ..Default::default()
            })
        }
        4 => signed!(TxEip4844 { chain_id, nonce, gas_limit, input, to, ..TxEip4844::default() }),
        _ => {
            let authorization =
                Authorization { chain_id: U256::from(chain_id), address: to, nonce: seed };
            let signature = sign(key, authorization.signature_hash());
            let authorization_list = vec![authorization.into_signed(signature)];
            signed!(TxEip7702 {
                chain_id,
                nonce,
                gas_limit,
                input,
                to,
                authorization_list,
                ..TxEip7702::default()
            })
        }
    }
}

/// What both say of a signature.
fn both(signature: &Signature, hash: B256) -> Option<Address> {
    let answer = recover(signature, hash);
    assert_eq!(answer, in_rust(signature, hash), "{signature:?} of {hash}");
    answer
}

#[test]
fn both_ways_find_who_signed() {
    for seed in 0..count() {
        let key = SigningKey::from_slice(random(seed, 0).as_slice()).unwrap();
        let (transaction, low) = signed(seed, &key);
        // As it is read from a block: v as its kind has it.
        let rlp = alloy_rlp::encode(&transaction);
        let read: Transaction = alloy_rlp::decode_exact(&rlp).unwrap();
        assert_eq!(read.signature(), &low);
        let (hash, expected) = (signing_hash(&read), Some(address_of(&key)));
        assert_eq!(both(&low, hash), expected);
        let high = Signature::new(low.r(), ORDER - low.s(), !low.v());
        assert_eq!(both(&high, hash), expected);
        assert_ne!(both(&Signature::new(low.r(), low.s(), !low.v()), hash), expected);
        assert_ne!(both(&low, random(seed, 4)), expected);
        let [signer] = &signers_of(&[read], 0, false).unwrap()[..] else { panic!("one signer") };
        assert_eq!(signer.address, expected.unwrap());
        let authorities = if seed % 6 == 5 { vec![expected] } else { Vec::new() };
        assert_eq!(signer.authorities, authorities);
    }
}

/// Numbers that are no scalars, or no coordinates, and those beside them.
#[test]
fn both_ways_refuse_the_same() {
    let half = HALF_ORDER;
    let one = U256::ONE;
    let field = uint!(0xfffffffffffffffffffffffffffffffffffffffffffffffffffffffefffffc2f_U256);
    let edges = [
        U256::ZERO,
        one,
        U256::from(2),
        // No point of the curve has this coordinate.
        U256::from(5),
        half - one,
        half,
        half + one,
        ORDER - one,
        ORDER,
        ORDER + one,
        field - one,
        field,
        field + one,
        U256::MAX,
    ];
    let mut found = 0;
    for r in edges {
        for s in edges {
            for v in [false, true] {
                for hash in [B256::ZERO, B256::from(ORDER), B256::repeat_byte(0xff), random(7, 7)] {
                    let answer = both(&Signature::new(r, s, v), hash);
                    let is_scalar = |x: U256| !x.is_zero() && x < ORDER;
                    assert!(answer.is_none() || (is_scalar(r) && is_scalar(s)), "{r} {s}");
                    found += u32::from(answer.is_some());
                }
            }
        }
    }
    assert!(found > 100, "{found} of them have a signer");
    for seed in 0..count() {
        let word = |what| U256::from_be_bytes(random(seed, what).0);
        let edge = edges[seed as usize % edges.len()];
        for (r, s) in [(word(8), word(9)), (edge, word(9)), (word(8), edge)] {
            both(&Signature::new(r, s, seed % 2 == 0), random(seed, 10));
        }
    }
}

/// The signature of an authorization is low, and its v is 0 or 1, or it has no authority.
#[test]
fn authorities_have_low_signatures() {
    let key = SigningKey::from_slice(&[9; 32]).unwrap();
    let authorization =
        Authorization { chain_id: U256::ONE, address: Address::repeat_byte(1), nonce: 0 };
    let low = sign(&key, authorization.signature_hash());
    let of = |v: u8, r: U256, s: U256| {
        let signed = SignedAuthorization::new_unchecked(authorization.clone(), v, r, s);
        let answer = authority(&signed);
        // As the EVM has it that is not told.
        assert_eq!(answer, signed.recover_authority().ok());
        answer
    };
    let v = u8::from(low.v());
    assert_eq!(of(v, low.r(), low.s()), Some(address_of(&key)));
    assert_eq!(of(1 - v, low.r(), ORDER - low.s()), None);
    assert_eq!(of(27 + v, low.r(), low.s()), None);
    assert_eq!(of(v, U256::ZERO, low.s()), None);
    assert_eq!(of(v, low.r(), U256::ZERO), None);
    assert_eq!(of(v, ORDER, low.s()), None);
}

/// High signatures are taken before Homestead alone.
#[test]
fn transactions_have_low_signatures_from_homestead_on() {
    let key = SigningKey::from_slice(&[9; 32]).unwrap();
    let transaction = TxLegacy::default();
    let low = sign(&key, transaction.signature_hash());
    let high = Signature::new(low.r(), ORDER - low.s(), !low.v());
    let transaction: Transaction = transaction.into_signed(high).into();
    let transactions = [transaction];
    assert_eq!(signers_of(&transactions, 0, true).unwrap()[0].address, address_of(&key));
    let failure = signers_of(&transactions, 7, false).unwrap_err();
    assert_eq!(failure.what, Check::Transaction(7));
}
