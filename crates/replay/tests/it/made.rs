//! Blocks made for a test: their headers say what executing them does, unless a test says
//! otherwise.

use alloy_consensus::{
    Block, BlockBody, EMPTY_OMMER_ROOT_HASH, Header, SignableTransaction, TxLegacy,
    constants::EMPTY_WITHDRAWALS,
    proofs::{calculate_ommers_root, calculate_transaction_root},
};
use alloy_primitives::{Address, B256, Bytes, Signature, TxKind, U256, keccak256};
use k256::ecdsa::SigningKey;
use serde_json::{Value, json};
use spinney_replay::{
    BadBlock, ChainBlock, Check, Fork, Genesis, Replay, ReplayError, TextbookState, Transaction,
};

const CHAIN_ID: u64 = 4_242;
const GAS_LIMIT: u64 = 40_000_000;
const GENESIS_TIME: u64 = 1_000;
const GAS_PRICE: u128 = 100_000_000_000;

/// A chain that grows block by block.
pub(crate) struct Made {
    pub(crate) genesis: Genesis,
    pub(crate) replay: Replay<TextbookState>,
}

impl Made {
    /// `config` is that of a genesis; the first account of [`Actor`] is rich.
    pub(crate) fn new(mut config: Value, mut alloc: Value, gas_limit: u64) -> Self {
        config["chainId"] = json!(CHAIN_ID);
        alloc[Actor::new(1).address.to_string()] = json!({"balance": "0xffffffffffffffffffff"});
        let file = json!({
            "config": config, "alloc": alloc, "difficulty": "0x2000000", "timestamp": GENESIS_TIME,
            "gasLimit": gas_limit, "baseFeePerGas": "0x7",
        });
        let genesis = Genesis::parse(file.to_string().as_bytes()).unwrap();
        let replay = Replay::start(&genesis, TextbookState::new()).unwrap();
        Self { genesis, replay }
    }

    /// A chain of proof of work.
    pub(crate) fn of_work(alloc: Value) -> Self {
        let mut config = json!({});
        for fork in ["homestead", "eip150", "eip155", "eip158", "byzantium", "constantinople"] {
            config[format!("{fork}Block")] = json!(0);
        }
        Self::new(config, alloc, GAS_LIMIT)
    }

    /// A chain of proof of stake that is at `fork` from its genesis on.
    pub(crate) fn at(fork: Fork, alloc: Value) -> Self {
        Self::with_gas_limit(fork, alloc, GAS_LIMIT)
    }

    /// The same, with blocks of another size.
    pub(crate) fn with_gas_limit(fork: Fork, alloc: Value, gas_limit: u64) -> Self {
        let mut config = json!({"terminalTotalDifficulty": 0, "mergeNetsplitBlock": 0});
        let blocks = [
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
        ];
        for block in blocks {
            config[format!("{block}Block")] = json!(0);
        }
        let times = [
            (Fork::Shanghai, "shanghai"),
            (Fork::Cancun, "cancun"),
            (Fork::Prague, "prague"),
            (Fork::Osaka, "osaka"),
            (Fork::Amsterdam, "amsterdam"),
        ];
        for (_, name) in times.into_iter().filter(|(first, _)| *first <= fork) {
            config[format!("{name}Time")] = json!(0);
        }
        Self::new(config, alloc, gas_limit)
    }

    /// The next block, not yet as its header has to say it is.
    pub(crate) fn proposal(&self, transactions: Vec<Transaction>, ommers: Vec<Header>) -> Proposal {
        let parent = self.replay.head();
        let number = parent.header.number + 1;
        let timestamp = parent.header.timestamp + 12;
        let fork = self.genesis.config.fork(number, timestamp, parent.total_difficulty);
        let since = |first| fork >= first;
        let header = Header {
            parent_hash: parent.hash,
            ommers_hash: calculate_ommers_root(&ommers),
            beneficiary: Address::repeat_byte(0xc0),
            transactions_root: calculate_transaction_root(&transactions),
            number,
            gas_limit: parent.header.gas_limit,
            timestamp,
            base_fee_per_gas: since(Fork::London).then_some(7),
            withdrawals_root: since(Fork::Shanghai).then_some(EMPTY_WITHDRAWALS),
            blob_gas_used: since(Fork::Cancun).then_some(0),
            excess_blob_gas: since(Fork::Cancun).then_some(0),
            parent_beacon_block_root: since(Fork::Cancun).then_some(B256::ZERO),
            requests_hash: since(Fork::Prague).then_some(B256::ZERO),
            block_access_list_hash: since(Fork::Amsterdam).then_some(B256::ZERO),
            slot_number: since(Fork::Amsterdam).then_some(number),
            ..Header::default()
        };
        let withdrawals = since(Fork::Shanghai).then(Default::default);
        Proposal(Block::new(header, BlockBody { transactions, ommers, withdrawals }))
    }

