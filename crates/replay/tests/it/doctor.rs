//! The doctor against an oracle that knows what was done to a witness.

use std::collections::{HashMap, HashSet};

use alloy_primitives::{Address, B256, Bytes, U256, address, keccak256};
use serde_json::{Value, json};
use spinney_replay::{
    ChainBlock, ChainConfig, FindingKind as Kind, Fork, Witness, WitnessMaker, WitnessReader,
    witness_differences,
};
use spinney_state::State;
use spinney_tree::MemoryStore;

use crate::made::{Actor, Made};
use crate::shared::{self, ALL_FORKS, AMSTERDAM};

/// A block with its witness, and what is known of it.
struct Case {
    config: ChainConfig,
    block: ChainBlock,
    witness: Witness,
    /// Nodes that the state has and the witness lacks.
    others: Vec<Bytes>,
}

const DIFFICULTY: U256 = U256::MAX;

/// A block that clears a slot beside two others, whose digests begin alike: a branch is left alone,
/// as in none of the chains.
fn collapse_beside_a_branch() -> Case {
    const CLEARER: Address = address!("00000000000000000000000000000000000000cc");
    let digest = |slot: u64| keccak256(B256::from(U256::from(slot)));
    let high = |slot: u64| digest(slot)[0] >> 4;
    let alone = 1;
    let first = (2..).find(|slot| high(*slot) != high(alone)).unwrap();
    let is_beside = |slot: &u64| high(*slot) == high(first) && digest(*slot)[0] != digest(first)[0];
    let second = (2..).find(is_beside).unwrap();
    let slots = [alone, first, second].map(|slot| (format!("{slot:#066x}"), json!("0x7")));
    // Clears the slot that its input says.
    let clearer = json!({
        "code": "0x5f5f355500", "nonce": "0x1",
        "storage": serde_json::Map::from_iter(slots),
    });
    let mut chain = Made::at(Fork::Cancun, json!({ CLEARER.to_string(): clearer }));
    let input = U256::from(alone).to_be_bytes::<32>().into();
    let block = chain.block(vec![Actor::new(1).legacy(Some(CLEARER), 100_000, input)]);
    let state = State::open(MemoryStore::new(), 1 << 20).unwrap();
    let mut maker = WitnessMaker::start(&chain.genesis, state).unwrap();
    let made = maker.witness(&block).unwrap().unwrap();
    let (config, keys) = (maker.config().clone(), made.keys());
    Case { config, block, witness: Witness { keys, ..made.witness }, others: Vec::new() }
}

/// The blocks of a chain after the merge, with keys in their witnesses.
fn cases(name: &str, every: u64) -> Vec<Case> {
    let Some(chain) = shared::chain(name) else { return Vec::new() };
    let state = State::open(MemoryStore::new(), 1 << 20).unwrap();
    let mut maker = WitnessMaker::start(&chain.genesis, state).unwrap();
    let mut cases: Vec<Case> = Vec::new();
    for block in chain.blocks() {
        let header = &block.block.header;
        if !header.difficulty.is_zero() || header.number % every != 0 {
            maker.pass(&block).unwrap();
            continue;
        }
        let made = maker.witness(&block).unwrap().unwrap();
        let mut witness = made.witness.clone();
        witness.keys = made.keys();
        let own: HashSet<_> = witness.state.iter().collect();
        let others = cases.last().map_or_else(Vec::new, |before| {
            before.witness.state.iter().filter(|node| !own.contains(node)).cloned().collect()
        });
        cases.push(Case { config: maker.config().clone(), block, witness, others });
    }
    cases
}

/// Numbers that look like chance (SplitMix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }
}

/// What was done, and which words a finding of which kind has to have.
struct Done {
    what: &'static str,
    expected: Vec<(Kind, String)>,
}

fn digest(bytes: &Bytes) -> String {
    keccak256(bytes).to_string()
}

