//! Who does what in a sample chain.

use alloy_consensus::{SignableTransaction, TxEip1559, TxEip2930, TxEip4844, TxEip7702, TxLegacy};
use alloy_eips::{
    eip2930::{AccessList, AccessListItem},
    eip4844::VERSIONED_HASH_VERSION_KZG,
    eip4895::{Withdrawal, Withdrawals},
    eip7702::Authorization,
};
use alloy_primitives::{Address, B256, Bytes, Signature, TxKind, U256, keccak256};
use k256::ecdsa::SigningKey;

use super::contracts;
use super::random::Random;
use crate::source::Transaction;

const GWEI: u128 = 1_000_000_000;
/// What a transaction may pay for gas: above any base fee of a sample chain.
const FEE_MAX: u128 = 20 * GWEI;
const TRANSFER_GAS: u64 = 21_000;
const CALL_GAS: u64 = 150_000;
const DEPLOY_GAS: u64 = 500_000;
const SLOT_GAS: u64 = 22_500;
const LEDGER_RUN_MAX: u64 = 24;
const VALIDATOR_COUNT: usize = 64;
const WITHDRAWAL_COUNT_MAX: u64 = 8;
/// Each with up to two blobs: below what any schedule allows a block.
const BLOB_TRANSACTION_COUNT_MAX: u64 = 3;
const BLOB_COUNT_MAX: u64 = 2;

/// An account that can sign.
#[derive(Debug)]
struct Actor {
    key: SigningKey,
    address: Address,
    nonce: u64,
}

/// The people of a sample chain and what they know of its contracts.
// Fields: what each kind of transaction draws from.
#[derive(Debug)]
pub(crate) struct Workload {
    chain_id: u64,
    random: Random,
    actors: Vec<Actor>,
    /// Everybody who has ever been paid, the best known first.
    crowd: Vec<Address>,
    validators: Vec<Address>,
    token: Address,
    ledger: Address,
    ledger_len: u64,
    factory: Address,
    /// Children of the factory that are there, and salts of those that are gone.
    alive: Vec<u64>,
    gone: Vec<u64>,
    next_salt: u64,
    next_withdrawal: u64,
}

/// A transaction before it is signed.
struct Intent {
    to: TxKind,
    value: U256,
    input: Bytes,
    gas_limit: u64,
}

impl Workload {
    pub(crate) fn new(chain_id: u64, seed: u64, actor_count: usize, crowd_count: usize) -> Self {
        let mut random = Random::new(seed);
        let actors: Vec<_> = (0..actor_count).map(|_| Actor::new(&mut random)).collect();
        let strangers = (0..crowd_count).map(|_| Address::from(random.bytes())).collect::<Vec<_>>();
        let crowd = actors.iter().map(|actor| actor.address).chain(strangers).collect();
        let validators = (0..VALIDATOR_COUNT).map(|_| Address::from(random.bytes())).collect();
        let owner = actors[0].address;
        Self {
            chain_id,
            random,
            actors,
            crowd,
            validators,
            token: owner.create(0),
            ledger: owner.create(1),
            ledger_len: 0,
            factory: owner.create(2),
            alive: Vec::new(),
            gone: Vec::new(),
            next_salt: 0,
            next_withdrawal: 0,
        }
    }

    /// Who can sign, and needs ether from the start.
    pub(crate) fn senders(&self) -> impl Iterator<Item = Address> {
        self.actors.iter().map(|actor| actor.address)
    }

    /// All that have ether at the start.
    pub(crate) fn crowd(&self) -> &[Address] {
        &self.crowd
    }

    /// The transactions of the next block, with their senders, as far as its gas goes.
    pub(crate) fn transactions(
        &mut self,
        number: u64,
        count: u64,
        gas_limit: u64,
    ) -> (Vec<Transaction>, Vec<Address>) {
        let mut gas_left = gas_limit;
        let (mut transactions, mut senders) = (Vec::new(), Vec::new());
        let mut push = |workload: &mut Self, actor: usize, intent: Intent| {
            gas_left = gas_left.saturating_sub(intent.gas_limit);
            transactions.push(workload.sign(actor, intent));
            senders.push(workload.actors[actor].address);
            gas_left >= DEPLOY_GAS.max(LEDGER_RUN_MAX * SLOT_GAS + CALL_GAS)
        };
        if number == 1 {
            for runtime in [contracts::token(), contracts::ledger(), contracts::factory()] {
                let input = contracts::deploy(&runtime);
                let (to, value) = (TxKind::Create, U256::ZERO);
                push(self, 0, Intent { to, value, input, gas_limit: DEPLOY_GAS });
            }
        }
        for _ in 0..count {
            let actor = self.random.skewed(self.actors.len());
            let intent = self.intent();
            if !push(self, actor, intent) {
                return (transactions, senders);
            }
        }
        for _ in 0..self.random.below(BLOB_TRANSACTION_COUNT_MAX + 1) {
            transactions.push(self.blobs());
            senders.push(self.actors[0].address);
        }
        if self.random.one_in(4) {
            let actor = self.random.skewed(self.actors.len());
            transactions.push(self.delegation(actor));
            senders.push(self.actors[actor].address);
        }
        (transactions, senders)
    }

