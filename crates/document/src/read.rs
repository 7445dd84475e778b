//! Documents as somebody sent them.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::fmt;

use alloy_primitives::{Address, B256, Bytes, U64, U256, keccak256};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, DeserializeSeed as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use spinney_tree::binary::proof::KeysProof;
use spinney_tree::mpt::proof::{AccountFields, AccountProof, Proof, SlotProof};
use spinney_tree::verkle::json::{Json, NotJson};
use spinney_tree::verkle::proof::{Proof as VerkleProof, StateDiff};

use crate::asked::Asked;
use crate::bounded::ValuesMax;

/// How many values a document has at most.
pub const VALUES_MAX: ValuesMax = ValuesMax(1 << 21);

/// A JSON value of which no object has two members of one name, of [`VALUES_MAX`] values at most.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "a value, read strictly")]
pub struct Strict(pub Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        VALUES_MAX.deserialize(deserializer).map(Self)
    }
}

/// The name of the tree whose blocks carry witnesses.
const VERKLE: &str = "verkle";

/// What shows it: the nodes of a Merkle Patricia trie, or the bytes of a proof of another tree.
#[derive(Debug)]
enum Shown {
    Nodes(Vec<Bytes>),
    Bytes(Bytes),
}

impl<'de> Deserialize<'de> for Shown {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Shown;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of nodes, or a proof as one string of hex")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Shown, E> {
                text.parse().map(Shown::Bytes).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, nodes: A) -> Result<Shown, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(nodes)).map(Shown::Nodes)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A slot of the EIP-1186 object.
#[derive(Debug, Deserialize)]
#[serde(expecting = "an object with key, value and proof")]
struct Slot {
    key: U256,
    value: U256,
    proof: Vec<Bytes>,
}

// Fields: those of documents of all kinds.
/// A document of any kind, as somebody sent it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object with key, keys or address")]
struct Raw {
    tree: Option<String>,
    root: Option<B256>,
    #[serde(default, deserialize_with = "given")]
    value: Option<Option<Bytes>>,
    key: Option<Bytes>,
    keys: Option<Vec<Bytes>>,
    values: Option<Vec<Option<Bytes>>>,
    preimage: Option<Bytes>,
    preimages: Option<Vec<Bytes>>,
    proof: Option<Shown>,
    slots: Option<Vec<B256>>,
    chunks: Option<Vec<u32>>,
    address: Option<Address>,
    balance: Option<U256>,
    code_hash: Option<B256>,
    nonce: Option<U64>,
    storage_hash: Option<B256>,
    account_proof: Option<Vec<Bytes>>,
    storage_proof: Option<Vec<Slot>>,
    state_diff: Option<Value>,
    verkle_proof: Option<Value>,
    /// Where it came as the answer of a node, envelope and all.
    result: Option<Box<Self>>,
    /// Where it came in a block.
    execution_witness: Option<Box<Self>>,
}

/// Tells `null` from nothing.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Bytes>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// What a document claims, and what is to show it.
#[derive(Debug)]
pub enum Claim {
    /// Keys with their values; `None` for an absent one.
    Keys {
        /// The keys, in the document's order.
        entries: Vec<(Bytes, Option<Bytes>)>,
        /// What each key is the digest of, in the same order, where the document says it. It was
        /// compared with the keys.
        preimages: Option<Vec<Bytes>>,
        /// The nodes.
        proof: Proof,
    },
    /// An account of a Merkle Patricia trie.
    Account(Box<AccountProof>),
    /// Keys of a tree whose values are words: binary or Verkle.
    Words(WordsClaim),
    /// Keys of a Verkle tree, as the blocks of its test networks carry them.
    Witness(Box<WitnessClaim>),
}

/// What an execution witness of a Verkle tree claims: values before a block, and what becomes of
/// them.
#[derive(Debug)]
pub struct WitnessClaim {
    /// The values.
    pub diff: StateDiff,
    /// What shows those before.
    pub proof: VerkleProof,
}

