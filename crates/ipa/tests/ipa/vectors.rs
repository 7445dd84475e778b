//! Finds and reads vectors. Some lie beside the workspace only; a test whose file is not there
//! prints so and passes.

use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};
use spinney_ipa::{Element, Fr};

/// The content of a file of vectors: a copy of this crate, or the shared one if it is there.
pub(crate) fn load(name: &str) -> Option<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let copy = root.join("testdata").join(name);
    let shared = root.join("../../../shared/vectors/verkle").join(name);
    match std::fs::read(copy).or_else(|_| std::fs::read(&shared)) {
        Ok(bytes) => Some(serde_json::from_slice(&bytes).expect("vectors are JSON")),
        Err(_) => {
            eprintln!("skipped: no vectors at {}", shared.display());
            None
        }
    }
}

pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is a list"))
}

pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is a string"))
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let byte = |i: usize| u8::from_str_radix(&digits[i..i + 2], 16).expect("hex digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

pub(crate) fn bytes<const N: usize>(value: &Value) -> [u8; N] {
    hex(value.as_str().expect("hex string")).try_into().expect("length of a hex string")
}

pub(crate) fn scalar(value: &Value) -> Fr {
    Fr::from_le_bytes(&bytes(value)).expect("canonical scalar")
}

pub(crate) fn scalars(values: &[Value]) -> Vec<Fr> {
    values.iter().map(scalar).collect()
}

pub(crate) fn element(value: &Value) -> Element {
    Element::from_compressed(&bytes(value)).expect("element")
}

/// The vectors' generator: draw i is SHA-256(i || SHA-256(label)), here taken modulo the order.
pub(crate) fn drawn_polynomial(label: &str) -> [Fr; 256] {
    let seed = Sha256::digest(label);
    std::array::from_fn(|i| {
        let draw = Sha256::new().chain_update((i as u64).to_le_bytes()).chain_update(seed);
        Fr::from_le_bytes_reduced(&draw.finalize().into())
    })
}
