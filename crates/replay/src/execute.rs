//! Executes one block on top of a state and says what its header should be.
//!
//! What lies on the state afterwards is for the caller to keep or to take back.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use alloy_consensus::{
    Eip658Value, Header, Receipt, ReceiptEnvelope, Transaction as _, proofs::calculate_receipt_root,
};
use alloy_eip7928::BlockAccessList;
use alloy_eips::{
    eip2935::HISTORY_STORAGE_ADDRESS, eip4788::BEACON_ROOTS_ADDRESS, eip4895::Withdrawals,
    eip7002::WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS,
    eip7251::CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS,
};
use alloy_primitives::{Address, B256, Bloom, Bytes, U256};
use revm::{
    context::result::{EVMError, ExecutionResult, InvalidTransaction},
    state::EvmState,
};
use spinney_state::{AccountChange, Change, Changes, EMPTY_CODE_HASH};

use crate::{
    amsterdam::{BUILDER_DEPOSITS, BUILDER_EXITS, BlockGas, ListBuilder},
    block_state::{BlockState, Driven, StateFailed},
    config::{ChainConfig, Fork},
    dao,
    database::DatabaseError,
    error::Check,
    evm::{BlockDb, BlockHashes, CodeCache, Machine, SystemCall, block_evm, tx_env},
    report::Step,
    requests::Requests,
    rules::Failure,
    senders::Signer,
    source::{ChainBlock, Transaction},
    trace::{BlockTrace, TransactionTrace},
    world::WorldState,
};

const ETHER: u128 = 1_000_000_000_000_000_000;

/// What a block did, and what its header has to say.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) changes: Changes,
    /// Parts of the block, where they are wanted.
    pub(crate) steps: Vec<Step>,
    /// Accounts that are there, with nothing in them, where steps are wanted.
    pub(crate) left_empty: Vec<Address>,
    /// The slots that went with accounts which were destroyed and made again, where steps are
    /// wanted and the state knows them.
    pub(crate) replaced: BTreeMap<Address, Vec<B256>>,
    pub(crate) state_root: B256,
    /// What only those know who execute; nothing where transactions were traced.
    pub(crate) receipts: Option<Receipts>,
    /// Time spent in the state: applying, and computing roots.
    pub(crate) apply: Duration,
}

/// What a block's transactions leave behind beside the state.
#[derive(Debug)]
pub(crate) struct Receipts {
    pub(crate) gas_used: u64,
    pub(crate) root: B256,
    pub(crate) logs_bloom: Bloom,
    pub(crate) requests: Option<Requests>,
    /// From Amsterdam on.
    pub(crate) access_list: Option<BlockAccessList>,
}

/// Where what transactions do comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transactions<'a> {
    /// They are executed; these signed them.
    Signed(&'a [Signer]),
    /// It is known already.
    Traced(&'a BlockTrace),
}

/// Why an execution stopped.
#[derive(Debug)]
pub(crate) enum Stop<E> {
    /// The blocks that are known do not reach back far enough for the ommers.
    Ancestors,
    Bad(Failure),
    /// The block is of a fork that is not implemented.
    Unsupported(String),
    Evm(String),
    State(E),
}

impl<E> From<Failure> for Stop<E> {
    fn from(failure: Failure) -> Self {
        Self::Bad(failure)
    }
}

impl Stop<StateFailed> {
    fn from_evm(
        error: EVMError<DatabaseError<StateFailed>, InvalidTransaction>,
        what: Check,
    ) -> Self {
        match error {
            EVMError::Transaction(error) => Failure::new(what, "a valid one", error).into(),
            EVMError::Header(error) => Failure::new(what, "a valid header", error).into(),
            EVMError::Database(DatabaseError::State(error)) => Self::State(error),
            error => Self::Evm(error.to_string()),
        }
    }
}

/// What is known of the chain that a block is part of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain<'a> {
    pub(crate) config: &'a ChainConfig,
    pub(crate) hashes: &'a BlockHashes,
    pub(crate) codes: &'a CodeCache,
    /// Whether what each part of a block did is wanted.
    pub(crate) steps: bool,
}

/// Puts what a block does on top of what `state` holds.
pub(crate) fn put<S: WorldState>(
    changes: Changes,
    root: B256,
    state: &mut S,
) -> Result<Outcome, Stop<S::Error>> {
    let started = Instant::now();
    let state_root = state.apply_last(&changes, Some(root)).map_err(Stop::State)?;
    Ok(Outcome {
        changes,
        steps: Vec::new(),
        left_empty: Vec::new(),
        replaced: BTreeMap::new(),
        state_root,
        receipts: None,
        apply: started.elapsed(),
    })
}