/// Does one thing to a witness. `None` where it cannot be done to this one.
fn mutate(case: &Case, witness: &mut Witness, chance: &mut Chance) -> Option<Done> {
    let done = |what, kind, words: String| Some(Done { what, expected: vec![(kind, words)] });
    let any = |chance: &mut Chance, len: usize| (len > 0).then(|| chance.below(len));
    match chance.below(14) {
        0 | 1 => {
            let index = any(chance, witness.state.len())?;
            let node = witness.state.remove(index);
            done("a node is dropped", Kind::Missing, digest(&node))
        }
        2 => {
            let index = any(chance, witness.codes.len())?;
            let code = witness.codes.remove(index);
            done("a code is dropped", Kind::Code, format!("{}", keccak256(&code)))
        }
        3 => {
            let index = any(chance, witness.headers.len())?;
            witness.headers.remove(index);
            done("a header is dropped", Kind::Header, "missing".to_owned())
        }
        4 => {
            let index = any(chance, witness.keys.len())?;
            let key = witness.keys.remove(index);
            done("a key is dropped", Kind::Key, key.to_string())
        }
        5 => {
            let node = case.others.get(any(chance, case.others.len())?)?.clone();
            let at = witness.state.partition_point(|other| *other < node);
            let words = digest(&node);
            witness.state.insert(at, node);
            done("a node is added", Kind::Surplus, words)
        }
        6 => {
            let code = Bytes::from(vec![0x5b; 1 + chance.below(200)]);
            let at = witness.codes.partition_point(|other| *other < code);
            let words = digest(&code);
            witness.codes.insert(at, code);
            done("a code is added", Kind::Code, words)
        }
        7 => {
            let key = Bytes::copy_from_slice(keccak256(chance.next().to_be_bytes()).as_slice());
            let at = witness.keys.partition_point(|other| *other < key);
            let words = key.to_string();
            witness.keys.insert(at, key);
            done("a key is added", Kind::Key, words)
        }
        8 => {
            let len = witness.state.len();
            let (a, b) = (any(chance, len)?, any(chance, len)?);
            if a == b {
                return None;
            }
            witness.state.swap(a, b);
            done("nodes are swapped", Kind::Order, "state".to_owned())
        }
        9 => {
            let len = witness.codes.len();
            let (a, b) = (any(chance, len)?, any(chance, len)?);
            if a == b {
                return None;
            }
            witness.codes.swap(a, b);
            done("codes are swapped", Kind::Order, "codes".to_owned())
        }
        10 => {
            let index = any(chance, witness.state.len())?;
            let node = witness.state[index].clone();
            let words = digest(&node);
            witness.state.insert(index, node);
            done("a node is there twice", Kind::Double, words)
        }
        11 => {
            // A stale leaf or branch: the last bytes are those of another value.
            let index = any(chance, witness.state.len())?;
            let mut node = witness.state[index].to_vec();
            let was = digest(&witness.state[index]);
            let at = node.len() - 2;
            node[at] ^= 1 + (chance.next() % 255) as u8;
            witness.state[index] = node.into();
            witness.state.sort_unstable();
            done("a node is stale", Kind::Missing, was)
        }
        12 => {
            // The length of the list is said in more bytes than it takes.
            let index = any(chance, witness.state.len())?;
            let node = &witness.state[index];
            let was = digest(node);
            let mut payload = &node[..];
            let header = alloy_rlp::Header::decode(&mut payload).ok()?;
            let mut bytes = vec![0xfa];
            bytes.extend(&(header.payload_length as u32).to_be_bytes()[1..]);
            bytes.extend_from_slice(payload);
            witness.state[index] = bytes.into();
            witness.state.sort_unstable();
            done("a node is encoded otherwise", Kind::Missing, was)
        }
        _ => {
            let len = witness.headers.len();
            if len > 1 {
                witness.headers.swap(0, len - 1);
                return done("headers are swapped", Kind::Order, "headers".to_owned());
            }
            witness.headers.insert(0, Bytes::from_static(&[0xc0]));
            done("a header is none", Kind::Header, "entry 0".to_owned())
        }
    }
}

/// How many mutations there are: 100,000 where it is asked for.
fn rounds() -> usize {
    match std::env::var("SPINNEY_MUTATIONS") {
        Ok(count) => count.parse().expect("a number"),
        Err(_) => 600,
    }
}

