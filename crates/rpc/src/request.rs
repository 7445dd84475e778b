//! Requests as they are sent: one, or a batch of them.
//!
//! Invariants:
//! - a request is read and answered before the next one of its batch is, so memory is bounded by
//!   one;
//! - a request holds at most [`VALUES_MAX`] values, whatever it says.
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

use serde::de::{DeserializeSeed as _, Deserializer as _, Error as _, SeqAccess, Visitor};
use serde_json::{Map, Value};
use spinney_document::ValuesMax;

use crate::error::Fault;

/// How many values a request may hold: keys of a proof, and what is around them.
const VALUES_MAX: ValuesMax = ValuesMax(1 << 14);

/// A request, or what is wrong with it.
#[derive(Debug)]
pub(crate) struct Request {
    /// What is sent back with the answer; a notification has none, and is not answered.
    pub(crate) id: Option<Value>,
    pub(crate) call: Result<Call, Fault>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) params: Vec<Value>,
}

/// Whether what was sent is a batch.
pub(crate) fn is_batch(body: &[u8]) -> bool {
    body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}

/// Reads a request that comes alone.
pub(crate) fn read_one(body: &[u8]) -> Result<Request, Fault> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = VALUES_MAX.deserialize(&mut reader);
    let value = read.and_then(|value| reader.end().map(|()| value));
    value.map(request).map_err(|error| Fault::Parse(format!("parse error: {error}")))
}

/// Reads a batch, and hands on each request of it, up to `most`.
pub(crate) fn read_batch(
    body: &[u8],
    most: usize,
    mut each: impl FnMut(Request),
) -> Result<(), Fault> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let batch = Batch { most, each: &mut each, count: 0 };
    let read = reader.deserialize_seq(batch).and_then(|count| reader.end().map(|()| count));
    match read {
        Ok(0) => Err(Fault::Request("empty batch".into())),
        Ok(_) => Ok(()),
        Err(error) => Err(Fault::Parse(format!("parse error: {error}"))),
    }
}

/// How many requests a batch has, up to one more than `most`: those are not read any further.
pub(crate) fn count(body: &[u8], most: usize) -> Result<usize, Fault> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let counted = Cell::new(0);
    let read = reader.deserialize_seq(Count { most, counted: &counted });
    match read.and_then(|()| reader.end()) {
        Ok(()) => Ok(counted.get()),
        Err(_) if counted.get() > most => Ok(counted.get()),
        Err(error) => Err(Fault::Parse(format!("parse error: {error}"))),
    }
}

fn request(value: Value) -> Request {
    let Value::Object(mut members) = value else {
        let call = Err(Fault::Request("a request is an object".into()));
        return Request { id: Some(Value::Null), call };
    };
    let id = members.remove("id");
    let (id, is_id) = match id {
        None => (None, true),
        Some(id @ (Value::Null | Value::String(_) | Value::Number(_))) => (Some(id), true),
        Some(_) => (Some(Value::Null), false),
    };
    let call = match is_id {
        true => call(members),
        false => Err(Fault::Request("an id is a string, a number or null".into())),
    };
    // What is no request is answered, whoever may have sent it.
    let id = if call.is_err() { id.or(Some(Value::Null)) } else { id };
    Request { id, call }
}

fn call(mut members: Map<String, Value>) -> Result<Call, Fault> {
    match members.get("jsonrpc") {
        Some(Value::String(version)) if version == "2.0" => {}
        _ => return Err(Fault::Request("jsonrpc is to be \"2.0\"".into())),
    }
    let Some(Value::String(method)) = members.remove("method") else {
        return Err(Fault::Request("method is to be a string".into()));
    };
    match members.remove("params") {
        None | Some(Value::Null) => Ok(Call { method, params: Vec::new() }),
        Some(Value::Array(params)) => Ok(Call { method, params }),
        Some(_) => Err(Fault::Params("params are to be an array".into())),
    }
}

struct Batch<'e> {
    most: usize,
    each: &'e mut dyn FnMut(Request),
    count: usize,
}