/// Executes `block` on top of what `state` holds.
pub(crate) fn execute<S: WorldState>(
    chain: &Chain<'_>,
    fork: Fork,
    block: &ChainBlock,
    transactions: Transactions<'_>,
    state: &mut S,
) -> Result<Outcome, Stop<S::Error>> {
    let mut driven = Driven::new(state);
    execute_on(chain, fork, block, transactions, &mut driven).map_err(|stop| match stop {
        Stop::Ancestors => Stop::Ancestors,
        Stop::Bad(failure) => Stop::Bad(failure),
        Stop::Unsupported(rules) => Stop::Unsupported(rules),
        Stop::Evm(message) => Stop::Evm(message),
        Stop::State(failed) => match driven.into_failed() {
            Some(error) => Stop::State(error),
            None => Stop::Evm(failed.to_string()),
        },
    })
}

fn execute_on(
    chain: &Chain<'_>,
    fork: Fork,
    block: &ChainBlock,
    transactions: Transactions<'_>,
    state: &mut dyn BlockState,
) -> Result<Outcome, Stop<StateFailed>> {
    let header = &block.block.header;
    let config = chain.config;
    let is_amsterdam = fork >= Fork::Amsterdam;
    let is_traced = matches!(transactions, Transactions::Traced(_));
    let mut execution = Execution {
        fork,
        header,
        evm: block_evm(config, fork, header, (chain.hashes, chain.codes), state),
        index: 0,
        is_traced,
        steps: chain.steps.then(Vec::new),
        gone: BTreeMap::new(),
        receipts: Vec::with_capacity(block.block.body.transactions.len()),
        gas: BlockGas::new(header.gas_limit, is_amsterdam),
        list: (is_amsterdam && !is_traced).then(ListBuilder::default),
        apply: Duration::ZERO,
    };
    execution.before(config)?;
    for (index, transaction) in block.block.body.transactions.iter().enumerate() {
        execution.index = index as u64 + 1;
        match transactions {
            Transactions::Signed(signers) => {
                execution.transaction(index, transaction, &signers[index])?;
            }
            Transactions::Traced(trace) => execution.traced(&trace.transactions[index])?,
        }
    }
    execution.index += 1;
    let requests = execution.requests(config)?;
    let rewards = rewards(fork, block);
    execution.finish(rewards, requests)
}

struct Execution<'a> {
    fork: Fork,
    header: &'a Header,
    evm: Machine<'a>,
    /// The part of the block that is executed.
    index: u64,
    is_traced: bool,
    steps: Option<Vec<Step>>,
    /// The slots of accounts that were destroyed, where the state knows them and steps are wanted.
    gone: BTreeMap<Address, Vec<B256>>,
    receipts: Vec<ReceiptEnvelope>,
    gas: BlockGas,
    list: Option<ListBuilder>,
    apply: Duration,
}

impl<'a> Execution<'a> {
    /// What happens before the first transaction.
    fn before(&mut self, config: &ChainConfig) -> Result<(), Stop<StateFailed>> {
        if config.dao_fork_block == Some(self.header.number) {
            self.dao_fork()?;
        }
        if let Some(root) = self.header.parent_beacon_block_root {
            self.system_call(&SystemCall {
                contract: BEACON_ROOTS_ADDRESS,
                input: root.into(),
                must_succeed: false,
            })?;
        }
        if self.fork >= Fork::Prague {
            self.system_call(&SystemCall {
                contract: HISTORY_STORAGE_ADDRESS,
                input: self.header.parent_hash.into(),
                must_succeed: false,
            })?;
        }
        Ok(())
    }

    fn dao_fork(&mut self) -> Result<(), Stop<StateFailed>> {
        let db = self.db();
        let mut total = U256::ZERO;
        for address in dao::DRAINED {
            let balance = db.overlay.drain(&*db.state, address).map_err(Stop::State)?;
            total = total.saturating_add(balance);
        }
        db.overlay.credit(&*db.state, dao::REFUND, total, false).map_err(Stop::State)?;
        let changes = db.overlay.changes();
        self.step(&changes)?;
        self.apply(&changes).map(drop)
    }

