//! What blocks did as block-level access lists: the chain's own from Amsterdam on, and before it
//! derived from their execution.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use alloy_primitives::{B256, Bytes};
use serde::Deserialize;
use serde_json::json;
use spinney_migrate::AccessList;
use spinney_replay::BlockReport;
use spinney_tree::BlockId;

use crate::failure::Failure;
use crate::out_file::OutFile;

/// A file of access lists: a block a line.
pub(crate) struct Lists {
    path: PathBuf,
    out: OutFile,
    /// Whether each list is written as JSON, too.
    json: bool,
    /// The last block that has a list here.
    last: Option<u64>,
    failed: Option<Failure>,
}

/// What a line says of its block.
#[derive(Deserialize)]
struct Listed {
    number: u64,
    hash: B256,
}

impl Lists {
    /// Begins a file, or goes on with one whose last list is that of the block where the store
    /// stands.
    pub(crate) fn begin(path: &Path, json: bool, head: Option<BlockId>) -> Result<Self, Failure> {
        let mut out = OutFile::begin(Some(path))?;
        let last = take_over(path, &mut out, head)?;
        Ok(Self { path: path.to_owned(), out, json, last, failed: None })
    }

    /// Notes a block: `false` if it has no list, which is told in the end.
    pub(crate) fn block(&mut self, block: &BlockReport) -> bool {
        if self.failed.is_none() {
            match self.write(block) {
                Ok(()) => self.last = Some(block.number),
                Err(failure) => self.failed = Some(failure),
            }
        }
        self.failed.is_none()
    }

    fn write(&mut self, block: &BlockReport) -> Result<(), Failure> {
        let number = block.number;
        let unsaid = |error| {
            let lists = match self.last {
                Some(last) => {
                    format!("the lists up to block {last} are in {}", self.path.display())
                }
                None => "no list was written".to_owned(),
            };
            let what = format!("block {number} has no access list (--bal-out)");
            let hint = format!(
                "the store has that block, {lists}: replay without --bal-out as far as there are \
                 such blocks, and then into a file of its own"
            );
            Failure::new(what).because(error).hint(hint)
        };
        if let Some(address) = block.left_empty.first().filter(|_| block.access_list.is_none()) {
            return Err(unsaid(anyhow::anyhow!(
                "account {address} is left there with nothing in it, as before Spurious Dragon, \
                 which a list cannot say: behind it such an account is gone"
            )));
        }
        let list = match &block.access_list {
            // The chain's own, which its header names.
            Some(own) => AccessList::made(own.clone()),
            None => {
                let steps = block.steps.iter().map(|step| (step.index, &step.changes));
                AccessList::of(steps, &block.changes, &block.replaced)
            }
        };
        let list = list.map_err(|error| unsaid(error.into()))?;
        let rlp: Bytes = list.to_rlp();
        let mut line = json!({
            "number": number, "hash": block.hash, "parent": block.parent_hash,
            "bal_hash": list.hash(), "bal": rlp,
        })
        .to_string();
        if self.json {
            line.pop();
            line.push_str(",\"accessList\":");
            line.push_str(&list.to_json());
            line.push('}');
        }
        writeln!(self.out, "{line}").map_err(|error| unwritten(&self.path, error))
    }

    /// Ends the file. Where the first block has no list already, none is made.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        if self.last.is_some() || self.failed.is_none() {
            self.out.finish().map_err(|error| unwritten(&self.path, error))?;
        }
        self.failed.map_or(Ok(()), |failure| Err(failure.into()))
    }
}

fn unwritten(path: &Path, error: io::Error) -> Failure {
    Failure::new(format!("cannot write {} (--bal-out)", path.display())).because(error).hint(
        "look at the disk: space, permissions; stage unwind takes the store back to where the \
         file ends",
    )
}

/// Copies the lists of a file that is there, and answers the last block that has one. The store has
/// to stand at that block: else lists would be missing between them, or be there twice.
fn take_over(
    path: &Path,
    out: &mut OutFile,
    head: Option<BlockId>,
) -> Result<Option<u64>, Failure> {
    if !fs::metadata(path).is_ok_and(|known| known.is_file() && known.len() > 0) {
        return Ok(None);
    }
    let name = path.display();
    let unread = |error: io::Error| {
        Failure::new(format!("cannot go on with {name} (--bal-out)"))
            .because(error)
            .hint("name a file that is not there")
    };
    let mut old = BufReader::new(File::open(path).map_err(unread)?);
    let (mut line, mut last) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        if old.read_until(b'\n', &mut line).map_err(unread)? == 0 {
            break;
        }
        out.write_all(&line).map_err(|error| unwritten(path, error))?;
        std::mem::swap(&mut line, &mut last);
    }
    let listed: Option<Listed> =
        last.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok());
    let stands = |listed: &Listed| {
        head.is_some_and(|head| (head.number, head.hash) == (listed.number, listed.hash.0))
    };
    match listed {
        Some(listed) if stands(&listed) => Ok(Some(listed.number)),
        Some(Listed { number, .. }) => {
            let stands =
                head.map_or("holds no block".into(), |head| format!("stands at {}", head.number));
            Err(Failure::new(format!(
                "{name} has the lists up to block {number} already, and the store {stands} \
                 (--bal-out)"
            ))
            .hint("name another file; or take the store to that block: spinney stage unwind"))
        }
        None => Err(Failure::new(format!("{name} does not end in an access list (--bal-out)"))
            .hint("name a file that is not there, or one that replay --bal-out wrote")),
    }
}
