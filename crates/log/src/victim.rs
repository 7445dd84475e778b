//! The segment that is being cleaned, and what cleaning does in one commit.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::{LogError, corrupt};
use crate::format::{Entry, IndexReader, Item, Piece, StoreId};
use crate::key::Key;
use crate::open::Needed;

/// The segment that is being cleaned.
#[derive(Clone, Debug)]
pub(crate) struct Victim {
    pub(crate) segment: u32,
    /// The next record.
    pub(crate) at: u64,
    /// The whole rows that the one before holds: what is alive has its deltas behind those.
    pub(crate) pieces: Arc<[(Key, Piece)]>,
    /// The first of it that was not looked at.
    pub(crate) next: usize,
}

impl Victim {
    /// A segment of which nothing was looked at.
    pub(crate) fn of(segment: u32) -> Self {
        Self { segment, at: 0, pieces: Arc::default(), next: 0 }
    }

    /// Lists the whole rows of the next record. Answers how many deltas it has.
    pub(crate) fn read(&mut self, id: StoreId, needed: &Needed) -> Result<usize, LogError> {
        let segment = &needed.segment;
        let header = segment.header(self.at, id)?;
        let Some(header) = header.filter(|header| header.segment == u64::from(self.segment)) else {
            return Err(corrupt(&segment.place, format!("there is no record at {}", self.at)));
        };
        let index = segment.index(self.at, &header)?;
        let mut data = self.at + header.data_at();
        let (mut pieces, mut deltas) = (Vec::new(), 0);
        for item in IndexReader::new(&index) {
            match item {
                Some(Item::Whole(key, len, _)) => {
                    let piece = Piece { segment: self.segment, at: data as u32, len };
                    data += u64::from(len);
                    pieces.push((key, piece));
                }
                Some(Item::Delta(_, len, _)) => {
                    data += u64::from(len);
                    deltas += 1;
                }
                Some(_) => {}
                None => {
                    let what = format!("the record at {} has an entry that is none", self.at);
                    return Err(corrupt(&segment.place, what));
                }
            }
        }
        self.at += header.len();
        (self.pieces, self.next) = (pieces.into(), 0);
        Ok(deltas)
    }
}

/// Where cleaning is after a commit.
#[derive(Debug)]
pub(crate) struct Cleaned {
    pub(crate) at: Option<Victim>,
    /// So many segments are left behind.
    pub(crate) gone: usize,
    pub(crate) own_bytes: u64,
}

/// The rows that a commit moves.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    pub(crate) rows: Vec<(Key, Entry)>,
    /// Changes of the batch that have to be whole, as what they change is to go.
    pub(crate) whole: HashSet<usize>,
}