#[test]
fn no_mutation_is_misjudged() {
    let mut cases = cases(AMSTERDAM, 2);
    cases.extend(self::cases(ALL_FORKS, 7));
    if cases.is_empty() {
        return;
    }
    let blocks = cases.len();
    let mut chance = Chance(29);
    let (mut done, mut kinds) = (0, std::collections::BTreeMap::new());
    while done < rounds() {
        let case = &cases[chance.below(blocks)];
        let mut witness = case.witness.clone();
        let Some(mutation) = mutate(case, &mut witness, &mut chance) else { continue };
        let number = case.block.block.header.number;
        let diagnosis = witness.examine(&case.config, DIFFICULTY, &case.block);
        let told = diagnosis.findings.to_string();
        let what = mutation.what;
        assert!(!diagnosis.is_canonical(), "block {number}: {what}, and nothing is said");
        for (kind, words) in &mutation.expected {
            let named = |finding: &spinney_replay::Finding| {
                finding.kind == *kind && finding.what.to_lowercase().contains(&words.to_lowercase())
            };
            assert!(
                diagnosis.findings.iter().any(named),
                "block {number}: {what} ({kind:?}, {words}):\n{told}"
            );
        }
        // Nothing is said of what nothing was done to.
        let expected: HashSet<_> = mutation.expected.iter().map(|(kind, _)| *kind).collect();
        for (kind, count) in diagnosis.findings.counts() {
            let follows = kind == Kind::Stale
                || (kind == Kind::Header && expected.contains(&Kind::Order))
                || (kind == Kind::Order && what == "a node is there twice");
            assert!(expected.contains(&kind) || follows, "block {number}: {what}:\n{told}");
            // A header that is dropped from the middle leaves those before it without a line.
            assert!(count == 1 || kind == Kind::Header, "block {number}: {what}:\n{told}");
        }
        if let Some(canonical) = diagnosis.canonical {
            assert_eq!(canonical, case.witness, "block {number}: {what}");
        }
        *kinds.entry(what).or_insert(0) += 1;
        done += 1;
    }
    println!("{done} mutations over {blocks} blocks: {kinds:?}");
}

#[test]
fn every_canonical_witness_is_found_so() {
    for name in [AMSTERDAM, ALL_FORKS] {
        let mut sum = [0; 4];
        for case in cases(name, 1) {
            let number = case.block.block.header.number;
            let diagnosis = case.witness.examine(&case.config, DIFFICULTY, &case.block);
            assert!(diagnosis.is_canonical(), "{name}, block {number}:\n{}", diagnosis.findings);
            let parts = diagnosis.parts;
            assert_eq!(parts.reads + parts.writes + parts.collapses, case.witness.state.len());
            let all = [parts.reads, parts.writes, parts.collapses, parts.codes];
            for (sum, part) in sum.iter_mut().zip(all) {
                *sum += part;
            }
            let bare = Witness { keys: Vec::new(), ..case.witness.clone() };
            assert!(bare.examine(&case.config, DIFFICULTY, &case.block).is_canonical());
        }
        println!("{name}: reads, writes, collapses, codes: {sum:?}");
    }
}

#[test]
fn a_padded_witness_is_minimized_to_the_canonical_one() {
    for case in cases(AMSTERDAM, 9) {
        let mut padded = case.witness.clone();
        padded.state.extend(case.others.iter().cloned());
        padded.state.extend(case.witness.state.iter().take(3).cloned());
        padded.codes.push(Bytes::from_static(&[0xfe]));
        padded.keys.clear();
        padded.state.reverse();
        let diagnosis = padded.examine(&case.config, DIFFICULTY, &case.block);
        let canonical = Witness { keys: Vec::new(), ..case.witness.clone() };
        assert_eq!(diagnosis.canonical.as_ref(), Some(&canonical));
        let lines = witness_differences((&padded, &canonical), (Some(&diagnosis), None));
        assert!(lines.len() > case.others.len(), "{lines:?}");
        assert!(witness_differences((&canonical, &canonical), (None, None)).is_empty());
    }
}

