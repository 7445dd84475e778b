//! Each rule of Amsterdam broken in a block that was made for it: refused, and for which reason.

use alloy_consensus::{Header, proofs::calculate_transaction_root};
use alloy_eip7928::{
    AccountChanges, BalanceChange, BlockAccessIndex, BlockAccessList, CodeChange, NonceChange,
    SlotChanges, StorageChange, compute_block_access_list_hash,
};
use alloy_eips::{
    eip7002::WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS, eip7251::CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS,
};
use alloy_primitives::{Address, B256, Bloom, Bytes, U256, address, hex};
use serde_json::{Value, json};
use spinney_replay::{
    BadBlock, ChainBlock, Check, Fork, Replay, ReplayError, TextbookState, Transaction,
};

use crate::made::{Actor, Made};

const BUILDER_DEPOSITS: Address = address!("0000bff46984e3725691fa540a8c7589300d8282");
const BUILDER_EXITS: Address = address!("000064d678505ad48f8ccb093bc65613800e8282");
/// Sets slot 2, reads slot 3 and stores the slot number in slot 4.
const CONTRACT: Address = address!("00000000000000000000000000000000000000aa");
/// Nobody looks at it.
const STRANGER: Address = address!("00000000000000000000000000000000000000bb");

fn alloc() -> Value {
    let stop = json!({"code": "0x00", "nonce": "0x1"});
    json!({
        WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS.to_string(): stop,
        CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS.to_string(): stop,
        BUILDER_DEPOSITS.to_string(): stop,
        BUILDER_EXITS.to_string(): stop,
        CONTRACT.to_string(): {"code": "0x600160025560035450" .to_owned() + "4b60045500", "nonce": "0x1"},
    })
}

/// A good block, the chain before it, and its list.
struct Good {
    before: Replay<TextbookState>,
    block: ChainBlock,
    list: BlockAccessList,
}

/// A block that calls the contract, sends something and makes a contract.
fn good() -> Good {
    let mut chain = Made::at(Fork::Amsterdam, alloc());
    let mut actor = Actor::new(1);
    let create = Bytes::from_static(&hex!("60016000f3"));
    let transactions = vec![
        actor.legacy(Some(CONTRACT), 500_000, Bytes::new()),
        actor.legacy(None, 900_000, create),
    ];
    of(&mut chain, transactions)
}

fn of(chain: &mut Made, transactions: Vec<Transaction>) -> Good {
    let before = chain.replay.clone();
    let block = chain.block(transactions);
    let report = before.clone().block(&block).unwrap().unwrap();
    Good { before, block, list: report.access_list.unwrap() }
}

impl Good {
    /// What is said of the block with another header, and with a list if one is given.
    fn with(&self, list: Option<BlockAccessList>, change: impl FnOnce(&mut Header)) -> BadBlock {
        let mut block = self.block.block.clone();
        change(&mut block.header);
        let mut block = ChainBlock::new(block);
        block.access_list = list;
        refused(&self.before, &block)
    }

    /// What is said of another list, which the header names.
    fn listed(&self, change: impl FnOnce(&mut BlockAccessList)) -> BadBlock {
        let mut list = self.list.clone();
        change(&mut list);
        let hash = compute_block_access_list_hash(&list);
        self.with(Some(list), |header| header.block_access_list_hash = Some(hash))
    }
}

fn refused(before: &Replay<TextbookState>, block: &ChainBlock) -> BadBlock {
    let mut replay = before.clone();
    let root = replay.state().root();
    let Err(ReplayError::BadBlock(bad)) = replay.block(block) else {
        panic!("the block is taken");
    };
    assert_eq!(replay.state().root(), root, "something of the block stayed");
    *bad
}

fn account(list: &mut BlockAccessList, address: Address) -> &mut AccountChanges {
    list.iter_mut().find(|account| account.address == address).unwrap()
}

/// The refusal is for the list, and says all of this.
fn says(bad: &BadBlock, words: &[&str]) {
    assert_eq!(bad.what, Check::AccessList, "{bad}");
    let text = bad.to_string().to_lowercase();
    for word in words {
        assert!(text.contains(&word.to_lowercase()), "{word}: {bad}");
    }
}

