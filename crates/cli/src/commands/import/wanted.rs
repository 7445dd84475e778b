//! What is said of a state by who imports it, beside what its document says.

use alloy_primitives::B256;
use spinney_tree::BlockId;

use crate::failure::Failure;

/// What the user says of the state.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) number: Option<u64>,
    pub(super) hash: Option<B256>,
    pub(super) root: Option<B256>,
}

impl Wanted {
    /// The block, from what the user and what the document says.
    pub(super) fn block(&self, block: Option<(u64, Option<B256>)>) -> Result<BlockId, Failure> {
        let number = agreed("number", self.number, block.map(|(number, _)| number))?;
        let hash = agreed("hash", self.hash, block.and_then(|(_, hash)| hash))?;
        let number = number.ok_or_else(|| {
            Failure::new("the dump does not say which block's state it is")
                .hint("spinney import state --number N takes it")
        })?;
        // Zeros stand for no hash.
        Ok(BlockId { number, hash: hash.unwrap_or_default().0 })
    }

    /// The root that the state has to have, if anybody said.
    pub(super) fn root(&self, root: Option<B256>) -> Result<Option<B256>, Failure> {
        let root = agreed("root", self.root, root)?;
        if root.is_none() && self.number.is_none() {
            return Err(Failure::new("the dump has no root, so that it cannot be checked")
                .hint("spinney import state takes a state without one"));
        }
        Ok(root)
    }
}

/// What is said once, or twice the same.
fn agreed<T: PartialEq + std::fmt::Display>(
    what: &str,
    by_user: Option<T>,
    by_file: Option<T>,
) -> Result<Option<T>, Failure> {
    match (by_user, by_file) {
        (Some(user), Some(file)) if user != file => {
            let what = format!("the document says {what} {file}, and --{what} is {user}");
            Err(Failure::new(what).hint("is it the document you mean?"))
        }
        (user, file) => Ok(user.or(file)),
    }
}
