//! The params of a method, one after another.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_primitives::{Address, B256, Bytes, U256, hex};
use serde_json::Value;

use crate::error::Fault;

/// Which block's state is asked for (EIP-1898).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockRef {
    Latest,
    Earliest,
    Finalized,
    Safe,
    Pending,
    Number(u64),
    Hash(B256),
}

/// A slot as it was named: what is shorter than 32 bytes is answered as a quantity, as geth does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotName {
    pub(crate) slot: B256,
    pub(crate) is_word: bool,
}

/// What was given, from the first param on.
#[derive(Debug)]
pub(crate) struct Params {
    given: std::vec::IntoIter<Value>,
    place: usize,
}

impl Params {
    pub(crate) fn new(given: Vec<Value>) -> Self {
        Self { given: given.into_iter(), place: 0 }
    }

    /// Refuses params beyond those that were taken.
    pub(crate) fn end(mut self) -> Result<(), Fault> {
        match self.given.next() {
            None => Ok(()),
            Some(_) => Err(Fault::Params(format!("too many params: at most {}", self.place))),
        }
    }

    fn next(&mut self) -> Option<Value> {
        self.place = self.place.saturating_add(1);
        self.given.next().filter(|value| !value.is_null())
    }

    fn needed(&mut self, what: &str) -> Result<Value, Fault> {
        let missing = || Fault::Params(format!("missing value for param {what}"));
        self.next().ok_or_else(missing)
    }

    pub(crate) fn text(&mut self, what: &str) -> Result<String, Fault> {
        match self.needed(what)? {
            Value::String(text) => Ok(text),
            _ => Err(invalid(what, "it is to be a string")),
        }
    }

    pub(crate) fn address(&mut self) -> Result<Address, Fault> {
        address(&self.needed("address")?)
    }

    pub(crate) fn slot(&mut self) -> Result<SlotName, Fault> {
        slot(&self.needed("slot")?)
    }

    /// Slots, or none; `most` of them.
    pub(crate) fn slots(&mut self, most: usize) -> Result<Vec<SlotName>, Fault> {
        match self.next() {
            None => Ok(Vec::new()),
            Some(value) => list(&value, "slots", most, slot),
        }
    }

    /// Keys in hex, or an account and what is asked of it.
    pub(crate) fn keys(&mut self, most: usize) -> Result<Keys, Fault> {
        match self.needed("keys")? {
            value @ Value::Array(_) => {
                Ok(Keys::Raw(list(&value, "keys", most, |key| bytes(key, "keys"))?))
            }
            Value::Object(mut members) => {
                let given = members.remove("address");
                let address =
                    address(&given.ok_or_else(|| invalid("keys", "it names no address"))?)?;
                let empty = || Value::Array(Vec::new());
                let slots = members.remove("slots").unwrap_or_else(empty);
                let slots = list(&slots, "slots", most, |name| Ok(slot(name)?.slot))?;
                let chunks = members.remove("chunks").unwrap_or_else(empty);
                let chunk = |chunk: &Value| {
                    let number = chunk.as_u64().and_then(|chunk| u32::try_from(chunk).ok());
                    number.ok_or_else(|| invalid("chunks", "they are numbers"))
                };
                let chunks = list(&chunks, "chunks", most, chunk)?;
                if slots.len().saturating_add(chunks.len()) > most {
                    return Err(too_many("keys", most));
                }
                match members.keys().next() {
                    None => Ok(Keys::Account { address, slots, chunks }),
                    Some(other) => Err(invalid("keys", &format!("it has no member {other}"))),
                }
            }
            _ => Err(invalid("keys", "they are an array of keys, or an object with an address")),
        }
    }

    /// Keys of 32 bytes.
    pub(crate) fn words(&mut self, most: usize) -> Result<Vec<[u8; 32]>, Fault> {
        let value = self.needed("keys")?;
        list(&value, "keys", most, |key| {
            let key = bytes(key, "keys")?;
            key[..].try_into().map_err(|_| invalid("keys", "keys of a sum tree have 32 bytes"))
        })
    }

    /// A block; none given is the latest.
    pub(crate) fn block(&mut self) -> Result<BlockRef, Fault> {
        self.next().map_or(Ok(BlockRef::Latest), block)
    }
}

/// What is to be proven in a tree of words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    Raw(Vec<Bytes>),
    Account { address: Address, slots: Vec<B256>, chunks: Vec<u32> },
}

fn invalid(what: &str, why: &str) -> Fault {
    Fault::Params(format!("invalid param {what}: {why}"))
}