    fn transaction(
        &mut self,
        index: usize,
        transaction: &Transaction,
        signer: &Signer,
    ) -> Result<(), Stop<StateFailed>> {
        let what = Check::Transaction(index);
        self.gas.check(index, transaction.gas_limit())?;
        if self.fork < Fork::Eip158 && transaction.is_legacy() && transaction.chain_id().is_some() {
            return Err(Failure::new(what, "no chain id at this fork", "one").into());
        }
        let done = self
            .evm
            .transact(tx_env(transaction, signer))
            .map_err(|error| Stop::from_evm(error, what))?;
        self.look(&done.state);
        let has_root = self.has_roots();
        let wanted = has_root || self.steps.is_some();
        let db = self.db();
        let changes = db.overlay.commit(&*db.state, done.state, wanted).map_err(Stop::State)?;
        self.step(&changes)?;
        let status = if has_root {
            Eip658Value::PostState(self.apply(&changes)?)
        } else {
            Eip658Value::Eip658(done.result.is_success())
        };
        self.gas.charge(done.result.gas());
        let (cumulative_gas_used, logs) = (self.gas.paid(), done.result.into_logs());
        let receipt = Receipt { status, cumulative_gas_used, logs };
        let receipt = ReceiptEnvelope::from_typed(transaction.tx_type(), receipt.with_bloom());
        self.receipts.push(receipt);
        Ok(())
    }

    /// Notes what a transaction or a system call looked at and changed.
    fn look(&mut self, touched: &EvmState) {
        if let Some(list) = &mut self.list {
            list.take(self.index, touched);
        }
        // What is changed in a transaction was read before it: code is made where none was, and a
        // delegation is looked at before it is replaced.
        for (address, account) in touched.iter().filter(|(_, account)| account.info.code.is_some())
        {
            let hash = account.original_info().code_hash;
            if hash != EMPTY_CODE_HASH {
                let db = self.evm.db();
                db.state.code_read(*address, hash, db.overlay.has_code(&hash));
            }
        }
    }

    /// Takes over what a transaction did.
    fn traced(&mut self, trace: &TransactionTrace) -> Result<(), Stop<StateFailed>> {
        let none = BTreeSet::new();
        let emptied = if self.fork >= Fork::Eip158 { &trace.emptied } else { &none };
        let db = self.db();
        let changes = db.overlay.take(&*db.state, &trace.changes, emptied).map_err(Stop::State)?;
        self.step(&changes)?;
        Ok(())
    }

    /// Whether receipts have roots of the state, so that transactions are applied one by one.
    fn has_roots(&self) -> bool {
        self.fork < Fork::Byzantium && !self.is_traced
    }

    /// What the execution layer asks of the consensus layer, from Prague on.
    fn requests(&mut self, config: &ChainConfig) -> Result<Option<Requests>, Stop<StateFailed>> {
        if self.fork < Fork::Prague {
            return Ok(None);
        }
        // Logs are in no trace: then the calls are made for what they do to the state.
        let logs = self.receipts.iter().flat_map(|receipt| receipt.logs());
        let mut requests = Requests::deposits(config.deposit_contract, logs)?;
        let contracts = [
            (Fork::Prague, WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS),
            (Fork::Prague, CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS),
            (Fork::Amsterdam, BUILDER_DEPOSITS),
            (Fork::Amsterdam, BUILDER_EXITS),
        ];
        let fork = self.fork;
        for (_, contract) in contracts.into_iter().filter(|(first, _)| *first <= fork) {
            let call = SystemCall { contract, input: Bytes::new(), must_succeed: true };
            requests.push(&self.system_call(&call)?);
        }
        Ok(Some(requests))
    }

    fn system_call(&mut self, call: &SystemCall) -> Result<Bytes, Stop<StateFailed>> {
        let db = self.db();
        let account = db.overlay.account(&*db.state, call.contract).map_err(Stop::State)?;
        let has_code = account.is_some_and(|account| account.code_hash != EMPTY_CODE_HASH);
        if !has_code {
            if call.must_succeed {
                let got = format!("no code at {}", call.contract);
                return Err(Failure::new(Check::SystemCall, "a system contract", got).into());
            }
            if let Some(list) = &mut self.list {
                list.look(call.contract);
            }
            return Ok(Bytes::new());
        }
        let done =
            self.evm.system_call(call).map_err(|error| Stop::from_evm(error, Check::SystemCall))?;
        self.look(&done.state);
        let output = match done.result {
            ExecutionResult::Success { output, .. } => output.into_data(),
            result if call.must_succeed => {
                let got = format!("{}: {result:?}", call.contract);
                return Err(Failure::new(Check::SystemCall, "success", got).into());
            }
            _ => Bytes::new(),
        };
        let wanted = self.steps.is_some();
        let db = self.db();
        let changes = db.overlay.commit(&*db.state, done.state, wanted).map_err(Stop::State)?;
        self.step(&changes)?;
        Ok(output)
    }