/// What geth answers of the same blocks: its nodes are the canonical ones, its codes not always.
#[test]
fn witnesses_of_geth_are_read_and_judged() {
    for name in [AMSTERDAM, ALL_FORKS] {
        let Some(file) = shared::read(&format!("{name}/witnesses.ndjson")) else { continue };
        let cases = cases(name, 1);
        let mut count = 0;
        for given in WitnessReader::new(&file[..]) {
            let given = given.unwrap();
            let told: Vec<_> = given.findings.iter().map(ToString::to_string).collect();
            let objects = given.witness.headers.len();
            let headers =
                format!("form: headers: {objects} of them are objects, where RLP belongs");
            assert_eq!(told, ["form: keys is null, where a list belongs", &headers]);
            let parent = keccak256(given.witness.headers.last().unwrap());
            let follows = |case: &&Case| case.block.block.header.parent_hash == parent;
            let case = cases.iter().find(follows).unwrap();
            let number = case.block.block.header.number;
            let witness = &given.witness;
            witness.check(&case.config, DIFFICULTY, &case.block).unwrap();
            let diagnosis = witness.examine(&case.config, DIFFICULTY, &case.block);
            if !diagnosis.is_canonical() {
                println!("{name}, block {number}:\n{}", diagnosis.findings);
            }
            let bare = Witness { keys: Vec::new(), ..case.witness.clone() };
            assert_eq!(diagnosis.canonical, Some(bare), "{name}, block {number}");
            count += 1;
        }
        assert_eq!(count, 12);
    }
}

/// Foreign bytes of all kinds: findings or typed errors, never a panic.
#[test]
fn hostile_witnesses_give_findings() {
    let cases = cases(AMSTERDAM, 50);
    let [case, other, ..] = &cases[..] else { return };
    let judge = |witness: &Witness| witness.examine(&case.config, DIFFICULTY, &case.block);
    let header = |witness: &Witness| witness.headers.clone();
    // Of another block.
    let diagnosis = judge(&other.witness);
    let kinds: Vec<_> = diagnosis.findings.counts().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [Kind::Header], "{}", diagnosis.findings);
    // Nothing but a million entries of nothing.
    let many = Witness {
        state: vec![Bytes::from_static(&[0xc0]); 1_000_000],
        headers: header(&case.witness),
        ..Witness::default()
    };
    let diagnosis = judge(&many);
    assert!(diagnosis.findings.count() >= 999_999);
    assert!(diagnosis.findings.iter().count() < 10_000);
    // Deeply nested lists in the place of the root: its digest is another.
    let mut deep = case.witness.clone();
    let mut nested = vec![0xc0];
    for _ in 0..200_000 {
        let mut outer = Vec::new();
        alloy_rlp::Header { list: true, payload_length: nested.len() }.encode(&mut outer);
        if nested.len() > 60 {
            break;
        }
        outer.extend(&nested);
        nested = outer;
    }
    deep.state.push([&[0xff; 8][..], &nested].concat().into());
    let diagnosis = judge(&deep);
    assert_eq!(diagnosis.findings.counts().collect::<Vec<_>>(), [(Kind::Surplus, 1)]);
    // Truncated everywhere.
    for index in 0..case.witness.state.len() {
        let mut cut = case.witness.clone();
        let len = cut.state[index].len();
        cut.state[index].truncate(len / 2);
        assert!(!judge(&cut).is_canonical());
    }
    assert_ne!(B256::ZERO, keccak256(nested));
}

