use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use alloy_primitives::{B256, U256};
use spinney_state::Changes;

use crate::{
    ahead::Known,
    amsterdam::check_made,
    config::{ChainConfig, Fork},
    error::{Check, ReplayError},
    evm::{BlockHashes, CodeCache},
    execute::{Chain, Outcome, Stop, Transactions, execute, put},
    genesis::Genesis,
    ommers::{Ancestors, Refusal},
    report::{BlockReport, BlockTimes},
    requests::Requests,
    rules::{Failure, Head, check_block, check_link, equal},
    senders::signers,
    source::ChainBlock,
    trace::BlockTrace,
    witness::{BlockReads, Recorder},
    world::{SealedBlock, WorldState},
};

/// Executes blocks, one after another, on a state, and checks all that a header says.
#[derive(Clone, Debug)]
pub struct Replay<S> {
    pub(crate) config: ChainConfig,
    pub(crate) state: S,
    pub(crate) head: Head,
    pub(crate) hashes: BlockHashes,
    pub(crate) codes: CodeCache,
    pub(crate) ancestors: Ancestors,
    /// Blocks up to this one are in the state already: they are only followed.
    pub(crate) resume: Option<(u64, B256)>,
    /// The blocks did not begin with the first one, so that their total difficulty is not known.
    pub(crate) anchored: bool,
    pub(crate) keep_steps: bool,
    pub(crate) keep_reads: bool,
    /// What the last block read.
    pub(crate) reads: Option<Arc<BlockReads>>,
}

impl<S: WorldState> Replay<S> {
    /// Begins a chain: puts the genesis allocation onto an empty state and checks its root. It is
    /// not committed yet.
    ///
    /// # Errors
    ///
    /// The state fails, or its root is not that of the genesis.
    pub fn start(genesis: &Genesis, mut state: S) -> Result<Self, ReplayError<S::Error>> {
        let failed = |error| ReplayError::State { number: 0, error };
        let layer_count = state.layer_count();
        let got = state.apply(&genesis.alloc).map_err(failed)?;
        let expected = genesis.header.state_root;
        if got != expected && state.own_root().is_none() {
            state.undo_to(layer_count).map_err(failed)?;
            return Err(ReplayError::Genesis { expected, got });
        }
        state
            .seal(&SealedBlock::new(0, Some(genesis.hash), got, &genesis.alloc))
            .map_err(failed)?;
        Ok(Self::at_genesis(genesis, state, None))
    }

    /// Goes on with a state that already stands at block `number`. The blocks up to it are followed
    /// by their hashes, not executed: from block 1 on, or from a later one that is not above
    /// `number`. Then it is the hash that says that they are of this chain; contracts that ask for
    /// hashes of blocks before the first one fail the replay, and so do ommers whose parents may
    /// lie before it; and a block belongs to proof of stake where its difficulty is zero. The
    /// state's root has to be that in the header of block `number`; the header is compared as soon
    /// as it is known.
    ///
    /// # Errors
    ///
    /// `number` is 0, and `hash` is not that of the genesis or the state's root is not; or the
    /// state fails.
    pub fn resume(
        genesis: &Genesis,
        mut state: S,
        number: u64,
        hash: B256,
    ) -> Result<Self, ReplayError<S::Error>> {
        if number > 0 {
            return Ok(Self::at_genesis(genesis, state, Some((number, hash))));
        }
        if hash != genesis.hash {
            let got = Some(genesis.hash);
            return Err(ReplayError::Resume { number, expected: hash, got });
        }
        check_root(&mut state, number, genesis.header.state_root)?;
        Ok(Self::at_genesis(genesis, state, None))
    }

    fn at_genesis(genesis: &Genesis, state: S, resume: Option<(u64, B256)>) -> Self {
        let mut hashes = BlockHashes::default();
        hashes.push_header(genesis.hash, &genesis.header);
        let total_difficulty = genesis.header.difficulty;
        let head = Head::new(genesis.header.clone(), genesis.hash, total_difficulty);
        let ancestors = Ancestors::genesis(&genesis.header, genesis.hash);
        Self {
            config: genesis.config.clone(),
            state,
            head,
            hashes,
            codes: CodeCache::default(),
            ancestors,
            resume,
            anchored: false,
            keep_steps: false,
            keep_reads: false,
            reads: None,
        }
    }