/// What a document claims of a tree whose values are words.
#[derive(Debug)]
pub struct WordsClaim {
    /// The account that the keys are to be those of, if it names one.
    pub account: Option<Asked>,
    /// The keys with their values, and the proof.
    pub proof: KeysProof,
}

/// A document that was read.
#[derive(Debug)]
pub struct Document {
    /// The tree's name, where it says one.
    pub tree: Option<String>,
    /// The root that it was made for, where it says one.
    pub root: Option<B256>,
    /// What it claims.
    pub claim: Claim,
}

/// Why a document is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// It is no JSON, or of another shape.
    #[error("it is no proof document: {0}")]
    Json(#[from] serde_json::Error),
    /// It is no object: an array would do for the derived reader.
    #[error("it is no proof document: expected an object with key, keys or address")]
    NoObject,
    /// A field is missing.
    #[error("it is no proof document: it has no {0}")]
    Lacks(&'static str),
    /// There is not one value a key.
    #[error("it has {keys} keys and {values} values")]
    Counts {
        /// How many keys.
        keys: usize,
        /// How many values.
        values: usize,
    },
    /// A key comes twice.
    #[error("key {0} is given twice")]
    Twice(Bytes),
    /// It claims nothing, so that it would hold under any root.
    #[error("it claims nothing of any key")]
    Nothing,
    /// It has two fields of which one says what the other one does.
    #[error("it has both {0} and {1}")]
    Both(&'static str, &'static str),
    /// There is not one preimage a key.
    #[error("it has {keys} keys and {preimages} preimages")]
    Preimages {
        /// How many keys.
        keys: usize,
        /// How many preimages.
        preimages: usize,
    },
    /// A key is not the digest of what is said to be its preimage.
    #[error("key {key} is not the Keccak-256 digest of its preimage, {preimage}")]
    Preimage {
        /// The key.
        key: Bytes,
        /// What is said to be its preimage.
        preimage: Bytes,
    },
    /// It has preimages where keys are no digests.
    #[error("it has preimages, and what it claims is of no keys that are digests")]
    NoPreimages,
    /// A value of a tree of words has not 32 bytes.
    #[error("a value of {0} bytes, where the tree has 32")]
    Value(usize),
    /// A part of an execution witness is malformed.
    #[error("{field}: {source}")]
    Verkle {
        /// Which part.
        field: &'static str,
        /// What is wrong with it.
        source: NotJson,
    },
    /// The proof is one of another kind of tree.
    #[error("its proof is {0}, and its tree is {1}")]
    OtherTree(&'static str, String),
}

impl Document {
    /// Reads a document. Only preimages are checked, against their keys; nothing else is yet.
    ///
    /// # Errors
    /// If it is none, names a member of an object twice, has more than [`VALUES_MAX`] values,
    /// claims nothing, or names a preimage that is not its key's.
    pub fn parse(json: &[u8]) -> Result<Self, DocumentError> {
        Self::of(read(json)?)
    }

    /// The same of a value that [`read`] read.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn of(value: Value) -> Result<Self, DocumentError> {
        let mut raw: Raw = serde_json::from_value(value)?;
        if let Some(result) = raw.result.take() {
            raw = *result;
        }
        if let Some(witness) = raw.execution_witness.take() {
            raw = *witness;
        }
        raw.check_fields()?;
        let (tree, root) = (raw.tree.take(), raw.root.take());
        if raw.state_diff.is_some() || raw.verkle_proof.is_some() {
            let tree = tree.unwrap_or_else(|| VERKLE.into());
            return Ok(Self { claim: raw.witness(&tree)?, tree: Some(tree), root });
        }
        let claim = match (&raw.proof, &tree) {
            (Some(Shown::Bytes(_)), Some(name)) if has_words(name) => raw.words()?,
            (_, Some(name)) if has_words(name) => {
                return Err(match raw.proof {
                    None => DocumentError::Lacks("proof"),
                    Some(_) => DocumentError::OtherTree("a list of nodes", name.clone()),
                });
            }
            (Some(Shown::Bytes(_)), _) => {
                let tree = tree.unwrap_or_else(|| "not named".into());
                return Err(DocumentError::OtherTree("one string", tree));
            }
            _ if raw.address.is_some() => raw.account()?,
            _ => raw.keys()?,
        };
        Ok(Self { tree, root, claim })
    }
}

/// Reads the value of a document of any kind: an object.
///
/// # Errors
/// If it is none, names a member of an object twice, or has more than [`VALUES_MAX`] values.
pub fn read(json: &[u8]) -> Result<Value, DocumentError> {
    if json.trim_ascii_start().first() != Some(&b'{') {
        return Err(DocumentError::NoObject);
    }
    let Strict(value) = serde_json::from_slice(json)?;
    Ok(value)
}

/// Whether a tree has proofs of the other kind; whether there is such a tree is seen later.
fn has_words(tree: &str) -> bool {
    tree == VERKLE || tree.starts_with("ubt:") || tree.starts_with("pbt:")
}

impl Raw {
    /// Refuses what says one thing twice, and preimages of what is no digest.
    fn check_fields(&self) -> Result<(), DocumentError> {
        for (one, other, both) in [
            ("key", "keys", self.key.is_some() && self.keys.is_some()),
            ("key", "address", self.key.is_some() && self.address.is_some()),
            ("preimage", "preimages", self.preimage.is_some() && self.preimages.is_some()),
        ] {
            if both {
                return Err(DocumentError::Both(one, other));
            }
        }
        let of_nodes = !matches!(self.proof, Some(Shown::Bytes(_))) && self.address.is_none();
        let has_preimages = self.preimage.is_some() || self.preimages.is_some();
        if has_preimages && (!of_nodes || self.state_diff.is_some()) {
            return Err(DocumentError::NoPreimages);
        }
        Ok(())
    }

    fn witness(self, tree: &str) -> Result<Claim, DocumentError> {
        if tree != VERKLE {
            return Err(DocumentError::OtherTree("that of a Verkle tree", tree.to_owned()));
        }
        let diff = self.state_diff.ok_or(DocumentError::Lacks("stateDiff"))?;
        let proof = self.verkle_proof.ok_or(DocumentError::Lacks("verkleProof"))?;
        let of = |field| move |source| DocumentError::Verkle { field, source };
        let diff = StateDiff::from_json(&diff).map_err(of("stateDiff"))?;
        if diff.0.is_empty() {
            return Err(DocumentError::Nothing);
        }
        let proof = VerkleProof::from_json(&proof).map_err(of("verkleProof"))?;
        Ok(Claim::Witness(Box::new(WitnessClaim { diff, proof })))
    }

    fn words(self) -> Result<Claim, DocumentError> {
        let keys = self.keys.ok_or(DocumentError::Lacks("keys"))?;
        let values = self.values.ok_or(DocumentError::Lacks("values"))?;
        if keys.len() != values.len() {
            return Err(DocumentError::Counts { keys: keys.len(), values: values.len() });
        }
        if keys.is_empty() {
            return Err(DocumentError::Nothing);
        }
        let Some(Shown::Bytes(proof)) = self.proof else {
            return Err(DocumentError::Lacks("proof"));
        };
        let entry = |(key, value): (Bytes, _)| Ok((key.to_vec(), word(value)?));
        let entries = keys.into_iter().zip(values).map(entry);
        let entries = entries.collect::<Result<_, DocumentError>>()?;
        let account = self.address.map(|address| Asked {
            address,
            slots: self.slots.unwrap_or_default(),
            chunks: self.chunks.unwrap_or_default(),
        });
        let proof = KeysProof { entries, proof: proof.to_vec() };
        Ok(Claim::Words(WordsClaim { account, proof }))
    }

    fn keys(self) -> Result<Claim, DocumentError> {
        let (keys, values) = match (self.key, self.keys) {
            (Some(key), _) => (vec![key], vec![self.value.ok_or(DocumentError::Lacks("value"))?]),
            (None, Some(keys)) => (keys, self.values.ok_or(DocumentError::Lacks("values"))?),
            (None, None) => return Err(DocumentError::Lacks("key, keys or address")),
        };
        if keys.len() != values.len() {
            return Err(DocumentError::Counts { keys: keys.len(), values: values.len() });
        }
        if keys.is_empty() {
            return Err(DocumentError::Nothing);
        }
        let mut sorted: Vec<_> = keys.iter().collect();
        sorted.sort_unstable();
        if let Some((key, _)) = sorted.iter().zip(sorted.iter().skip(1)).find(|(a, b)| a == b) {
            return Err(DocumentError::Twice((*key).clone()));
        }
        let preimages = self.preimages.or_else(|| self.preimage.map(|preimage| vec![preimage]));
        check_preimages(&keys, preimages.as_deref())?;
        let Some(Shown::Nodes(nodes)) = self.proof else {
            return Err(DocumentError::Lacks("proof"));
        };
        let entries = keys.into_iter().zip(values).collect();
        Ok(Claim::Keys { entries, preimages, proof: proof(nodes) })
    }

    fn account(self) -> Result<Claim, DocumentError> {
        use DocumentError::Lacks;
        let slot = |slot: Slot| SlotProof {
            key: slot.key.to_be_bytes(),
            value: slot.value.to_be_bytes(),
            proof: proof(slot.proof),
        };
        let slots = self.storage_proof.ok_or(Lacks("storageProof"))?;
        Ok(Claim::Account(Box::new(AccountProof {
            address: self.address.ok_or(Lacks("address"))?.into_array(),
            fields: AccountFields {
                nonce: self.nonce.ok_or(Lacks("nonce"))?.to(),
                balance: self.balance.ok_or(Lacks("balance"))?.to_be_bytes(),
                storage_hash: self.storage_hash.ok_or(Lacks("storageHash"))?.0,
                code_hash: self.code_hash.ok_or(Lacks("codeHash"))?.0,
            },
            account_proof: proof(self.account_proof.ok_or(Lacks("accountProof"))?),
            storage_proof: slots.into_iter().map(slot).collect(),
        })))
    }
}

fn check_preimages(keys: &[Bytes], preimages: Option<&[Bytes]>) -> Result<(), DocumentError> {
    let Some(preimages) = preimages else { return Ok(()) };
    if keys.len() != preimages.len() {
        let (keys, preimages) = (keys.len(), preimages.len());
        return Err(DocumentError::Preimages { keys, preimages });
    }
    let other = |(key, preimage): &(&Bytes, &Bytes)| keccak256(preimage) != key[..];
    match keys.iter().zip(preimages).find(other) {
        Some((key, preimage)) => {
            Err(DocumentError::Preimage { key: key.clone(), preimage: preimage.clone() })
        }
        None => Ok(()),
    }
}

fn proof(nodes: Vec<Bytes>) -> Proof {
    Proof::new(nodes.into_iter().map(Vec::from).collect())
}

/// Reads a value of a tree whose values are words of 32 bytes.
fn word(value: Option<Bytes>) -> Result<Option<[u8; 32]>, DocumentError> {
    let Some(value) = value else { return Ok(None) };
    let word = value[..].try_into().map_err(|_| DocumentError::Value(value.len()))?;
    Ok(Some(word))
}

#[cfg(test)]
mod tests {
    use super::{Claim, Document, DocumentError};

    fn refused(json: &str) -> DocumentError {
        Document::parse(json.as_bytes()).unwrap_err()
    }

    #[test]
    fn what_claims_nothing_is_refused() {
        for json in [
            r#"{"keys": [], "values": [], "proof": []}"#,
            r#"{"tree": "mpt", "keys": [], "values": [], "proof": [], "preimages": []}"#,
            r#"{"tree": "verkle", "keys": [], "values": [], "proof": "0x"}"#,
            r#"{"tree": "ubt:sha256", "keys": [], "values": [], "proof": "0x"}"#,
        ] {
            assert!(matches!(refused(json), DocumentError::Nothing), "{json}");
        }
    }

    #[test]
    fn nothing_is_said_twice() {
        for json in [
            r#"{"key": "0x01", "key": "0x01", "value": null, "proof": []}"#,
            r#"{"key": "0x01", "value": null, "proof": [], "extra": 1, "extra": 2}"#,
            r#"{"stateDiff": [{"stem": "0x01", "stem": "0x02"}], "verkleProof": {}}"#,
            r#"{"stateDiff": [], "verkleProof": {"d": "0x", "d": "0x"}}"#,
            r#"{"executionWitness": {"stateDiff":
                [{"suffixDiffs": [{"suffix": 1, "suffix": 2}]}]}}"#,
        ] {
            assert!(refused(json).to_string().contains("is given twice"), "{json}");
        }
        for json in [
            r#"{"key": "0x01", "keys": ["0x02"], "value": null, "proof": []}"#,
            r#"{"key": "0x01", "value": null, "preimage": "0x", "preimages": [], "proof": []}"#,
        ] {
            assert!(matches!(refused(json), DocumentError::Both(..)), "{json}");
        }
    }

    #[test]
    fn preimages_are_those_of_their_keys() {
        // Of the empty string.
        let key = "0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470";
        let of = |keys: &str| {
            Document::parse(format!(r#"{{{keys}, "value": null, "proof": []}}"#).as_bytes())
        };
        let one = |preimage: &str| of(&format!(r#""key": "{key}", "preimage": "{preimage}""#));
        let Claim::Keys { preimages, .. } = one("0x").unwrap().claim else { panic!("of keys") };
        assert_eq!(preimages.map(|preimages| preimages.len()), Some(1));
        assert!(matches!(one("0x00").unwrap_err(), DocumentError::Preimage { .. }));
        let two = of(&format!(r#""key": "{key}", "preimages": ["0x", "0x"]"#)).unwrap_err();
        assert_eq!(two.to_string(), "it has 1 keys and 2 preimages");
        let words = r#"{"tree": "verkle", "keys": ["0x01"], "values": [null],
            "preimages": ["0x"], "proof": "0x"}"#;
        assert!(matches!(refused(words), DocumentError::NoPreimages));
    }

    #[test]
    fn a_proof_is_nodes_or_bytes() {
        let read = |tree: &str, proof: &str| {
            let keys = r#""keys": ["0x01"], "values": [null]"#;
            Document::parse(format!(r#"{{"tree": "{tree}", {keys}, "proof": {proof}}}"#).as_bytes())
        };
        assert!(matches!(read("mpt", "[]").unwrap().claim, Claim::Keys { .. }));
        assert!(matches!(read("verkle", "\"0x\"").unwrap().claim, Claim::Words(_)));
        assert!(matches!(read("pbt:blake3", "\"0x\"").unwrap().claim, Claim::Words(_)));
        let text = |tree: &str, proof: &str| read(tree, proof).unwrap_err().to_string();
        assert_eq!(text("mpt", "\"0x\""), "its proof is one string, and its tree is mpt");
        assert_eq!(
            text("ubt:keccak", "[]"),
            "its proof is a list of nodes, and its tree is ubt:keccak"
        );
        assert!(text("mpt", "{}").contains("a list of nodes, or a proof as one string of hex"));
        assert!(text("mpt", "[1]").contains("expected"));
        let text = |json: &str| Document::parse(json.as_bytes()).unwrap_err().to_string();
        assert_eq!(text(r#"{"stateDiff": []}"#), "it is no proof document: it has no verkleProof");
        assert_eq!(
            text(r#"{"stateDiff": [{"stem": 1}], "verkleProof": {}}"#),
            "stateDiff: [0].suffixDiffs: expected it to be there"
        );
        let other = r#"{"tree": "mpt", "stateDiff": [], "verkleProof": {}}"#;
        assert_eq!(text(other), "its proof is that of a Verkle tree, and its tree is mpt");
    }
}
