//! What a proof over time shows.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::fmt::Display;

use alloy_primitives::{Address, B256, Bytes, U256};
use spinney_cli::document::Asked;
use spinney_cli::spans::SpanClaim;
use spinney_proof::span::{AccountSpan, KeysSpan, Period, VerifiedKeysSpan};
use spinney_state::embed::Embedding;
use spinney_tree::KeyProofs;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;

use super::words;
use crate::failure::Failure;
use crate::trees::Name;

/// Whether a root is trusted to be that of a block.
type Trusts<'t> = &'t dyn Fn(u64, &[u8; 32]) -> bool;

/// The blocks that a claim is of, from the first to the last.
pub(super) fn blocks_of(claim: &SpanClaim) -> (u64, u64) {
    match claim {
        SpanClaim::Account(span) => (span.first, span.last),
        SpanClaim::Keys { span, .. } => (span.first, span.last),
    }
}

/// What a claim shows, line by line.
pub(super) fn show(
    name: Name,
    claim: &SpanClaim,
    trusts: Trusts<'_>,
) -> anyhow::Result<Vec<String>> {
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

fn show_account(span: &AccountSpan, trusts: Trusts<'_>) -> anyhow::Result<Vec<String>> {
    let verified = span.verify(trusts)?;
    let mut lines = Vec::new();
    let account = format!("account {}", Address::from(span.address));
    lines.extend(verified.account().iter().map(|period| {
        line(&account, period, |fields| match fields {
            None => "absent".into(),
            Some(fields) => words::of_fields(fields),
        })
    }));
    for slot in &span.slots {
        let name = format!("slot {}", B256::from(*slot));
        let value = |value: &[u8; 32]| format!("{:#x}", U256::from_be_bytes(*value));
        lines.extend(verified.slot(slot)?.iter().map(|period| line(&name, period, value)));
    }
    Ok(lines)
}

fn show_keys<S: Embedding + KeyProofs>(
    scheme: &S,
    account: Option<&Asked>,
    span: &KeysSpan,
    trusts: Trusts<'_>,
) -> anyhow::Result<Vec<String>> {
    let verified = span.verify_by(trusts, |root, sent| scheme.verify_keys(root, sent))?;
    let Some(asked) = account else {
        let lines = verified.iter().flat_map(|(key, periods)| {
            let name = Bytes::copy_from_slice(key).to_string();
            periods
                .iter()
                .map(move |period| line(&name, period, |value| words::describe(value.as_ref())))
        });
        return Ok(lines.collect());
    };
    let keys = words::span_keys(asked, scheme);
    if keys != span.keys {
        return Err(words::Refuted::OtherKeys(asked.address).into());
    }
    let count = scheme.account_keys(&asked.address).len();
    let (fields, slots) = keys.split_at_checked(count).unwrap_or((&keys, &[]));
    let name = format!("account {}", asked.address);
    let mut lines = Vec::new();
    for period in account_over_time(scheme, asked.address, fields, &verified)? {
        lines.push(line(&name, &period, Clone::clone));
    }
    for (slot, key) in asked.slots.iter().zip(slots) {
        let name = format!("slot {slot}");
        let value = |value: &Option<_>| words::of_slot(value.as_ref());
        lines.extend(verified.get(key)?.iter().map(|period| line(&name, period, value)));
    }
    Ok(lines)
}

/// What the keys of an account say of it, from one change of any of them to the next.
fn account_over_time<S: Embedding>(
    scheme: &S,
    address: Address,
    keys: &[Vec<u8>],
    verified: &VerifiedKeysSpan,
) -> anyhow::Result<Vec<Period<String>>> {
    let of_keys = keys.iter().map(|key| verified.get(key)).collect::<Result<Vec<_>, _>>()?;
    let mut ends: Vec<_> = of_keys.iter().flat_map(|all| all.iter().map(|it| it.last)).collect();
    ends.sort_unstable();
    ends.dedup();
    let mut first = of_keys.first().and_then(|all| all.first()).map_or(0, |it| it.first);
    let mut periods: Vec<Period<String>> = Vec::new();
    for last in ends {
        let at = |all: &&[Period<_>]| {
            let place = all.partition_point(|period| period.last < last);
            all.get(place).and_then(|period| period.value)
        };
        let leaves: Vec<_> = of_keys.iter().map(at).collect();
        let value = words::of_account(scheme.read_account(&address, &leaves)?);
        Period::extend(&mut periods, (first, last), value);
        first = last.saturating_add(1);
    }
    Ok(periods)
}

/// `NAME, blocks 1 to 7: WHAT`.
fn line<T, W: Display>(name: &str, period: &Period<T>, what: impl Fn(&T) -> W) -> String {
    let Period { first, last, value } = period;
    let blocks = match first == last {
        true => format!("block {first}"),
        false => format!("blocks {first} to {last}"),
    };
    format!("{name}, {blocks}: {}", what(value))
}
