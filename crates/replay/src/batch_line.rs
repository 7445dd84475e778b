//! Batches of puts and deletions of raw keys, one JSON object a line.

use std::fmt;
use std::io::{self, BufRead};
use std::marker::PhantomData;

use alloy_primitives::{hex, keccak256};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use spinney_tree::Batch;

use crate::lines::DIFF_LINE_LEN_MAX;

/// Reads lines with memory for one. Blank lines are passed over.
#[derive(Debug)]
pub struct BatchLines<R> {
    input: R,
    number: u64,
    line: Vec<u8>,
}

impl<R: BufRead> BatchLines<R> {
    /// Reads from the start of `input`.
    pub const fn new(input: R) -> Self {
        Self { input, number: 0, line: Vec::new() }
    }

    /// The number of the line that was read last, from 1.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The next line that is not blank.
    ///
    /// # Errors
    /// If the input cannot be read, or the line has more than [`DIFF_LINE_LEN_MAX`] bytes.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            self.line.clear();
            // Counted before it is read: an error then names it.
            self.number += 1;
            let mut limited = io::Read::take(&mut self.input, DIFF_LINE_LEN_MAX + 1);
            let read = limited.read_until(b'\n', &mut self.line)?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 > DIFF_LINE_LEN_MAX {
                let what = format!("it is longer than {DIFF_LINE_LEN_MAX} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(Some(&self.line));
            }
        }
    }
}

/// A batch, as a line has it: puts and deletions.
///
/// ```
/// let line = br#"{"put": {"0x64": "0x01"}, "del": ["0x65"]}"#;
/// let line = spinney_replay::BatchLine::parse(line)?;
/// assert_eq!(line.batch(false).len(), 2);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchLine {
    #[serde(default)]
    put: Puts<HexText, HexText>,
    #[serde(default)]
    del: Vec<HexText>,
}

/// Bytes in hex, with `0x`.
#[derive(Debug)]
pub(crate) struct HexText(pub(crate) Vec<u8>);

/// Keys and values as they come. A map would keep the last of two values of one key.
#[derive(Debug)]
pub(crate) struct Puts<K, V>(pub(crate) Vec<(K, V)>);

impl<K, V> Default for Puts<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Reads a batch: an object. Read as the fields in their order, a list would do as well.
pub(crate) fn parse_object<'de, T: Deserialize<'de>>(
    line: &'de [u8],
) -> Result<T, serde_json::Error> {
    if line.trim_ascii_start().first() == Some(&b'[') {
        return Err(serde_json::Error::custom("a batch is an object, and this is a list"));
    }
    serde_json::from_slice(line)
}

impl<'de> Deserialize<'de> for HexText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl Visitor<'_> for Texts {
            type Value = HexText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string of 0x and hex digits")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<HexText, E> {
                let digits = text
                    .strip_prefix("0x")
                    .ok_or_else(|| E::custom(format_args!("{text:.80?} does not begin with 0x")))?;
                let bytes = hex::decode(digits)
                    .map_err(|error| E::custom(format_args!("{text:.80?} is not hex: {error}")))?;
                Ok(HexText(bytes))
            }
        }
        deserializer.deserialize_str(Texts)
    }
}

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Puts<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Maps<K, V>(PhantomData<(K, V)>);
        impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for Maps<K, V> {
            type Value = Puts<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of keys and values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Puts<K, V>, A::Error> {
                let mut puts = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    puts.push(entry);
                }
                Ok(Puts(puts))
            }
        }
        deserializer.deserialize_map(Maps(PhantomData))
    }
}

impl BatchLine {
    /// Reads a line, in which every key is named once.
    ///
    /// # Errors
    /// If it is no such object, or names a key twice.
    pub fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        let line: Self = parse_object(line)?;
        match line.repeated() {
            Some(what) => Err(serde_json::Error::custom(what)),
            None => Ok(line),
        }
    }

    /// What is said of a key that is named twice.
    fn repeated(&self) -> Option<String> {
        let puts = self.put.0.iter().map(|(key, _)| (&key.0, true));
        let mut keys: Vec<_> = puts.chain(self.del.iter().map(|key| (&key.0, false))).collect();
        keys.sort_unstable();
        let pair = keys.windows(2).find(|pair| pair[0].0 == pair[1].0)?;
        let key = hex::encode_prefixed(pair[0].0);
        Some(match (pair[0].1, pair[1].1) {
            (true, true) => format!("key {key} is put twice"),
            (false, false) => format!("key {key} is deleted twice"),
            _ => format!("key {key} is both put and deleted"),
        })
    }

    /// The operations, on the keys or on their Keccak-256 digests.
    pub fn batch(&self, hash_keys: bool) -> Batch {
        let mut batch = Batch::new();
        for (key, value) in &self.put.0 {
            match hash_keys {
                true => batch.put(keccak256(&key.0).as_slice(), &value.0),
                false => batch.put(&key.0, &value.0),
            }
        }
        for key in &self.del {
            match hash_keys {
                true => batch.delete(keccak256(&key.0).as_slice()),
                false => batch.delete(&key.0),
            }
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::{BatchLine, BatchLines};

    fn fault(line: &str) -> String {
        BatchLine::parse(line.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn keys_named_twice_are_refused_by_name() {
        assert_eq!(fault(r#"{"put":{"0xaa":"0x1a","0xAA":"0x2a"}}"#), "key 0xaa is put twice");
        assert_eq!(fault(r#"{"del":["0xaa","0xab","0xaa"]}"#), "key 0xaa is deleted twice");
        assert_eq!(
            fault(r#"{"put":{"0xaa":"0x1a"},"del":["0xaa"]}"#),
            "key 0xaa is both put and deleted"
        );
        assert!(fault(r#"{"put":{},"put":{}}"#).starts_with("duplicate field `put`"));
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        for line in ["[]", "{", r#"{"set":{}}"#, r#"{"put":{"aa":"0x"}}"#, r#"{"del":["0xa"]}"#] {
            BatchLine::parse(line.as_bytes()).unwrap_err();
        }
        assert_eq!(BatchLine::parse(b"{}").unwrap().batch(false).len(), 0);
        assert_eq!(BatchLine::parse(br#"{"put":{"0x":"0x"}}"#).unwrap().batch(true).len(), 1);
    }

    #[test]
    fn lines_are_counted_and_blank_ones_passed_over() {
        let mut lines = BatchLines::new(&b"\n{}\r\n   \n[]"[..]);
        assert_eq!(lines.next_line().unwrap(), Some(&b"{}\r\n"[..]));
        assert_eq!(lines.number(), 2);
        assert_eq!(lines.next_line().unwrap(), Some(&b"[]"[..]));
        assert_eq!(lines.number(), 4);
        assert_eq!(lines.next_line().unwrap(), None);
    }
}
