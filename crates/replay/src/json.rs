//! The ways in which geth writes numbers and bytes into JSON, read strictly.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::{borrow::Cow, fmt};

use alloy_primitives::{Address, B256, Bytes, U256, hex};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

/// A struct that is written as an object: serde would take an array of its fields as well.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Objects<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Objects<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Objects(std::marker::PhantomData))
    }
}

/// A number, or a string in decimal or `0x` hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantity(pub(crate) U256);

impl Quantity {
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => (digits, 16),
            None => (text, 10),
        };
        // The underscore, which Rust allows in numbers, is no digit here.
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            || (digits.is_empty() && radix == 10)
        {
            return Err("not a number");
        }
        if digits.is_empty() {
            return Ok(Self(U256::ZERO));
        }
        U256::from_str_radix(digits, radix).map(Self).map_err(|_| "not a number of 256 bits")
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Quantities;
        impl Visitor<'_> for Quantities {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a string in decimal or 0x hex")
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Quantity, E> {
                Ok(Quantity(U256::from(value)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
                Quantity::parse(text).map_err(|why| E::custom(format_args!("{why}: {text:.80}")))
            }
        }
        deserializer.deserialize_any(Quantities)
    }
}

/// A number of 64 bits, written as a [`Quantity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantity64(pub(crate) u64);

impl<'de> Deserialize<'de> for Quantity64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Quantity(value) = Quantity::deserialize(deserializer)?;
        let value = u64::try_from(value)
            .map_err(|_| D::Error::custom(format_args!("{value} does not fit into 64 bits")))?;
        Ok(Self(value))
    }
}

/// Bytes in hex, `0x` or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HexBytes(pub(crate) Bytes);

impl<'de> Deserialize<'de> for HexBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        hex::decode(text.as_ref()).map(|bytes| Self(bytes.into())).map_err(D::Error::custom)
    }
}

/// An address of exactly 20 bytes in hex, `0x` or not; also as a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HexAddress(pub(crate) Address);

impl fmt::Debug for HexAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<'de> Deserialize<'de> for HexAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        fixed::<20>(&text).map(|bytes| Self(bytes.into())).map_err(D::Error::custom)
    }
}

/// A hash of exactly 32 bytes in hex, `0x` or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HexHash(pub(crate) B256);

impl<'de> Deserialize<'de> for HexHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        fixed::<32>(&text).map(|bytes| Self(bytes.into())).map_err(D::Error::custom)
    }
}

/// A slot or its value: up to 32 bytes in hex, padded on the left, as geth reads it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HexWord(pub(crate) B256);

impl fmt::Debug for HexWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl<'de> Deserialize<'de> for HexWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(&text);
        if digits.is_empty() || digits.len() > 64 {
            return Err(D::Error::custom(format_args!(
                "expected 1 to 32 bytes in hex: {text:.80}"
            )));
        }
        let padded = format!("{digits:0>64}");
        fixed::<32>(&padded).map(|bytes| Self(bytes.into())).map_err(D::Error::custom)
    }
}

fn fixed<const N: usize>(text: &str) -> Result<[u8; N], String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let mut bytes = [0; N];
    hex::decode_to_slice(digits, &mut bytes)
        .map_err(|error| format!("expected {N} bytes in hex: {error}: {text:.80}"))?;
    Ok(bytes)
}

/// A map of which each key is there once: what JSON leaves open would hide a change.
#[derive(Clone, Debug)]
pub(crate) struct UniqueMap<K, V>(pub(crate) std::collections::BTreeMap<K, V>);

impl<K, V> Default for UniqueMap<K, V> {
    fn default() -> Self {
        Self(std::collections::BTreeMap::new())
    }
}

impl<'de, K, V> Deserialize<'de> for UniqueMap<K, V>
where
    K: Deserialize<'de> + Ord + fmt::Debug + Copy,
    V: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Maps<K, V>(std::marker::PhantomData<(K, V)>);
        impl<'de, K, V> Visitor<'de> for Maps<K, V>
        where
            K: Deserialize<'de> + Ord + fmt::Debug + Copy,
            V: Deserialize<'de>,
        {
            type Value = UniqueMap<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueMap<K, V>, A::Error> {
                let mut entries = UniqueMap::default();
                while let Some((key, value)) = map.next_entry::<K, V>()? {
                    if entries.0.insert(key, value).is_some() {
                        return Err(A::Error::custom(format_args!("{key:?} is given twice")));
                    }
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Maps(std::marker::PhantomData))
    }
}
