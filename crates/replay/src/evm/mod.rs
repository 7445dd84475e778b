//! The EVM over an overlay over a state.

mod machine;

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use alloy_consensus::{Header, Transaction as _};
use alloy_eips::{
    eip7702::{RecoveredAuthority, RecoveredAuthorization},
    eip7840::BlobParams,
};
use alloy_primitives::{Address, B256, Bytes, U256, map::B256Map};
use revm::{
    Context, Database, MainBuilder,
    bytecode::{Bytecode, opcode},
    context::{BlockEnv, CfgEnv, TxEnv, either::Either},
    context_interface::{
        block::BlobExcessGasAndPrice,
        cfg::{GasId, GasParams},
    },
    handler::MainnetContext,
    interpreter::{Host, Instruction, InstructionContext, InstructionResult, InterpreterTypes},
    state::AccountInfo,
};

pub(crate) use self::machine::Machine;
use crate::{
    block_state::{BlockState, StateFailed},
    config::{ChainConfig, Fork},
    database::{DatabaseError, account_info, bytecode},
    overlay::Overlay,
    senders::Signer,
    source::Transaction,
};

/// How far back a contract can ask for the hash of a block.
pub(crate) const BLOCK_HASH_COUNT: usize = 256;

/// The hashes of the newest blocks, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockHashes {
    newest: VecDeque<RecentBlock>,
    /// The oldest block whose hash a contract was told since somebody looked.
    oldest_told: Oldest,
    /// The oldest block whose hash a contract asked for and nobody knows, since somebody looked.
    oldest_lacked: Oldest,
}

#[derive(Clone, Debug)]
struct RecentBlock {
    number: u64,
    hash: B256,
    /// Its header in RLP, where witnesses may need it.
    header: Option<Bytes>,
}

/// The smallest number of those noted; `u64::MAX` for none. Noted by readers, hence atomic.
#[derive(Debug)]
struct Oldest(AtomicU64);

impl Default for Oldest {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl Clone for Oldest {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

impl BlockHashes {
    pub(crate) fn push(&mut self, number: u64, hash: B256) {
        self.add(RecentBlock { number, hash, header: None });
    }

    /// As [`push`](Self::push), with the header in RLP.
    pub(crate) fn push_header(&mut self, hash: B256, header: &Header) {
        let rlp = alloy_rlp::encode(header).into();
        self.add(RecentBlock { number: header.number, hash, header: Some(rlp) });
    }

    fn add(&mut self, block: RecentBlock) {
        if self.newest.len() == BLOCK_HASH_COUNT {
            self.newest.pop_front();
        }
        self.newest.push_back(block);
    }

    /// The headers from a block on, or from the newest one where that is older; `None` where one of
    /// them is not known.
    pub(crate) fn headers_from(&self, oldest: Option<u64>) -> Option<Vec<Bytes>> {
        let newest = self.newest.back()?.number;
        let oldest = oldest.map_or(newest, |oldest| oldest.min(newest));
        let wanted = self.newest.iter().filter(|block| block.number >= oldest);
        wanted.map(|block| block.header.clone()).collect()
    }

    fn hash(&self, number: u64) -> Option<B256> {
        let hash = self.newest.front().and_then(|first| {
            let index = usize::try_from(number.checked_sub(first.number)?).ok()?;
            self.newest.get(index).map(|block| block.hash)
        });
        let noted = if hash.is_some() { &self.oldest_told } else { &self.oldest_lacked };
        noted.0.fetch_min(number, Ordering::Relaxed);
        hash
    }

    /// The oldest block whose hash a contract was told since the last call.
    pub(crate) fn take_oldest_told(&self) -> Option<u64> {
        self.oldest_told.take()
    }

    /// The oldest block whose hash a contract asked for in vain since the last call.
    pub(crate) fn take_oldest_lacked(&self) -> Option<u64> {
        self.oldest_lacked.take()
    }
}

impl Oldest {
    fn take(&self) -> Option<u64> {
        let oldest = self.0.swap(u64::MAX, Ordering::Relaxed);
        (oldest != u64::MAX).then_some(oldest)
    }
}

/// The state as a transaction finds it.
pub(crate) struct BlockDb<'a> {
    pub(crate) state: &'a mut (dyn BlockState + 'a),
    pub(crate) overlay: Overlay,
    hashes: &'a BlockHashes,
    codes: &'a CodeCache,
}

/// Code whose jumps are known, by its hash. The state is asked for it all the same.
#[derive(Debug, Default)]
pub(crate) struct CodeCache(Mutex<B256Map<Bytecode>>);

/// It is made again as it is needed.
impl Clone for CodeCache {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// How many contracts' code is kept.
const CODES_MAX: usize = 1_024;

impl CodeCache {
    fn analysed(&self, hash: B256, code: Bytes) -> Bytecode {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= CODES_MAX {
            known.clear();
        }
        known.entry(hash).or_insert_with(|| bytecode(code)).clone()
    }
}

impl BlockDb<'_> {
    /// Whether an account has slots that are not zero.
    fn has_storage(&mut self, address: Address) -> Result<bool, DatabaseError<StateFailed>> {
        self.overlay.has_storage(&*self.state, address).map_err(DatabaseError::State)
    }
}

impl Database for BlockDb<'_> {
    type Error = DatabaseError<StateFailed>;

    fn basic(&mut self, address: Address) -> Result<Option<AccountInfo>, Self::Error> {
        let account = self.overlay.account(&*self.state, address).map_err(DatabaseError::State)?;
        Ok(account.map(account_info))
    }

    fn code_by_hash(&mut self, hash: B256) -> Result<Bytecode, Self::Error> {
        let code = self.overlay.code(&*self.state, hash).map_err(DatabaseError::State)?;
        let code = code.ok_or(DatabaseError::Code(hash))?;
        Ok(self.codes.analysed(hash, code))
    }

    fn storage(&mut self, address: Address, slot: U256) -> Result<U256, Self::Error> {
        self.overlay.storage(&*self.state, address, slot.into()).map_err(DatabaseError::State)
    }

    fn block_hash(&mut self, number: u64) -> Result<B256, Self::Error> {
        self.hashes.hash(number).ok_or(DatabaseError::BlockHash(number))
    }
}