    /// Stands right after a block, of which and of whose ancestors only hashes are known.
    pub(crate) fn after(config: ChainConfig, state: S, head: Head, hashes: BlockHashes) -> Self {
        Self {
            config,
            state,
            head,
            hashes,
            codes: CodeCache::default(),
            ancestors: Ancestors::Hashes,
            resume: None,
            anchored: false,
            keep_steps: false,
            keep_reads: false,
            reads: None,
        }
    }

    /// The hashes that contracts may ask for.
    pub(crate) const fn hashes(&self) -> &BlockHashes {
        &self.hashes
    }

    /// The block that the next one must follow.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Whether blocks report what each of their parts did.
    pub const fn keep_steps(&mut self, keep: bool) {
        self.keep_steps = keep;
    }

    /// Whether it is noted what blocks read, for their witnesses: a state that [keeps
    /// these](spinney_state::State::keep_witnesses) makes one of each block that is executed.
    pub const fn keep_reads(&mut self, keep: bool) {
        self.keep_reads = keep;
    }

    /// What the last block read, where that is noted and it was not traced.
    pub(crate) fn take_reads(&mut self) -> Option<Arc<BlockReads>> {
        self.reads.take()
    }

    /// The rules of the chain.
    pub fn config(&self) -> &ChainConfig {
        &self.config
    }