#[test]
fn a_list_that_lacks_adds_or_changes_an_entry_is_named_by_its_place() {
    let good = good();
    let contract = CONTRACT.to_string();
    let sender = Actor::new(1).address.to_string();
    // Lacks: a slot that is read, one that is written, an account, a nonce, a code.
    says(
        &good.listed(|list| account(list, CONTRACT).storage_reads.clear()),
        &[&contract, "read of slot 0x3", "listed, got nothing there"],
    );
    says(
        &good.listed(|list| drop(account(list, CONTRACT).storage_changes.remove(0))),
        &[&contract, "slot 0x2, transaction 0", "expected", "0x1, got nothing there"],
    );
    says(
        &good.listed(|list| list.retain(|account| account.address != BUILDER_EXITS)),
        &[&BUILDER_EXITS.to_string(), "listed, got nothing there"],
    );
    says(
        &good.listed(|list| account(list, Actor::new(1).address).nonce_changes.truncate(1)),
        &[&sender, "nonce, transaction 1", "got nothing there"],
    );
    says(
        &good.listed(|list| {
            let made = list.iter_mut().find(|account| !account.code_changes.is_empty()).unwrap();
            made.code_changes.clear();
        }),
        &["code, transaction 1", "got nothing there"],
    );
    // Adds: an account, a read, a write that nothing made, a balance.
    says(
        &good.listed(|list| list.insert(0, AccountChanges::new(Address::ZERO))),
        &[&Address::ZERO.to_string(), "nothing there, got listed"],
    );
    says(
        &good.listed(|list| account(list, CONTRACT).storage_reads.push(U256::from(9))),
        &[&contract, "read of slot 0x9", "nothing there, got listed"],
    );
    let index = BlockAccessIndex::new(2);
    says(
        &good.listed(|list| {
            let change = StorageChange::new(index, U256::from(7));
            account(list, CONTRACT)
                .storage_changes
                .push(SlotChanges::new(U256::from(8), vec![change]));
        }),
        &[&contract, "slot 0x8, transaction 1", "nothing there, got 0x7"],
    );
    says(
        &good.listed(|list| {
            let change = BalanceChange::new(index, U256::from(7));
            account(list, CONTRACT).balance_changes.push(change);
        }),
        &[&contract, "balance, transaction 1", "nothing there, got 7"],
    );
    says(
        &good.listed(|list| {
            account(list, CONTRACT).nonce_changes.push(NonceChange::new(index, 7));
        }),
        &[&contract, "nonce, transaction 1", "nothing there, got 7"],
    );
    says(
        &good.listed(|list| {
            let change = CodeChange::new(BlockAccessIndex::new(3), Bytes::from_static(&[7]));
            account(list, CONTRACT).code_changes.push(change);
        }),
        &[&contract, "code, after the transactions", "nothing there, got 0x07"],
    );
    // Changes: another value, another index.
    says(
        &good.listed(|list| {
            account(list, CONTRACT).storage_changes[0].changes[0].new_value = U256::from(5);
        }),
        &[&contract, "slot 0x2, transaction 0", "0x1, got 0x5"],
    );
    says(
        &good.listed(|list| {
            let change = &mut account(list, CONTRACT).storage_changes[0].changes[0];
            change.block_access_index = BlockAccessIndex::new(0);
        }),
        &[&contract, "slot 0x2, before the transactions", "nothing there, got 0x1"],
    );
    // Without the list only the hashes are known.
    let bad = good.with(None, |header| header.block_access_list_hash = Some(B256::ZERO));
    says(&bad, &[&compute_block_access_list_hash(&good.list).to_string()]);
    // A list that is not the one that the header names.
    let mut other = good.list.clone();
    other.pop();
    says(&good.with(Some(other), |_| {}), &["the list of"]);
    assert!(good.list.iter().all(|account| account.address != STRANGER));
}

#[test]
fn a_list_in_another_order_or_with_doubles_is_refused() {
    let good = good();
    for change in [
        (|list: &mut BlockAccessList| list.swap(0, 1)) as fn(&mut BlockAccessList),
        |list| account(list, CONTRACT).storage_changes.swap(0, 1),
        |list| account(list, CONTRACT).storage_reads.push(U256::from(1)),
        |list| list.insert(1, list[0].clone()),
        |list| account(list, CONTRACT).storage_reads.push(U256::from(2)),
        |list| {
            let changes = &mut account(list, CONTRACT).storage_changes[0].changes;
            changes.push(changes[0].clone());
        },
        |list| {
            let change = BalanceChange::new(BlockAccessIndex::new(99), U256::ONE);
            account(list, CONTRACT).balance_changes.push(change);
        },
    ] {
        says(&good.listed(change), &["a list in its order"]);
    }
}

