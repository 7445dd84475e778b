//! `import tapd`: the sum trees of Taproot Assets databases.

use spinney_state::sum::{SumTree, namespaces};
use spinney_store::SqliteStore;
use spinney_tree::PageStore;
use spinney_tree::sum::Leaf;
use spinney_tree::sum::reference::Leaves;

use crate::support::{Folder, is_store, open_store, spinney};
use crate::tapd_databases::{Contents, Shape};

fn leaves(count: u64) -> Leaves {
    let key = |n: u64| spinney_hash::sha256(&n.to_be_bytes());
    let leaf = |n: u64| Leaf { value: n.to_be_bytes().into(), sum: n + 1 };
    (0..count).map(|n| (key(n), leaf(n))).collect()
}

/// Two trees, as tapd names them.
fn contents() -> Contents {
    let mut contents = Contents::default();
    contents.add("issuance-1", Shape::Compacted { below: 2 }, &leaves(300));
    contents.add("multiverse-issuance", Shape::Compacted { below: 0 }, &leaves(1));
    contents
}

fn kept(store: &impl PageStore, name: &str) -> Leaves {
    let tree = SumTree::open(store, name, 1 << 20).unwrap().unwrap();
    let mut found = Leaves::new();
    tree.visit(|key, leaf| {
        Ok::<_, spinney_state::sum::SumError>(found.insert(key, leaf).is_none())
    })
    .unwrap();
    assert!(tree.tree().check(&store.snapshot().unwrap(), |_| {}).unwrap().is_empty());
    found
}

#[test]
fn trees_of_tapd_are_imported_with_their_roots() {
    let (database, folder) = (contents().sqlite(), Folder::new());
    let file = database.file.to_str().unwrap();
    let db = folder.path("db");
    let data = spinney(&["import", "tapd", "--json", "--db", &db, file]).exits(0).data();
    assert_eq!(data["trees"].as_array().unwrap().len(), 2);
    let tree = &data["trees"][0];
    assert_eq!((&tree["namespace"], &tree["leaves"]), (&"issuance-1".into(), &300.into()));
    assert_eq!(tree["sum"], "45150");
    let store = open_store(&db);
    assert_eq!(namespaces(&store.snapshot().unwrap()).unwrap().len(), 2);
    assert_eq!(kept(&store, "issuance-1"), leaves(300));
    store.close().unwrap();
    spinney(&["import", "tapd", "--db", &db, file]).exits(2).refuses("there is a store already");
    // One of them, into another kind of store.
    let one = folder.path("one.sqlite");
    let named = ["--namespace", "multiverse-issuance", "--store", "sqlite", "--db", &one, file];
    let shown =
        spinney(&[&["import", "tapd", "--format", "csv"], &named[..]].concat()).exits(0).out;
    assert!(shown.lines().nth(1).unwrap().starts_with("multiverse-issuance,1,1,0x"), "{shown}");
    let store = SqliteStore::open(&one, 1 << 20).unwrap();
    assert_eq!(namespaces(&store.snapshot().unwrap()).unwrap().len(), 1);
    assert_eq!(kept(&store, "multiverse-issuance"), leaves(1));
}

#[cfg(unix)]
#[test]
fn trees_are_imported_out_of_postgresql() {
    let Some(server) = crate::server::Server::start() else { return };
    let (url, folder) = (contents().postgres(&server), Folder::new());
    let db = folder.path("db");
    spinney(&["import", "tapd", "--db", &db, &url]).exits(0);
    let store = open_store(&db);
    assert_eq!(kept(&store, "issuance-1"), leaves(300));
}

#[test]
fn what_cannot_be_imported_leaves_nothing_behind() {
    let folder = Folder::new();
    let mut damaged = contents();
    let row = damaged.nodes.iter().find(|(_, (columns, _))| columns.2.is_some()).unwrap().0.clone();
    damaged.nodes.get_mut(&row).unwrap().1 += 1;
    let database = damaged.sqlite();
    let file = database.file.to_str().unwrap();
    let db = folder.path("db");
    let import = |more: &[&str]| spinney(&[&["import", "tapd", "--db", &db, file], more].concat());
    import(&[]).exits(1).refuses("is damaged; 2").says("its content has another hash");
    assert!(!is_store(&db));
    import(&["--namespace", "x"]).exits(2).refuses("has no tree \"x\"; it has \"issuance-1\"");
    let missing = folder.path("missing");
    spinney(&["import", "tapd", "--db", &db, &missing]).exits(2).refuses("there is no database");
    let text = folder.write("text", "no database".repeat(100));
    spinney(&["import", "tapd", "--db", &db, &text]).exits(2).refuses("not an SQLite database");
    assert!(!is_store(&db));
}

/// The sound leaves of a damaged tree go into a new one, and what is not sound is said row by row.
#[test]
fn a_damaged_tree_is_salvaged_if_it_is_asked_for() {
    let folder = Folder::new();
    let mut damaged = contents();
    let row = damaged.nodes.iter().find(|(_, (columns, _))| columns.2.is_some()).unwrap().0.clone();
    damaged.nodes.get_mut(&row).unwrap().1 += 1;
    let database = damaged.sqlite();
    let (file, db) = (database.file.to_str().unwrap(), folder.path("db"));
    let ran = spinney(&["import", "tapd", "--json", "--salvage", "--db", &db, file]).exits(0);
    let data = ran.data();
    let trees = data["trees"].as_array().unwrap();
    let (hurt, whole): (Vec<_>, Vec<_>) = trees.iter().partition(|tree| tree["damage_count"] != 0);
    assert_eq!((hurt.len(), whole.len()), (1, 1), "{data}");
    assert_eq!(whole[0]["root"], whole[0]["stored_root"]);
    assert_ne!(hurt[0]["root"], hurt[0]["stored_root"]);
    assert!(hurt[0]["damage"][0].as_str().unwrap().contains("its content has another hash"));
    let name = hurt[0]["namespace"].as_str().unwrap();
    let all = if name == "issuance-1" { leaves(300) } else { leaves(1) };
    let store = open_store(&db);
    let found = kept(&store, name);
    assert_eq!(hurt[0]["leaves"], found.len());
    assert!(found.len() < all.len() && found.iter().all(|(key, leaf)| all.get(key) == Some(leaf)));
    let _ = ran.says("stored root").says("new root");
}
