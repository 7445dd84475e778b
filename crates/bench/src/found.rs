//! What a page opens with: what was found, in three sentences; and the words that it uses.

use crate::measure::{BlockCost, Cell};
use crate::report::{Report, human_micros, human_size};

/// The least and the most of a figure, in a sentence.
struct Compared<'a> {
    /// What has the figure, and the figure.
    all: Vec<(String, f64)>,
    /// How the figure is written.
    shown: fn(f64) -> String,
    /// `NAME` and `FIGURE` stand for the least.
    least: &'a str,
    most: &'a str,
}

impl Compared<'_> {
    fn sentence(&self) -> Option<String> {
        let known = || self.all.iter().filter(|(_, figure)| *figure > 0.0);
        let (least, low) = known().min_by(|a, b| a.1.total_cmp(&b.1))?;
        let (most, high) = known().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let with = |words: &str, name: &str, figure: f64| {
            words.replace("NAME", name).replace("FIGURE", &(self.shown)(figure))
        };
        let first = with(self.least, least, *low);
        Some(if least == most {
            format!("{first}.")
        } else {
            format!("{first}; {}, {:.1} times that.", with(self.most, most, *high), high / low)
        })
    }
}

/// What was found: time to the root, bytes written, bytes of a proof.
pub(crate) fn sentences(report: &Report) -> [String; 3] {
    let of_cells = |figure: &dyn Fn(&Cell) -> f64| {
        report.cells.iter().map(|cell| (cell.name(), figure(cell))).collect()
    };
    // What does not depend on the store.
    let first = report.cells.first().map_or("", |cell| cell.store);
    let of_trees = |figure: &dyn Fn(&Cell) -> f64| {
        let cells = report.cells.iter().filter(|cell| cell.store == first);
        cells.map(|cell| (cell.tree.clone(), figure(cell))).collect()
    };
    let root = Compared {
        all: of_cells(&|cell| cell.spread(BlockCost::root_us).p50),
        shown: human_micros,
        least: "The root of a block is there soonest with NAME, after FIGURE in the median",
        most: "latest with NAME, after FIGURE",
    };
    let pages = Compared {
        all: of_trees(&|cell| cell.mean(|block| block.page_bytes as f64)),
        shown: human_size,
        least: "A block writes the fewest bytes of pages in NAME, FIGURE on average",
        most: "the most in NAME, FIGURE",
    };
    let proofs = Compared {
        all: of_trees(&|cell| cell.proof_bytes().unwrap_or_default()),
        shown: human_size,
        least: "A proof of all that a block touches is smallest in NAME, FIGURE on average",
        most: "largest in NAME, FIGURE",
    };
    [
        root.sentence().unwrap_or_else(|| "No block was measured.".into()),
        pages.sentence().unwrap_or_else(|| "No page was written.".into()),
        proofs.sentence().unwrap_or_else(|| "Nothing was proven.".into()),
    ]
}

/// The words of the page. All bytes are in binary units: a KiB has 1,024.
pub(crate) const GLOSSARY: [(&str, &str); 9] = [
    (
        "tree",
        "mpt is Ethereum's Merkle Patricia trie; ubt is the unified binary tree of EIP-7864, \
      pbt the partitioned one of EIP-8297, each with its hash; verkle is the tree of EIP-6800",
    ),
    (
        "store",
        "where rows lie: memory, log or redb (a folder), sqlite (a file), postgres (a server)",
    ),
    ("root", "time from a block's changes to the tree's new root: keys, applying, hashing"),
    ("commit", "cutting new nodes into pages and handing them to the store"),
    ("page", "a connected piece of the tree, up to 4 KiB, one row of the store"),
    ("page bytes", "keys and values of the pages that a commit writes: logical bytes"),
    (
        "to write calls",
        "bytes that the store hands to the system for them, its own pages, log and \
      checksums too",
    ),
    ("proof", "one proof of all accounts and slots that a block read or wrote"),
    ("witness", "what it takes to execute the block without a state"),
];

#[cfg(test)]
mod tests {
    use super::Compared;

    #[test]
    fn a_sentence_names_the_ends() {
        let all = [("a", 2.0), ("b", 9.0), ("c", 0.0), ("d", 4.0)];
        let compared = Compared {
            all: all.map(|(name, figure)| (name.to_owned(), figure)).to_vec(),
            shown: |figure| format!("{figure} B"),
            least: "Least in NAME, FIGURE",
            most: "most in NAME, FIGURE",
        };
        let said = compared.sentence().unwrap();
        assert_eq!(said, "Least in a, 2 B; most in b, 9 B, 4.5 times that.");
        let alone = Compared { all: vec![("a".into(), 3.0)], ..compared };
        assert_eq!(alone.sentence().unwrap(), "Least in a, 3 B.");
        assert!(Compared { all: Vec::new(), ..alone }.sentence().is_none());
    }
}