fn too_many(what: &str, most: usize) -> Fault {
    Fault::Params(format!("too many {what} (max {most})"))
}

fn list<T>(
    value: &Value,
    what: &str,
    most: usize,
    each: impl Fn(&Value) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let values = value.as_array().ok_or_else(|| invalid(what, "it is to be an array"))?;
    if values.len() > most {
        return Err(too_many(what, most));
    }
    values.iter().map(each).collect()
}

fn text<'v>(value: &'v Value, what: &str) -> Result<&'v str, Fault> {
    value.as_str().ok_or_else(|| invalid(what, "it is to be a string"))
}

fn bytes(value: &Value, what: &str) -> Result<Bytes, Fault> {
    let digits = text(value, what)?.strip_prefix("0x");
    let digits = digits.ok_or_else(|| invalid(what, "hex begins with 0x"))?;
    hex::decode(digits).map(Bytes::from).map_err(|error| invalid(what, &error.to_string()))
}

fn address(value: &Value) -> Result<Address, Fault> {
    let bytes = bytes(value, "address")?;
    let wrong = || invalid("address", &format!("{} bytes where 20 are", bytes.len()));
    Address::try_from(&bytes[..]).map_err(|_| wrong())
}

/// A slot in hex, with or without 0x, zeros before it or not: as geth takes them.
fn slot(value: &Value) -> Result<SlotName, Fault> {
    let given = text(value, "slot")?;
    let digits = given.strip_prefix("0x").or_else(|| given.strip_prefix("0X")).unwrap_or(given);
    if digits.len() > 64 {
        return Err(invalid("slot", "more than 32 bytes"));
    }
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(invalid("slot", "it is no hex"));
    }
    let word = match digits.is_empty() {
        true => U256::ZERO,
        false => {
            U256::from_str_radix(digits, 16).map_err(|error| invalid("slot", &error.to_string()))?
        }
    };
    Ok(SlotName { slot: word.into(), is_word: digits.len() > 62 })
}

/// A number as the execution APIs have them: 0x, no zeros before it.
fn quantity(given: &str) -> Result<u64, Fault> {
    let wrong = |why: &str| invalid("block", &format!("{given:?} {why}"));
    let digits = given.strip_prefix("0x").ok_or_else(|| wrong("is no tag, and no hex number"))?;
    if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
        return Err(wrong("is no hex number without zeros before it"));
    }
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(wrong("is no hex number"));
    }
    u64::from_str_radix(digits, 16).map_err(|_| wrong("is larger than 64 bits"))
}

fn hash(given: &str) -> Result<B256, Fault> {
    let bytes = given.strip_prefix("0x").and_then(|digits| hex::decode(digits).ok());
    let hash = bytes.and_then(|bytes| B256::try_from(&bytes[..]).ok());
    hash.ok_or_else(|| invalid("block", "a hash has 32 bytes in hex"))
}

