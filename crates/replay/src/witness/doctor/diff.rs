//! Why two witnesses of one block differ.

use std::collections::{BTreeMap, HashMap};

use alloy_consensus::Header;
use alloy_primitives::{Bytes, keccak256};

use super::{
    super::{Witness, check::WitnessAncestors, nodes::digests},
    Diagnosis,
    shape::{NamedAddresses, Whereabouts},
};

/// Differences that are told; the others are counted.
const TOLD: usize = 1_000;

/// Says in what two witnesses differ, a line each: what only one of them has and where that lies,
/// and entries in another order or number. What the parts are for is said where a diagnosis of the
/// first or the second is given. Nothing for equal ones.
pub fn witness_differences(
    (a, b): (&Witness, &Witness),
    (of_a, of_b): (Option<&Diagnosis>, Option<&Diagnosis>),
) -> Vec<String> {
    let mut lines = Differences::default();
    let (nodes_a, nodes_b) = (digests(&a.state), digests(&b.state));
    let sides = [("first", a, &nodes_a, &nodes_b, of_a), ("second", b, &nodes_b, &nodes_a, of_b)];
    for (side, witness, own, others, diagnosis) in sides {
        let others: HashMap<_, ()> = others.iter().map(|digest| (digest, ())).collect();
        let only = own.iter().enumerate().filter(|(_, digest)| !others.contains_key(digest));
        let only: Vec<_> = only.collect();
        if only.is_empty() {
            continue;
        }
        let root =
            WitnessAncestors::any(&witness.headers).map(|ancestors| ancestors.parent.state_root);
        let places = root.map(|root| Whereabouts::of(&witness.state, own, root));
        for (index, digest) in only {
            let place = match places.as_ref().ok().and_then(|places| places.get(digest)) {
                Some(position) => NamedAddresses::default().say(position),
                None => "where no node leads to it".to_owned(),
            };
            let why = diagnosis.map(|diagnosis| match diagnosis.why(digest) {
                Some(why) => format!("; needed at {why}"),
                None if diagnosis.canonical.is_some() => "; nothing needs it".to_owned(),
                None => String::new(),
            });
            let why = why.unwrap_or_default();
            lines.push(format!(
                "state: only the {side} has node {digest} (entry {index}), {place}{why}"
            ));
        }
    }
    only_in(&mut lines, "codes", (&a.codes, &b.codes), |code| {
        format!("the code {} of {} bytes", keccak256(code), code.len())
    });
    only_in(&mut lines, "keys", (&a.keys, &b.keys), |key| match key.len() {
        20 => format!("account {key}"),
        _ => format!("slot {key}"),
    });
    only_in(&mut lines, "headers", (&a.headers, &b.headers), |rlp| {
        match alloy_rlp::decode_exact::<Header>(rlp) {
            Ok(header) => format!("the header of block {} ({})", header.number, keccak256(rlp)),
            Err(_) => format!("{} bytes that are no header", rlp.len()),
        }
    });
    let lists = [
        ("state", &a.state, &b.state),
        ("codes", &a.codes, &b.codes),
        ("keys", &a.keys, &b.keys),
        ("headers", &a.headers, &b.headers),
    ];
    for (name, a, b) in lists {
        if a != b
            && counts(a) == counts(b)
            && let Some(index) = a.iter().zip(b).position(|(a, b)| a != b)
        {
            lines.push(format!("{name}: the same in another order, from entry {index} on"));
        }
    }
    lines.finish()
}

fn counts(all: &[Bytes]) -> BTreeMap<&Bytes, usize> {
    let mut counts = BTreeMap::new();
    for one in all {
        *counts.entry(one).or_default() += 1;
    }
    counts
}

/// Names what only one of two lists has, and what they have in other numbers.
fn only_in(
    lines: &mut Differences,
    name: &str,
    (a, b): (&[Bytes], &[Bytes]),
    say: impl Fn(&Bytes) -> String,
) {
    let (a, b) = (counts(a), counts(b));
    for (one, count) in &a {
        match b.get(*one) {
            None => lines.push(format!("{name}: only the first has {}", say(one))),
            Some(other) if other != count => lines.push(format!(
                "{name}: {} is {count} times in the first, {other} times in the second",
                say(one)
            )),
            Some(_) => {}
        }
    }
    for one in b.keys().filter(|one| !a.contains_key(*one)) {
        lines.push(format!("{name}: only the second has {}", say(one)));
    }
}

#[derive(Default)]
struct Differences {
    told: Vec<String>,
    more: usize,
}

impl Differences {
    fn push(&mut self, line: String) {
        if self.told.len() < TOLD {
            self.told.push(line);
        } else {
            self.more += 1;
        }
    }

    fn finish(mut self) -> Vec<String> {
        if self.more > 0 {
            self.told.push(format!("and {} more", self.more));
        }
        self.told
    }
}
