//! Weighing a batch before anything is made or hashed: in trees whose values have a weight.
//!
//! What a batch puts, beside all that the tree holds, fits nearly always: then nothing is read.
//! Else the values that the batch replaces or removes are counted out, for which the paths of its
//! keys are walked once. Weights are added in 128 bits.

use std::ops::Range;

use crate::batch::{Op, OpKind};
use crate::error::TreeError;
use crate::image::Codec;
use crate::node::Arena;
use crate::read::{At, Halt, Reader, Resolved};
use crate::rows::ReadRows;
use crate::scheme::{Scheme, Weights};
use crate::tree::{Pending, Tree};

/// A node that the walk has yet to resolve: where it is, the depth at which it hangs, its
/// operations.
type Unweighed<C> = (At<C>, usize, Range<usize>);

/// The operations of a batch, sorted.
#[derive(Clone, Copy)]
struct SortedOps<'a> {
    list: &'a [Op],
    bytes: &'a [u8],
}

impl<'a> SortedOps<'a> {
    fn key(&self, op: usize) -> &'a [u8] {
        &self.bytes[self.list[op].key.range()]
    }
}

impl<S: Scheme> Tree<S> {
    /// Refuses operations, those of a batch's first arena, after which `state` would weigh more
    /// than the scheme allows; or that do so by themselves, whatever they replace.
    pub(crate) fn weigh(
        &self,
        snapshot: &dyn ReadRows,
        state: &Pending<S>,
        input: &Arena<S::Commit>,
    ) -> Result<(), TreeError> {
        let Some(limit) = S::Weights::MAX else { return Ok(()) };
        let ops = SortedOps { list: &input.ops, bytes: &input.bytes };
        let weight = |op: &Op| match op.kind {
            OpKind::Put(value) => u128::from(S::Weights::of_value(&ops.bytes[value.range()])),
            OpKind::Delete | OpKind::Clear => 0,
        };
        let fits = |weight: u128| weight <= u128::from(limit);
        let put: u128 = ops.list.iter().map(weight).sum();
        if !fits(put) {
            return Err(TreeError::Overweight { batch: true, weight: put, limit });
        }
        let held = state.top.map_or(0, |top| S::Weights::below(&top.commit));
        let upper = u128::from(held) + put;
        if fits(upper) {
            return Ok(());
        }
        // Sums that a damaged page gives may be anything.
        let weight = upper.saturating_sub(self.weight_at(snapshot, state, ops)?);
        match fits(weight) {
            true => Ok(()),
            false => Err(TreeError::Overweight { batch: false, weight, limit }),
        }
    }

    /// What the values weigh that the operations replace or remove.
    fn weight_at(
        &self,
        snapshot: &dyn ReadRows,
        state: &Pending<S>,
        ops: SortedOps<'_>,
    ) -> Result<u128, TreeError> {
        let mut total = 0;
        let mut waiting: Option<Vec<Unweighed<S::Commit>>> = None;
        let whole = state.top.map_or(0, |top| S::Weights::below(&top.commit));
        self.lend(snapshot, Some(state), &[], |reader, top| {
            let all = || (reader, 0..ops.list.len());
            let start = || {
                let ahead = |top| (all().0.at(top), 0, all().1);
                top.map(ahead).into_iter().collect()
            };
            let mut ahead = waiting.take().unwrap_or_else(start);
            let mut halted = Vec::new();
            while let Some(next) = ahead.pop() {
                let mut walk = Weighing { reader, ops, ahead: &mut ahead };
                match walk.step(&next, whole) {
                    Ok(weight) => total += weight,
                    Err(Halt::Missing) => halted.push(next),
                    Err(Halt::Failed(error)) => return Err(error),
                }
            }
            waiting = Some(halted);
            Ok(())
        })?;
        Ok(total)
    }
}

struct Weighing<'w, 'a, S: Scheme> {
    reader: &'w Reader<'a, S>,
    ops: SortedOps<'w>,
    ahead: &'w mut Vec<Unweighed<S::Commit>>,
}

impl<S: Scheme> Weighing<'_, '_, S> {
    /// What is known of a node's weight at once; the rest is put ahead.
    fn step(&mut self, (at, depth, ops): &Unweighed<S::Commit>, whole: u64) -> Result<u128, Halt> {
        let (depth, mut ops) = (*depth, ops.clone());
        let width = Codec::<S>::WIDTH;
        let resolved = self.reader.resolve(at, self.ops.key(ops.start), depth)?;
        let (Resolved::Leaf { suffix: digits, .. } | Resolved::Branch { prefix: digits, .. }) =
            &resolved;
        let run = digits.run();
        while !ops.is_empty() && self.ops.list[ops.start].kind == OpKind::Clear {
            let key = self.ops.key(ops.start);
            let reached = depth + run.common(key);
            if reached >= width.count(key) {
                return Ok(u128::from(self.below(at, depth, &resolved, whole)));
            }
            if reached == run.end() {
                break;
            }
            ops.start += 1;
        }
        let on = |op: &usize| run.common(self.ops.key(*op)) == run.len();
        let Some(start) = ops.clone().find(on) else { return Ok(0) };
        let end = run.end();
        let mut ops = start..start + (start..ops.end).take_while(on).count();
        if let Resolved::Leaf { .. } = resolved {
            let ends = |op: usize| width.count(self.ops.key(op)) == end;
            let is_asked = ops.into_iter().any(ends);
            return Ok(if is_asked {
                u128::from(self.below(at, depth, &resolved, whole))
            } else {
                0
            });
        }
        let Resolved::Branch { fork, .. } = resolved else { return Ok(0) };
        let fork = self.reader.opened(fork, self.ops.key(ops.start), end)?;
        while !ops.is_empty() {
            let key = self.ops.key(ops.start);
            let digit = width.digit(key, end);
            let same = |op: &usize| width.digit(self.ops.key(*op), end) == digit;
            let share = ops.start..ops.start + ops.clone().take_while(same).count();
            ops.start = share.end;
            if let Some(child) = self.reader.child(&fork, key, end, digit)? {
                self.ahead.push((child, end + 1, share));
            }
        }
        Ok(0)
    }

    /// The weight of all below a node; `whole` is that of the tree.
    fn below(
        &self,
        at: &At<S::Commit>,
        depth: usize,
        resolved: &Resolved<S::Commit>,
        whole: u64,
    ) -> u64 {
        match resolved {
            Resolved::Leaf { value, .. } => S::Weights::of_value(value),
            Resolved::Branch { .. } if depth == 0 => whole,
            Resolved::Branch { .. } => {
                self.reader.commit(at, depth).map_or(0, |commit| S::Weights::below(&commit))
            }
        }
    }
}
