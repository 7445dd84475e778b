//! Memory kept from one batch to the next, so that a steady state allocates nothing.

use std::sync::{Arc, Mutex, PoisonError};

use crate::apply::Stacks;
use crate::edit::Desk;
use crate::levels::Levels;
use crate::node::Segment;
use crate::page_key::PageKey;
use crate::scheme::Scheme;

/// So many segments wait to be used again, however large; more, as the ranges of a large batch need them, as
/// long as all of them are not too large.
const SEGMENTS_MIN: usize = 8;
const SEGMENTS_MAX: usize = 64;
const SEGMENTS_BYTES_MAX: usize = 64 << 20;
/// A segment that grew beyond this is given back to the system.
const SEGMENT_BYTES_MAX: usize = 32 << 20;

/// Segments and stacks that nobody uses.
#[derive(Debug)]
pub(crate) struct Pool<S: Scheme> {
    segments: Mutex<Kept<S::Commit>>,
    /// The tools of the thread that comes first, and those of others.
    first: Mutex<Tools<S>>,
    tools: Mutex<Vec<Tools<S>>>,
}

/// Segments, each with the bytes that it holds, and all of these.
#[derive(Debug)]
struct Kept<C> {
    segments: Vec<(Arc<Segment<C>>, usize)>,
    bytes: usize,
}

impl<C> Default for Kept<C> {
    fn default() -> Self {
        Self { segments: Vec::new(), bytes: 0 }
    }
}

impl<S: Scheme> Default for Pool<S> {
    fn default() -> Self {
        Self { segments: Mutex::default(), first: Mutex::default(), tools: Mutex::default() }
    }
}

/// What one thread needs to apply operations and to commit to what they make.
#[derive(Debug)]
pub(crate) struct Tools<S: Scheme> {
    pub(crate) stacks: Stacks,
    pub(crate) levels: Levels<S>,
    pub(crate) desk: Desk<S>,
    pub(crate) missing: Vec<PageKey>,
}

impl<S: Scheme> Default for Tools<S> {
    fn default() -> Self {
        let (stacks, levels) = (Stacks::default(), Levels::default());
        Self { stacks, levels, desk: Desk::default(), missing: Vec::new() }
    }
}

impl<S: Scheme> Pool<S> {
    /// An empty segment that nobody else holds.
    pub(crate) fn segment(&self) -> Arc<Segment<S::Commit>> {
        let mut kept = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((segment, bytes)) = kept.segments.pop() else {
            return Arc::new(Segment::new());
        };
        kept.bytes -= bytes;
        segment
    }

    /// Takes back segments that nobody else holds.
    pub(crate) fn recycle(&self, segments: impl Iterator<Item = Arc<Segment<S::Commit>>>) {
        for mut segment in segments {
            let Some(alone) = Arc::get_mut(&mut segment) else { continue };
            alone.clear();
            let bytes = alone.capacity();
            if bytes > SEGMENT_BYTES_MAX {
                continue;
            }
            let mut kept = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
            let count = kept.segments.len();
            if count < SEGMENTS_MIN || count < SEGMENTS_MAX && kept.bytes < SEGMENTS_BYTES_MAX {
                kept.segments.push((segment, bytes));
                kept.bytes += bytes;
            }
        }
    }

    /// Lends a thread its tools.
    pub(crate) fn with_tools<T>(&self, work: impl FnOnce(&mut Tools<S>) -> T) -> T {
        // Mostly there is one thread.
        if let Ok(mut tools) = self.first.try_lock() {
            return work(&mut tools);
        }
        let kept = self.tools.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut tools = kept.unwrap_or_default();
        let answer = work(&mut tools);
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).push(tools);
        answer
    }
}
