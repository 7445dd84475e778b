//! P6: what a branch leaves behind is read as it was written, whichever children it has.

use spinney_tree::mpt::Mpt;
use spinney_tree::ranges::{Ranges, Summary};
use spinney_tree::{Batch, MemoryStore, PageStore as _, Tree, TreeId, WriteSet};

const ID: TreeId = TreeId(1);

/// Sets of children whose bits read as a plausible length where a decoder guesses.
const ODD: [u32; 4] = [6, 38, 70, 550];

/// Every set of children with `SPINNEY_LONG`, else a share of them; with a value at the fork and
/// without. Their summary is read with any tail, and its tree and its pages are those of one batch.
#[test]
fn p6_summaries_and_pages_of_any_children() {
    let step = if std::env::var_os("SPINNEY_LONG").is_some() { 1 } else { 61 };
    for set in ODD.into_iter().chain((1..=0xffff).step_by(step)) {
        for value in [false, true] {
            check(set, value);
        }
    }
}

fn check(set: u32, value: bool) {
    let mut leaves = Vec::new();
    if value {
        leaves.push((b"ab".to_vec(), vec![9; 33]));
    }
    for child in (0..16_u8).filter(|child| set >> child & 1 == 1) {
        // A short leaf, a long one, or a branch.
        let below = [&[1][..], &[2; 40], &[3; 40]];
        for suffix in &below[..1 + usize::from(child % 3 == 2)] {
            let key = [b"ab", &[child << 4][..], suffix].concat();
            leaves.push((key, vec![child; if child % 3 == 0 { 1 } else { 40 }]));
        }
    }
    let (store, other) = (MemoryStore::new(), MemoryStore::new());
    let open =
        |store: &MemoryStore| Tree::open(Mpt, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    let mut tree = open(&store);
    let (ranges, _) = Ranges::begin(&mut tree, &store, [7; 32]).unwrap();
    let mut builder = ranges.builder(None);
    leaves.iter().for_each(|(key, value)| builder.push(key, value).unwrap());
    let built = builder.finish(None).unwrap();
    let mut bytes = Vec::new();
    built.summary.encode(&mut bytes);
    let whole = bytes.len();
    for tail in [0, 2, 32, 64] {
        bytes.resize(whole + tail, 0xa5);
        let (summary, rest) = Summary::decode(&Mpt, &bytes).expect("it was encoded");
        assert_eq!(rest.len(), tail, "{set:#x}");
        let mut again = Vec::new();
        summary.encode(&mut again);
        assert_eq!(again, bytes[..whole], "{set:#x}");
    }
    assert!((0..whole).all(|cut| Summary::decode(&Mpt, &bytes[..cut]).is_none()), "{set:#x}");
    let mut write = WriteSet::new();
    built.put_rows(&mut write);
    let mut join = ranges.join();
    join.add(Summary::decode(&Mpt, &bytes).unwrap().0).unwrap();
    let root = join.finish(&mut write).unwrap();
    ranges.finish(root, None, write).unwrap();

    let mut serial = open(&other);
    let mut batch = Batch::new();
    leaves.iter().for_each(|(key, value)| batch.put(key, value));
    let pending = serial.prepare(&other.snapshot().unwrap(), None, batch).unwrap();
    serial.commit(&other, &pending, None).unwrap();
    assert_eq!(root, serial.root(), "{set:#x}");
    let pages = |tree: &Tree<Mpt>, store: &MemoryStore| {
        crate::support::pages_of(tree.page_range(), &store.snapshot().unwrap())
    };
    assert!(pages(&tree, &store) == pages(&serial, &other), "{set:#x}: pages differ");
    let snapshot = store.snapshot().unwrap();
    let read = tree.entries(&snapshot, None, b"").map(|entry| entry.unwrap());
    assert!(
        read.map(|entry| (entry.key, entry.value.to_vec())).eq(leaves),
        "{set:#x}: leaves differ"
    );
}