/// The input of guests goes through bytes and back, and every lie in it is an error.
#[test]
fn inputs_of_guests_are_written_and_read() {
    let Some(chain) = shared::chain(AMSTERDAM) else { return };
    let state = State::open(MemoryStore::new(), 1 << 20).unwrap();
    let mut maker = WitnessMaker::start(&chain.genesis, state).unwrap();
    let chain_id = chain.genesis.config.chain_id;
    let mut chance = Chance(7);
    for block in chain.blocks() {
        let made = maker.witness(&block).unwrap().unwrap();
        let number = block.block.header.number;
        let Ok(ssz) = made.to_ssz(chain_id, &block) else {
            assert!(number < 40, "block {number}");
            continue;
        };
        let given = WitnessReader::new(&ssz[..]).next().unwrap().unwrap();
        assert_eq!(given.findings, []);
        assert_eq!((&given.witness, given.chain_id), (&made.witness, Some(chain_id)));
        let read = given.block.unwrap();
        assert_eq!((read.hash, &read.block), (block.hash, &block.block));
        assert_eq!(read.access_list, made.report.access_list);
        let json = made.to_json(spinney_replay::WitnessForm::Canonical);
        let given = WitnessReader::new(json.as_bytes()).next().unwrap().unwrap();
        assert_eq!((given.witness, given.findings), (made.witness.clone(), vec![]));
        if number % 16 != 0 {
            continue;
        }
        for _ in 0..200 {
            let mut bytes = ssz.clone();
            match chance.below(3) {
                0 => bytes.truncate(chance.below(ssz.len())),
                // The offsets lie in front.
                1 => bytes[chance.below(700)] ^= 1 + chance.below(255) as u8,
                _ => bytes[chance.below(ssz.len())] ^= 1 + chance.below(255) as u8,
            }
            // Something is read, or it is an error; what is read is never the same.
            if let Some(Ok(given)) = WitnessReader::new(&bytes[..]).next() {
                let same = given.witness == made.witness
                    && given.block.is_some_and(|read| read.hash == block.hash);
                assert!(!same || given.chain_id != Some(chain_id) || !given.findings.is_empty());
            }
        }
    }
}

/// How many items a node has: 17 are a branch, two a leaf or an extension.
fn items(node: &Bytes) -> usize {
    let mut rest = alloy_rlp::Header::decode_bytes(&mut &node[..], true).unwrap();
    let mut count = 0;
    while !rest.is_empty() {
        let header = alloy_rlp::Header::decode(&mut rest).unwrap();
        rest = &rest[header.payload_length..];
        count += 1;
    }
    count
}

/// The first byte of a short node's path: its flag.
fn flag(node: &Bytes) -> u8 {
    let mut rest = alloy_rlp::Header::decode_bytes(&mut &node[..], true).unwrap();
    let path = alloy_rlp::Header::decode_bytes(&mut rest, false).unwrap();
    path[0] >> 4
}

/// The keys that a block writes by its access list; `None` for chains without lists beside them.
fn written(name: &str) -> HashMap<u64, HashSet<String>> {
    let Some(file) = shared::read(&format!("{name}/bals.ndjson")) else { return HashMap::new() };
    let text = String::from_utf8(file).unwrap();
    let mut blocks = HashMap::new();
    for line in text.lines() {
        let block: Value = serde_json::from_str(line).unwrap();
        let keys = blocks.entry(block["number"].as_u64().unwrap()).or_insert_with(HashSet::new);
        for account in block["accessList"].as_array().unwrap() {
            let has = |what: &str| !account[what].as_array().unwrap().is_empty();
            if ["storageChanges", "balanceChanges", "nonceChanges", "codeChanges"].map(has)
                != [false; 4]
            {
                keys.insert(account["address"].as_str().unwrap().to_owned());
            }
            for change in account["storageChanges"].as_array().unwrap() {
                let slot: U256 = change["slot"].as_str().unwrap().parse().unwrap();
                keys.insert(B256::from(slot).to_string());
            }
        }
    }
    blocks
}

/// A client that names the keys that a block writes, and none that it only reads.
#[test]
fn keys_that_are_only_read_are_missed() {
    let written = written(AMSTERDAM);
    let mut count = 0;
    for case in cases(AMSTERDAM, 1) {
        let number = case.block.block.header.number;
        let Some(written) = written.get(&number) else { continue };
        let is_written = |key: &Bytes| written.contains(&key.to_string());
        let read: Vec<_> = case.witness.keys.iter().filter(|key| !is_written(key)).collect();
        let mut less = case.witness.clone();
        less.keys.retain(is_written);
        assert!(!less.keys.is_empty() && less.keys.len() < case.witness.keys.len());
        let diagnosis = less.examine(&case.config, DIFFICULTY, &case.block);
        let told: Vec<_> = diagnosis.findings.iter().collect();
        assert_eq!(told.len(), read.len(), "block {number}: {}", diagnosis.findings);
        for key in read {
            let names = |text: &str| text.contains(&key.to_string()) && text.contains("account");
            let named = told.iter().filter(|one| one.kind == Kind::Key).map(ToString::to_string);
            assert!(named.map(|text| text.to_lowercase()).any(|text| names(&text)), "{key}");
            count += 1;
        }
    }
    assert!(count > 0 || written.is_empty());
}

