//! Writes all accounts of a state as one document in JSON, in the shape of geth's dump.

use std::io::{self, Write};

use alloy_primitives::{Address, B256, U256, hex, keccak256};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::json;
use spinney_state::{DumpedAccount, MPT, State, StateError};
use spinney_tree::mpt::{Mpt, MptState, slot_value};
use spinney_tree::{PageStore, Tree, bulk};

/// How a state is written.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct StateDumpOptions {
    /// First compute the root from the entries alone, and compare of each account its storage root,
    /// code and preimages, so that an old or forged row changes nothing unseen.
    pub verify: bool,
    /// Leave out code that the store lacks, of which only the hash was ever given.
    pub allow_missing_code: bool,
    /// Memory for the pages that are read to compute the root.
    pub cache_bytes: usize,
}

/// Why a state could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateDumpError {
    /// It could not be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// It could not be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// An account could not be written.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// What the store holds beside an entry is not what the entry stands for.
    #[error("{what} of account {address} is damaged or forged")]
    Damaged {
        /// What of it.
        what: &'static str,
        /// The account.
        address: Address,
    },
}

/// Writes a document that [`read_state_file`](crate::read_state_file) reads: the root, the block,
/// and the accounts in order of their hashed addresses.
///
/// # Errors
/// If the state cannot be read, something of it is missing or damaged, or `out` fails.
pub fn write_state_file<P: PageStore>(
    state: &State<P>,
    options: StateDumpOptions,
    out: &mut impl Write,
) -> Result<(), StateDumpError> {
    if options.verify {
        let snapshot = state.store().snapshot().map_err(StateError::from)?;
        let tree =
            Tree::open(MptState, MPT, &snapshot, options.cache_bytes).map_err(StateError::from)?;
        tree.verify_entries(&snapshot, |_| ()).map_err(StateError::from)?;
    }
    let mut dump = state.dump()?;
    dump.allow_missing_code(options.allow_missing_code);
    writeln!(out, "{{\n\"root\": \"{}\",", hex::encode(state.root()))?;
    if let Some(block) = state.block() {
        // State differences name no hash; zeros stand for it.
        let hash = Some(B256::from(block.hash)).filter(|hash| !hash.is_zero());
        writeln!(out, "\"block\": {},", json!({ "number": block.number, "hash": hash }))?;
    }
    write!(out, "\"accounts\": {{")?;
    for (index, account) in dump.accounts().enumerate() {
        let account = account?;
        if options.verify {
            check(&account)?;
        }
        let name = account.address.to_checksum(None);
        let comma = if index == 0 { "" } else { "," };
        write!(out, "{comma}\n\"{name}\": ")?;
        serde_json::to_writer(&mut *out, &Dumped(&account))?;
    }
    writeln!(out, "\n}}\n}}")?;
    Ok(())
}

/// What an account says beside its entry: its storage root is that of its slots, its code has its
/// hash, and its address and slots have theirs, under which the slots come in order.
fn check(account: &DumpedAccount) -> Result<(), StateDumpError> {
    let damaged = |what| StateDumpError::Damaged { what, address: account.address };
    if keccak256(account.address) != account.key {
        return Err(damaged("the address"));
    }
    if account.code.as_ref().is_some_and(|code| keccak256(code) != account.account.code_hash) {
        return Err(damaged("the code"));
    }
    let leaf = |(slot, word): &(B256, U256)| (keccak256(slot), slot_value(&word.to_be_bytes()));
    let leaves: Vec<_> = account.storage.iter().map(leaf).collect();
    let root = bulk::root_of_sorted(&Mpt, &leaves).map_err(|_| damaged("a slot's preimage"))?;
    if root != account.storage_root.0 {
        return Err(damaged("the storage root, or a slot's preimage,"));
    }
    Ok(())
}

/// An account as geth dumps it: code and storage only where there are any.
struct Dumped<'a>(&'a DumpedAccount);

impl Serialize for Dumped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let DumpedAccount { key, address, account, storage_root, code, storage, .. } = self.0;
        let (key, address, root): (&B256, &Address, &B256) = (key, address, storage_root);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("balance", &account.balance.to_string())?;
        map.serialize_entry("nonce", &account.nonce)?;
        map.serialize_entry("root", root)?;
        map.serialize_entry("codeHash", &account.code_hash)?;
        if let Some(code) = code.as_ref().filter(|code| !code.is_empty()) {
            map.serialize_entry("code", code)?;
        }
        if !storage.is_empty() {
            map.serialize_entry("storage", &DumpedSlots(storage))?;
        }
        map.serialize_entry("address", address)?;
        map.serialize_entry("key", key)?;
        map.end()
    }
}

struct DumpedSlots<'a>(&'a [(B256, U256)]);

impl Serialize for DumpedSlots<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = |value: &U256| hex::encode(value.to_be_bytes_trimmed_vec());
        serializer.collect_map(self.0.iter().map(|(slot, word)| (slot, value(word))))
    }
}
