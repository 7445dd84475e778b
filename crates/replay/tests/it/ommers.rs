//! Ommers: kin, of an age, named once, with headers that follow the rules.

use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, U256};
use serde_json::json;
use spinney_replay::{ChainBlock, Check, Replay, ReplayError, TextbookState};

use crate::made::{Made, with_ommers};

/// The number of the block that has ommers.
const NUMBER: usize = 10;

/// A chain of proof of work, and the block after it with one good ommer of some depth.
struct Family {
    chain: Made,
    blocks: Vec<ChainBlock>,
}

impl Family {
    fn new() -> Self {
        let mut chain = Made::of_work(json!({}));
        let blocks = (1..NUMBER).map(|_| chain.block(Vec::new())).collect();
        Self { chain, blocks }
    }

    /// A header that could have been block `number`.
    fn sibling(&self, number: usize) -> Header {
        let mut header = self.blocks[number - 1].block.header.clone();
        header.extra_data = Bytes::from_static(b"another");
        header
    }

    /// The block with a good ommer of this number. Rewards depend on its number and beneficiary
    /// alone, so all else of the block stays right if another one that has both takes its place.
    fn block(&self, number: usize) -> ChainBlock {
        let mut made = Self::new();
        assert_eq!(made.chain.replay.head(), self.chain.replay.head());
        let proposal = made.chain.proposal(Vec::new(), vec![self.sibling(number)]);
        made.chain.seal(proposal).unwrap()
    }