    pub(crate) fn withdrawals(&mut self) -> Withdrawals {
        let count = self.random.below(WITHDRAWAL_COUNT_MAX + 1);
        let withdrawals = (0..count).map(|_| {
            let validator = self.random.below(VALIDATOR_COUNT as u64);
            let index = self.next_withdrawal;
            self.next_withdrawal += 1;
            Withdrawal {
                index,
                validator_index: validator,
                address: self.validators[validator as usize],
                amount: 10_000_000 + self.random.below(10_000_000),
            }
        });
        withdrawals.collect::<Vec<_>>().into()
    }

    pub(crate) fn proposer(&mut self) -> Address {
        self.validators[self.random.skewed(VALIDATOR_COUNT)]
    }

    pub(crate) fn hash(&mut self) -> B256 {
        B256::from(self.random.bytes())
    }

    fn intent(&mut self) -> Intent {
        match self.random.below(100) {
            0..50 => self.transfer(),
            50..80 => self.token_intent(),
            80..92 => self.ledger_intent(),
            _ => self.factory_intent(),
        }
    }

    fn transfer(&mut self) -> Intent {
        let to = self.somebody();
        let value = U256::from(1 + u128::from(self.random.below(1_000_000)) * GWEI);
        Intent { to: to.into(), value, input: Bytes::new(), gas_limit: TRANSFER_GAS }
    }

    /// Mostly somebody known, now and then somebody new.
    fn somebody(&mut self) -> Address {
        if self.random.one_in(8) {
            let address = Address::from(self.random.bytes());
            self.crowd.push(address);
            return address;
        }
        self.crowd[self.random.skewed(self.crowd.len())]
    }

    fn token_intent(&mut self) -> Intent {
        let to = self.somebody();
        let amount = 1 + self.random.below(1_000);
        // Whoever transfers without having minted is refused: such transactions are real too.
        let is_mint = self.random.one_in(3);
        self.call(self.token, contracts::token_call(is_mint, to, amount), CALL_GAS)
    }

    /// The ledger grows at its end, and is overwritten and cleared anywhere.
    fn ledger_intent(&mut self) -> Intent {
        let count = 1 + self.random.below(LEDGER_RUN_MAX);
        let grows = self.ledger_len == 0 || !self.random.one_in(3);
        let first = if grows { self.ledger_len } else { self.random.below(self.ledger_len) };
        if grows {
            self.ledger_len += count;
        }
        let clears = !grows && self.random.one_in(2);
        let value = if clears { 0 } else { 1 + self.random.bits() / 2 };
        let input = contracts::ledger_call(first, count, value);
        self.call(self.ledger, input, CALL_GAS + count * SLOT_GAS)
    }

    /// A child is made and stays, is made and destroyed at once, or is written to; and one that is
    /// gone is made again.
    fn factory_intent(&mut self) -> Intent {
        if !self.alive.is_empty() && self.random.one_in(2) {
            let salt = self.alive[self.random.below(self.alive.len() as u64) as usize];
            let (slot, value) = (self.random.below(16), self.random.below(4));
            let input = contracts::child_call(slot, value);
            return self.call(contracts::child(self.factory, salt), input, CALL_GAS);
        }
        let salt = match self.gone.pop() {
            Some(salt) if self.random.one_in(2) => salt,
            gone => {
                self.gone.extend(gone);
                self.next_salt += 1;
                self.next_salt
            }
        };
        let destroys = self.random.one_in(2);
        if destroys {
            self.gone.push(salt);
        } else {
            self.alive.push(salt);
        }
        self.call(self.factory, contracts::factory_call(salt, destroys), 2 * CALL_GAS)
    }

