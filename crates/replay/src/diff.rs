//! State differences: NDJSON, one block a line.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::{collections::BTreeMap, fmt::Write as _, io::BufRead};

use alloy_primitives::{Address, B256, U256, hex, keccak256};
use serde::{Deserialize, Deserializer, de::Error as _};
use spinney_state::{AccountChange, Change, Changes, StateRead};

use crate::json::{
    HexAddress, HexBytes, HexHash, HexWord, Object, Quantity, Quantity64, UniqueMap,
};
use crate::lines::Lines;
pub use crate::lines::{DIFF_LINE_LEN_MAX, DiffError};

/// What one block does to the state, as a line gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockDiff {
    /// The block.
    pub number: u64,
    /// What happens.
    pub changes: Changes,
    /// The root of the Merkle Patricia trie afterwards, where the line gives one.
    pub state_root: Option<B256>,
    /// The roots of other trees afterwards, by the name of the tree.
    pub roots: BTreeMap<String, B256>,
}

/// Why changes do not fit the state they are for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MisfitError<E: std::error::Error + 'static> {
    /// Storage is written of an account that does not exist.
    #[error("account {0} is absent and only its storage is given")]
    StorageOfAbsent(Address),
    /// The state could not be read.
    #[error(transparent)]
    State(E),
}

/// Reads state differences line by line, with memory for one line. Blank lines are passed over.
///
/// After an error of reading it ends; after a line that is wrong it can go on.
#[derive(Debug)]
pub struct DiffReader<R>(Lines<R>);

impl<R: BufRead> DiffReader<R> {
    /// Reads from `input`.
    pub fn new(input: R) -> Self {
        Self(Lines::new(input))
    }

    /// The line that was read last, from 1.
    pub fn line(&self) -> u64 {
        self.0.line()
    }
}

impl<R: BufRead> Iterator for DiffReader<R> {
    type Item = Result<BlockDiff, DiffError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(BlockDiff::parse)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DiffLine {
    number: Quantity64,
    accounts: UniqueMap<HexAddress, Option<Object<DiffAccount>>>,
    state_root: Option<HexHash>,
    #[serde(default)]
    roots: BTreeMap<String, HexHash>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DiffAccount {
    #[serde(default)]
    fresh: bool,
    #[serde(default, deserialize_with = "not_null")]
    nonce: Option<Quantity64>,
    #[serde(default, deserialize_with = "not_null")]
    balance: Option<Quantity>,
    #[serde(default, deserialize_with = "not_null")]
    code: Option<HexBytes>,
    #[serde(default, deserialize_with = "not_null")]
    code_hash: Option<HexHash>,
    #[serde(default)]
    storage: UniqueMap<HexWord, Quantity>,
}

/// A field may be absent, which leaves it unchanged; `null` would mean nothing.
fn not_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl BlockDiff {
    /// Names a difference.
    pub fn new(number: u64, changes: Changes, state_root: Option<B256>) -> Self {
        Self { number, changes, state_root, roots: BTreeMap::new() }
    }

    /// Reads one line.
    ///
    /// # Errors
    ///
    /// It is no JSON object of a difference: unknown, repeated and null fields are errors too.
    pub fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        let Object(line): Object<DiffLine> = serde_json::from_slice(line)?;
        let mut changes = Changes::default();
        for (address, fields) in line.accounts.0 {
            let change = match fields {
                None => Change::Deleted,
                Some(Object(fields)) => Change::Written(fields.change(address.0)?),
            };
            changes.accounts.insert(address.0, change);
        }
        let roots = line.roots.into_iter().map(|(tree, root)| (tree, root.0)).collect();
        Ok(Self {
            number: line.number.0,
            changes,
            state_root: line.state_root.map(|root| root.0),
            roots,
        })
    }

    /// Writes the line, without an end of line.
    pub fn to_line(&self) -> String {
        // Writing into a string cannot fail.
        let mut out = format!("{{\"number\":{}", self.number);
        if let Some(root) = self.state_root {
            let _ = write!(out, ",\"stateRoot\":\"{root}\"");
        }
        if !self.roots.is_empty() {
            let root = |(tree, root): (&String, &B256)| {
                // A string always has a form in JSON.
                let tree = serde_json::Value::from(tree.as_str());
                format!("{tree}:\"{root}\"")
            };
            let roots: Vec<_> = self.roots.iter().map(root).collect();
            let _ = write!(out, ",\"roots\":{{{}}}", roots.join(","));
        }
        out.push_str(",\"accounts\":{");
        for (index, (address, change)) in self.changes.accounts.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let _ = write!(out, "{comma}\"{}\":", hex::encode_prefixed(address));
            match change {
                Change::Deleted => out.push_str("null"),
                Change::Written(change) => write_fields(change, &mut out),
            }
        }
        out.push_str("}}");
        out
    }
}

impl DiffAccount {
    fn change(self, address: Address) -> Result<AccountChange, serde_json::Error> {
        let code = self.code.map(|code| code.0);
        let given = self.code_hash.map(|hash| hash.0);
        let computed = code.as_ref().map(keccak256);
        if let (Some(given), Some(computed)) = (given, computed)
            && given != computed
        {
            let why = format!("{address}: expected codeHash {computed}, got {given}");
            return Err(serde_json::Error::custom(why));
        }
        Ok(AccountChange {
            fresh: self.fresh,
            nonce: self.nonce.map(|nonce| nonce.0),
            balance: self.balance.map(|balance| balance.0),
            code_hash: computed.or(given),
            code,
            storage: self.storage.0.into_iter().map(|(slot, value)| (slot.0, value.0)).collect(),
        })
    }
}

fn write_fields(change: &AccountChange, out: &mut String) {
    let mut fields = Vec::new();
    if change.fresh {
        fields.push("\"fresh\":true".to_owned());
    }
    if let Some(nonce) = change.nonce {
        fields.push(format!("\"nonce\":{nonce}"));
    }
    if let Some(balance) = change.balance {
        fields.push(format!("\"balance\":\"{balance:#x}\""));
    }
    match (&change.code, change.code_hash) {
        (Some(code), _) => fields.push(format!("\"code\":\"{code}\"")),
        (None, Some(hash)) => fields.push(format!("\"codeHash\":\"{hash}\"")),
        (None, None) => {}
    }
    if !change.storage.is_empty() {
        let slot = |(slot, value): (&B256, &U256)| format!("\"{slot}\":\"{value:#x}\"");
        let slots: Vec<_> = change.storage.iter().map(slot).collect();
        fields.push(format!("\"storage\":{{{}}}", slots.join(",")));
    }
    let _ = write!(out, "{{{}}}", fields.join(","));
}

/// Refuses changes that do not fit a state: storage alone needs an account to belong to.
///
/// # Errors
///
/// Names the first account that does not fit.
pub fn check_changes<S: StateRead>(
    state: &S,
    changes: &Changes,
) -> Result<(), MisfitError<S::Error>> {
    for (address, change) in &changes.accounts {
        let Change::Written(change) = change else { continue };
        let has_storage_alone = !change.fresh
            && change.nonce.is_none()
            && change.balance.is_none()
            && change.code_hash.is_none()
            && !change.storage.is_empty();
        if has_storage_alone && state.account(*address).map_err(MisfitError::State)?.is_none() {
            return Err(MisfitError::StorageOfAbsent(*address));
        }
    }
    Ok(())
}