#[test]
fn a_list_of_more_items_than_the_gas_limit_allows_is_refused() {
    // The system contracts and their like are more than two and a half items.
    let mut chain = Made::with_gas_limit(Fork::Amsterdam, alloc(), 5_100);
    let proposal = chain.proposal(Vec::new(), Vec::new());
    let bad = chain.seal(proposal).unwrap_err();
    says(&bad, &["at most 2 accounts and slots for its gas limit"]);
}

#[test]
fn the_header_has_its_fields_from_the_fork_on_and_not_before() {
    let good = good();
    let bad = good.with(None, |header| header.slot_number = None);
    assert_eq!(bad.what, Check::Field("slot number"), "{bad}");
    let bad = good.with(None, |header| {
        header.block_access_list_hash = None;
        header.slot_number = None;
    });
    assert_eq!(bad.what, Check::Field("block access list hash"), "{bad}");
    // Another slot number is another execution: the contract stores it.
    let bad = good.with(None, |header| header.slot_number = Some(12_345));
    assert!(matches!(bad.what, Check::AccessList | Check::StateRoot), "{bad}");

    let mut early = Made::at(Fork::Osaka, alloc());
    let before = early.replay.clone();
    let block = early.block(Vec::new());
    let mut fields = block.block.clone();
    fields.header.block_access_list_hash = Some(B256::ZERO);
    let bad = refused(&before, &ChainBlock::new(fields.clone()));
    assert_eq!(bad.what, Check::Field("block access list hash"), "{bad}");
    fields.header.block_access_list_hash = None;
    let mut listed = ChainBlock::new(block.block);
    listed.access_list = Some(good.list);
    let bad = refused(&before, &listed);
    assert_eq!(bad.what, Check::Field("access list"), "{bad}");
}

#[test]
fn gas_is_counted_in_two_dimensions() {
    let good = good();
    let gas = good.block.block.header.gas_used;
    let bad = good.with(None, |header| header.gas_used = gas + 1);
    assert_eq!(bad.what, Check::GasUsed, "{bad}");
    assert_eq!(bad.expected, gas.to_string());
    // The slots that are new take more than all else: the header has the state gas.
    let bad = good.with(None, |header| header.gas_used = 100_000);
    assert_eq!((bad.what, bad.got.as_str()), (Check::GasUsed, "100000"), "{bad}");

    // What is left in the block is asked for in each dimension.
    let mut chain = Made::with_gas_limit(Fork::Amsterdam, alloc(), 1_000_000);
    let mut actor = Actor::new(1);
    let first = actor.legacy(Some(CONTRACT), 500_000, Bytes::new());
    let second = actor.legacy(Some(CONTRACT), 900_000, Bytes::new());
    let proposal = chain.proposal(vec![first, second], Vec::new());
    let bad = chain.seal(proposal).unwrap_err();
    assert_eq!(bad.what, Check::Transaction(1), "{bad}");
    assert!(bad.expected.contains("gas that is left"), "{bad}");
}

#[test]
fn transactions_pay_what_the_fork_asks_for() {
    let chain = || Made::at(Fork::Amsterdam, alloc());
    let bad = |transaction| {
        let mut chain = chain();
        let proposal = chain.proposal(vec![transaction], Vec::new());
        let bad = chain.seal(proposal).unwrap_err();
        assert_eq!(bad.what, Check::Transaction(0), "{bad}");
        bad.got
    };
    // EIP-2780: a call without value takes 15,000, one less is too little.
    let call = |gas| Actor::new(1).legacy(Some(STRANGER), gas, Bytes::new());
    let got = bad(call(14_999));
    assert!(got.contains("gas"), "{got}");
    chain().block(vec![call(15_000)]);
    // EIP-7976: long data has a floor that no execution gets under.
    let long = |gas| Actor::new(1).legacy(Some(STRANGER), gas, Bytes::from(vec![1; 1_000]));
    let got = bad(long(40_000));
    assert!(got.contains("gas"), "{got}");
    chain().block(vec![long(400_000)]);
    // EIP-7954: code that makes a contract has 131,072 bytes at most.
    let create = |len| Actor::new(1).legacy(None, 16_000_000, Bytes::from(vec![0; len]));
    let got = bad(create(131_073)).to_lowercase();
    assert!(got.contains("size"), "{got}");
    chain().block(vec![create(131_072)]);
}