    /// A rollup's batch: its blobs themselves are no part of a chain.
    fn blobs(&mut self) -> Transaction {
        let count = 1 + self.random.below(BLOB_COUNT_MAX);
        let hashes = (0..count).map(|_| {
            let mut hash = self.hash();
            hash.0[0] = VERSIONED_HASH_VERSION_KZG;
            hash
        });
        let blob_versioned_hashes = hashes.collect();
        let actor = &mut self.actors[0];
        let transaction = TxEip4844 {
            chain_id: self.chain_id,
            nonce: actor.next_nonce(),
            gas_limit: TRANSFER_GAS,
            max_fee_per_gas: FEE_MAX,
            max_priority_fee_per_gas: GWEI,
            to: self.validators[0],
            value: U256::ZERO,
            access_list: AccessList::default(),
            blob_versioned_hashes,
            max_fee_per_blob_gas: FEE_MAX,
            input: Bytes::new(),
        };
        let signature = actor.sign(transaction.signature_hash());
        transaction.into_signed(signature).into()
    }

    /// Somebody lets an account act as the ledger, or, with the next one, as nothing again.
    fn delegation(&mut self, sender: usize) -> Transaction {
        let authority = self.random.skewed(self.actors.len());
        let clears = self.random.one_in(3);
        let nonce = self.actors[sender].next_nonce();
        let authorization = Authorization {
            chain_id: U256::from(self.chain_id),
            address: if clears { Address::ZERO } else { self.ledger },
            // Counts as a transaction of the one who signs it.
            nonce: self.actors[authority].next_nonce(),
        };
        let signature = self.actors[authority].sign(authorization.signature_hash());
        let transaction = TxEip7702 {
            chain_id: self.chain_id,
            nonce,
            gas_limit: CALL_GAS,
            max_fee_per_gas: FEE_MAX,
            max_priority_fee_per_gas: GWEI,
            to: self.actors[authority].address,
            value: U256::ZERO,
            access_list: AccessList::default(),
            authorization_list: vec![authorization.into_signed(signature)],
            // The account's own storage, where it delegates.
            input: contracts::ledger_call(0, 2, nonce + 1),
        };
        let signature = self.actors[sender].sign(transaction.signature_hash());
        transaction.into_signed(signature).into()
    }

    fn call(&self, to: Address, input: Bytes, gas_limit: u64) -> Intent {
        Intent { to: to.into(), value: U256::ZERO, input, gas_limit }
    }

    fn sign(&mut self, actor: usize, intent: Intent) -> Transaction {
        let Intent { to, value, input, gas_limit } = intent;
        let chain_id = self.chain_id;
        let kind = self.random.below(10);
        let tip = GWEI + u128::from(self.random.below(1_000_000_000));
        let actor = &mut self.actors[actor];
        let nonce = actor.next_nonce();
        match kind {
            0..7 => {
                let max_fee_per_gas = FEE_MAX;
                let max_priority_fee_per_gas = tip;
                let access_list = AccessList::default();
                let transaction = TxEip1559 {
                    chain_id,
                    nonce,
                    gas_limit,
                    max_fee_per_gas,
                    max_priority_fee_per_gas,
                    to,
                    value,
                    access_list,
                    input,
                };
                let signature = actor.sign(transaction.signature_hash());
                transaction.into_signed(signature).into()
            }
            // A transfer has no gas to spare for an access list.
            7 if gas_limit > TRANSFER_GAS => {
                let storage_keys = vec![B256::ZERO];
                let item = AccessListItem { address: self.token, storage_keys };
                let (gas_price, access_list) = (FEE_MAX, AccessList(vec![item]));
                let transaction = TxEip2930 {
                    chain_id,
                    nonce,
                    gas_price,
                    gas_limit,
                    to,
                    value,
                    access_list,
                    input,
                };
                let signature = actor.sign(transaction.signature_hash());
                transaction.into_signed(signature).into()
            }
            _ => {
                let (gas_price, chain_id) = (FEE_MAX, Some(chain_id));
                let transaction =
                    TxLegacy { chain_id, nonce, gas_price, gas_limit, to, value, input };
                let signature = actor.sign(transaction.signature_hash());
                transaction.into_signed(signature).into()
            }
        }
    }
}

impl Actor {
    fn new(random: &mut Random) -> Self {
        let key = loop {
            // Nearly every 32 bytes are a key.
            if let Ok(key) = SigningKey::from_slice(&random.bytes::<32>()) {
                break key;
            }
        };
        let point = key.verifying_key().to_encoded_point(false);
        let address = Address::from_slice(&keccak256(&point.as_bytes()[1..])[12..]);
        Self { key, address, nonce: 0 }
    }

    fn next_nonce(&mut self) -> u64 {
        let nonce = self.nonce;
        self.nonce += 1;
        nonce
    }

    fn sign(&self, hash: B256) -> Signature {
        let (signature, recovery) =
            self.key.sign_prehash_recoverable(hash.as_slice()).expect("a hash has 32 bytes");
        let (r, s) = signature.split_bytes();
        Signature::new(U256::from_be_slice(&r), U256::from_be_slice(&s), recovery.is_y_odd())
    }
}
