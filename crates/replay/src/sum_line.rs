//! Batches of leaves with sums, one JSON object a line.

use std::collections::BTreeSet;

use alloy_primitives::{B256, hex};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use spinney_state::sum::SumBatch;
use spinney_tree::sum::Leaf;

use crate::batch_line::{HexText, Puts, parse_object};

/// A batch of leaves, as a line has it: those that are put, and keys that are deleted.
///
/// ```
/// let key = "11".repeat(32);
/// let line = format!(r#"{{"put": {{"0x{key}": {{"value": "0xaa", "sum": "5"}}}}, "del": []}}"#);
/// assert_eq!(spinney_replay::SumLine::parse(line.as_bytes())?.batch().len(), 1);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SumLine {
    #[serde(default)]
    put: Puts<B256, SumValue>,
    #[serde(default)]
    del: Vec<B256>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SumValue {
    value: HexText,
    sum: SumTotal,
}

/// A sum: a decimal number in a string, since not all that read JSON keep 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SumTotal(pub(crate) u64);

impl<'de> Deserialize<'de> for SumTotal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits).map(Self);
        number.ok_or_else(|| {
            D::Error::custom(format_args!("{text:.80?} is no sum: a decimal number below 2^64"))
        })
    }
}

impl SumLine {
    /// Reads a line, in which every key is named once.
    ///
    /// # Errors
    /// If it is no such object, or names a key twice.
    pub fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        let line: Self = parse_object(line)?;
        let mut keys = BTreeSet::new();
        let all = line.put.0.iter().map(|(key, _)| key).chain(&line.del);
        for key in all {
            if !keys.insert(key) {
                let key = hex::encode_prefixed(key);
                return Err(serde_json::Error::custom(format!("key {key} is named twice")));
            }
        }
        Ok(line)
    }

    /// The operations. An empty value with the sum 0 is a deletion.
    pub fn batch(self) -> SumBatch {
        let mut batch = SumBatch::new();
        for (key, value) in self.put.0 {
            batch.put(&key, &Leaf { value: value.value.0, sum: value.sum.0 });
        }
        self.del.iter().for_each(|key| batch.delete(key));
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::SumLine;

    #[test]
    fn lines_that_are_no_batch_say_what_is_wrong() {
        let key = "11".repeat(32);
        let leaf = |leaf: &str| format!(r#"{{"put": {{"0x{key}": {leaf}}}}}"#);
        let fault = |line: &str| SumLine::parse(line.as_bytes()).unwrap_err().to_string();
        for sum in [r#""""#, r#""-1""#, r#""+1""#, r#""18446744073709551616""#, r#""1.0""#] {
            let fault = fault(&leaf(&format!(r#"{{"value": "0x", "sum": {sum}}}"#)));
            assert!(fault.contains("is no sum"), "{fault}");
        }
        assert!(fault(&leaf("\"0x01\"")).contains("expected struct"));
        assert!(fault(r#"{"del": ["0x11"]}"#).contains("invalid"));
        assert!(fault("[]").contains("this is a list"));
        let twice = format!(r#"{{"del": ["0x{key}", "0x{key}"]}}"#);
        assert!(fault(&twice).ends_with("is named twice"));
        let line = SumLine::parse(leaf(r#"{"value": "0x", "sum": "5"}"#).as_bytes()).unwrap();
        assert_eq!(line.batch().len(), 1);
    }
}
