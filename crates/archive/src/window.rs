//! The pieces of some successive blocks, gathered in memory until they are sealed.

use std::collections::HashMap;
use std::mem::take;

use spinney_tree::Table;

use crate::error::ArchiveError;
use crate::forms::{Forms, apply, put_piece_over, put_whole, whole};
use crate::hex::hex;
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
    let mut whole = Vec::with_capacity(1 + key.len());
    put_archive_key(table, key, &mut whole);
    whole
}

/// Puts that key in place of another.
fn put_archive_key(table: Table, key: &[u8], whole: &mut Vec<u8>) {
    let (table, key) = match key.strip_prefix(WITNESS) {
        Some(number) if table == Table::Meta => (WITNESSES, number),
        _ => (table as u8, key),
    };
    whole.clear();
    whole.push(table);
    whole.extend_from_slice(key);
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
///
/// A block may change thousands of rows, so their pieces lie one behind the other, and none has
/// memory of its own.
#[derive(Debug)]
pub struct Window {
    pub(crate) first: u64,
    pub(crate) last: u64,
    runs: HashMap<Box<[u8]>, Run>,
    pieces: Vec<PieceAt>,
    /// What the pieces say, one behind the other.
    said: Vec<u8>,
    key_bytes: usize,
    scratch: Scratch,
}

/// The pieces of one key.
#[derive(Debug, Default)]
struct Run {
    /// The number of the one that was added last, and how many there are.
    newest: usize,
    count: usize,
    /// Bytes of changes since one was whole.
    since: usize,
}

/// A piece.
#[derive(Clone, Copy, Debug)]
struct PieceAt {
    block: u64,
    kind: Kind,
    /// Where what it says begins, and how long that is.
    at: usize,
    len: usize,
    /// The number of the one of its key that was added before.
    before: usize,
}

/// Memory that is used again for each row.
#[derive(Debug, Default)]
struct Scratch {
    key: Vec<u8>,
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Window {
    /// Of blocks `first` to `last`.
    pub(crate) fn new(first: u64, last: u64) -> Self {
        let (runs, pieces, said) = (HashMap::new(), Vec::new(), Vec::new());
        Self { first, last, runs, pieces, said, key_bytes: 0, scratch: Scratch::default() }
    }

    /// About how many bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        let keys = self.key_bytes + self.runs.len() * size_of::<(Box<[u8]>, Run)>();
        keys + self.pieces.len() * size_of::<PieceAt>() + self.said.len()
    }

    pub(crate) fn add_hash(&mut self, block: u64, hash: &[u8; 32]) {
        self.push(&hash_key(hash), block, |_, said| put_whole(&block.to_be_bytes(), said));
    }

    /// Adds what a block made of a row.
    pub(crate) fn add(
        &mut self,
        forms: &Forms,
        block: u64,
        (table, key): (Table, &[u8]),
        (before, after): (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<(), ArchiveError> {
        if before == after {
            return Ok(());
        }
        let mut scratch = take(&mut self.scratch);
        put_archive_key(table, key, &mut scratch.key);
        let added = self.add_row(forms, block, &mut scratch, (before, after));
        self.scratch = scratch;
        added
    }

    fn add_row(
        &mut self,
        forms: &Forms,
        block: u64,
        scratch: &mut Scratch,
        (before, after): (Option<&[u8]>, Option<&[u8]>),
    ) -> Result<(), ArchiveError> {
        let Scratch { key, before: bare_before, after: bare } = scratch;
        let Some(after) = after else {
            self.push(key, block, |_, _| Kind::Gone);
            return Ok(());
        };
        forms.bare(key, after, bare)?;
        // Pages follow from their entries, so all who change one know the row before. A root record
        // counts commits, and is another one in a store that went back.
        let before = before.filter(|_| key.first() == Some(&(Table::Pages as u8)));
        if let Some(before) = before {
            forms.bare(key, before, bare_before)?;
        }
        self.push(key, block, |since, said| match before {
            Some(_) => put_piece_over(bare_before, bare, since, said),
            None => put_whole(bare, said),
        });
        Ok(())
    }

    fn push(&mut self, key: &[u8], block: u64, say: impl FnOnce(&mut usize, &mut Vec<u8>) -> Kind) {
        if !self.runs.contains_key(key) {
            self.key_bytes += key.len();
            self.runs.insert(key.into(), Run::default());
        }
        let Some(run) = self.runs.get_mut(key) else { return };
        let at = self.said.len();
        let kind = say(&mut run.since, &mut self.said);
        let len = self.said.len() - at;
        self.pieces.push(PieceAt { block, kind, at, len, before: run.newest });
        (run.newest, run.count) = (self.pieces.len() - 1, run.count + 1);
    }

    /// Writes all pieces, in order. The first piece of a row that many blocks change, as those of
    /// the top of a tree, stands alone, so that nobody looks for it in two segments: `before` says
    /// what a bare row was at a block.
    pub(crate) fn write(
        mut self,
        before: impl Fn(&[u8], u64) -> Result<Option<Vec<u8>>, ArchiveError>,
        segment: &mut SegmentWriter,
    ) -> Result<(), ArchiveError> {
        let mut runs: Vec<_> = take(&mut self.runs).into_iter().collect();
        runs.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let mut pieces = Vec::new();
        for (key, run) in runs {
            self.pieces_of(&run, &mut pieces);
            segment.begin(&key);
            let mut rest = &pieces[..];
            if let [first, others @ ..] = rest
                && !first.kind.stands_alone()
                && pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>() >= MANY_BYTES
            {
                let row = before(&key, first.block.saturating_sub(1))?;
                let row = apply(first.kind, first.bytes, row).map_err(|_| malformed(&key))?;
                let (kind, bytes) = whole(&row.unwrap_or_default());
                segment.piece(&Piece { block: first.block, kind, bytes: &bytes })?;
                rest = others;
            }
            for piece in rest {
                segment.piece(piece)?;
            }
            segment.end();
        }
        Ok(())
    }

    /// The pieces of a key, by block, in place of others.
    fn pieces_of<'a>(&'a self, run: &Run, pieces: &mut Vec<Piece<'a>>) {
        pieces.clear();
        let mut next = run.newest;
        for _ in 0..run.count {
            let PieceAt { block, kind, at, len, before } = self.pieces[next];
            pieces.push(Piece { block, kind, bytes: &self.said[at..at + len] });
            next = before;
        }
        pieces.reverse();
        pieces.sort_by_key(|piece| piece.block);
    }
}

/// Many blocks change a row if the changes in a segment take so many bytes.
const MANY_BYTES: usize = 2 << 10;

fn malformed(key: &[u8]) -> ArchiveError {
    let place = format!("row 0x{}", hex(key));
    ArchiveError::Corrupt { place, what: "what blocks changed of it makes no sense".into() }
}
