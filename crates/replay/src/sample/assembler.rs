use std::collections::BTreeMap;

use alloy_primitives::Bytes;
use revm::bytecode::opcode;

/// Puts bytecode together: opcodes, constants, and jumps to names.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<u8>,
    labels: BTreeMap<&'static str, u16>,
    jumps: Vec<(usize, &'static str)>,
}

impl Assembler {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Appends opcodes as they are.
    pub(crate) fn ops(mut self, ops: &[u8]) -> Self {
        self.code.extend_from_slice(ops);
        self
    }

    /// Pushes a constant of 1 to 32 bytes.
    pub(crate) fn push(mut self, bytes: &[u8]) -> Self {
        assert!((1..=32).contains(&bytes.len()), "a constant has 1 to 32 bytes");
        self.code.push(opcode::PUSH0 + bytes.len() as u8);
        self.ops(bytes)
    }

    /// Names this place, and makes it one to jump to.
    pub(crate) fn label(mut self, name: &'static str) -> Self {
        let here = u16::try_from(self.code.len()).expect("code is short");
        assert!(self.labels.insert(name, here).is_none(), "{name} is named once");
        self.ops(&[opcode::JUMPDEST])
    }

    /// Jumps to a name if the top of the stack is not zero.
    pub(crate) fn jump_if(self, name: &'static str) -> Self {
        self.push_label(name).ops(&[opcode::JUMPI])
    }

    /// Jumps to a name.
    pub(crate) fn jump(self, name: &'static str) -> Self {
        self.push_label(name).ops(&[opcode::JUMP])
    }

    fn push_label(mut self, name: &'static str) -> Self {
        self.jumps.push((self.code.len() + 1, name));
        self.push(&[0, 0])
    }

    /// The code, with all names in place.
    pub(crate) fn code(mut self) -> Bytes {
        for (at, name) in self.jumps {
            let target = self.labels[name].to_be_bytes();
            self.code[at..at + 2].copy_from_slice(&target);
        }
        self.code.into()
    }

    /// Code that runs `self` and then makes a contract with `runtime`.
    pub(crate) fn deploying(self, runtime: &[u8]) -> Bytes {
        let len = u16::try_from(runtime.len()).expect("code is short").to_be_bytes();
        // PUSH2 len, DUP1, PUSH2 offset, PUSH0, CODECOPY, PUSH0, RETURN
        let tail_len = 3 + 1 + 3 + 1 + 1 + 1 + 1;
        let offset = u16::try_from(self.code.len() + tail_len).expect("code is short");
        self.push(&len)
            .ops(&[opcode::DUP1])
            .push(&offset.to_be_bytes())
            .ops(&[opcode::PUSH0, opcode::CODECOPY, opcode::PUSH0, opcode::RETURN])
            .ops(runtime)
            .code()
    }
}