    /// The state.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// The state, to be changed with care: the next block is executed on what it holds.
    pub fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }

    /// Gives the state back.
    pub fn into_state(self) -> S {
        self.state
    }

    /// Executes the next block, checks it and seals it. `None` where the state holds it already.
    ///
    /// # Errors
    ///
    /// The block is bad or the state fails: then nothing of the block stays in the state.
    pub fn block(
        &mut self,
        block: &ChainBlock,
    ) -> Result<Option<BlockReport>, ReplayError<S::Error>> {
        if self.holds(block) {
            return self.follow(block).map(|()| None);
        }
        let started = Instant::now();
        let known = Known::Signers(signers(&self.config, block, 1));
        self.execute(block, known, started.elapsed()).map(Some)
    }

    /// As [`block`](Self::block), for a block whose transactions are traced: they are not executed,
    /// and no senders recovered. What happens outside of transactions is done by the block and the
    /// rules. Checked are the header but for what receipts say (gas, logs, requests), and the root
    /// of the state.
    ///
    /// # Errors
    ///
    /// As [`block`](Self::block), or the trace is of another block: [`ReplayError::TraceMisfit`].
    pub fn traced(
        &mut self,
        block: &ChainBlock,
        trace: BlockTrace,
    ) -> Result<Option<BlockReport>, ReplayError<S::Error>> {
        if self.holds(block) {
            return self.follow(block).map(|()| None);
        }
        self.execute(block, Known::Trace(trace), Duration::ZERO).map(Some)
    }

    /// As [`block`](Self::block), for a block of which it is known what it does to the state, as a
    /// block-level access list says it (EIP-7928): nothing is executed, and no senders recovered.
    /// Checked are the header but for what receipts say, and the root of the state.
    ///
    /// # Errors
    ///
    /// As [`block`](Self::block).
    pub fn changed(
        &mut self,
        block: &ChainBlock,
        changes: Changes,
    ) -> Result<Option<BlockReport>, ReplayError<S::Error>> {
        if self.holds(block) {
            return self.follow(block).map(|()| None);
        }
        self.execute(block, Known::Changes(changes), Duration::ZERO).map(Some)
    }

    /// Whether the block is part of the state: geth's exports begin with the genesis.
    pub(crate) fn holds(&self, block: &ChainBlock) -> bool {
        self.resume.is_some() || self.is_genesis(block)
    }

    fn is_genesis(&self, block: &ChainBlock) -> bool {
        self.head.header.number == 0 && self.head.hash == block.hash
    }

    /// Goes past a block that the state holds.
    pub(crate) fn follow(&mut self, block: &ChainBlock) -> Result<(), ReplayError<S::Error>> {
        if self.is_genesis(block) {
            return Ok(());
        }
        if let Some((number, expected)) = self.resume
            && self.head.header.number == 0
            && number < block.block.header.number
        {
            return Err(ReplayError::Resume { number, expected, got: None });
        }
        if !self.begins_later(block) {
            check_link(&self.head, block)
                .map_err(|failure| ReplayError::BadBlock(failure.of(block)))?;
        }
        self.advance(block);
        if let Some((number, expected)) = self.resume
            && number == block.block.header.number
        {
            if expected != block.hash {
                return Err(ReplayError::Resume { number, expected, got: Some(block.hash) });
            }
            // Else the next block would be blamed for a state that is wrong already.
            check_root(&mut self.state, number, block.block.header.state_root)?;
            self.resume = None;
        }
        Ok(())
    }

    /// Whether the source begins with this block, and not with the first one. Its ancestors are not
    /// known then, and need not be: the hash of the block that the state stands at covers all of
    /// them.
    fn begins_later(&mut self, block: &ChainBlock) -> bool {
        let later = self.resume.is_some_and(|(last, _)| {
            self.head.header.number == 0 && (2..=last).contains(&block.block.header.number)
        });
        if later {
            self.anchored = true;
            self.hashes = BlockHashes::default();
            self.ancestors = Ancestors::later();
        }
        later
    }

    /// The total difficulty before a block, as far as the rules want to know.
    pub(crate) fn total_difficulty(&self, block: &ChainBlock) -> U256 {
        match (self.anchored, block.block.header.difficulty.is_zero()) {
            (false, _) => self.head.total_difficulty,
            (true, true) => U256::MAX,
            (true, false) => U256::ZERO,
        }
    }

    pub(crate) fn execute(
        &mut self,
        block: &ChainBlock,
        known: Known,
        recover: Duration,
    ) -> Result<BlockReport, ReplayError<S::Error>> {
        let started = Instant::now();
        let header = &block.block.header;
        let is_traced = match &known {
            Known::Trace(trace) => check_trace(block, trace).map(|()| true)?,
            Known::Changes(_) => true,
            Known::Signers(_) => false,
        };
        let layer_count = self.state.layer_count();
        let total_difficulty = self.total_difficulty(block);
        let fork = self.config.fork(header.number, header.timestamp, total_difficulty);
        let outcome = match self.try_execute(fork, block, known) {
            Ok(outcome) => outcome,
            Err(stop) => {
                let number = header.number;
                self.state
                    .undo_to(layer_count)
                    .map_err(|error| ReplayError::State { number, error })?;
                return Err(match stop {
                    Stop::Bad(failure) => ReplayError::BadBlock(failure.of(block)),
                    Stop::Evm(message) => ReplayError::Evm { number, message },
                    Stop::State(error) => ReplayError::State { number, error },
                    Stop::Ancestors => ReplayError::Ancestors { number },
                    Stop::Unsupported(rules) => ReplayError::Unsupported { number, rules },
                });
            }
        };
        self.advance(block);
        let transaction_count = block.block.body.transactions.len();
        let own_root = self.state.own_root();
        let has_roots = fork < Fork::Byzantium && !is_traced && own_root.is_none();
        let by_transaction = if has_roots { transaction_count } else { 0 };
        let execute = started.elapsed().saturating_sub(outcome.apply);
        let (requests, access_list) = outcome
            .receipts
            .map_or((None, None), |receipts| (receipts.requests, receipts.access_list));
        Ok(BlockReport {
            number: header.number,
            hash: block.hash,
            parent_hash: header.parent_hash,
            fork,
            timestamp: header.timestamp,
            transaction_count,
            is_traced,
            gas_used: header.gas_used,
            len: block.len,
            state_root: own_root.unwrap_or(outcome.state_root),
            is_root_checked: own_root.is_none(),
            receipt_root_count: by_transaction,
            changes: outcome.changes,
            steps: outcome.steps,
            left_empty: outcome.left_empty,
            replaced: outcome.replaced,
            requests: requests.map_or_else(Vec::new, Requests::into_data),
            access_list,
            times: BlockTimes { recover, execute, apply: outcome.apply, ..BlockTimes::default() },
        })
    }

    fn try_execute(
        &mut self,
        fork: Fork,
        block: &ChainBlock,
        known: Known,
    ) -> Result<Outcome, Stop<S::Error>> {
        let header = &block.block.header;
        if let Some(fork) = self.config.unknown_fork(header.number, header.timestamp) {
            return Err(Stop::Unsupported(fork.name.clone()));
        }
        check_block(&self.config, fork, &self.head, block)?;
        self.ancestors.check(&self.config, block).map_err(|refusal| match refusal {
            Refusal::Bad(failure) => Stop::Bad(failure),
            Refusal::Unknown => Stop::Ancestors,
        })?;
        let outcome = self.outcome(fork, block, known)?;
        self.check_outcome(fork, block, &outcome)?;
        let (number, hash) = (header.number, Some(block.hash));
        let mut sealed = SealedBlock::new(number, hash, outcome.state_root, &outcome.changes);
        sealed.reads = self.reads.as_ref();
        self.state.seal(&sealed).map_err(Stop::State)?;
        Ok(outcome)
    }

    /// What a block does, on top of the state.
    fn outcome(
        &mut self,
        fork: Fork,
        block: &ChainBlock,
        known: Known,
    ) -> Result<Outcome, Stop<S::Error>> {
        self.reads = None;
        let (signers, trace) = match known {
            Known::Signers(signers) => (signers?, None),
            Known::Trace(trace) => (Vec::new(), Some(trace)),
            Known::Changes(changes) => {
                return put(changes, block.block.header.state_root, &mut self.state);
            }
        };
        let traced = trace.as_ref().map(Transactions::Traced);
        let transactions = traced.unwrap_or(Transactions::Signed(&signers));
        let (hashes, codes) = (&self.hashes, &self.codes);
        let chain = Chain { config: &self.config, hashes, codes, steps: self.keep_steps };
        // A bad block may have left what it asked for.
        hashes.take_oldest_told();
        let mut recorder = Recorder::new(&mut self.state, self.keep_reads && traced.is_none());
        let outcome = execute(&chain, fork, block, transactions, &mut recorder)?;
        let mut reads = recorder.into_reads();
        if let Some(reads) = &mut reads {
            reads.headers = hashes.headers_from(hashes.take_oldest_told());
        }
        self.reads = reads.map(Arc::new);
        Ok(outcome)
    }

    /// Compares what a block did with what its header says.
    fn check_outcome(
        &self,
        fork: Fork,
        block: &ChainBlock,
        outcome: &Outcome,
    ) -> Result<(), Failure> {
        let header = &block.block.header;
        let is_root_known = self.state.own_root().is_none();
        if let Some(receipts) = &outcome.receipts {
            equal(Check::GasUsed, receipts.gas_used, header.gas_used)?;
            equal(Check::LogsBloom, receipts.logs_bloom, header.logs_bloom)?;
            // Before Byzantium receipts have state roots in them.
            if fork >= Fork::Byzantium || is_root_known {
                equal(Check::ReceiptsRoot, receipts.root, header.receipts_root)?;
            }
            if let (Some(made), Some(got)) = (&receipts.requests, header.requests_hash) {
                equal(Check::RequestsHash, made.hash(), got)?;
            }
            if let Some(made) = &receipts.access_list {
                check_made(made, block)?;
            }
        }
        if is_root_known {
            equal(Check::StateRoot, outcome.state_root, header.state_root)?;
        }
        Ok(())
    }

    fn advance(&mut self, block: &ChainBlock) {
        self.head = self.head.next(block);
        self.ancestors.push(block);
        match self.keep_reads {
            true => self.hashes.push_header(self.head.hash, &self.head.header),
            false => self.hashes.push(self.head.header.number, self.head.hash),
        }
    }
}

