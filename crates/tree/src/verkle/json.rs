//! go-verkle's JSON of proofs and values.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use serde_json::{Map, Value, json};
use spinney_ipa::{MULTIPROOF_BYTES, Multiproof};

use spinney_proof::verkle::{Malformed, Proof, StateDiff, StemDiff, SuffixDiff};

/// What go-verkle has a JSON form of: a [`Proof`] and a [`StateDiff`].
pub trait Json: Sized {
    /// The JSON that go-verkle writes.
    fn to_json(&self) -> Value;

    /// Reads what go-verkle writes.
    ///
    /// # Errors
    /// If a part is missing or is not what it should be.
    fn from_json(json: &Value) -> Result<Self, NotJson>;
}

/// Why JSON is no proof, or are no values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotJson {
    /// The JSON has another shape.
    #[error("{at}: {what}")]
    Shape {
        /// Where in it.
        at: String,
        /// What is wrong there.
        what: String,
    },
    /// The multiproof in it is none.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// How many points of a kind an inner product proof has.
const ROUNDS: usize = 8;

fn hex(bytes: &[u8]) -> String {
    format!("0x{}", crate::error::hex(bytes))
}

impl Json for Proof {
    /// The proof as go-verkle writes it: points and bytes in hex, the last scalar big-endian.
    fn to_json(&self) -> Value {
        let list = |points: &[[u8; 32]]| points.iter().map(|point| hex(point)).collect::<Vec<_>>();
        let bytes = self.multiproof().to_bytes();
        let mut words = bytes.as_chunks::<32>().0.iter();
        let mut next = |count| words.by_ref().take(count).map(|word| hex(word)).collect::<Vec<_>>();
        let (quotient, left, right) = (next(1).concat(), next(ROUNDS), next(ROUNDS));
        let mut last = words.next().copied().unwrap_or_default();
        last.reverse();
        json!({
            "otherStems": self.other_stems().iter().map(|stem| hex(stem)).collect::<Vec<_>>(),
            "depthExtensionPresent": hex(self.statuses()),
            "commitmentsByPath": list(self.commitments()),
            "d": quotient,
            "ipaProof": { "cl": left, "cr": right, "finalEvaluation": hex(&last) },
        })
    }

    /// Reads a proof as go-verkle writes it. Commitments are looked at when it is verified.
    fn from_json(json: &Value) -> Result<Self, NotJson> {
        let proof = JsonAt { json, path: String::new() };
        let ipa = proof.get("ipaProof")?;
        let mut bytes = Vec::with_capacity(MULTIPROOF_BYTES);
        bytes.extend(proof.get("d")?.bytes::<32>()?);
        for kind in ["cl", "cr"] {
            let points = ipa.get(kind)?;
            let list = points.list()?;
            if list.len() != ROUNDS {
                return Err(points.wrong("a list of 8"));
            }
            for point in list {
                bytes.extend(point.bytes::<32>()?);
            }
        }
        let mut last = ipa.get("finalEvaluation")?.bytes::<32>()?;
        last.reverse();
        bytes.extend(last);
        let stems = proof.get("otherStems")?.list()?;
        let commitments = proof.get("commitmentsByPath")?.list()?;
        let multiproof = Multiproof::from_bytes(&bytes).map_err(Malformed::from)?;
        Ok(Self::new(
            stems.iter().map(JsonAt::bytes).collect::<Result<_, _>>()?,
            proof.get("depthExtensionPresent")?.hex()?,
            commitments.iter().map(JsonAt::bytes).collect::<Result<_, _>>()?,
            multiproof,
        ))
    }
}

impl Json for StateDiff {
    /// The values as go-verkle writes them: absent and unchanged ones are null.
    fn to_json(&self) -> Value {
        let suffix = |entry: &SuffixDiff| {
            let value = |value: &Option<[u8; 32]>| value.map(|value| hex(&value));
            json!({
                "suffix": entry.suffix,
                "currentValue": value(&entry.current),
                "newValue": value(&entry.new),
            })
        };
        let stem = |entry: &StemDiff| {
            let suffixes: Vec<_> = entry.suffixes.iter().map(suffix).collect();
            json!({ "stem": hex(&entry.stem), "suffixDiffs": suffixes })
        };
        Value::Array(self.0.iter().map(stem).collect())
    }

    /// Reads values as go-verkle writes them.
    fn from_json(json: &Value) -> Result<Self, NotJson> {
        let stems = JsonAt { json, path: String::new() }.list()?;
        let suffix = |entry: &JsonAt<'_>| {
            let number = entry.get("suffix")?;
            let suffix = number.json.as_u64().and_then(|n| u8::try_from(n).ok());
            Ok::<_, NotJson>(SuffixDiff {
                suffix: suffix.ok_or_else(|| number.wrong("a number below 256"))?,
                current: entry.optional("currentValue")?,
                new: entry.optional("newValue")?,
            })
        };
        let stem = |entry: &JsonAt<'_>| {
            let suffixes = entry.get("suffixDiffs")?.list()?;
            let suffixes = suffixes.iter().map(suffix).collect::<Result<_, _>>()?;
            Ok::<_, NotJson>(StemDiff { stem: entry.get("stem")?.bytes()?, suffixes })
        };
        Ok(Self(stems.iter().map(stem).collect::<Result<_, _>>()?))
    }
}

/// A part of a document, and where it is.
struct JsonAt<'a> {
    json: &'a Value,
    path: String,
}

impl<'a> JsonAt<'a> {
    fn wrong(&self, expected: &str) -> NotJson {
        let path = self.path.strip_prefix('.').unwrap_or(&self.path);
        let at = if path.is_empty() { "the document" } else { path };
        NotJson::Shape { at: at.to_owned(), what: format!("expected {expected}") }
    }

    fn object(&self) -> Result<&'a Map<String, Value>, NotJson> {
        self.json.as_object().ok_or_else(|| self.wrong("an object"))
    }

    fn get(&self, name: &str) -> Result<Self, NotJson> {
        let path = format!("{}.{name}", self.path);
        match self.object()?.get(name) {
            Some(json) => Ok(Self { json, path }),
            None => Err(Self { json: self.json, path }.wrong("it to be there")),
        }
    }

    fn list(&self) -> Result<Vec<Self>, NotJson> {
        // Go writes no list for an empty one.
        if self.json.is_null() {
            return Ok(Vec::new());
        }
        let list = self.json.as_array().ok_or_else(|| self.wrong("a list"))?;
        let at = |(index, json)| Self { json, path: format!("{}[{index}]", self.path) };
        Ok(list.iter().enumerate().map(at).collect())
    }

    fn hex(&self) -> Result<Vec<u8>, NotJson> {
        let expected = "hex digits after 0x, two a byte";
        let text = self.json.as_str().and_then(|text| text.strip_prefix("0x"));
        let digits = text.ok_or_else(|| self.wrong(expected))?.as_bytes();
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let (pairs, rest) = digits.as_chunks::<2>();
        let byte = |&[high, low]: &[u8; 2]| Some((digit(high)? << 4 | digit(low)?) as u8);
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        bytes.filter(|_| rest.is_empty()).ok_or_else(|| self.wrong(expected))
    }

    fn bytes<const N: usize>(&self) -> Result<[u8; N], NotJson> {
        let bytes = self.hex()?;
        bytes.try_into().map_err(|_| self.wrong(&format!("{N} bytes")))
    }

    fn optional<const N: usize>(&self, name: &str) -> Result<Option<[u8; N]>, NotJson> {
        match self.object()?.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.get(name)?.bytes().map(Some),
        }
    }
}
