//! `db info`.

use alloy_primitives::{B256, hex};
use serde::Serialize;
use serde_json::json;
use spinney_state::kept_range;
use spinney_state::sum::SumError;
use spinney_store::AnyStore;
use spinney_tree::names::{self, NamedTree};
use spinney_tree::sum::SumNode;
use spinney_tree::{PageStore as _, RootRecord, SchemeId, TreeId};

use crate::commands::sums;
use crate::commits;
use crate::trees::{self, Name};
use crate::ui::{Answer, Grid};

#[derive(Debug, Serialize)]
struct TreeInfo {
    id: u32,
    /// Its name: those of a state have none.
    namespace: Option<String>,
    tree: String,
    keys: &'static str,
    version: u16,
    generation: u32,
    commit: u64,
    block: Option<u64>,
    block_hash: Option<B256>,
    root: String,
    /// Of a sum tree, a decimal number: not all that read JSON keep 64 bits.
    root_sum: Option<String>,
}

impl TreeInfo {
    /// Of a tree without any commit.
    fn new(id: TreeId, scheme: SchemeId, root: &[u8], namespace: Option<String>) -> Self {
        // The root of a sum tree, taken apart.
        let is_sum = matches!(Name::of(scheme), Some(Name::Sum(_)));
        let node = <[u8; 40]>::try_from(root).ok().filter(|_| is_sum).map(SumNode::from);
        Self {
            id: id.0,
            namespace,
            tree: trees::name_of(scheme),
            keys: trees::keys_of(scheme),
            version: 1,
            generation: 0,
            commit: 0,
            block: None,
            block_hash: None,
            root: hex::encode_prefixed(node.as_ref().map_or(root, |node| &node.hash[..])),
            root_sum: node.map(|node| node.sum.to_string()),
        }
    }

    fn of(id: TreeId, record: &RootRecord, names: &[NamedTree]) -> Self {
        let named = names.iter().find(|named| named.id == id);
        Self {
            version: record.version,
            generation: record.generation,
            commit: record.commit,
            block: record.block.map(|block| block.number),
            block_hash: record.block.and_then(trees::hash_of),
            ..Self::new(id, record.scheme, &record.root, named.map(|named| named.name.clone()))
        }
    }
}

impl From<&NamedTree> for TreeInfo {
    /// Of a tree that has a name, and no commit yet.
    fn from(named: &NamedTree) -> Self {
        let root = Name::of(named.scheme).map(Name::empty_root).unwrap_or_default();
        Self::new(named.id, named.scheme, &root, Some(named.name.clone()))
    }
}

pub(super) fn run(store: &AnyStore) -> anyhow::Result<Answer> {
    let mut infos = Vec::new();
    let snapshot = store.snapshot()?;
    let names = names::list(&snapshot).map_err(SumError::from).map_err(sums::plain)?;
    for (id, record) in trees::records(&snapshot)? {
        infos.push(TreeInfo::of(id, &record?, &names));
    }
    let empty: Vec<_> =
        names.iter().filter(|named| infos.iter().all(|info| info.id != named.id.0)).collect();
    infos.extend(empty.into_iter().map(TreeInfo::from));
    infos.sort_by_key(|info| info.id);
    let kept = store.kept_commits()?;
    let mut data = json!({ "store": store.kind(), "trees": infos });
    let newest = trees::newest_block(&snapshot)?;
    let history = newest.map(|newest| kept_range(&snapshot, newest)).transpose()?;
    let history = history.map(|kept| (kept.oldest.number, kept.newest.number));
    if let Some((first, last)) = history {
        data["history"] = json!({ "first_block": first, "last_block": last });
    }
    if let Some(kept) = &kept {
        data["kept_commits"] = commits::told(kept);
    }
    let mut grid = Grid::new(&[
        "id",
        "namespace",
        "tree",
        "keys",
        "version",
        "generation",
        "commit",
        "block",
        "block hash",
        "root",
        "sum",
    ]);
    for info in infos {
        grid.row(vec![
            info.id.to_string(),
            info.namespace.unwrap_or_default(),
            info.tree,
            info.keys.to_owned(),
            info.version.to_string(),
            info.generation.to_string(),
            info.commit.to_string(),
            info.block.map(|block| block.to_string()).unwrap_or_default(),
            info.block_hash.map(|hash| hash.to_string()).unwrap_or_default(),
            info.root,
            info.root_sum.unwrap_or_default(),
        ]);
    }
    // Commits that are kept answer for more.
    let history = history.filter(|(first, last)| kept.is_none() || first < last);
    let history = history.map(|(first, last)| match first == last {
        true => format!("proofs: of block {last} alone (--keep-undo keeps more)"),
        false => format!("proofs: of blocks {first} to {last}"),
    });
    let kept = kept.map(|kept| format!("kept: {}", commits::described(&kept)));
    Ok(Answer::of(&data)?.grid(grid).lines(history).lines(kept))
}
