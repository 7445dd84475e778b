//! JSON that somebody sent, read into memory without trust: no member of an object is named twice,
//! and there are no more values than whoever reads it allows.
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

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// How many values a reader of foreign JSON takes: list elements, members of objects, and the whole
/// itself. Each takes some tens of bytes of memory, even where it takes two of the text.
///
/// As a seed of serde it reads one value, of which no object has two members of one name.
///
/// ```
/// use serde::de::DeserializeSeed as _;
/// use spinney_document::ValuesMax;
///
/// let read = |text: &str| {
///     let mut reader = serde_json::Deserializer::from_str(text);
///     ValuesMax(3).deserialize(&mut reader)
/// };
/// assert_eq!(read("[1, 2]")?, serde_json::json!([1, 2]));
/// assert!(read("[1, 2, 3]").is_err());
/// assert!(read(r#"{"a": 1, "a": 1}"#).is_err());
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a number with a name")]
pub struct ValuesMax(pub usize);

impl<'de> DeserializeSeed<'de> for ValuesMax {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = Cell::new(self.0);
        One { left: &left, most: self.0 }.deserialize(deserializer)
    }
}

/// One value of those that are left.
#[derive(Clone, Copy)]
struct One<'a> {
    left: &'a Cell<usize>,
    most: usize,
}

impl<'de> DeserializeSeed<'de> for One<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let most = self.most;
        let too_many = || de::Error::custom(format_args!("it has more than {most} values"));
        self.left.set(self.left.get().checked_sub(1).ok_or_else(too_many)?);
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
    use serde::de::DeserializeSeed as _;
    use serde_json::Value;

    use super::ValuesMax;

    fn read(text: &str) -> Result<Value, String> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let value = ValuesMax(1_000).deserialize(&mut reader);
        let value = value.and_then(|value| reader.end().map(|()| value));
        value.map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_those_that_serde_reads() {
        for text in [
            "null",
            "[]",
            r#"{"a": [1, -2, 3.5, true, null, "x\ny"], "b": {"a": {}}, "": [[{"c": ""}]]}"#,
            "18446744073709551615",
        ] {
            assert_eq!(read(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
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
        assert!(read(&list(999)).is_ok());
        assert!(read(&list(1_000)).unwrap_err().contains("more than 1000 values"));
    }
}
