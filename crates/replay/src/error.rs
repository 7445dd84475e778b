use std::{fmt, io};

use alloy_primitives::B256;

use crate::diff::DiffError;

/// Why a file of blocks could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The file, or the compression around it, could not be read.
    #[error("reading blocks at byte {offset}: {error}")]
    Io {
        /// Bytes of (uncompressed) blocks read before.
        offset: u64,
        /// What went wrong.
        #[source]
        error: io::Error,
    },
    /// What follows the last block is no RLP list.
    #[error("expected a block (an RLP list) at byte {offset}, got byte 0x{got:02x}")]
    NotABlock {
        /// Where it starts.
        offset: u64,
        /// The byte that lies there.
        got: u8,
    },
    /// The header of the list says more than a block may hold, or says it wrongly.
    #[error("block at byte {offset}: expected at most {expected} bytes, its header says {got}")]
    TooLong {
        /// Where the block starts.
        offset: u64,
        /// The most bytes a block may have.
        expected: u64,
        /// What the header says.
        got: u64,
    },
    /// The file ends inside a block.
    #[error("block at byte {offset} is cut off: expected {expected} bytes, got {got}")]
    Truncated {
        /// Where the block starts.
        offset: u64,
        /// Bytes that its header promises, the header itself included.
        expected: u64,
        /// Bytes that are there.
        got: u64,
    },
    /// The bytes are a list, but no block.
    #[error("block at byte {offset}{}: {error}", Named(*.block))]
    Malformed {
        /// Where the block starts.
        offset: u64,
        /// Its number and hash, where the header could be read.
        block: Option<(u64, B256)>,
        /// What the decoder met.
        error: alloy_rlp::Error,
    },
}

struct Named(Option<(u64, B256)>);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |(number, hash)| write!(f, " (number {number}, {hash})"))
    }
}

/// What of a block did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Check {
    /// The block's access list, which follows from its execution, and its hash.
    AccessList,
    /// The base fee that follows from the parent.
    BaseFee,
    /// Blob gas used by the transactions, or more blobs than a block may have.
    BlobGasUsed,
    /// A call that the protocol itself makes failed, or its contract is missing.
    SystemCall,
    /// The difficulty that follows from the parent; zero from the merge on.
    Difficulty,
    /// The excess blob gas that follows from the parent.
    ExcessBlobGas,
    /// At most 32 bytes, and what the DAO fork asks for.
    ExtraData,
    /// A header field that the fork does not have, or one that it asks for.
    Field(&'static str),
    /// The gas limit and how far it may move from the parent's.
    GasLimit,
    /// Gas used by the transactions.
    GasUsed,
    /// The bloom over all logs.
    LogsBloom,
    /// The number after the parent's.
    Number,
    /// Ommers, and their hash.
    Ommers,
    /// The hash of the parent.
    ParentHash,
    /// The root of the receipts.
    ReceiptsRoot,
    /// The hash of the requests to the consensus layer.
    RequestsHash,
    /// The root of the state afterwards.
    StateRoot,
    /// Later than the parent.
    Timestamp,
    /// The transaction with this index cannot be in this block.
    Transaction(usize),
    /// The root of the transactions.
    TransactionsRoot,
    /// The root of the withdrawals.
    WithdrawalsRoot,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::AccessList => "access list",
            Self::BaseFee => "base fee",
            Self::BlobGasUsed => "blob gas used",
            Self::SystemCall => "system call",
            Self::Difficulty => "difficulty",
            Self::ExcessBlobGas => "excess blob gas",
            Self::ExtraData => "extra data",
            Self::Field(name) => name,
            Self::GasLimit => "gas limit",
            Self::GasUsed => "gas used",
            Self::LogsBloom => "logs bloom",
            Self::Number => "number",
            Self::Ommers => "ommers",
            Self::ParentHash => "parent hash",
            Self::ReceiptsRoot => "receipts root",
            Self::RequestsHash => "requests hash",
            Self::StateRoot => "state root",
            Self::Timestamp => "timestamp",
            Self::Transaction(index) => return write!(f, "transaction {index}"),
            Self::TransactionsRoot => "transactions root",
            Self::WithdrawalsRoot => "withdrawals root",
        };
        f.write_str(name)
    }
}

