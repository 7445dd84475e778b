//! Refusing keys that begin other keys, in trees that have no such keys.

use crate::apply::Apply;
use crate::error::TreeError;
use crate::node::{Child, Link, Span};
use crate::open::{Halt, Looked, Opener};
use crate::scheme::Scheme;

impl<S: Scheme> Apply<'_, S> {
    /// A value is at the fork of `path`, and `child` is below it: names both keys.
    pub(crate) fn refuse_prefix(
        &mut self,
        path: Span,
        fork: usize,
        child: Child,
    ) -> Result<(), TreeError> {
        // In a pass that is thrown away, what is below may be about to go.
        if self.tasks.for_nothing() || !self.open.missing.is_empty() {
            return Ok(());
        }
        self.compose(path, fork);
        let prefix = self.open.path[..fork / Opener::<S>::WIDTH.per_byte()].to_vec();
        match self.first_key(child, fork) {
            Ok(key) => Err(TreeError::PrefixKey { prefix, key }),
            // It is asked again once the page is at hand.
            Err(Halt::Missing) => Ok(()),
            Err(Halt::Failed(error)) => Err(error),
        }
    }

    /// The first key below a child of the fork that is the current path.
    fn first_key(&mut self, mut child: Child, mut fork: usize) -> Result<Vec<u8>, Halt> {
        let mut children = Vec::new();
        loop {
            if let Link::Group { bits, .. } = child.link {
                children.clear();
                self.open.group(fork, child.digit, bits, &mut children)?;
                child = children[0];
            }
            Opener::<S>::WIDTH.append(&mut self.open.path, fork, child.digit);
            match self.open.look(&child, fork + 1)? {
                Looked::Terminal { suffix, .. } => {
                    self.extend_path(fork + 1, &suffix);
                    return Ok(self.open.path.clone());
                }
                Looked::Branch { skip, body } => {
                    self.extend_path(fork + 1, &skip);
                    fork += 1 + skip.digits;
                    children.clear();
                    self.open.children(body, fork, &mut children)?;
                    child = children[0];
                }
            }
        }
    }
}
