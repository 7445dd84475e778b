//! What is compared: groups of workers, and the cases that each group is asked in turn.

/// A process that answers cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    Alloy,
    Geth,
    Ours,
}

impl Program {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alloy => "alloy-trie",
            Self::Geth => "geth",
            Self::Ours => "spinney",
        }
    }
}

/// Who answers a case, under which name, and what to call that in the table.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    pub program: Program,
    pub label: &'static str,
    pub command: &'static str,
}

/// One line of the table for each peer.
#[derive(Clone, Debug)]
pub struct Case {
    /// `area::op/key=value`.
    pub name: String,
    /// How many things a round does: figures are given for each. 1 where the round is the thing.
    pub per: usize,
    pub size: usize,
    pub rounds: usize,
    /// Ours first, if there is one; then the peers.
    pub contenders: Vec<Contender>,
}

/// Cases whose workers live together, each started once.
#[derive(Clone, Debug)]
pub struct Group {
    pub cases: Vec<Case>,
}

const fn by(program: Program, command: &'static str) -> Contender {
    Contender { program, label: program.name(), command }
}

/// All cases over `leaves` leaves. `few` rounds are taken of what takes long, five times as many of
/// the rest.
pub fn groups(leaves: usize, few: usize) -> Vec<Group> {
    use Program::{Alloy, Geth, Ours};
    let case =
        |name: String, per, size, rounds, contenders| Case { name, per, size, rounds, contenders };
    let many = few * 5;
    let geth_stack = Contender { label: "geth StackTrie", ..by(Geth, "bulk") };
    let bulk = vec![case(
        format!("mpt::bulk_root/leaves={leaves}"),
        1,
        0,
        few,
        vec![by(Ours, "bulk"), by(Alloy, "bulk"), geth_stack],
    )];
    let mut live = vec![case(
        format!("mpt::load/leaves={leaves}"),
        1,
        0,
        1,
        vec![by(Ours, "load"), by(Geth, "load")],
    )];
    let single = 1_000.min(leaves / 2);
    live.push(case(
        "mpt::root/keys=1".into(),
        single,
        single,
        many,
        vec![
            by(Ours, "single"),
            Contender { label: "own blocks", ..by(Ours, "single_keccak") },
            by(Geth, "single"),
        ],
    ));
    let sizes = [1_000, 10_000].map(|size| size.min(leaves / 2));
    for size in sizes {
        let batch = Contender { label: "geth UpdateBatch", ..by(Geth, "root_batch") };
        live.push(case(
            format!("mpt::root/keys={size}"),
            1,
            size,
            many,
            vec![by(Ours, "root"), by(Geth, "root"), batch],
        ));
    }
    // After the roots, since geth's worker keeps all nodes a second time from here on.
    for size in sizes {
        live.push(case(
            format!("mpt::write_set/keys={size}"),
            1,
            size,
            many,
            vec![by(Ours, "write_set"), by(Geth, "write_set")],
        ));
    }
    let proofs = single;
    let both = vec![by(Ours, "prove"), by(Geth, "prove")];
    live.push(case("mpt::prove/keys=1".into(), proofs, proofs, many, both));
    live.push(case(
        "mpt::verify/keys=1".into(),
        proofs,
        proofs,
        many,
        vec![by(Ours, "verify"), by(Alloy, "verify"), by(Geth, "verify")],
    ));
    // Last, since commits move our tree on, and roots would differ from those of a tree that stays.
    for size in sizes {
        live.push(case(
            format!("mpt::commit/keys={size}"),
            1,
            size,
            many,
            vec![by(Ours, "commit")],
        ));
    }
    let small = 10_000.min(leaves / 2);
    let geth_bintrie = |command| Contender { label: "geth bintrie", ..by(Geth, command) };
    let load = |stems: usize| {
        let both = vec![by(Ours, "binary_load"), geth_bintrie("binary_load")];
        case(format!("ubt::load/stems={stems}"), 1, stems, 1, both)
    };
    let own_hashes = Contender { label: "own hashes", ..by(Ours, "binary_hashes") };
    // Rounds of fewer would measure how the tree comes back to the processor's caches.
    let half = small / 2;
    let few_stems = vec![
        load(small),
        case(
            format!("ubt::root/stems={small} keys=1"),
            half,
            half,
            many,
            vec![by(Ours, "binary_root"), own_hashes],
        ),
        case(
            format!("ubt::commit/stems={small} keys=1"),
            half,
            half,
            many,
            vec![by(Ours, "binary_single"), geth_bintrie("binary_single")],
        ),
    ];
    let alone = |name: String, size, command| case(name, 1, size, many, vec![by(Ours, command)]);
    let bare = Contender { label: "copies and hashes", ..by(Ours, "binary_bare") };
    let many_stems = vec![
        load(leaves),
        alone(format!("ubt::prove/stems={leaves} keys={single}"), single, "binary_prove"),
        alone(format!("ubt::verify/stems={leaves} keys={single}"), single, "binary_verify"),
        case(
            format!("ubt::commit/stems={leaves} keys={small}"),
            1,
            small,
            many,
            vec![by(Ours, "binary_update"), geth_bintrie("binary_update"), bare],
        ),
    ];
    let fresh = leaves / 2;
    let one_thread = Contender { label: "one thread", ..by(Ours, "fresh_one_thread") };
    let fresh = vec![case(
        format!("ubt::root/fresh={fresh}"),
        1,
        fresh,
        few,
        vec![by(Ours, "fresh"), one_thread],
    )];
    let mut all: Vec<Group> =
        [bulk, live, few_stems, many_stems, fresh].map(|cases| Group { cases }).into();
    all.extend(block_workloads(leaves, few));
    all
}

/// Blocks upon blocks, 64 to a commit: see `blocks`.
fn block_workloads(leaves: usize, few: usize) -> impl Iterator<Item = Group> {
    use Program::{Geth, Ours};
    let trees = [("mpt", "geth", true), ("ubt", "geth bintrie", true), ("pbt", "", false)];
    trees.into_iter().map(move |(tree, label, geth)| {
        let both = |ours, theirs| {
            let mut both = vec![by(Ours, ours)];
            both.extend(geth.then(|| Contender { label, ..by(Geth, theirs) }));
            both
        };
        let [load, round, reads]: [&'static str; 3] = match tree {
            "mpt" => ["blocks_mpt_load", "blocks_mpt", "blocks_mpt_reads"],
            "ubt" => ["blocks_ubt_load", "blocks_ubt", "blocks_ubt_reads"],
            _ => ["blocks_pbt_load", "blocks_pbt", "blocks_pbt_reads"],
        };
        let case = |name: String, per, size, rounds, contenders| Case {
            name,
            per,
            size,
            rounds,
            contenders,
        };
        let blocks = crate::blocks::BLOCKS as usize;
        let loaded = format!("{tree}::load/leaves={leaves}");
        let mut cases = vec![case(loaded, 1, leaves, 1, both(load, load))];
        for size in [50, 500, 10_000].into_iter().filter(|size| *size <= leaves / 40) {
            let rounds = if size > 1_000 { few.min(2) } else { few };
            let what = format!("{tree}::blocks/changes={size}");
            cases.push(case(what, blocks * size, size, rounds, both(round, round)));
            // What the reads of each of these rounds cost is told for the last one.
            let what = format!("{tree}::blocks_reads/changes={size}");
            cases.push(case(what, 2 * blocks * size, size, 1, both(reads, reads)));
        }
        Group { cases }
    })
}