/// A block that breaks the rules, or does not do what its header says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("block {number} ({hash}) at byte {offset}: {what}: expected {expected}, got {got}")]
pub struct BadBlock {
    /// The number in its header.
    pub number: u64,
    /// The hash of its header.
    pub hash: B256,
    /// Where the block starts in its source; zero where it came from no file.
    pub offset: u64,
    /// What did not hold.
    pub what: Check,
    /// What the rules, or the execution, give.
    pub expected: String,
    /// What the block has.
    pub got: String,
}

/// Why a replay stopped. `E` is the error of the state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError<E: std::error::Error + 'static> {
    /// The block has ommers, and their parents may lie before the first block that is known.
    #[error(
        "block {number} has ommers, and the blocks given do not begin early enough to look for \
         their parents"
    )]
    Ancestors {
        /// The block.
        number: u64,
    },
    /// The block breaks a rule; nothing of it stays in the state.
    #[error(transparent)]
    BadBlock(Box<BadBlock>),
    /// The EVM failed in a way that no transaction may make it fail.
    #[error("executing block {number}: {message}")]
    Evm {
        /// The block.
        number: u64,
        /// What the EVM says.
        message: String,
    },
    /// The genesis allocation does not have the root that its header gives.
    #[error("genesis state root: expected {expected}, got {got}")]
    Genesis {
        /// The root in the header.
        expected: B256,
        /// The root of the state.
        got: B256,
    },
    /// The source does not lead to the block that the state stands at.
    #[error("the state stands at block {number} ({expected}), the blocks have {}", Found(*.got))]
    Resume {
        /// The number of the block the state stands at.
        number: u64,
        /// Its hash.
        expected: B256,
        /// What the source has at that number.
        got: Option<B256>,
    },
    /// The state that the blocks go on from is not that of the block it stands at. No block has
    /// been executed.
    #[error(
        "the state at block {number} is not that of the block's header: state root: expected \
         {expected}, got {got}"
    )]
    StateRoot {
        /// The block that the state stands at.
        number: u64,
        /// The root in its header.
        expected: B256,
        /// The root of the state.
        got: B256,
    },
    /// The blocks could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The state failed.
    #[error("state, at block {number}: {error}")]
    State {
        /// The block.
        number: u64,
        /// What the state says.
        #[source]
        error: E,
    },
    /// The traces could not be read.
    #[error("reading traces: {0}")]
    Trace(#[from] DiffError),
    /// The traces are not those of the blocks. Nothing of the block was applied.
    #[error("block {number} and its trace: {what}: expected {expected}, got {got}")]
    TraceMisfit {
        /// The block.
        number: u64,
        /// What does not fit.
        what: &'static str,
        /// What the block says.
        expected: String,
        /// What the trace says.
        got: String,
    },
    /// The chain uses rules that are not implemented.
    #[error("block {number}: {rules} is not supported")]
    Unsupported {
        /// The first block that needs them.
        number: u64,
        /// The rules.
        rules: String,
    },
}

impl<E: std::error::Error> ReplayError<E> {
    /// A block and its trace do not fit.
    pub(crate) fn misfit(
        number: u64,
        what: &'static str,
        expected: impl ToString,
        got: impl ToString,
    ) -> Self {
        let (expected, got) = (expected.to_string(), got.to_string());
        Self::TraceMisfit { number, what, expected, got }
    }

    /// What another state may say too; else the block at which the state failed, and why.
    pub(crate) fn of_no_state<F: std::error::Error>(self) -> Result<ReplayError<F>, (u64, E)> {
        Ok(match self {
            Self::State { number, error } => return Err((number, error)),
            Self::Ancestors { number } => ReplayError::Ancestors { number },
            Self::BadBlock(block) => ReplayError::BadBlock(block),
            Self::Evm { number, message } => ReplayError::Evm { number, message },
            Self::Genesis { expected, got } => ReplayError::Genesis { expected, got },
            Self::Resume { number, expected, got } => ReplayError::Resume { number, expected, got },
            Self::StateRoot { number, expected, got } => {
                ReplayError::StateRoot { number, expected, got }
            }
            Self::Source(error) => ReplayError::Source(error),
            Self::Trace(error) => ReplayError::Trace(error),
            Self::TraceMisfit { number, what, expected, got } => {
                ReplayError::TraceMisfit { number, what, expected, got }
            }
            Self::Unsupported { number, rules } => ReplayError::Unsupported { number, rules },
        })
    }
}

struct Found(Option<B256>);

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(hash) => write!(f, "{hash} there"),
            None => f.write_str("none there"),
        }
    }
}
