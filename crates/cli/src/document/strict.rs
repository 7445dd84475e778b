//! JSON that somebody sent, read into memory without trust: no member of an object is named twice,
//! and there are no more values than a document can need.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::cell::Cell;
use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// How many values a document has at most: list elements, members of objects, and itself. Each
/// takes some tens of bytes of memory, even where it takes two of the text.
pub const VALUES_MAX: usize = 1 << 21;

/// A JSON value of which no object has two members of one name.
#[derive(Debug)]
pub struct Strict(pub Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let left = Cell::new(VALUES_MAX);
        One { left: &left }.deserialize(deserializer).map(Self)
    }
}

/// One value of those that are left.
#[derive(Clone, Copy)]
struct One<'a> {
    left: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for One<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| {
            de::Error::custom(format_args!("it has more than {VALUES_MAX} values"))
        })?;
        self.left.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for One<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(de::Error::custom(format_args!("{name:.40?} is given twice")));
            }
            let value = members.next_value_seed(self)?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::{Strict, VALUES_MAX};

    fn read(text: &str) -> Result<serde_json::Value, String> {
        serde_json::from_str::<Strict>(text).map(|Strict(value)| value).map_err(|e| e.to_string())
    }

    #[test]
    fn values_are_those_that_serde_reads() {
        for text in [
            "null",
            "[]",
            r#"{"a": [1, -2, 3.5, true, null, "x\ny"], "b": {"a": {}}, "": [[{"c": ""}]]}"#,
            "18446744073709551615",
        ] {
            assert_eq!(
                read(text).unwrap(),
                serde_json::from_str::<serde_json::Value>(text).unwrap()
            );
        }
        for text in ["", "[1,]", "{\"a\"}", "{} {}", "nul"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_comes_once_in_an_object() {
        for text in [r#"{"a": 1, "a": 1}"#, r#"[{"b": {"a": 1, "c": 2, "a": null}}]"#] {
            assert!(read(text).unwrap_err().contains("\"a\" is given twice"), "{text}");
        }
        assert!(read(r#"{"a": {"a": 1}, "b": {"a": 1}}"#).is_ok());
    }

    #[test]
    fn values_are_counted() {
        let list = |count: usize| format!("[0{}]", ",0".repeat(count - 1));
        assert!(read(&list(VALUES_MAX - 1)).is_ok());
        assert!(read(&list(VALUES_MAX)).unwrap_err().contains("more than 2097152 values"));
    }
}