/// Refuses a trace of another block.
fn check_trace<E: std::error::Error>(
    block: &ChainBlock,
    trace: &BlockTrace,
) -> Result<(), ReplayError<E>> {
    let number = block.block.header.number;
    if let Some(got) = trace.number.filter(|got| *got != number) {
        return Err(ReplayError::misfit(number, "number", number, got));
    }
    if let Some(got) = trace.hash.filter(|got| *got != block.hash) {
        return Err(ReplayError::misfit(number, "hash", block.hash, got));
    }
    let transactions = &block.block.body.transactions;
    let (expected, got) = (transactions.len(), trace.transactions.len());
    if expected != got {
        return Err(ReplayError::misfit(number, "transactions", expected, got));
    }
    for (transaction, traced) in transactions.iter().zip(&trace.transactions) {
        let expected = transaction.tx_hash();
        if let Some(got) = traced.hash.filter(|got| got != expected) {
            return Err(ReplayError::misfit(number, "hash of a transaction", expected, got));
        }
    }
    Ok(())
}

/// Refuses a state whose root is not the one in the header of the block it stands at.
fn check_root<S: WorldState>(
    state: &mut S,
    number: u64,
    expected: B256,
) -> Result<(), ReplayError<S::Error>> {
    if state.own_root().is_some() {
        return Ok(());
    }
    let failed = |error| ReplayError::State { number, error };
    let layer_count = state.layer_count();
    // A layer without changes has the root of the state below it.
    let got = state.apply(&Changes::default()).map_err(failed)?;
    state.undo_to(layer_count).map_err(failed)?;
    if got == expected { Ok(()) } else { Err(ReplayError::StateRoot { number, expected, got }) }
}
