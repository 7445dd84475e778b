//! Parts of segments that were read, up to a budget of bytes.
//!
//! Invariants:
//! - of those who ask for a part at once one reads it, and the others wait for that; a failure is
//!   not kept;
//! - what is kept has been checked.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A segment of this process, and the number of a part in it.
pub(crate) type PartKey = (u64, u32);
/// A part, once somebody has read it.
pub(crate) type Slot = Arc<PartSlot>;

/// Room for a part.
#[derive(Debug, Default)]
pub(crate) struct PartSlot {
    bytes: OnceLock<Arc<[u8]>>,
    /// Held by whoever reads it.
    reading: Mutex<()>,
}

impl PartSlot {
    pub(crate) fn get(&self) -> Option<&Arc<[u8]>> {
        self.bytes.get()
    }

    /// What is there, or what `read` answers, which one alone is asked at a time.
    pub(crate) fn get_or_read<E>(
        &self,
        read: impl FnOnce() -> Result<Arc<[u8]>, E>,
    ) -> Result<Arc<[u8]>, E> {
        if let Some(bytes) = self.get() {
            return Ok(Arc::clone(bytes));
        }
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = self.get() {
            return Ok(Arc::clone(bytes));
        }
        let bytes = read()?;
        Ok(Arc::clone(self.bytes.get_or_init(|| bytes)))
    }

    /// Puts in what was read with others.
    pub(crate) fn put(&self, bytes: Arc<[u8]>) {
        let _ = self.bytes.set(bytes);
    }
}

/// What a part takes beside its bytes.
const OVERHEAD: usize = 128;

#[derive(Debug)]
pub(crate) struct Cache {
    budget: usize,
    parts: Mutex<Parts>,
}

#[derive(Debug, Default)]
struct Parts {
    slots: HashMap<PartKey, Kept>,
    /// By when they were asked for last.
    order: BTreeMap<u64, PartKey>,
    clock: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    slot: Slot,
    asked: u64,
    bytes: usize,
}

impl Cache {
    pub(crate) fn new(budget: usize) -> Self {
        Self { budget, parts: Mutex::default() }
    }

    /// Whether a part is there.
    pub(crate) fn has(&self, key: PartKey) -> bool {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.slots.get(&key).is_some_and(|kept| kept.slot.get().is_some())
    }

    pub(crate) fn clear(&self) {
        *self.parts.lock().unwrap_or_else(PoisonError::into_inner) = Parts::default();
    }

    /// The slot of a part of so many bytes.
    pub(crate) fn slot(&self, key: PartKey, bytes: usize) -> Slot {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = &mut *parts;
        parts.clock += 1;
        let now = parts.clock;
        if let Some(kept) = parts.slots.get_mut(&key) {
            parts.order.remove(&kept.asked);
            kept.asked = now;
            parts.order.insert(now, key);
            return Arc::clone(&kept.slot);
        }
        let slot = Slot::default();
        let bytes = bytes + OVERHEAD;
        parts.slots.insert(key, Kept { slot: Arc::clone(&slot), asked: now, bytes });
        parts.order.insert(now, key);
        parts.bytes += bytes;
        while parts.bytes > self.budget
            && parts.order.len() > 1
            && let Some((_, oldest)) = parts.order.pop_first()
        {
            if let Some(kept) = parts.slots.remove(&oldest) {
                parts.bytes -= kept.bytes;
            }
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Cache, OVERHEAD};

    #[test]
    fn what_was_asked_for_last_stays() {
        let cache = Cache::new(2 * (10 + OVERHEAD));
        for part in [0, 1, 0, 2] {
            cache.slot((7, part), 10).put(Arc::from([part as u8; 10]));
        }
        assert!(cache.slot((7, 0), 10).get().is_some());
        assert!(cache.slot((7, 2), 10).get().is_some());
        assert!(cache.slot((7, 1), 10).get().is_none(), "it went for the others");
    }
}
