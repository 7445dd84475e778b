//! From records to the index.

use crate::error::{LogError, corrupt};
use crate::format::{Entry, FIRST, Header, IndexReader, Item, LAST, Piece, Pieces};
use crate::index::{Index, Row};
use crate::key::Key;
use crate::view::Segment;

/// Where the last stretches of the index are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cycle {
    /// The record that the running cycle began in: segment and offset.
    pub(crate) running: (u64, u64),
    /// The one of the last whole cycle.
    pub(crate) whole: (u64, u64),
    /// Where the next stretch begins; `None` if that begins a cycle.
    pub(crate) next: Option<Key>,
}

/// An index that is being read from records, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replay {
    pub(crate) index: Index,
    /// Bytes of all pieces that rows have.
    pub(crate) live: u64,
    pub(crate) cycle: Cycle,
    /// How far the stretches go that were read; `None` for all of it.
    covered: Option<Key>,
}

impl Replay {
    /// For who begins with a whole cycle.
    pub(crate) fn from_nothing() -> Self {
        Self { covered: Some(Key::new()), ..Self::default() }
    }

    /// For who has the index already.
    pub(crate) fn onto(index: Index, live: u64, cycle: Cycle) -> Self {
        Self { index, live, cycle, covered: None }
    }

    pub(crate) const fn is_whole(&self) -> bool {
        self.covered.is_none()
    }

    fn has(&self, key: &[u8]) -> bool {
        self.covered.as_ref().is_none_or(|end| key < &end[..])
    }

    fn count(&mut self, more: u64, gone: Option<&Entry>) {
        self.live = (self.live + more).saturating_sub(gone.map_or(0, Entry::bytes));
    }

    /// Takes what a record says of the stretch of the index in it.
    fn covers(&mut self, flags: u8, key: Key, place: (u64, u64)) {
        if flags & FIRST != 0 {
            self.cycle.running = place;
        }
        let last = flags & LAST != 0;
        if last {
            self.cycle.whole = self.cycle.running;
        }
        self.cycle.next = (!last).then(|| key.clone());
        if self.covered.is_some() {
            self.covered = (!last).then_some(key);
        }
    }

    /// Takes a record that lies at an offset of a segment.
    pub(crate) fn take(
        &mut self,
        segment: &Segment,
        at: u64,
        header: &Header,
        index: &[u8],
    ) -> Result<(), LogError> {
        let wrong = |what: &str| {
            let what = format!("the record at {at} {what}");
            Err(corrupt(&segment.place, what))
        };
        let mut data = at + header.data_at();
        let end = data + header.data_bytes;
        for item in IndexReader::new(index) {
            match item {
                None => return wrong("has an entry that is none"),
                Some(Item::Covered(flags, key)) => {
                    self.covers(flags, key, (header.segment, at));
                }
                Some(Item::Held(key, held)) if self.covered.is_some() => {
                    self.count(held.bytes, None);
                    let old = self.index.append(Row { key: &key, entry: held.entry });
                    self.count(0, old.as_ref());
                }
                Some(Item::Held(..)) => {}
                Some(Item::Range(low, high)) => {
                    for key in self.index.between(&low, &high) {
                        let old = self.index.remove(&key);
                        self.count(0, old.as_ref());
                    }
                }
                Some(Item::Removed(key)) => {
                    let old = self.index.remove(&key);
                    self.count(0, old.as_ref());
                }
                Some(Item::Whole(key, len, hash)) => {
                    let piece = Piece { segment: segment.number, at: data as u32, len };
                    data += u64::from(len);
                    if self.has(&key) {
                        let entry = Entry { hash, pieces: Pieces::from_elem(piece, 1) };
                        let old = self.index.insert(&key, &entry);
                        self.count(len.into(), old.as_ref());
                    }
                }
                Some(Item::Delta(key, len, hash)) => {
                    let piece = Piece { segment: segment.number, at: data as u32, len };
                    data += u64::from(len);
                    if self.has(&key) {
                        let is_there = self.index.update(&key, |entry| {
                            entry.pieces.push(piece);
                            entry.hash = hash;
                        });
                        if !is_there {
                            return wrong("changes a row that is not there");
                        }
                        self.live += u64::from(len);
                    }
                }
            }
        }
        if data == end { Ok(()) } else { wrong("has data that is no row's") }
    }

    /// Takes the records of a segment from an offset to its end; `chain` is what the first of them
    /// has to follow. Answers the hash of the last header.
    pub(crate) fn take_all(
        &mut self,
        segment: &Segment,
        id: [u8; 16],
        (mut at, end): (u64, u64),
        mut chain: Option<u64>,
    ) -> Result<Option<u64>, LogError> {
        while at < end {
            let header = segment.header(at, id)?;
            let header = header.filter(|header| {
                header.segment == u64::from(segment.number)
                    && chain.is_none_or(|chain| chain == header.chain)
            });
            let Some(header) = header else {
                let what = format!("there is no record at {at}, and there are later ones");
                return Err(corrupt(&segment.place, what));
            };
            let index = segment.index(at, &header)?;
            self.take(segment, at, &header, &index)?;
            chain = Some(header.hash());
            at += header.len();
        }
        if at == end {
            return Ok(chain);
        }
        Err(corrupt(&segment.place, format!("its records do not end at {end}")))
    }
}
