//! `db dump`: everything a tree holds, streamed.

use std::io::{self, BufWriter, Write};

use alloy_primitives::{Address, B256, U256, hex};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::json;
use spinney_state::{DumpedAccount, MPT, State};
use spinney_store::AnyStore;
use spinney_tree::mpt::Mpt;
use spinney_tree::{PageStore as _, Tree};

use super::DumpArgs;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::stores::Mode;
use crate::trees;

pub(super) fn run(args: &DumpArgs, _: &Output) -> anyhow::Result<Exit> {
    trees::check_name(&args.tree)?;
    let place = args.at.place();
    let store = place.open(Mode::Look)?;
    let records = super::records(&store.snapshot()?)?;
    let Some((_, record)) = records.into_iter().find(|(id, _)| *id == MPT) else {
        let what = format!("the store holds no {} ({})", args.tree, args.at.db.display());
        return Err(Failure::new(what).hint("spinney db info shows what it holds").into());
    };
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    match record?.scheme.tree {
        1 => raw(&store, place.tree_cache(), &mut out)?,
        _ => state(&store, place.tree_cache(), &mut out)?,
    }
    out.flush()?;
    Ok(Exit::Ok)
}

fn raw(store: &AnyStore, cache: usize, out: &mut impl Write) -> anyhow::Result<()> {
    let snapshot = store.snapshot()?;
    let tree = Tree::open(Mpt, MPT, &snapshot, cache)?;
    for entry in tree.entries(&snapshot, None, b"") {
        let entry = entry?;
        let (key, value) = (hex::encode_prefixed(&entry.key), hex::encode_prefixed(&*entry.value));
        writeln!(out, "{}", json!({ "key": key, "value": value }))?;
    }
    Ok(())
}

fn state(store: &AnyStore, cache: usize, out: &mut impl Write) -> anyhow::Result<()> {
    let state = State::open(store, cache)?;
    let dump = state.dump()?;
    write!(out, "{{\n\"root\": \"{}\",\n\"accounts\": {{", hex::encode(state.root()))?;
    for (index, account) in dump.accounts().enumerate() {
        let account = account?;
        let name = account.address.to_checksum(None);
        let comma = if index == 0 { "" } else { "," };
        write!(out, "{comma}\n\"{name}\": ")?;
        serde_json::to_writer(&mut *out, &Dumped(&account))?;
    }
    writeln!(out, "\n}}\n}}")?;
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
