//! Weighing a batch before anything is made or hashed: in trees whose values have a weight.
//!
//! What a batch puts, beside all that the tree holds, fits nearly always: then nothing is read. Else the
//! values that the batch replaces or removes are counted out, for which the paths of its keys are walked
//! once. Weights are added in 128 bits.

use std::ops::Range;

use crate::batch::{Op, OpKind};
use crate::error::TreeError;
use crate::image::Codec;
use crate::node::{Child, Segment};
use crate::open::{Halt, Looked, Opener};
use crate::scheme::Scheme;
use crate::store::Snapshot;
use crate::tree::{Pending, Tree};

/// A node that the walk has yet to look into: the child, the depth at which it hangs, its operations.
type Ahead = (Child, usize, Range<usize>);

/// The operations of a batch, sorted.
#[derive(Clone, Copy)]
struct Ops<'a> {
    list: &'a [Op],
    bytes: &'a [u8],
}

impl<'a> Ops<'a> {
    fn key(&self, op: usize) -> &'a [u8] {
        &self.bytes[self.list[op].key.range()]
    }
}

impl<S: Scheme> Tree<S> {
    /// Refuses operations, those of a batch's first segment, after which `state` would weigh more than
    /// the scheme allows; or that do so by themselves, whatever they replace.
    pub(crate) fn weigh<N: Snapshot>(
        &self,
        snapshot: &N,
        state: &Pending<S>,
        input: &Segment<S::Commit>,
    ) -> Result<(), TreeError> {
        let Some(limit) = S::WEIGHT_MAX else { return Ok(()) };
        let ops = Ops { list: &input.ops, bytes: &input.bytes };
        let weight = |op: &Op| match op.kind {
            OpKind::Put(value) => u128::from(self.scheme.weight(&ops.bytes[value.range()])),
            OpKind::Delete | OpKind::Clear => 0,
        };
        let fits = |weight: u128| weight <= u128::from(limit);
        let put: u128 = ops.list.iter().map(weight).sum();
        if !fits(put) {
            return Err(TreeError::Overweight { batch: true, weight: put, limit });
        }
        let held = state.top.map_or(0, |top| self.scheme.weight_below(&top.commit));
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
    fn weight_at<N: Snapshot>(
        &self,
        snapshot: &N,
        state: &Pending<S>,
        ops: Ops<'_>,
    ) -> Result<u128, TreeError> {
        let mut total = 0;
        let mut waiting: Option<Vec<Ahead>> = None;
        let whole = state.top.map_or(0, |top| self.scheme.weight_below(&top.commit));
        self.lend(snapshot, Some(state), &[], |open, top| {
            let start = || top.map(|top| (top, 0, 0..ops.list.len())).into_iter().collect();
            let mut ahead = waiting.take().unwrap_or_else(start);
            let mut halted = Vec::new();
            let mut children = Vec::new();
            while let Some(next) = ahead.pop() {
                let mut walk = Step { open, ops, children: &mut children, ahead: &mut ahead };
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

struct Step<'w, 'a, S: Scheme> {
    open: &'w mut Opener<'a, S>,
    ops: Ops<'w>,
    children: &'w mut Vec<Child>,
    ahead: &'w mut Vec<Ahead>,
}

impl<S: Scheme> Step<'_, '_, S> {
    /// What is known of a node's weight at once; the rest is put ahead.
    fn step(&mut self, (child, depth, ops): &Ahead, whole: u64) -> Result<u128, Halt> {
        let (depth, mut ops) = (*depth, ops.clone());
        let width = Codec::<S>::WIDTH;
        let first = self.ops.key(ops.start);
        self.open.path.clear();
        self.open.path.extend_from_slice(&first[..depth.div_ceil(width.per_byte())]);
        let looked = self.open.look(child, depth)?;
        let (Looked::Terminal { suffix: piece, .. } | Looked::Branch { skip: piece, .. }) = looked;
        let run = self.open.run(&piece);
        while !ops.is_empty() && self.ops.list[ops.start].kind == OpKind::Clear {
            let key = self.ops.key(ops.start);
            let reached = depth + run.common(key);
            if reached >= width.count(key) {
                return Ok(u128::from(self.below(child, depth, looked, whole)));
            }
            if reached == run.end() {
                break;
            }
            ops.start += 1;
        }
        let on = |op: &usize| run.common(self.ops.key(*op)) == run.len();
        let Some(start) = ops.clone().find(on) else { return Ok(0) };
        let end = run.end();
        let ops = start..start + (start..ops.end).take_while(on).count();
        match looked {
            Looked::Terminal { .. } => {
                let ends = |op: usize| width.count(self.ops.key(op)) == end;
                let met = ops.into_iter().any(ends);
                Ok(if met { u128::from(self.below(child, depth, looked, whole)) } else { 0 })
            }
            Looked::Branch { body, .. } => {
                self.open.path.clear();
                let key = self.ops.key(ops.start);
                self.open.path.extend_from_slice(&key[..end.div_ceil(width.per_byte())]);
                self.children.clear();
                self.open.children(body, end, self.children)?;
                self.split(ops, end);
                Ok(0)
            }
        }
    }

    /// Puts ahead the children that operations lead to.
    fn split(&mut self, mut ops: Range<usize>, fork: usize) {
        let width = Codec::<S>::WIDTH;
        while !ops.is_empty() {
            let digit = width.digit(self.ops.key(ops.start), fork);
            let same = |op: &usize| width.digit(self.ops.key(*op), fork) == digit;
            let share = ops.start..ops.start + ops.clone().take_while(same).count();
            ops.start = share.end;
            if let Some(child) = self.children.iter().find(|child| child.digit == digit) {
                self.ahead.push((*child, fork + 1, share));
            }
        }
    }

    /// The weight of all below a child; `whole` is that of the tree.
    fn below(&self, child: &Child, depth: usize, looked: Looked, whole: u64) -> u64 {
        let scheme = self.open.codec.scheme;
        match looked {
            Looked::Terminal { payload, .. } => scheme.weight(self.open.chain().bytes(payload)),
            Looked::Branch { .. } if depth == 0 => whole,
            Looked::Branch { .. } => {
                let chain = self.open.chain();
                scheme.weight_below(&chain.commit(self.open.codec, self.open.here, child))
            }
        }
    }
}
