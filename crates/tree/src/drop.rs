//! Dropping whole subtrees: one range of rows, or page by page below paths too long for one.

use crate::apply::Apply;
use crate::node::{Child, Dropped, Link};
use crate::open::{Halt, Looked, Opener};
use crate::scheme::Scheme;

/// Below paths of this length a subtree is one range of rows.
const LONG_PATH_BYTES: usize = 1_000;

/// A child, the depth at which it hangs, and its path.
type Condemned = (Child, usize, Vec<u8>);

impl<S: Scheme> Apply<'_, S> {
    /// Forgets a child and every row below it. `op` shares the child's first `depth` digits.
    pub(crate) fn drop_child(
        &mut self,
        child: &Child,
        depth: usize,
        op: usize,
    ) -> Result<(), Halt> {
        let bits = depth * Opener::<S>::WIDTH.bits();
        if bits / 8 < LONG_PATH_BYTES {
            self.drop_below(op, bits);
            return Ok(());
        }
        self.drop_page_by_page(*child, depth, op)
    }

    /// Notes that every row below a place goes.
    pub(crate) fn drop_below(&mut self, op: usize, bits: usize) {
        let path = self.key(op)[..bits.div_ceil(8)].to_vec();
        self.open.seg.dropped.push(Dropped { path, bits });
    }

    /// Below a path too long for a range of rows, each page is opened to be retired.
    fn drop_page_by_page(&mut self, child: Child, depth: usize, op: usize) -> Result<(), Halt> {
        let first_page = self.open.seg.pages.len();
        self.set_path(op, depth);
        let mut path = std::mem::take(&mut self.open.path);
        Opener::<S>::WIDTH.truncate(&mut path, depth);
        let mut todo: Vec<Condemned> = vec![(child, depth, path)];
        let mut missing = false;
        while let Some((child, depth, path)) = todo.pop() {
            self.open.path = path;
            let found = self.children_to_drop(&child, depth, &mut todo);
            match found {
                Ok(()) => {}
                Err(Halt::Missing) => missing = true,
                Err(failed) => return Err(failed),
            }
        }
        self.retire(first_page..self.open.seg.pages.len());
        if missing { Err(Halt::Missing) } else { Ok(()) }
    }

    fn children_to_drop(
        &mut self,
        child: &Child,
        depth: usize,
        todo: &mut Vec<Condemned>,
    ) -> Result<(), Halt> {
        let Looked::Branch { skip, body } = self.open.look(child, depth)? else { return Ok(()) };
        self.extend_path(depth, &skip);
        let fork = depth + skip.digits;
        let mut children = Vec::new();
        self.open.children(body, fork, &mut children)?;
        let stem = self.open.path.clone();
        let width = Opener::<S>::WIDTH;
        let mut index = 0;
        while index < children.len() {
            let child = children[index];
            if let Link::Group { bits, .. } = child.link {
                self.open.path.clone_from(&stem);
                let mut opened = Vec::new();
                self.open.group(fork, child.digit, bits, &mut opened)?;
                let covered = children[index..]
                    .iter()
                    .take_while(|c| opened.iter().any(|o| o.digit == c.digit));
                let covered = covered.count().max(1);
                children.splice(index..index + covered, opened);
                continue;
            }
            let mut path = stem.clone();
            width.append(&mut path, fork, child.digit);
            todo.push((child, fork + 1, path));
            index += 1;
        }
        Ok(())
    }
}