fn block(value: Value) -> Result<BlockRef, Fault> {
    let mut members = match value {
        Value::String(given) => {
            return Ok(match &*given {
                "latest" => BlockRef::Latest,
                "earliest" => BlockRef::Earliest,
                "finalized" => BlockRef::Finalized,
                "safe" => BlockRef::Safe,
                "pending" => BlockRef::Pending,
                hash_text if hash_text.len() == 66 => BlockRef::Hash(hash(hash_text)?),
                number => BlockRef::Number(quantity(number)?),
            });
        }
        Value::Object(members) => members,
        _ => return Err(invalid("block", "it is a tag, a number, a hash, or an object")),
    };
    let member = |value: Option<Value>, what: &str| match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid("block", &format!("{what} is to be a string"))),
    };
    let number = member(members.remove("blockNumber"), "blockNumber")?;
    let by_hash = member(members.remove("blockHash"), "blockHash")?;
    match members.remove("requireCanonical") {
        // Only canonical blocks are kept.
        None | Some(Value::Null | Value::Bool(_)) => {}
        Some(_) => return Err(invalid("block", "requireCanonical is true or false")),
    }
    if let Some(other) = members.keys().next() {
        return Err(invalid("block", &format!("it has no member {other}")));
    }
    match (number, by_hash) {
        (Some(number), None) => block(Value::String(number)),
        (None, Some(by_hash)) => Ok(BlockRef::Hash(hash(&by_hash)?)),
        (Some(_), Some(_)) => Err(invalid("block", "blockNumber and blockHash exclude each other")),
        (None, None) => Err(invalid("block", "it has neither blockNumber nor blockHash")),
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{Address, B256, U256};
    use serde_json::{Value, json};

    use super::{BlockRef, Keys, Params, SlotName, block, slot};

    #[test]
    fn blocks_are_tags_numbers_and_hashes() {
        let hash = B256::repeat_byte(7);
        for (value, expected) in [
            (json!("latest"), BlockRef::Latest),
            (json!("earliest"), BlockRef::Earliest),
            (json!("finalized"), BlockRef::Finalized),
            (json!("safe"), BlockRef::Safe),
            (json!("pending"), BlockRef::Pending),
            (json!("0x0"), BlockRef::Number(0)),
            (json!("0xffffffffffffffff"), BlockRef::Number(u64::MAX)),
            (json!(hash), BlockRef::Hash(hash)),
            (json!({ "blockNumber": "0x10" }), BlockRef::Number(16)),
            (json!({ "blockNumber": "latest" }), BlockRef::Latest),
            (json!({ "blockHash": hash }), BlockRef::Hash(hash)),
            (json!({ "blockHash": hash, "requireCanonical": true }), BlockRef::Hash(hash)),
        ] {
            assert_eq!(block(value.clone()), Ok(expected), "{value}");
        }
        for value in [
            json!(7),
            json!("7"),
            json!("0x"),
            json!("0x01"),
            json!("0x+1"),
            json!("0x10000000000000000"),
            json!("Latest"),
            json!(""),
            json!(format!("0x{}", "g".repeat(64))),
            json!([]),
            json!({}),
            json!({ "blockHash": "0x7" }),
            json!({ "blockHash": hash, "blockNumber": "0x1" }),
            json!({ "blockNumber": 1 }),
            json!({ "blockHash": hash, "requireCanonical": 1 }),
            json!({ "blockHash": hash, "other": 1 }),
        ] {
            assert_eq!(block(value.clone()).map_err(|fault| fault.code()), Err(-32602), "{value}");
        }
    }

    #[test]
    fn slots_are_words_or_quantities() {
        let named = |number: u64, is_word| SlotName { slot: U256::from(number).into(), is_word };
        let word = format!("0x{}1", "0".repeat(63));
        for (text, expected) in [
            ("0x", named(0, false)),
            ("0x0", named(0, false)),
            ("0x001", named(1, false)),
            ("1", named(1, false)),
            ("0Xab", named(0xab, false)),
            (&word, named(1, true)),
            (&word[2..], named(1, true)),
            (&word.replacen("00", "0", 1), named(1, true)),
            (&word.replacen("000", "0", 1), named(1, false)),
        ] {
            assert_eq!(slot(&json!(text)), Ok(expected), "{text}");
        }
        for value in [json!(1), json!("0xg"), json!("0x-1"), json!("0x_1"), json!(word + "0")] {
            assert!(slot(&value).is_err(), "{value}");
        }
    }

    #[test]
    fn params_come_in_order() {
        let mut params = Params::new(vec![json!(Address::ZERO), Value::Null]);
        assert_eq!(params.address(), Ok(Address::ZERO));
        assert_eq!(params.slots(1), Ok(vec![]));
        assert_eq!(params.block(), Ok(BlockRef::Latest));
        assert_eq!(params.end(), Ok(()));
        let many = json!(["0x1", "0x2"]);
        assert!(Params::new(vec![many.clone()]).slots(1).is_err());
        assert_eq!(Params::new(vec![many.clone()]).slots(2).map(|slots| slots.len()), Ok(2));
        assert!(Params::new(vec![many]).end().is_err());
        for address in [json!("0x00"), json!("00".repeat(20)), json!(7), Value::Null] {
            assert!(Params::new(vec![address]).address().is_err());
        }
    }

    #[test]
    fn keys_are_bytes_or_those_of_an_account() {
        let keys = |value| Params::new(vec![value]).keys(2);
        assert_eq!(keys(json!(["0x01"])), Ok(Keys::Raw(vec![[1].into()])));
        let account = json!({ "address": Address::ZERO, "slots": ["0x1"], "chunks": [3] });
        let slots = vec![U256::ONE.into()];
        let expected = Keys::Account { address: Address::ZERO, slots, chunks: vec![3] };
        assert_eq!(keys(account), Ok(expected));
        for value in [
            json!(["0x1"]),
            json!(["01"]),
            json!(["0x", "0x", "0x"]),
            json!({ "slots": [] }),
            json!({ "address": Address::ZERO, "slots": ["0x1", "0x2"], "chunks": [1] }),
            json!({ "address": Address::ZERO, "chunks": [-1] }),
            json!({ "address": Address::ZERO, "slot": [] }),
        ] {
            assert!(keys(value.clone()).is_err(), "{value}");
        }
    }
}
