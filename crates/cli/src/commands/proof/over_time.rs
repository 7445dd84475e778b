//! What a proof over time shows.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_primitives::{Address, B256, Bytes, U256};
use serde_json::{Value, json};
use spinney_cli::document::Asked;
use spinney_cli::spans::SpanClaim;
use spinney_proof::span::{AccountSpan, KeysSpan, Period, VerifiedKeysSpan};
use spinney_state::Account;
use spinney_state::embed::Embedding;
use spinney_tree::KeyProofs;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;

use super::facts::Fact;
use super::words;
use crate::failure::Failure;
use crate::trees::Name;

/// Whether a root is trusted to be that of a block.
type Trusts<'t> = &'t dyn Fn(u64, &[u8; 32]) -> bool;

/// An account, with the bytes of its code, where there is one.
type Found = Option<(Account, u32)>;

/// The blocks that a claim is of, from the first to the last.
pub(super) fn blocks_of(claim: &SpanClaim) -> (u64, u64) {
    match claim {
        SpanClaim::Account(span) => (span.first, span.last),
        SpanClaim::Keys { span, .. } => (span.first, span.last),
    }
}

/// What a claim shows.
pub(super) fn show(name: Name, claim: &SpanClaim, trusts: Trusts<'_>) -> anyhow::Result<Vec<Fact>> {
    match (claim, name) {
        (SpanClaim::Account(span), Name::Mpt) => show_account(span, trusts),
        (SpanClaim::Keys { account, span }, Name::Ubt(hash)) => {
            show_keys(&Ubt { hash }, account.as_ref(), span, trusts)
        }
        (SpanClaim::Keys { account, span }, Name::Pbt(hash)) => {
            show_keys(&Pbt { hash }, account.as_ref(), span, trusts)
        }
        (SpanClaim::Keys { account, span }, Name::Verkle) => {
            show_keys(&Verkle::shared(), account.as_ref(), span, trusts)
        }
        _ => {
            let what = format!("the document says tree {name}, and its proof is of another kind");
            Err(Failure::new(what).hint("is it what spinney prove printed?").into())
        }
    }
}

fn show_account(span: &AccountSpan, trusts: Trusts<'_>) -> anyhow::Result<Vec<Fact>> {
    let verified = span.verify(trusts)?;
    let (address, mut all) = (Address::from(span.address), Vec::new());
    all.extend(verified.account().iter().map(|period| {
        let fields = period.value.as_ref();
        let account = fields.map(words::fields_of);
        let named = (format!("account {address}"), json!({ "address": address }));
        shown(named, period, words::of_fields(fields), ("account", json!(account)))
    }));
    for slot in &span.slots {
        let (name, periods) = (B256::from(*slot), verified.slot(slot)?);
        all.extend(periods.iter().map(|period| {
            let value = U256::from_be_bytes(period.value);
            let named = (format!("slot {name}"), json!({ "slot": name }));
            shown(named, period, format!("{value:#x}"), ("value", json!(B256::from(value))))
        }));
    }
    Ok(all)
}

fn show_keys<S: Embedding + KeyProofs>(
    scheme: &S,
    account: Option<&Asked>,
    span: &KeysSpan,
    trusts: Trusts<'_>,
) -> anyhow::Result<Vec<Fact>> {
    let verified = span.verify_by(trusts, |root, sent| scheme.verify_keys(root, sent))?;
    let Some(asked) = account else {
        let all = verified.iter().flat_map(|(key, periods)| {
            let key = Bytes::copy_from_slice(key);
            periods.iter().map(move |period| {
                let (named, value) =
                    ((key.to_string(), json!({ "key": key })), period.value.as_ref());
                let fields = ("value", json!(words::word_of(value)));
                shown(named, period, words::describe(value), fields)
            })
        });
        return Ok(all.collect());
    };
    let keys = words::span_keys(asked, scheme);
    if keys != span.keys {
        return Err(words::Refuted::OtherKeys(asked.address).into());
    }
    let count = scheme.account_keys(&asked.address).len();
    let (fields, slots) = keys.split_at_checked(count).unwrap_or((&keys, &[]));
    let (address, mut all) = (asked.address, Vec::new());
    for period in account_over_time(scheme, address, fields, &verified)? {
        let account = period.value;
        let named = (format!("account {address}"), json!({ "address": address }));
        let fields = ("account", json!(account.map(words::account_of)));
        all.push(shown(named, &period, words::of_account(account), fields));
    }
    for (slot, key) in asked.slots.iter().zip(slots) {
        all.extend(verified.get(key)?.iter().map(|period| {
            let (named, value) =
                ((format!("slot {slot}"), json!({ "slot": slot })), period.value.as_ref());
            let fields = ("value", json!(words::word_of(value)));
            shown(named, period, words::of_slot(value), fields)
        }));
    }
    Ok(all)
}

/// What the keys of an account say of it, from one change of any of them to the next.
fn account_over_time<S: Embedding>(
    scheme: &S,
    address: Address,
    keys: &[Vec<u8>],
    verified: &VerifiedKeysSpan,
) -> anyhow::Result<Vec<Period<Found>>> {
    let of_keys = keys.iter().map(|key| verified.get(key)).collect::<Result<Vec<_>, _>>()?;
    let mut ends: Vec<_> = of_keys.iter().flat_map(|all| all.iter().map(|it| it.last)).collect();
    ends.sort_unstable();
    ends.dedup();
    let mut first = of_keys.first().and_then(|all| all.first()).map_or(0, |it| it.first);
    let mut periods = Vec::new();
    for last in ends {
        let at = |all: &&[Period<_>]| {
            let place = all.partition_point(|period| period.last < last);
            all.get(place).and_then(|period| period.value)
        };
        let leaves: Vec<_> = of_keys.iter().map(at).collect();
        let value = scheme.read_account(&address, &leaves)?;
        Period::extend(&mut periods, (first, last), value);
        first = last.saturating_add(1);
    }
    Ok(periods)
}

/// `NAME, blocks 1 to 7: WHAT`, and the same for programs.
fn shown<T>(
    (name, mut fields): (String, Value),
    &Period { first, last, .. }: &Period<T>,
    what: String,
    (field, value): (&str, Value),
) -> Fact {
    let blocks = match first == last {
        true => format!("block {first}"),
        false => format!("blocks {first} to {last}"),
    };
    let more = [("from", json!(first)), ("to", json!(last)), (field, value)];
    if let Some(fields) = fields.as_object_mut() {
        fields.extend(more.map(|(field, value)| (field.to_owned(), value)));
    }
    Fact { line: format!("{name}, {blocks}: {what}"), fields }
}
