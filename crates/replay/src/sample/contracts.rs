//! The contracts of a sample chain, and how to call them.

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use revm::bytecode::opcode::{
    ADD, CALL, CALLDATACOPY, CALLDATALOAD, CALLDATASIZE, CALLER, CREATE2, DUP1, DUP2, DUP3, DUP6,
    EQ, GAS, ISZERO, KECCAK256, LOG3, LT, MSTORE, POP, PUSH0, RETURN, REVERT, SELFDESTRUCT, SHR,
    SLOAD, SSTORE, STOP, SUB, SWAP1,
};

use super::assembler::Assembler;

const TRANSFER: [u8; 4] = [0xa9, 0x05, 0x9c, 0xbb];
const MINT: [u8; 4] = [0x40, 0xc1, 0x0f, 0x19];
const WORD: [u8; 1] = [0x20];

/// A token with `transfer(address,uint256)` and, for anybody, `mint(address,uint256)`. The balance
/// of an account lies at keccak256(account . 0), as Solidity has it for a mapping in slot 0.
pub(crate) fn token() -> Bytes {
    let event = keccak256("Transfer(address,address,uint256)");
    Assembler::new()
        .ops(&[PUSH0, CALLDATALOAD])
        .push(&[0xe0])
        .ops(&[SHR, DUP1])
        .push(&TRANSFER)
        .ops(&[EQ])
        .jump_if("transfer")
        .push(&MINT)
        .ops(&[EQ])
        .jump_if("mint")
        .label("refuse")
        .ops(&[PUSH0, PUSH0, REVERT])
        // The sender's balance, less the amount.
        .label("transfer")
        .ops(&[POP, CALLER, PUSH0, MSTORE])
        .push(&[0x40])
        .ops(&[PUSH0, KECCAK256, DUP1, SLOAD])
        .push(&[0x24])
        .ops(&[CALLDATALOAD, DUP1, DUP3, LT])
        .jump_if("refuse")
        .ops(&[SWAP1, SUB, SWAP1, SSTORE])
        // The receiver's balance, and the amount.
        .label("mint")
        .push(&[0x04])
        .ops(&[CALLDATALOAD, PUSH0, MSTORE])
        .push(&[0x40])
        .ops(&[PUSH0, KECCAK256, DUP1, SLOAD])
        .push(&[0x24])
        .ops(&[CALLDATALOAD, ADD, SWAP1, SSTORE])
        // Transfer(caller, receiver, amount)
        .push(&[0x24])
        .ops(&[CALLDATALOAD, PUSH0, MSTORE])
        .push(&[0x04])
        .ops(&[CALLDATALOAD, CALLER])
        .push(event.as_slice())
        .push(&WORD)
        .ops(&[PUSH0, LOG3])
        .push(&[0x01])
        .ops(&[PUSH0, MSTORE])
        .push(&WORD)
        .ops(&[PUSH0, RETURN])
        .code()
}

/// Calls the token.
pub(crate) fn token_call(is_mint: bool, to: Address, amount: u64) -> Bytes {
    let selector = if is_mint { MINT } else { TRANSFER };
    [selector.as_slice(), to.into_word().as_slice(), word(amount).as_slice()].concat().into()
}

/// Writes a run of slots: `(first, count, value)`. All of them get `value`, zero clears them.
pub(crate) fn ledger() -> Bytes {
    Assembler::new()
        .push(&[0x40])
        .ops(&[CALLDATALOAD])
        .push(&WORD)
        .ops(&[CALLDATALOAD, PUSH0, CALLDATALOAD])
        // Stack from the top: slot, slots left, value.
        .label("next")
        .ops(&[DUP2, ISZERO])
        .jump_if("done")
        .ops(&[DUP3, DUP2, SSTORE])
        .push(&[0x01])
        .ops(&[ADD, SWAP1])
        .push(&[0x01])
        .ops(&[SWAP1, SUB, SWAP1])
        .jump("next")
        .label("done")
        .ops(&[STOP])
        .code()
}

/// Calls the ledger.
pub(crate) fn ledger_call(first: u64, count: u64, value: u64) -> Bytes {
    [word(first), word(count), word(value)].concat().into()
}

/// Makes a child by CREATE2: `(salt, calls, init code)`, and calls it at once if `calls` is not
/// zero, which destroys it again.
pub(crate) fn factory() -> Bytes {
    Assembler::new()
        // The init code to memory.
        .push(&[0x40])
        .ops(&[DUP1, CALLDATASIZE, SUB, SWAP1, DUP2, SWAP1, PUSH0, CALLDATACOPY])
        // create2(value 0, offset 0, length, salt)
        .ops(&[PUSH0, CALLDATALOAD, SWAP1, PUSH0, PUSH0, CREATE2])
        .ops(&[DUP1, ISZERO])
        .jump_if("refuse")
        .push(&WORD)
        .ops(&[CALLDATALOAD, ISZERO])
        .jump_if("done")
        // call(gas, child, value 0, no input, no output)
        .ops(&[PUSH0, PUSH0, PUSH0, PUSH0, PUSH0])
        .ops(&[DUP6, GAS, CALL, POP])
        .label("done")
        .ops(&[STOP])
        .label("refuse")
        .ops(&[PUSH0, PUSH0, REVERT])
        .code()
}

/// Calls the factory.
pub(crate) fn factory_call(salt: u64, destroys: bool) -> Bytes {
    [word(salt), word(destroys.into()), child_init().to_vec()].concat().into()
}

/// Where the factory's child with this salt is.
pub(crate) fn child(factory: Address, salt: u64) -> Address {
    factory.create2(B256::from(U256::from(salt)), keccak256(child_init()))
}

/// What the child is made by: its constructor writes two slots.
fn child_init() -> Bytes {
    let runtime = Assembler::new()
        .ops(&[CALLDATASIZE])
        .jump_if("write")
        .ops(&[CALLER, SELFDESTRUCT])
        .label("write")
        .push(&WORD)
        .ops(&[CALLDATALOAD, PUSH0, CALLDATALOAD, SSTORE, STOP])
        .code();
    Assembler::new()
        .ops(&[CALLER, PUSH0, SSTORE])
        .push(&[0x2a])
        .push(&[0x01])
        .ops(&[SSTORE])
        .deploying(&runtime)
}

/// Has a child write a slot; without arguments it destroys itself, which since Cancun only moves
/// its balance unless it was made in the same transaction.
pub(crate) fn child_call(slot: u64, value: u64) -> Bytes {
    [word(slot), word(value)].concat().into()
}

/// Init code for one of the contracts above.
pub(crate) fn deploy(runtime: &[u8]) -> Bytes {
    Assembler::new().deploying(runtime)
}

fn word(value: u64) -> Vec<u8> {
    U256::from(value).to_be_bytes_vec()
}