#[test]
fn the_request_contracts_of_builders_have_to_be_there_and_to_succeed() {
    for contract in [BUILDER_DEPOSITS, BUILDER_EXITS] {
        let mut without = alloc();
        without.as_object_mut().unwrap().remove(&contract.to_string());
        let mut chain = Made::at(Fork::Amsterdam, without.clone());
        let proposal = chain.proposal(Vec::new(), Vec::new());
        let bad = chain.seal(proposal).unwrap_err();
        assert_eq!(bad.what, Check::SystemCall, "{bad}");
        assert!(bad.got.contains(&contract.to_string()), "{bad}");
        // 0xfe, an invalid instruction.
        without[contract.to_string()] = json!({"code": "0xfe", "nonce": "0x1"});
        let mut chain = Made::at(Fork::Amsterdam, without);
        let proposal = chain.proposal(Vec::new(), Vec::new());
        let bad = chain.seal(proposal).unwrap_err();
        assert_eq!(bad.what, Check::SystemCall, "{bad}");
    }
    // An exit that the header does not have: 68 bytes of zeros.
    let mut with_exit = alloc();
    with_exit[BUILDER_EXITS.to_string()] = json!({"code": "0x60446000f3", "nonce": "0x1"});
    let mut chain = Made::at(Fork::Amsterdam, with_exit);
    let none = Made::at(Fork::Amsterdam, alloc()).block(Vec::new());
    let good = of(&mut chain, Vec::new());
    let bad = good.with(None, |header| header.requests_hash = none.block.header.requests_hash);
    assert_eq!(bad.what, Check::RequestsHash, "{bad}");
}

#[test]
fn a_transfer_is_in_the_logs() {
    // EIP-7708: the contract sends on what it has, so there is a log that no contract made.
    let mut alloc = alloc();
    let send = hex!("6000600060006000600160bb61fffff1");
    let code = format!("0x{}", hex::encode(send));
    alloc[CONTRACT.to_string()] = json!({"code": code, "nonce": "0x1", "balance": "0x5"});
    let mut chain = Made::at(Fork::Amsterdam, alloc);
    let good = of(&mut chain, vec![Actor::new(1).legacy(Some(CONTRACT), 900_000, Bytes::new())]);
    assert_ne!(good.block.block.header.logs_bloom, Bloom::ZERO);
    let bad = good.with(None, |header| header.logs_bloom = Bloom::ZERO);
    assert_eq!(bad.what, Check::LogsBloom, "{bad}");
    let root = calculate_transaction_root(&good.block.block.body.transactions);
    let bad = good.with(None, |header| header.receipts_root = root);
    assert_eq!(bad.what, Check::ReceiptsRoot, "{bad}");
}

/// A genesis may name a fork that nobody knows; its first block is refused, and none before it.
#[test]
fn an_unknown_fork_is_refused_when_a_block_of_it_comes() {
    let config = |time: u64| {
        let mut config = json!({"terminalTotalDifficulty": 0, "mergeNetsplitBlock": 0});
        for fork in [
            "homestead",
            "eip150",
            "eip155",
            "eip158",
            "byzantium",
            "constantinople",
            "petersburg",
            "istanbul",
            "muirGlacier",
            "berlin",
            "london",
            "arrowGlacier",
            "grayGlacier",
        ] {
            config[format!("{fork}Block")] = json!(0);
        }
        for fork in ["shanghai", "cancun", "prague", "osaka", "amsterdam"] {
            config[format!("{fork}Time")] = json!(0);
        }
        config["bogotaTime"] = json!(time);
        config
    };
    // The genesis is of second 1,000, and blocks are twelve seconds apart.
    let mut chain = Made::new(config(1_024), alloc(), 40_000_000);
    let known = chain.block(Vec::new());
    assert_eq!(known.block.header.timestamp, 1_012);
    let unknown = ChainBlock::new(chain.proposal(Vec::new(), Vec::new()).0);
    let Err(ReplayError::Unsupported { number: 2, rules }) = chain.replay.block(&unknown) else {
        panic!("it is taken");
    };
    assert!(rules.contains("bogota"), "{rules}");
}
