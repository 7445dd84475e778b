//! What proofs over time show.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_primitives::{Address, B256, Bytes};
use spinney_proof::span::{AccountSpan, KeysSpan, Period, VerifiedKeysSpan};
use spinney_state::embed::Embedding;
use spinney_state::{Account, TreeName};
use spinney_tree::KeyProofs;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;

use crate::asked::Asked;
use crate::fact::Fact;
use crate::refuted::Refuted;
use crate::span::SpanClaim;

/// Whether a root is trusted to be that of a block.
type Trusts<'t> = &'t dyn Fn(u64, &[u8; 32]) -> bool;

/// An account, with the bytes of its code, where there is one.
type Found = Option<(Account, u32)>;

impl SpanClaim {
    /// The first and the last of the blocks that it is of.
    pub fn blocks(&self) -> (u64, u64) {
        match self {
            Self::Account(span) => (span.first, span.last),
            Self::Keys { span, .. } => (span.first, span.last),
        }
    }

    /// Checks it at every block, and answers with what it shows. `trusts` is asked of each block
    /// whether a root is that of its state in this tree.
    ///
    /// # Errors
    /// If it does not hold, or is of another kind of tree.
    pub fn verify(&self, tree: TreeName, trusts: Trusts<'_>) -> Result<Vec<Fact>, Refuted> {
        match (self, tree) {
            (Self::Account(span), TreeName::Mpt) => show_account(span, trusts),
            (Self::Keys { account, span }, TreeName::Ubt(hash)) => {
                show_keys(&Ubt { hash }, account.as_ref(), span, trusts)
            }
            (Self::Keys { account, span }, TreeName::Pbt(hash)) => {
                show_keys(&Pbt { hash }, account.as_ref(), span, trusts)
            }
            (Self::Keys { account, span }, TreeName::Verkle) => {
                show_keys(&Verkle::shared(), account.as_ref(), span, trusts)
            }
            _ => Err(Refuted::OtherKind(tree)),
        }
    }
}

fn show_account(span: &AccountSpan, trusts: Trusts<'_>) -> Result<Vec<Fact>, Refuted> {
    let verified = span.verify(trusts)?;
    let address = Address::from(span.address);
    let account = |period: &Period<_>| {
        let account = Option::as_ref(&period.value).map(Into::into);
        Fact::Account { address, blocks: Some(period.into()), account }
    };
    let mut all: Vec<_> = verified.account().iter().map(account).collect();
    for slot in &span.slots {
        all.extend(verified.slot(slot)?.iter().map(|period| {
            let value = Some(B256::from(period.value));
            Fact::Slot { slot: slot.into(), blocks: Some(period.into()), value }
        }));
    }
    Ok(all)
}

fn show_keys<S: Embedding + KeyProofs>(
    scheme: &S,
    account: Option<&Asked>,
    span: &KeysSpan,
    trusts: Trusts<'_>,
) -> Result<Vec<Fact>, Refuted> {
    let verified = span.verify_by(trusts, |root, sent| scheme.verify_keys(root, sent))?;
    let Some(asked) = account else {
        let all = verified.iter().flat_map(|(key, periods)| {
            let key = Bytes::copy_from_slice(key);
            periods.iter().map(move |period| Fact::Word {
                key: key.clone(),
                blocks: Some(period.into()),
                value: period.value.map(B256::from),
                becomes: None,
            })
        });
        return Ok(all.collect());
    };
    let keys = asked.keys_at_any_block(scheme);
    if keys != span.keys {
        return Err(Refuted::OtherKeys(asked.address));
    }
    let count = scheme.account_keys(&asked.address).len();
    let (fields, slots) = keys.split_at_checked(count).unwrap_or((&keys, &[]));
    let address = asked.address;
    let account = |period: Period<Found>| Fact::Account {
        address,
        blocks: Some((&period).into()),
        account: period.value.map(Into::into),
    };
    let periods = account_over_time(scheme, address, fields, &verified)?;
    let mut all: Vec<_> = periods.into_iter().map(account).collect();
    for (slot, key) in asked.slots.iter().zip(slots) {
        all.extend(verified.get(key)?.iter().map(|period| {
            let value = period.value.map(B256::from);
            Fact::Slot { slot: *slot, blocks: Some(period.into()), value }
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
) -> Result<Vec<Period<Found>>, Refuted> {
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
