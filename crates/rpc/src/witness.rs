//! Witnesses as they are told: `{"state": [..], "codes": [..], "headers": [..]}`.

use alloy_primitives::{Bytes, hex};
use spinney_state::KeptWitness;

use crate::error::Fault;

/// The JSON of a witness. One of more bytes than `most` is refused before anything is written.
pub(crate) fn to_json(witness: &KeptWitness, most: usize) -> Result<Vec<u8>, Fault> {
    let parts =
        [("state", &witness.state), ("codes", &witness.codes), ("headers", &witness.headers)];
    // Each entry has "0x", its digits, and a comma.
    let entries = parts.iter().flat_map(|(_, entries)| entries.iter());
    let len: usize = entries.map(|bytes| bytes.len().saturating_mul(2).saturating_add(5)).sum();
    if len > most {
        return Err(Fault::TooLarge(most));
    }
    let mut out = Vec::with_capacity(len.saturating_add(64));
    for (index, (name, entries)) in parts.into_iter().enumerate() {
        out.push(if index == 0 { b'{' } else { b',' });
        out.extend_from_slice(format!("\"{name}\":[").as_bytes());
        write_entries(&mut out, entries);
        out.push(b']');
    }
    out.push(b'}');
    Ok(out)
}

fn write_entries(out: &mut Vec<u8>, entries: &[Bytes]) {
    for (index, bytes) in entries.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"\"0x" } else { b",\"0x" });
        out.extend_from_slice(hex::encode(bytes).as_bytes());
        out.push(b'"');
    }
}
