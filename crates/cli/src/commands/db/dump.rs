//! `db dump`: everything a tree holds, streamed.

use std::io::Write;

use alloy_primitives::{Address, B256, U256, hex, keccak256};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::json;
use spinney_state::{DumpedAccount, MPT, State};
use spinney_store::Frozen;
use spinney_tree::mpt::{Mpt, MptState, slot_value};
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{PageStore, Scheme, SharedStore, Tree, TreeId, bulk};

use super::DumpArgs;
use crate::commands::sums::{self, NamespaceArgs};
use crate::failure::{Exit, Failure};
use crate::out_file::OutFile;
use crate::stores::Mode;
use crate::trees::{self, Name, TreeSet};
use crate::ui::{Answer, Output};

pub(super) fn run(args: &DumpArgs, output: &Output) -> anyhow::Result<Answer> {
    let place = args.at.place()?;
    let name = sums::asked(args.tree.as_deref(), &args.namespace, &place)?;
    NamespaceArgs::check(name)?;
    let id = match (name, name.id()) {
        (Name::Sum(profile), _) => {
            let (namespace, with) = (&args.namespace.namespace, (args.verify, args.out.as_deref()));
            sums::dump(&place, namespace, profile, with)?;
            return Ok(Answer::documents(Exit::Ok));
        }
        (_, id) => id.expect("all others have one"),
    };
    let store = place.open(Mode::Look)?;
    // All of the document is of one commit, whoever writes meanwhile.
    let store = Frozen::of(&store)?;
    let record = trees::record_of(&store.snapshot()?, name, &args.at.db)?;
    let held = TreeSet::of(&store.snapshot()?)?;
    if held.len() > 1 {
        output.warn(format!("the store holds {held}, and the dump is of {name} alone"));
    }
    let mut out = OutFile::begin(args.out.as_deref())?;
    let cache = place.tree_cache();
    let with = (cache, args.verify);
    match name {
        Name::Mpt if record.scheme == Mpt.id() => entries(Mpt, id, &store, with, &mut out)?,
        Name::Mpt => state(args, &store, cache, &mut out)?,
        Name::Ubt(hash) => entries(Ubt { hash }, id, &store, with, &mut out)?,
        Name::Pbt(hash) => entries(Pbt { hash }, id, &store, with, &mut out)?,
        Name::Verkle => entries(Verkle::shared(), id, &store, with, &mut out)?,
        Name::Sum(_) => unreachable!("it was dumped above"),
    }
    out.finish()?;
    Ok(Answer::documents(Exit::Ok))
}

/// Keys and values as the tree has them.
fn entries<S: Scheme + Clone>(
    scheme: S,
    id: TreeId,
    store: &impl PageStore,
    (cache, verify): (usize, bool),
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let snapshot = store.snapshot()?;
    let tree = Tree::open(scheme, id, &snapshot, cache)?;
    if verify {
        tree.verify_entries(&snapshot, |_| ())?;
    }
    for entry in tree.entries(&snapshot, None, b"") {
        let entry = entry?;
        let (key, value) = (hex::encode_prefixed(&entry.key), hex::encode_prefixed(&*entry.value));
        writeln!(out, "{}", json!({ "key": key, "value": value }))?;
    }
    Ok(())
}

fn state(
    args: &DumpArgs,
    store: &impl PageStore,
    cache: usize,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    if args.verify {
        let snapshot = store.snapshot()?;
        let tree = Tree::open(MptState, MPT, &snapshot, cache)?;
        tree.verify_entries(&snapshot, |_| ())?;
    }
    let state = State::open(SharedStore::new(store), cache)?;
    let mut dump = state.dump()?;
    dump.allow_missing_code(args.allow_missing_code);
    writeln!(out, "{{\n\"root\": \"{}\",", hex::encode(state.root()))?;
    if let Some(block) = state.block() {
        // State differences name no hash; zeros stand for it.
        let hash = Some(B256::from(block.hash)).filter(|hash| !hash.is_zero());
        writeln!(out, "\"block\": {},", json!({ "number": block.number, "hash": hash }))?;
    }
    write!(out, "\"accounts\": {{")?;
    for (index, account) in dump.accounts().enumerate() {
        let account = account?;
        if args.verify {
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
fn check(account: &DumpedAccount) -> anyhow::Result<()> {
    let damaged = |what: &str| {
        let what = format!("{what} of account {} is damaged or forged", account.address);
        Failure::new(what).hint("spinney db check looks at all of the store")
    };
    if keccak256(account.address) != account.key {
        return Err(damaged("the address").into());
    }
    if account.code.as_ref().is_some_and(|code| keccak256(code) != account.account.code_hash) {
        return Err(damaged("the code").into());
    }
    let leaf = |(slot, word): &(B256, U256)| (keccak256(slot), slot_value(&word.to_be_bytes()));
    let leaves: Vec<_> = account.storage.iter().map(leaf).collect();
    let root = bulk::root_of_sorted(&Mpt, &leaves).map_err(|_| damaged("a slot's preimage"))?;
    if root != account.storage_root.0 {
        return Err(damaged("the storage root, or a slot's preimage,").into());
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
            map.serialize_entry("storage", &Slots(storage))?;
        }
        map.serialize_entry("address", address)?;
        map.serialize_entry("key", key)?;
        map.end()
    }
}

struct Slots<'a>(&'a [(B256, U256)]);

impl Serialize for Slots<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = |value: &U256| hex::encode(value.to_be_bytes_trimmed_vec());
        serializer.collect_map(self.0.iter().map(|(slot, word)| (slot, value(word))))
    }
}
