//! The order of entries, and entries that are there twice.

use alloy_primitives::{B256, Bytes, map::HashMap};

use super::{
    super::Witness,
    findings::{FindingKind, Findings},
};

pub(super) fn check(witness: &Witness, nodes: &[B256], findings: &mut Findings) {
    list("state", &witness.state, |index| format!("node {}", nodes[index]), findings);
    list(
        "codes",
        &witness.codes,
        |index| format!("code of {} bytes", witness.codes[index].len()),
        findings,
    );
    list("keys", &witness.keys, |index| witness.keys[index].to_string(), findings);
    for (index, key) in witness.keys.iter().enumerate() {
        if key.len() != 20 && key.len() != 32 {
            findings.say(FindingKind::Key, || {
                format!("keys, entry {index}: {} bytes are no address and no slot", key.len())
            });
        }
    }
    for (index, _) in witness.codes.iter().enumerate().filter(|(_, code)| code.is_empty()) {
        findings
            .say(FindingKind::Code, || format!("codes, entry {index}: no witness has empty code"));
    }
}

/// The first entry that is not in its order, and how many there are; and each that is there twice.
fn list(name: &str, all: &[Bytes], entry: impl Fn(usize) -> String, findings: &mut Findings) {
    let falls = |index: &usize| all[*index] > all[*index + 1];
    let mut falling = (0..all.len().saturating_sub(1)).filter(falls);
    if let Some(first) = falling.next() {
        let more = falling.count();
        findings.say(FindingKind::Order, || {
            let which = entry(first + 1);
            let more = if more == 0 { String::new() } else { format!(", and so do {more} more") };
            format!("{name}, entry {}: {which} comes after one with greater bytes{more}", first + 1)
        });
    }
    let mut seen = HashMap::<&[u8], usize>::default();
    seen.reserve(all.len());
    for (index, bytes) in all.iter().enumerate() {
        if let Some(first) = seen.insert(&bytes[..], index) {
            seen.insert(bytes, first);
            findings.say(FindingKind::Double, || {
                format!("{name}, entry {index}: {} is entry {first} already", entry(index))
            });
        }
    }
}