    /// What a replay says to the block.
    fn refusal(&self, block: &ChainBlock) -> Option<String> {
        match self.chain.replay.clone().block(block) {
            Ok(report) => report.map(|_| None).unwrap(),
            Err(ReplayError::BadBlock(bad)) => {
                assert_eq!(bad.what, Check::Ommers, "{bad}");
                Some(bad.to_string())
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn kin_of_one_to_six_generations_are_taken() {
    let family = Family::new();
    for number in NUMBER - 6..NUMBER {
        assert_eq!(family.refusal(&family.block(number)), None, "number {number}");
    }
}

#[test]
fn an_ommer_is_of_the_family_and_no_ancestor() {
    let family = Family::new();
    let number = NUMBER - 2;
    let good = family.block(number);
    let refused = |ommer: Header, why: &str| {
        let block = with_ommers(&good, vec![ommer]);
        let said = family.refusal(&block).unwrap_or_else(|| panic!("it is taken: {why}"));
        assert!(said.contains(why), "{said}");
    };
    let stranger = Header { parent_hash: B256::repeat_byte(7), ..family.sibling(number) };
    refused(stranger, "a child of an ancestor before the parent");
    let parent = family.blocks[NUMBER - 2].hash;
    let sibling = Header { parent_hash: parent, ..family.sibling(number) };
    refused(sibling, "a child of an ancestor before the parent");
    refused(family.blocks[number - 1].block.header.clone(), "an ancestor");
}

#[test]
fn an_ommer_is_at_most_six_generations_old() {
    let family = Family::new();
    let good = family.block(NUMBER - 6);
    for number in [NUMBER - 7, NUMBER, NUMBER + 1] {
        let ommer = Header { number: number as u64, ..family.sibling(NUMBER - 6) };
        let said = family.refusal(&with_ommers(&good, vec![ommer])).expect("it is refused");
        assert!(said.contains("one of the 6 numbers before"), "{said}");
    }
    // Kin, and a generation too old: its parent is the eighth before.
    let said = family.refusal(&with_ommers(&good, vec![family.sibling(NUMBER - 7)]));
    assert!(said.expect("it is refused").contains("one of the 6 numbers before"));
}

#[test]
fn an_ommer_is_named_once() {
    let mut family = Family::new();
    let ommer = family.sibling(NUMBER - 2);
    let good = family.block(NUMBER - 2);
    let twice = with_ommers(&good, vec![ommer.clone(), ommer.clone()]);
    assert!(family.refusal(&twice).expect("it is refused").contains("named again"));
    // The block names it, and then so does the next one. All else of that is as with another ommer.
    let mut other = ommer.clone();
    other.extra_data = Bytes::from_static(b"a third");
    family.chain.replay.block(&good).unwrap().unwrap();
    let mut chain = Family::new().chain;
    chain.replay.block(&good).unwrap().unwrap();
    let proposal = chain.proposal(Vec::new(), vec![other]);
    let next = chain.seal(proposal).unwrap();
    assert_eq!(family.refusal(&next), None);
    let again = with_ommers(&next, vec![ommer]);
    assert!(family.refusal(&again).expect("it is refused").contains("named again"));
}

#[test]
fn there_are_at_most_two_ommers() {
    let family = Family::new();
    let good = family.block(NUMBER - 2);
    let ommers = [&b"a"[..], b"b", b"c"].map(|name| {
        let extra_data = Bytes::from_static(name);
        Header { extra_data, ..family.sibling(NUMBER - 2) }
    });
    let said = family.refusal(&with_ommers(&good, ommers.to_vec()));
    assert!(said.expect("it is refused").contains("at most 2"));
}

#[test]
fn the_header_of_an_ommer_follows_the_rules() {
    let family = Family::new();
    let good = family.block(NUMBER - 2);
    let parent = family.blocks[NUMBER - 4].block.header.clone();
    type Edit = fn(&mut Header, &Header);
    let edits: [(&str, Edit); 9] = [
        ("difficulty", |ommer, _| ommer.difficulty += U256::ONE),
        ("difficulty", |ommer, _| ommer.timestamp += 100),
        ("timestamp", |ommer, parent| ommer.timestamp = parent.timestamp),
        ("gas limit", |ommer, parent| ommer.gas_limit = parent.gas_limit * 2),
        ("gas limit", |ommer, _| ommer.gas_limit = 4_999),
        ("gas used", |ommer, _| ommer.gas_used = ommer.gas_limit + 1),
        ("extra data", |ommer, _| ommer.extra_data = vec![0; 33].into()),
        ("base fee", |ommer, _| ommer.base_fee_per_gas = Some(7)),
        ("number", |ommer, parent| ommer.parent_hash = parent.parent_hash),
    ];
    for (what, edit) in edits {
        let mut ommer = family.sibling(NUMBER - 2);
        edit(&mut ommer, &parent);
        let said = family.refusal(&with_ommers(&good, vec![ommer]));
        let said = said.unwrap_or_else(|| panic!("it is taken: {what}"));
        assert!(said.contains(&format!("ommer 0: {what}")), "{what}: {said}");
    }
    // What a seal is, and what follows from a body that nobody has, is not looked at.
    let mut ommer = family.sibling(NUMBER - 2);
    (ommer.mix_hash, ommer.state_root) = (B256::repeat_byte(1), B256::repeat_byte(2));
    assert_eq!(family.refusal(&with_ommers(&good, vec![ommer])), None);
}

/// A state that goes on with blocks of which the first are not given.
#[test]
fn parents_that_are_not_known_are_asked_for() {
    let family = Family::new();
    let block = family.block(NUMBER - 6);
    let resumed = |first: usize| {
        let head = family.chain.replay.head();
        let state: TextbookState = family.chain.replay.state().clone();
        let (number, hash) = (head.header.number, head.hash);
        let mut replay = Replay::resume(&family.chain.genesis, state, number, hash).unwrap();
        for known in &family.blocks[first - 1..] {
            assert!(replay.block(known).unwrap().is_none());
        }
        replay.block(&block).map(|report| report.map(|report| report.number))
    };
    assert_eq!(resumed(1).unwrap(), Some(NUMBER as u64));
    assert_eq!(resumed(NUMBER - 7).unwrap(), Some(NUMBER as u64));
    let outcome = resumed(NUMBER - 6);
    let number = NUMBER as u64;
    assert!(
        matches!(outcome, Err(ReplayError::Ancestors { number: at }) if at == number),
        "{outcome:?}"
    );
}