impl<'de> Visitor<'de> for Batch<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a batch of requests")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<usize, A::Error> {
        while let Some(value) = seq.next_element_seed(VALUES_MAX)? {
            self.count = self.count.saturating_add(1);
            if self.count > self.most {
                return Err(A::Error::custom("too many requests"));
            }
            (self.each)(request(value));
        }
        Ok(self.count)
    }
}

struct Count<'c> {
    most: usize,
    counted: &'c Cell<usize>,
}

impl<'de> Visitor<'de> for Count<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a batch of requests")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<serde::de::IgnoredAny>()?.is_some() {
            self.counted.set(self.counted.get().saturating_add(1));
            if self.counted.get() > self.most {
                return Err(A::Error::custom("too many requests"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Call, VALUES_MAX, count, is_batch, read_batch, read_one};
    use crate::error::Fault;

    fn one(text: &str) -> (Option<Value>, Result<Call, i32>) {
        let read = read_one(text.as_bytes()).unwrap();
        (read.id, read.call.map_err(|fault| fault.code()))
    }

    #[test]
    fn a_request_has_a_method_and_an_array_of_params() {
        let call = |params| Ok(Call { method: "m".into(), params });
        let text = r#"{"jsonrpc":"2.0","id":7,"method":"m","params":["0x1",null]}"#;
        assert_eq!(one(text), (Some(json!(7)), call(vec![json!("0x1"), Value::Null])));
        assert_eq!(one(r#"{"jsonrpc":"2.0","method":"m"}"#), (None, call(vec![])));
        let text = r#" {"params":[],"method":"m","id":null,"jsonrpc":"2.0"} "#;
        assert_eq!(one(text), (Some(Value::Null), call(vec![])));
        let text = r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"a":1}}"#;
        assert_eq!(one(text), (Some(json!("a")), Err(-32602)));
    }

    #[test]
    fn what_is_no_request_is_answered() {
        let null = Some(Value::Null);
        for text in ["7", "null", "\"m\"", "{}", r#"{"method":"m"}"#, r#"{"jsonrpc":"2.0"}"#] {
            assert_eq!(one(text), (null.clone(), Err(-32600)), "{text}");
        }
        let text = r#"{"jsonrpc":"1.0","id":7,"method":"m"}"#;
        assert_eq!(one(text), (Some(json!(7)), Err(-32600)));
        let text = r#"{"jsonrpc":"2.0","id":[7],"method":"m"}"#;
        assert_eq!(one(text), (null, Err(-32600)));
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let deep = "[".repeat(100_000);
        let twice = r#"{"id":1,"id":2}"#;
        for text in ["", "{", "{}{}", "nul", "\u{0}", "{\"a\":\"\\ud800\"}", &deep, twice] {
            assert!(matches!(read_one(text.as_bytes()), Err(Fault::Parse(_))), "{text:.20}");
        }
        assert!(matches!(read_one(b"{\"a\":\"\xff\"}"), Err(Fault::Parse(_))));
    }

    #[test]
    fn a_request_holds_a_bounded_number_of_values() {
        let text = |values: usize| format!("[{}0]", "0,".repeat(values - 1));
        assert!(read_one(text(VALUES_MAX.0 - 1).as_bytes()).is_ok());
        assert!(read_one(text(VALUES_MAX.0).as_bytes()).is_err());
    }

    #[test]
    fn batches_are_read_one_by_one() {
        let body = br#" [{"jsonrpc":"2.0","id":1,"method":"a"}, 7,
            {"jsonrpc":"2.0","id":2,"method":"b"}]"#;
        assert!(is_batch(body) && !is_batch(b" {}") && !is_batch(b""));
        let mut ids = Vec::new();
        read_batch(body, 3, |request| ids.push(request.id)).unwrap();
        assert_eq!(ids, [Some(json!(1)), Some(Value::Null), Some(json!(2))]);
        assert_eq!(count(body, 3), Ok(3));
        assert_eq!(count(body, 1), Ok(2));
        assert!(matches!(read_batch(b"[]", 3, |_| ()), Err(Fault::Request(_))));
        assert!(matches!(count(b"[1,", 3), Err(Fault::Parse(_))));
    }
}
