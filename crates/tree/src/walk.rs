//! Walking the entries of a tree in order of keys.

use crate::error::TreeError;
use crate::node::Link;
use crate::node_check::Check;
use crate::read::{At, Entry, Reader, Resolved};
use crate::scheme::{JobKey, LeafJob, Owned, Scheme, implicit_owners};

/// A node that the walk has yet to expand.
#[derive(Debug)]
struct Unexpanded<C> {
    at: At<C>,
    path: Vec<u8>,
    depth: usize,
    /// What it is said to commit to above, where that is to be checked.
    says: Option<C>,
}

/// What a walk meets, in order of keys.
#[derive(Debug)]
enum Next<C> {
    Node(Unexpanded<C>),
    Entry(Entry<C>),
}

/// Walks the entries from `start` on, in order of keys, with an explicit stack.
#[derive(Debug)]
pub(crate) struct EntryWalk<S: Scheme> {
    stack: Vec<Next<S::Commit>>,
    start: Vec<u8>,
    /// Computes again what nodes commit to, if that is asked for.
    check: Option<Check<S>>,
}

impl<S: Scheme> EntryWalk<S> {
    pub(crate) fn new(
        reader: &Reader<'_, S>,
        top: Option<(Link, S::Commit)>,
        start: &[u8],
        check: Option<Check<S>>,
    ) -> Self {
        let top = top.map(|(link, says)| {
            let (at, says) = (reader.at(link), check.is_some().then_some(says));
            Next::Node(Unexpanded { at, path: Vec::new(), depth: 0, says })
        });
        Self { stack: top.into_iter().collect(), start: start.to_vec(), check }
    }

    /// The next entry that is not before the start.
    pub(crate) fn next(
        &mut self,
        reader: &Reader<'_, S>,
    ) -> Result<Option<Entry<S::Commit>>, TreeError> {
        while let Some(top) = self.stack.pop() {
            match top {
                Next::Entry(entry) if entry.key >= self.start => return Ok(Some(entry)),
                Next::Entry(_) => {}
                Next::Node(node) => self.expand(reader, node)?,
            }
        }
        Ok(None)
    }

    /// Whether everything below a path comes before the start.
    fn before(&self, path: &[u8], bits: usize) -> bool {
        let whole = bits / 8;
        let common = whole.min(self.start.len());
        match path[..common].cmp(&self.start[..common]) {
            std::cmp::Ordering::Less => return true,
            std::cmp::Ordering::Greater => return false,
            std::cmp::Ordering::Equal => {}
        }
        if bits.is_multiple_of(8) || self.start.len() <= whole {
            return false;
        }
        let mask = 0xff << (8 - bits % 8);
        path[whole] & mask < self.start[whole] & mask
    }

    fn expand(
        &mut self,
        reader: &Reader<'_, S>,
        node: Unexpanded<S::Commit>,
    ) -> Result<(), TreeError> {
        let width = Reader::<S>::WIDTH;
        let Unexpanded { at, mut path, depth, says } = node;
        width.truncate(&mut path, depth);
        match reader.resolve(&at, &path, depth)? {
            Resolved::Leaf { suffix, value, owned } => {
                suffix.run().extend(&mut path, 0);
                let is_key = owned.is_none() || !implicit_owners::<S>();
                let owns = owned.as_ref().map(|owned| reader.owned(owned)).transpose()?;
                let commit = owns.and_then(|owns| match owns {
                    Owned::Commit(own) => Some(own),
                    Owned::Value(..) => None,
                });
                if let (Some(check), Some(says)) = (&mut self.check, says) {
                    let (key, suffix) = (JobKey::Whole(&path), suffix.run());
                    let job = LeafJob { key, suffix, value: &value, owned: owns, previous: None };
                    check.leaf(reader, job, says)?;
                }
                if let Some(at) = owned {
                    let (depth, says) = (width.count(&path), commit.filter(|_| says.is_some()));
                    self.stack.push(Next::Node(Unexpanded { at, path: path.clone(), depth, says }));
                }
                if is_key {
                    self.stack.push(Next::Entry(Entry { key: path, value, owned: commit }));
                }
            }
            Resolved::Branch { prefix, fork } => {
                let run = prefix.run();
                run.extend(&mut path, 0);
                let at = run.end();
                let fork = reader.opened(fork, &path, at)?;
                let value = reader.fork_value(&fork, &path, at)?;
                let mut children = Vec::new();
                reader.children(&fork, (&path, at), true, &mut children)?;
                if let (Some(check), Some(says)) = (&mut self.check, says) {
                    let body = (&mut children[..], value.as_deref());
                    check.branch(reader, (&path, run), body, says)?;
                }
                for child in children.into_iter().rev() {
                    let mut below = path.clone();
                    width.append(&mut below, at, child.digit);
                    let commit = child.commit;
                    if let Some(child) = child.at
                        && !self.before(&below, (at + 1) * width.bits())
                    {
                        self.stack.push(Next::Node(Unexpanded {
                            at: child,
                            path: below,
                            depth: at + 1,
                            says: commit.filter(|_| says.is_some()),
                        }));
                    }
                }
                if let Some(value) = value {
                    self.stack.push(Next::Entry(Entry { key: path, value, owned: None }));
                }
            }
        }
        Ok(())
    }
}