/// What clients got wrong within a year (specs/witness.md), each done to a witness where it can be.
#[test]
fn each_known_bug_is_named_in_one_line() {
    let mut cases = cases(AMSTERDAM, 1);
    cases.extend(self::cases(ALL_FORKS, 1));
    let has_chains = !cases.is_empty();
    cases.push(collapse_beside_a_branch());
    let mut seen = std::collections::BTreeMap::<&str, usize>::new();
    let mut named = |case: &Case, bug: &'static str, bad: &Witness, kind: Kind, words: &[&str]| {
        let diagnosis = bad.examine(&case.config, DIFFICULTY, &case.block);
        let number = case.block.block.header.number;
        let fits = diagnosis.findings.iter().any(|finding| {
            let text = finding.to_string().to_lowercase();
            finding.kind == kind && words.iter().all(|word| text.contains(&word.to_lowercase()))
        });
        assert!(fits, "block {number}, {bug}: {kind:?} {words:?}:\n{}", diagnosis.findings);
        *seen.entry(bug).or_default() += 1;
    };
    for case in &cases {
        let whole = case.witness.examine(&case.config, DIFFICULTY, &case.block);
        let without = |index: usize| {
            let mut less = case.witness.clone();
            less.state.remove(index);
            less
        };
        for node in case.others.iter().take(2) {
            let mut more = case.witness.clone();
            let at = more.state.partition_point(|other| other < node);
            more.state.insert(at, node.clone());
            named(case, "a surplus node", &more, Kind::Surplus, &[&digest(node)]);
        }
        for (index, node) in case.witness.state.iter().enumerate() {
            let why = whole.why(&keccak256(node)).unwrap();
            if why.contains("leaves it alone") {
                let words =
                    [digest(node), "whose deletion leaves it alone".into(), "account".into()];
                let words: Vec<_> = words.iter().map(String::as_str).collect();
                let bug = match items(node) {
                    17 => "the survivor of a collapse is a branch",
                    _ => "the sibling at a collapse is left blind",
                };
                named(case, bug, &without(index), Kind::Missing, &words);
            } else if items(node) == 2 && flag(node) < 2 {
                // The branch below an extension: its digest is the extension's last 32 bytes.
                let below = B256::from_slice(&node[node.len() - 32..]);
                let at = case.witness.state.iter().position(|other| keccak256(other) == below);
                if let Some(at) = at {
                    let bug = "the branch below an extension is missing";
                    let words = [below.to_string()];
                    named(case, bug, &without(at), Kind::Missing, &[&words[0], "path"]);
                }
            } else if node.len() > 100 && items(node) == 2 && index % 5 == 0 {
                // An account's leaf, whose storage root lies before the hash of its code.
                let mut stale = case.witness.clone();
                let mut bytes = node.to_vec();
                let at = bytes.len() - 40;
                bytes[at] ^= 0x55;
                stale.state[index] = bytes.clone().into();
                stale.state.sort_unstable();
                let (was, is) = (digest(node), digest(&bytes.into()));
                named(case, "a stale storage root", &stale, Kind::Missing, &[&was, "account"]);
                named(case, "a stale storage root", &stale, Kind::Stale, &[&was, &is, "account"]);
            }
        }
        let mut changed = case.witness.clone();
        if let Some(node) = changed.state.last_mut() {
            let (was, mut bytes) = (digest(node), node.to_vec());
            bytes[40] ^= 1;
            *node = bytes.into();
            named(case, "a node that was changed", &changed, Kind::Missing, &[&was, "path"]);
        }
        for index in (0..case.witness.keys.len()).step_by(7) {
            let mut less = case.witness.clone();
            let key = less.keys.remove(index).to_string();
            named(case, "a preimage is missing in keys", &less, Kind::Key, &[&key, "account"]);
        }
    }
    println!("{seen:?}");
    assert_eq!(seen.get("the survivor of a collapse is a branch"), Some(&1));
    assert!(!has_chains || seen.len() == 7, "{seen:?}");
}