    /// Pays rewards or withdrawals, and computes what the header has to say.
    fn finish(
        mut self,
        rewards: BTreeMap<Address, U256>,
        requests: Option<Requests>,
    ) -> Result<Outcome, Stop<StateFailed>> {
        let removes_empty = self.fork >= Fork::Eip158;
        let (mut list, index) = (self.list.take(), self.index);
        let db = self.db();
        let mut paid = Changes::default();
        for (address, amount) in rewards {
            let before = db.overlay.account(&*db.state, address).map_err(Stop::State)?;
            let before = before.map_or(U256::ZERO, |account| account.balance);
            if let Some(list) = &mut list {
                list.pay(index, address, before, before.saturating_add(amount));
            }
            let change = db
                .overlay
                .credit(&*db.state, address, amount, removes_empty)
                .map_err(Stop::State)?;
            paid.accounts.extend(change.map(|change| (address, change)));
        }
        let changes = db.overlay.changes();
        self.step(&paid)?;
        let state_root = if self.has_roots() {
            self.apply(&paid)?
        } else {
            let (started, given) = (Instant::now(), self.header.state_root);
            let root = self.db().state.apply_last(&changes, given).map_err(Stop::State)?;
            self.apply += started.elapsed();
            root
        };
        let bloom = |bloom: Bloom, receipt: &ReceiptEnvelope| bloom | *receipt.logs_bloom();
        let receipts = (!self.is_traced).then(|| Receipts {
            gas_used: self.gas.used(),
            root: calculate_receipt_root(&self.receipts),
            logs_bloom: self.receipts.iter().fold(Bloom::ZERO, bloom),
            requests,
            access_list: list.map(ListBuilder::finish),
        });
        let apply = self.apply;
        let (mut left_empty, mut replaced) = (Vec::new(), self.gone);
        if self.steps.is_some() {
            let db = self.evm.db();
            for address in changes.accounts.keys() {
                let account = db.overlay.account(&*db.state, *address).map_err(Stop::State)?;
                left_empty.extend(account.filter(|account| account.is_empty()).map(|_| *address));
            }
            let is_fresh = |change: Option<&Change>| {
                matches!(change, Some(Change::Written(AccountChange { fresh: true, .. })))
            };
            replaced.retain(|address, _| is_fresh(changes.accounts.get(address)));
        }
        let steps = self.steps.unwrap_or_default();
        Ok(Outcome { changes, steps, left_empty, replaced, state_root, receipts, apply })
    }

    /// Notes what a part of the block did, before it is applied.
    fn step(&mut self, changes: &Changes) -> Result<(), Stop<StateFailed>> {
        let Some(steps) = self.steps.as_mut().filter(|_| !changes.accounts.is_empty()) else {
            return Ok(());
        };
        steps.push(Step::new(self.index, changes.clone()));
        for (address, change) in &changes.accounts {
            if *change == Change::Deleted && !self.gone.contains_key(address) {
                let state = &self.evm.db().state;
                let slots = state.slots(*address).map_err(Stop::State)?;
                self.gone.extend(slots.map(|slots| (*address, slots)));
            }
        }
        Ok(())
    }

    fn db(&mut self) -> &mut BlockDb<'a> {
        self.evm.db()
    }

    fn apply(&mut self, changes: &Changes) -> Result<B256, Stop<StateFailed>> {
        let started = Instant::now();
        let root = self.db().state.apply(changes).map_err(Stop::State);
        self.apply += started.elapsed();
        root
    }
}

/// Who is paid at the end of a block, and how much: miners before the merge, withdrawals since.
fn rewards(fork: Fork, block: &ChainBlock) -> BTreeMap<Address, U256> {
    let header = &block.block.header;
    let mut paid = BTreeMap::<Address, U256>::new();
    let mut pay = |address, amount| {
        let sum = paid.entry(address).or_default();
        *sum = sum.saturating_add(amount);
    };
    let no_withdrawals = Withdrawals::default();
    for withdrawal in block.block.body.withdrawals.as_ref().unwrap_or(&no_withdrawals) {
        pay(withdrawal.address, withdrawal.amount_wei());
    }
    let reward = match fork {
        fork if fork >= Fork::Paris => return paid,
        fork if fork >= Fork::Constantinople => 2 * ETHER,
        fork if fork >= Fork::Byzantium => 3 * ETHER,
        _ => 5 * ETHER,
    };
    let ommers = &block.block.body.ommers;
    for ommer in ommers {
        // Between one and six, by the rules.
        let depth = u128::from(header.number.saturating_sub(ommer.number));
        pay(ommer.beneficiary, U256::from(8_u128.saturating_sub(depth) * reward / 8));
    }
    pay(header.beneficiary, U256::from(reward + reward / 32 * ommers.len() as u128));
    paid
}