/// The EVM for one block.
pub(crate) fn block_evm<'a>(
    config: &ChainConfig,
    fork: Fork,
    header: &Header,
    (hashes, codes): (&'a BlockHashes, &'a CodeCache),
    state: &'a mut (dyn BlockState + 'a),
) -> Machine<'a> {
    let blobs = config.blob_params(header.timestamp);
    let db = BlockDb { state, overlay: Overlay::default(), hashes, codes };
    let context: MainnetContext<_> = Context::new(db, fork.spec());
    let context =
        context.with_cfg(cfg(config, fork, blobs)).with_block(block_env(fork, header, blobs));
    let mut evm = context.build_mainnet();
    if fork == Fork::Constantinople {
        evm.instruction.insert_instruction(opcode::SSTORE, Instruction::new(sstore_eip1283), 0);
    }
    Machine::new(evm)
}

fn cfg(config: &ChainConfig, fork: Fork, blobs: Option<&BlobParams>) -> CfgEnv {
    let spec = fork.spec();
    let mut gas = GasParams::new_spec(spec);
    if fork == Fork::Constantinople {
        gas.override_gas([
            (GasId::sstore_static(), 200),
            (GasId::sstore_set_without_load_cost(), 19_800),
            (GasId::sstore_reset_without_cold_load_cost(), 4_800),
            (GasId::sstore_set_refund(), 19_800),
            (GasId::sstore_reset_refund(), 4_800),
        ]);
    }
    let mut cfg = CfgEnv::new().with_spec_and_gas_params(spec, gas).with_chain_id(config.chain_id);
    cfg.tx_chain_id_check = true;
    // Gas params of one's own turn none of these on.
    cfg.enable_amsterdam_eip8037 = fork >= Fork::Amsterdam;
    cfg.enable_amsterdam_eip2780 = fork >= Fork::Amsterdam;
    if let Some(blobs) = blobs {
        cfg.max_blobs_per_tx = Some(blobs.max_blobs_per_tx);
        cfg.blob_base_fee_update_fraction = u64::try_from(blobs.update_fraction).ok();
    }
    cfg
}

fn block_env(fork: Fork, header: &Header, blobs: Option<&BlobParams>) -> BlockEnv {
    BlockEnv {
        number: U256::from(header.number),
        beneficiary: header.beneficiary,
        timestamp: U256::from(header.timestamp),
        gas_limit: header.gas_limit,
        basefee: header.base_fee_per_gas.unwrap_or(0),
        difficulty: header.difficulty,
        prevrandao: (fork >= Fork::Paris).then_some(header.mix_hash),
        blob_excess_gas_and_price: header.excess_blob_gas.zip(blobs).map(|(excess, blobs)| {
            BlobExcessGasAndPrice {
                excess_blob_gas: excess,
                blob_gasprice: blobs.calc_blob_fee(excess),
            }
        }),
        slot_num: header.slot_number.unwrap_or(0),
    }
}

/// SSTORE as Constantinople had it: metered like Istanbul's, with other prices and without the
/// stipend rule.
fn sstore_eip1283<IT: InterpreterTypes, H: Host + ?Sized>(
    context: InstructionContext<'_, H, IT>,
) -> Result<(), InstructionResult> {
    use revm::interpreter::instructions::host::sstore_with_gas_accounting;
    sstore_with_gas_accounting(context, |context, _, load| {
        let params = context.host.gas_params();
        let cost = params.sstore_dynamic_gas(true, &load.data, load.is_cold);
        let refund = params.sstore_refund(true, &load.data);
        if !context.interpreter.gas.record_regular_cost(cost) {
            return Err(InstructionResult::OutOfGas);
        }
        context.interpreter.gas.record_refund(refund);
        Ok(())
    })
}

/// A transaction as the EVM takes it.
pub(crate) fn tx_env(transaction: &Transaction, signer: &Signer) -> TxEnv {
    let signed = transaction.authorization_list().unwrap_or_default();
    let recovered = signed.iter().zip(&signer.authorities).map(|(signed, authority)| {
        let authority = authority.map_or(RecoveredAuthority::Invalid, RecoveredAuthority::Valid);
        let authorization =
            RecoveredAuthorization::new_unchecked(signed.inner().clone(), authority);
        Either::Right(authorization)
    });
    TxEnv {
        tx_type: transaction.tx_type() as u8,
        caller: signer.address,
        gas_limit: transaction.gas_limit(),
        gas_price: transaction.max_fee_per_gas(),
        kind: transaction.kind(),
        value: transaction.value(),
        data: transaction.input().clone(),
        nonce: transaction.nonce(),
        chain_id: transaction.chain_id(),
        access_list: transaction.access_list().cloned().unwrap_or_default(),
        gas_priority_fee: transaction.max_priority_fee_per_gas(),
        blob_hashes: transaction.blob_versioned_hashes().unwrap_or_default().to_vec(),
        max_fee_per_blob_gas: transaction.max_fee_per_blob_gas().unwrap_or(0),
        authorization_list: recovered.collect(),
    }
}

/// What a call that the protocol makes is given.
#[derive(Debug)]
pub(crate) struct SystemCall {
    pub(crate) contract: Address,
    pub(crate) input: Bytes,
    /// A block is invalid without the contract, or where the call fails.
    pub(crate) must_succeed: bool,
}
