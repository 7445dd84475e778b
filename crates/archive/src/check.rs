//! Is an archive sound?

use crate::archive::{Archive, Contents};
use crate::error::ArchiveError;
use crate::segment::{Groups, Index, Kind, Malformed, corrupt};

/// What a check of an archive read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// Segments.
    pub segments: u64,
    /// Keys, once in each segment.
    pub keys: u64,
    /// Pieces.
    pub pieces: u64,
    /// Bytes of pieces.
    pub bytes: u64,
}

impl Archive {
    /// Reads all of every segment: checksums, the order of keys and blocks, and what manifest and
    /// filters say of them. What the rows say is another question: whoever opens a tree at a block
    /// can check it against a root. `progress` is told the bytes read.
    ///
    /// # Errors
    /// [`ArchiveError::Corrupt`] for the first damage; if an object is missing, or the place fails.
    pub fn check(&self, mut progress: impl FnMut(u64)) -> Result<Checked, ArchiveError> {
        let contents = self.contents();
        let mut checked = Checked::default();
        for number in 0..contents.segments.len() {
            self.check_segment(&contents, number, &mut checked, &mut progress)?;
        }
        Ok(checked)
    }

    fn check_segment(
        &self,
        contents: &Contents,
        number: usize,
        checked: &mut Checked,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), ArchiveError> {
        let segment = &contents.segments[number];
        let (info, objects) = (&segment.info, &**self.objects());
        let index = Index::read(objects, info)?;
        let damaged = |what: &str| corrupt(objects, &info.name, what);
        let malformed = |_: Malformed| damaged("a part is malformed");
        let (mut keys, mut pieces) = (0, 0);
        let mut last: Option<(Vec<u8>, u64)> = None;
        for part in &index.parts {
            let bytes = objects.read(&info.name, part.at..part.at + part.bytes)?;
            if !part.is(&bytes) {
                return Err(damaged("a part is not what was written"));
            }
            let mut groups = Groups::new(&bytes, info.first);
            while let Some(group) = groups.next() {
                let mut group = group.map_err(malformed)?;
                let key = groups.key();
                if last.as_ref().is_none_or(|(other, _)| other != key) {
                    keys += 1;
                    if !index.may_have(crate::bloom::hash(key)) {
                        return Err(damaged("its filter lacks a key"));
                    }
                }
                while let Some(piece) = group.next() {
                    let piece = piece.map_err(malformed)?;
                    let at = (key.to_vec(), piece.block);
                    if last.as_ref().is_some_and(|last| *last >= at) || piece.block > info.last {
                        return Err(damaged("its pieces are out of order"));
                    }
                    if piece.kind == Kind::Gone && !piece.bytes.is_empty() {
                        return Err(damaged("a row that went has bytes"));
                    }
                    pieces += 1;
                    checked.bytes += piece.bytes.len() as u64;
                    last = Some(at);
                }
            }
            progress(part.bytes);
        }
        if (keys, pieces) != (info.keys, info.pieces) {
            return Err(damaged("it has another number of keys or pieces than the manifest says"));
        }
        checked.segments += 1;
        checked.keys += keys;
        checked.pieces += pieces;
        Ok(())
    }
}
