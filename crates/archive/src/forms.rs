//! Rows as pieces hold them: without what follows from their other bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use spinney_log::{Bytes, delta, put_number};
use spinney_tree::{BareRows, RootRecord, SchemeId, Table, TreeId, bare_rows};

use crate::error::ArchiveError;
use crate::segment::{Kind, Malformed};

/// A row is written whole once the changes since it was would take so many times its bytes.
pub(crate) const WHOLE_EVERY: usize = 64;

/// No row that is written as changes of zeros is longer: pages are shorter.
const ZEROS: [u8; 4_096] = [0; 4_096];

/// A tree of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TreeInfo {
    /// Its number in the store.
    pub id: u32,
    /// Its scheme, as root records have it.
    pub tree: u16,
    /// The scheme's hash.
    pub hash: u16,
}

impl TreeInfo {
    /// The scheme.
    pub const fn scheme(&self) -> SchemeId {
        SchemeId { tree: self.tree, hash: self.hash }
    }
}

/// The forms of the rows of all trees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forms {
    known: BTreeMap<u32, (TreeInfo, Arc<dyn BareRows>)>,
}

impl Forms {
    pub(crate) fn of(trees: &[TreeInfo]) -> Result<Self, ArchiveError> {
        let mut forms = Self::default();
        for &tree in trees {
            forms.learn(tree)?;
        }
        Ok(forms)
    }

    pub(crate) fn trees(&self) -> Vec<TreeInfo> {
        self.iter().collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = TreeInfo> + use<'_> {
        self.known.values().map(|(info, _)| *info)
    }

    /// Takes note of the tree that a root record is of.
    pub(crate) fn learn_root(&mut self, key: &[u8], row: &[u8]) -> Result<(), ArchiveError> {
        let Ok(id) = key.try_into().map(u32::from_be_bytes) else { return Ok(()) };
        let SchemeId { tree, hash } = RootRecord::decode(TreeId(id), row)?.scheme;
        self.learn(TreeInfo { id, tree, hash })
    }

    /// Takes note of a tree.
    pub(crate) fn learn(&mut self, info: TreeInfo) -> Result<(), ArchiveError> {
        let TreeInfo { id, tree, hash } = info;
        let place = || format!("{} of the archive", TreeId(id));
        match self.known.get(&id) {
            Some((known, _)) if *known == info => return Ok(()),
            Some(_) => {
                let what = "it is of another scheme than before".into();
                return Err(ArchiveError::Corrupt { place: place(), what });
            }
            None => {}
        }
        let scheme = SchemeId { tree, hash };
        let Some(form) = bare_rows(scheme) else {
            let what = format!("its scheme is not known here: {scheme}");
            return Err(ArchiveError::Corrupt { place: place(), what });
        };
        self.known.insert(id, (info, form));
        Ok(())
    }

    /// The form of a row, which is one of a tree's pages if it has any.
    fn form<'a>(&self, key: &'a [u8]) -> Option<(&dyn BareRows, &'a [u8])> {
        let (&table, key) = key.split_first()?;
        if table != Table::Pages as u8 {
            return None;
        }
        let id = u32::from_be_bytes(*key.first_chunk()?);
        self.known.get(&id).map(|(_, form)| (&**form, key))
    }

    /// Makes of a row what pieces hold of it.
    pub(crate) fn bare(
        &self,
        key: &[u8],
        row: &[u8],
        bare: &mut Vec<u8>,
    ) -> Result<(), ArchiveError> {
        bare.clear();
        bare.extend_from_slice(row);
        if let Some((form, key)) = self.form(key) {
            form.blank(key, bare)?;
        }
        Ok(())
    }

    /// A row as the store had it.
    pub(crate) fn restore(&self, key: &[u8], mut bare: Vec<u8>) -> Result<Vec<u8>, ArchiveError> {
        if let Some((form, key)) = self.form(key) {
            form.restore(key, &mut bare)?;
        }
        Ok(bare)
    }
}

/// A bare row that needs no other piece.
pub(crate) fn whole(bare: &[u8]) -> (Kind, Vec<u8>) {
    let mut bytes = Vec::with_capacity(bare.len());
    (put_whole(bare, &mut bytes), bytes)
}

/// Appends a bare row so that it needs no other piece.
pub(crate) fn put_whole(bare: &[u8], out: &mut Vec<u8>) -> Kind {
    let start = out.len();
    if let Some(zeros) = ZEROS.get(..bare.len()) {
        put_number(out, bare.len() as u64);
        let limit = bare.len().saturating_sub(out.len() - start);
        if delta::diff(zeros, bare, limit, out) {
            return Kind::Sparse;
        }
        out.truncate(start);
    }
    out.extend_from_slice(bare);
    Kind::Whole
}

/// Appends a bare row over the one before. `since` counts the bytes of changes since a row was
/// written whole.
pub(crate) fn put_piece_over(
    before: &[u8],
    after: &[u8],
    since: &mut usize,
    out: &mut Vec<u8>,
) -> Kind {
    let start = out.len();
    if delta::diff(before, after, after.len() / 2, out) {
        *since += out.len() - start;
        if *since <= after.len() * WHOLE_EVERY {
            return as_edit(start, out);
        }
        out.truncate(start);
    }
    *since = 0;
    put_whole(after, out)
}

/// Makes an edit of changes that lie behind a place, if they are one edit in place.
fn as_edit(start: usize, out: &mut Vec<u8>) -> Kind {
    let mut changes = Bytes::new(&out[start..]);
    let copy = changes.number();
    let at = out.len() - changes.rest().len();
    match copy.and_then(|_| changes.number()) {
        Some(head) if head == (changes.rest().len() as u64) << 1 => {
            out.drain(at..out.len() - changes.rest().len());
            Kind::Edited
        }
        _ => Kind::Changed,
    }
}

/// What a piece makes of the bare row before it.
pub(crate) fn apply(
    kind: Kind,
    bytes: &[u8],
    row: Option<Vec<u8>>,
) -> Result<Option<Vec<u8>>, Malformed> {
    match kind {
        Kind::Gone => Ok(None),
        Kind::Whole => Ok(Some(bytes.to_vec())),
        Kind::Sparse => {
            let mut bytes = Bytes::new(bytes);
            let zeros = bytes.size().and_then(|len| ZEROS.get(..len)).ok_or(Malformed)?;
            let mut row = Vec::with_capacity(zeros.len());
            delta::apply(zeros, bytes.rest(), &mut row).ok_or(Malformed)?;
            Ok(Some(row))
        }
        Kind::Changed => {
            let mut row = row.ok_or(Malformed)?;
            delta::apply_in_place(&mut row, bytes).ok_or(Malformed)?;
            Ok(Some(row))
        }
        Kind::Edited => {
            let (mut row, mut bytes) = (row.ok_or(Malformed)?, Bytes::new(bytes));
            let place = bytes.size().and_then(|from| row.get_mut(from..)).ok_or(Malformed)?;
            let place = place.get_mut(..bytes.rest().len()).ok_or(Malformed)?;
            place.copy_from_slice(bytes.rest());
            Ok(Some(row))
        }
    }
}
