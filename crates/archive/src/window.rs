//! The pieces of some successive blocks, gathered in memory until they are sealed.

use std::collections::BTreeMap;

use spinney_tree::Table;

use crate::error::ArchiveError;
use crate::forms::{Forms, piece_over, whole};
use crate::segment::{Kind, Piece, SegmentWriter};

/// The table of the numbers of blocks by their hashes, which stores do not have.
pub(crate) const HASHES: u8 = 0xff;

/// The table of the witnesses of blocks, which stores keep among others of `meta`, and for some
/// time alone.
const WITNESSES: u8 = 0xfe;
/// What their keys begin with in a store.
pub(crate) const WITNESS: &[u8] = b"witness/";

/// The key of a row of a table.
pub(crate) fn archive_key(table: Table, key: &[u8]) -> Vec<u8> {
    let (table, key) = match key.strip_prefix(WITNESS) {
        Some(number) if table == Table::Meta => (WITNESSES, number),
        _ => (table as u8, key),
    };
    let mut whole = Vec::with_capacity(1 + key.len());
    whole.push(table);
    whole.extend_from_slice(key);
    whole
}

/// Whether a row is the witness of a block: a store forgets these, and an archive does not.
pub(crate) fn is_witness(table: Table, key: &[u8]) -> bool {
    table == Table::Meta && key.starts_with(WITNESS)
}

/// Whether a piece is the witness or the number of a block before another one.
pub(crate) fn is_of_earlier(key: &[u8], block: u64, first: u64) -> bool {
    match key.split_first() {
        Some((&WITNESSES, number)) => {
            number.try_into().map(u64::from_be_bytes).is_ok_and(|number| number < first)
        }
        Some((&HASHES, _)) => block < first,
        _ => false,
    }
}

/// Whether rows of this key stay where a store goes back, or are no rows of a store: one archive
/// may have more of them than another that holds the same block.
pub(crate) fn is_of_no_block(key: &[u8]) -> bool {
    const TABLES: [u8; 4] = [Table::Codes as u8, Table::Preimages as u8, WITNESSES, HASHES];
    key.first().is_some_and(|table| TABLES.contains(table))
}

/// The key of the number of a block.
pub(crate) fn hash_key(hash: &[u8; 32]) -> Vec<u8> {
    let mut key = vec![HASHES];
    key.extend_from_slice(hash);
    key
}

/// Whether rows of this key are archived: what a store keeps to go back by is not, nor what is
/// under way in it.
pub(crate) fn is_archived(table: Table, key: &[u8]) -> bool {
    const LEFT_OUT: [&[u8]; 3] = [b"rebuild", b"pipeline", b"convert"];
    match table {
        Table::History => false,
        Table::Meta => !LEFT_OUT.iter().any(|name| key.starts_with(name)),
        _ => true,
    }
}

/// What changed in the rows of a store over some successive blocks. Blocks are added in either
/// order.
#[derive(Debug)]
pub struct Window {
    pub(crate) first: u64,
    pub(crate) last: u64,
    runs: BTreeMap<Vec<u8>, Run>,
    bytes: usize,
}

/// The pieces of one key, in the order in which they were added.
#[derive(Debug, Default)]
struct Run {
    pieces: Vec<(u64, Kind, Vec<u8>)>,
    /// Bytes of changes since one was whole.
    since: usize,
}

impl Window {
    /// Of blocks `first` to `last`.
    pub(crate) const fn new(first: u64, last: u64) -> Self {
        Self { first, last, runs: BTreeMap::new(), bytes: 0 }
    }

    /// About how many bytes of memory it takes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn add_hash(&mut self, block: u64, hash: &[u8; 32]) {
        let number = block.to_be_bytes().to_vec();
        self.push(hash_key(hash), |_| (block, Kind::Whole, number));
    }

    /// Adds what a block made of a row.
    pub(crate) fn add(
        &mut self,
        forms: &Forms,
        block: u64,
        key: Vec<u8>,
        (before, after): (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<(), ArchiveError> {
        if before == after {
            return Ok(());
        }
        let Some(after) = after else {
            self.push(key, |_| (block, Kind::Gone, Vec::new()));
            return Ok(());
        };
        let after = forms.bare(&key, after)?;
        // Pages follow from their entries, so all who change one know the row before. A root record
        // counts commits, and is another one in a store that went back.
        let before = before.filter(|_| key.first() == Some(&(Table::Pages as u8)));
        let before = before.map(|before| forms.bare(&key, before)).transpose()?;
        self.push(key, |since| {
            let (kind, bytes) = match before {
                Some(before) => piece_over(&before, &after, since),
                None => whole(&after),
            };
            (block, kind, bytes)
        });
        Ok(())
    }

    fn push(&mut self, key: Vec<u8>, piece: impl FnOnce(&mut usize) -> (u64, Kind, Vec<u8>)) {
        let key_bytes = key.len();
        let run = self.runs.entry(key).or_default();
        if run.pieces.is_empty() {
            self.bytes += key_bytes + size_of::<Run>();
        }
        let piece = piece(&mut run.since);
        self.bytes += size_of_val(&piece) + piece.2.len();
        run.pieces.push(piece);
    }

    /// Writes all pieces, in order.
    pub(crate) fn write(mut self, segment: &mut SegmentWriter) -> Result<(), ArchiveError> {
        for (key, run) in &mut self.runs {
            run.pieces.sort_by_key(|piece| piece.0);
            segment.begin(key);
            for (block, kind, bytes) in &run.pieces {
                segment.piece(&Piece { block: *block, kind: *kind, bytes })?;
            }
            segment.end();
        }
        Ok(())
    }
}
