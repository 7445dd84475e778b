//! revm with the rules that it lacks. Each of them goes when revm has it.
//!
//! - **EIP-7610**: a creation at an address whose storage is not empty fails, as it does where
//!   there is code or a nonce. revm looks at code and nonce alone.
//! - **System calls** have 30,000,000 gas, and from Amsterdam on a reservoir of state gas beside
//!   it. revm adds both up, in every fork.

use std::marker::PhantomData;

use revm::{
    bytecode::{Bytecode, opcode},
    context::{
        ContextSetters as _, TxEnv,
        result::{EVMError, HaltReason, ResultAndState},
    },
    context_interface::{ContextTr as _, FrameStack, JournalTr as _, context::ContextError},
    handler::{
        EthFrame, EthPrecompiles, EvmTr, FrameData, FrameInitOrResult, FrameResult, Handler,
        ItemOrResult, MainnetContext, MainnetEvm, MainnetHandler, SystemCallTx as _,
        evm::{ContextDbError, FrameInitResult},
        instructions::EthInstructions,
        system_call::SYSTEM_MAX_SSTORES_PER_CALL,
    },
    interpreter::{
        GasTracker, InitialAndFloorGas,
        interpreter::{EthInterpreter, ExtBytecode},
        interpreter_action::FrameInit,
    },
    primitives::{eip8037, hardfork::SpecId},
};

use super::{BlockDb, SystemCall};
use crate::{block_state::StateFailed, database::DatabaseError};

/// What a system call may use (EIP-4788 and those after it).
const SYSTEM_CALL_GAS: u64 = 30_000_000;
/// What it may beside that spend on the growth of the state, from Amsterdam on (EIP-8037).
const SYSTEM_CALL_STATE_GAS: u64 =
    SYSTEM_MAX_SSTORES_PER_CALL * eip8037::SSTORE_SET_BYTES * eip8037::CPSB_GLAMSTERDAM;

type BlockContext<'a> = MainnetContext<BlockDb<'a>>;
type Failed = EVMError<DatabaseError<StateFailed>>;

/// The EVM that executes the transactions and system calls of one block.
pub(crate) struct Machine<'a>(MainnetEvm<BlockContext<'a>>);

impl<'a> Machine<'a> {
    pub(super) const fn new(evm: MainnetEvm<BlockContext<'a>>) -> Self {
        Self(evm)
    }

    /// The state as the next transaction finds it.
    pub(crate) fn db(&mut self) -> &mut BlockDb<'a> {
        &mut self.0.ctx.journaled_state.database
    }

    /// Executes a transaction. What it did to the state is in the answer, and not yet in the state.
    pub(crate) fn transact(&mut self, transaction: TxEnv) -> Result<ResultAndState, Failed> {
        self.0.ctx.set_tx(transaction);
        let outcome = MainnetHandler::<_, Failed, _>::default().run(self);
        self.settle(outcome)
    }

    /// Executes a call that the protocol itself makes, as [`transact`](Self::transact) does.
    pub(crate) fn system_call(&mut self, call: &SystemCall) -> Result<ResultAndState, Failed> {
        let mut transaction = TxEnv::new_system_tx(call.contract, call.input.clone());
        transaction.gas_limit = SYSTEM_CALL_GAS;
        self.0.ctx.set_tx(transaction);
        let outcome = SystemCalls(PhantomData).run_system_call(self);
        self.settle(outcome)
    }

    /// Takes what was done out of the journal, which is empty then for what comes next.
    fn settle(
        &mut self,
        outcome: Result<revm::context::result::ExecutionResult, Failed>,
    ) -> Result<ResultAndState, Failed> {
        let state = self.0.ctx.journaled_state.finalize();
        Ok(ResultAndState::new(outcome?, state))
    }
}

impl<'a> EvmTr for Machine<'a> {
    type Context = BlockContext<'a>;
    type Instructions = EthInstructions<EthInterpreter, BlockContext<'a>>;
    type Precompiles = EthPrecompiles;
    type Frame = EthFrame<EthInterpreter>;

    fn all(
        &self,
    ) -> (&Self::Context, &Self::Instructions, &Self::Precompiles, &FrameStack<Self::Frame>) {
        self.0.all()
    }

    fn all_mut(
        &mut self,
    ) -> (
        &mut Self::Context,
        &mut Self::Instructions,
        &mut Self::Precompiles,
        &mut FrameStack<Self::Frame>,
    ) {
        self.0.all_mut()
    }

    /// A creation over storage begins, and its first instruction is an invalid one, as EIP-7610 has
    /// it: so it ends with its gas gone and everything undone, and the nonce of the creator moved
    /// on.
    fn frame_init(
        &mut self,
        input: FrameInit,
    ) -> Result<FrameInitResult<'_, Self::Frame>, ContextDbError<Self::Context>> {
        if let ItemOrResult::Result(result) = self.0.frame_init(input)? {
            return Ok(ItemOrResult::Result(result));
        }
        if let FrameData::Create(created) = &self.0.frame_stack.get().data {
            let address = created.created_address;
            if self.db().has_storage(address).map_err(ContextError::Db)? {
                let invalid = Bytecode::new_legacy([opcode::INVALID].into());
                let frame = self.0.frame_stack.get();
                frame.interpreter.bytecode = ExtBytecode::new(invalid);
            }
        }
        Ok(ItemOrResult::Item(self.0.frame_stack.get()))
    }

    fn frame_run(
        &mut self,
    ) -> Result<FrameInitOrResult<Self::Frame>, ContextDbError<Self::Context>> {
        self.0.frame_run()
    }

    fn frame_return_result(
        &mut self,
        result: FrameResult,
    ) -> Result<Option<FrameResult>, ContextDbError<Self::Context>> {
        self.0.frame_return_result(result)
    }
}

/// How system calls are run: as revm does it, with other gas.
struct SystemCalls<E>(PhantomData<E>);

impl<'a> Handler for SystemCalls<Machine<'a>> {
    type Evm = Machine<'a>;
    type Error = Failed;
    type HaltReason = HaltReason;

    fn tx_gas(&self, evm: &mut Self::Evm, _: &InitialAndFloorGas) -> GasTracker {
        let is_amsterdam = evm.ctx_ref().cfg().spec().is_enabled_in(SpecId::AMSTERDAM);
        let reservoir = if is_amsterdam { SYSTEM_CALL_STATE_GAS } else { 0 };
        GasTracker::new(SYSTEM_CALL_GAS + reservoir, SYSTEM_CALL_GAS, reservoir)
    }
}
