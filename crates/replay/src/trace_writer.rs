//! Writes what transactions did as geth's `prestateTracer` tells it in diff mode.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, Bytes, U256};
use serde_json::{Map, Value, json};
use spinney_state::{AccountChange, Change, Changes};

use crate::report::BlockReport;

/// An account as it is now.
#[derive(Clone, Debug, Default)]
struct AccountNow {
    nonce: u64,
    balance: U256,
    code: Bytes,
    storage: BTreeMap<B256, U256>,
}

/// Writes the lines that a [`TraceReader`](crate::TraceReader) reads, of blocks that were replayed
/// with [their steps](crate::Replay::keep_steps). It has all accounts in memory, as they are behind
/// the last step.
#[derive(Clone, Debug)]
pub struct TraceWriter {
    accounts: BTreeMap<Address, AccountNow>,
}

impl TraceWriter {
    /// Before the first block.
    pub fn new(genesis: &Changes) -> Self {
        let mut traces = Self { accounts: BTreeMap::new() };
        for (address, change) in &genesis.accounts {
            traces.apply(*address, change);
        }
        traces
    }

    /// The line of a block. What happens outside of transactions is in no trace, and is applied all
    /// the same.
    pub fn block(&mut self, block: &BlockReport) -> Value {
        let mut traced = Vec::new();
        let count = block.transaction_count as u64;
        for step in &block.steps {
            // EIP-7928 numbers them so: what comes before transactions is 0, what comes behind is
            // one more than they.
            let is_transaction = (1..=count).contains(&step.index);
            let sides = self.step(&step.changes);
            if is_transaction {
                traced.push(json!({ "result": sides }));
            }
        }
        json!({ "block": format!("{:#x}", block.number), "hash": block.hash, "traces": traced })
    }

    fn step(&mut self, changes: &Changes) -> Value {
        let (mut pre, mut post) = (Map::new(), Map::new());
        for (address, change) in &changes.accounts {
            let name = format!("{address:#x}");
            if let Some(before) = self.accounts.get(address) {
                pre.insert(name.clone(), before.told(change));
            }
            self.apply(*address, change);
            if let Change::Written(change) = change {
                post.insert(name, told(change));
            }
        }
        json!({ "pre": pre, "post": post })
    }

    fn apply(&mut self, address: Address, change: &Change) {
        let Change::Written(change) = change else {
            self.accounts.remove(&address);
            return;
        };
        let now = self.accounts.entry(address).or_default();
        if change.fresh {
            *now = AccountNow::default();
        }
        now.nonce = change.nonce.unwrap_or(now.nonce);
        now.balance = change.balance.unwrap_or(now.balance);
        if let Some(code) = &change.code {
            now.code = code.clone();
        }
        now.storage.extend(change.storage.iter().map(|(slot, value)| (*slot, *value)));
        now.storage.retain(|_, value| !value.is_zero());
    }
}

impl AccountNow {
    /// What it was, as far as the change concerns it.
    fn told(&self, change: &Change) -> Value {
        let mut fields = json!({ "balance": self.balance });
        if self.nonce != 0 {
            fields["nonce"] = json!(self.nonce);
        }
        if !self.code.is_empty() {
            fields["code"] = json!(self.code);
        }
        let slots = match change {
            Change::Written(change) if !change.fresh => slots(
                change.storage.keys().filter_map(|slot| Some((slot, self.storage.get(slot)?))),
            ),
            _ => slots(self.storage.iter()),
        };
        if let Some(slots) = slots {
            fields["storage"] = slots;
        }
        fields
    }
}

/// What it is now, where that is another thing.
fn told(change: &AccountChange) -> Value {
    let mut fields = Map::new();
    if let Some(balance) = change.balance {
        fields.insert("balance".into(), json!(balance));
    }
    if let Some(nonce) = change.nonce {
        fields.insert("nonce".into(), json!(nonce));
    }
    if let Some(code) = &change.code {
        fields.insert("code".into(), json!(code));
    }
    if let Some(slots) = slots(change.storage.iter().filter(|(_, value)| !value.is_zero())) {
        fields.insert("storage".into(), slots);
    }
    fields.into()
}

/// Slots as words; none where there are none.
fn slots<'a>(slots: impl Iterator<Item = (&'a B256, &'a U256)>) -> Option<Value> {
    let slots: Map<_, _> = slots
        .map(|(slot, value)| (slot.to_string(), json!(B256::from(value.to_be_bytes()))))
        .collect();
    (!slots.is_empty()).then(|| slots.into())
}