    /// Executes a proposal again and again, and each time puts into the header what the replay asks
    /// for. The block that it takes in the end, or what it says to something else.
    pub(crate) fn seal(&mut self, proposal: Proposal) -> Result<ChainBlock, BadBlock> {
        let mut block = proposal.0;
        loop {
            let sealed = ChainBlock::new(block.clone());
            match self.replay.block(&sealed) {
                Ok(report) => {
                    return report.map(|_| sealed).ok_or_else(|| panic!("it is followed"));
                }
                Err(ReplayError::BadBlock(bad)) if mend(&mut block.header, &bad) => {}
                Err(ReplayError::BadBlock(bad)) => return Err(*bad),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The next block with these transactions.
    pub(crate) fn block(&mut self, transactions: Vec<Transaction>) -> ChainBlock {
        let proposal = self.proposal(transactions, Vec::new());
        self.seal(proposal).unwrap()
    }
}

/// A block whose header does not say yet what executing it does.
#[derive(Clone, Debug)]
pub(crate) struct Proposal(pub(crate) Block<Transaction>);

/// Puts into a header what is asked for, where it is a value that follows from the rest.
fn mend(header: &mut Header, bad: &BadBlock) -> bool {
    let number = || bad.expected.parse::<u64>().unwrap();
    let hash = || bad.expected.parse::<B256>().unwrap();
    match bad.what {
        // Else it is a list that no header can make good.
        Check::AccessList => match bad.expected.parse() {
            Ok(hash) => header.block_access_list_hash = Some(hash),
            Err(_) => return false,
        },
        Check::BaseFee => header.base_fee_per_gas = Some(number()),
        Check::ExcessBlobGas => header.excess_blob_gas = Some(number()),
        Check::Difficulty => header.difficulty = U256::from(number()),
        // More than the limit is no question of what the header says.
        Check::GasUsed if bad.expected.starts_with("at most") => return false,
        Check::GasUsed => header.gas_used = number(),
        Check::LogsBloom => header.logs_bloom = bad.expected.parse().unwrap(),
        Check::ReceiptsRoot => header.receipts_root = hash(),
        Check::RequestsHash => header.requests_hash = Some(hash()),
        Check::StateRoot => header.state_root = hash(),
        _ => return false,
    }
    true
}

/// Puts other ommers into a block.
pub(crate) fn with_ommers(block: &ChainBlock, ommers: Vec<Header>) -> ChainBlock {
    let mut block = block.block.clone();
    block.header.ommers_hash = match ommers.is_empty() {
        true => EMPTY_OMMER_ROOT_HASH,
        false => calculate_ommers_root(&ommers),
    };
    block.body.ommers = ommers;
    ChainBlock::new(block)
}

/// Somebody who can sign.
pub(crate) struct Actor {
    key: SigningKey,
    pub(crate) address: Address,
    nonce: u64,
}

impl Actor {
    pub(crate) fn new(seed: u8) -> Self {
        let key = SigningKey::from_slice(&[seed; 32]).unwrap();
        let point = key.verifying_key().to_encoded_point(false);
        let address = Address::from_slice(&keccak256(&point.as_bytes()[1..])[12..]);
        Self { key, address, nonce: 0 }
    }

    pub(crate) fn signature(&self, hash: B256) -> Signature {
        let (signature, recovery) = self.key.sign_prehash_recoverable(hash.as_slice()).unwrap();
        let (r, s) = signature.split_bytes();
        let (r, s) = (U256::from_be_slice(&r), U256::from_be_slice(&s));
        Signature::new(r, s, recovery.is_y_odd())
    }

    /// A call, or a creation where `to` is none.
    pub(crate) fn legacy(
        &mut self,
        to: Option<Address>,
        gas_limit: u64,
        input: Bytes,
    ) -> Transaction {
        let transaction = TxLegacy {
            chain_id: Some(CHAIN_ID),
            nonce: self.nonce,
            gas_price: GAS_PRICE,
            gas_limit,
            to: to.map_or(TxKind::Create, TxKind::Call),
            value: U256::ZERO,
            input,
        };
        self.nonce += 1;
        let signature = self.signature(transaction.signature_hash());
        Transaction::Legacy(transaction.into_signed(signature))
    }
}
