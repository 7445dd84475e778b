//! What blocks did as block-level access lists, derived from their execution.

use std::io::Write as _;
use std::path::Path;

use alloy_primitives::Bytes;
use serde_json::json;
use spinney_migrate::AccessList;
use spinney_replay::BlockReport;

use crate::failure::Failure;
use crate::out_file::OutFile;

/// A file of access lists: a block a line.
pub(crate) struct Lists {
    out: OutFile,
    failed: Option<anyhow::Error>,
}

impl Lists {
    pub(super) fn begin(path: &Path) -> Result<Self, Failure> {
        Ok(Self { out: OutFile::begin(Some(path))?, failed: None })
    }

    /// Notes a block; what goes wrong is told in the end.
    pub(super) fn block(&mut self, block: &BlockReport) {
        if self.failed.is_none()
            && let Err(error) = self.write(block)
        {
            self.failed = Some(error);
        }
    }

    fn write(&mut self, block: &BlockReport) -> anyhow::Result<()> {
        let number = block.number;
        let unsaid = |error| {
            Failure::new(format!("block {number} has no access list (--bal-out)"))
                .because(error)
                .hint("begin behind it: replay up to there first, and then with --bal-out")
        };
        if let Some(address) = block.left_empty.first() {
            return Err(unsaid(anyhow::anyhow!(
                "account {address} is left there with nothing in it, as before Spurious Dragon, which a list \
                 cannot say: behind it such an account is gone"
            ))
            .into());
        }
        let steps = block.steps.iter().map(|step| (step.index, &step.changes));
        let list = AccessList::of(steps, &block.changes, &block.replaced);
        let list = list.map_err(|error| unsaid(error.into()))?;
        let rlp: Bytes = list.to_rlp();
        let line = json!({
            "number": number, "hash": block.hash, "parent": block.parent_hash,
            "bal_hash": list.hash(), "bal": rlp,
        });
        writeln!(self.out, "{line}")?;
        Ok(())
    }

    /// Ends the file, if every block has its list.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.out.finish()?),
        }
    }
}
