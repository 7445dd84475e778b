//! Manifests: which segments an archive is made of.
//!
//! `manifest-NNNNNNNNNN.json` is one line of JSON and one with its xxh3-64. Each is made only where
//! there is none, and the one with the highest number counts. So of two writers who go on from the
//! same one, the second is told: it is *fenced*.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use serde::{Deserialize, Serialize};
use spinney_tree::BlockId;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::ArchiveError;
use crate::forms::TreeInfo;
use crate::hex::{hex, unhex};
use crate::objects::Objects;
use crate::segment::{FORMAT, SegmentInfo, corrupt};
use crate::slice::SliceInfo;

/// The format of manifests of slices: who reads the other one alone takes them for whole.
pub(crate) const FORMAT_SLICED: u32 = 4;
/// What names of manifests begin with.
pub(crate) const MANIFEST: &str = "manifest-";
/// What names of segments begin with.
pub(crate) const SEGMENT: &str = "segment-";
/// No manifest is larger.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// What an archive holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Manifest {
    /// The format: 3, or 4 of a slice.
    pub format: u32,
    /// The archive's own random number, in hex.
    pub archive: String,
    /// The manifest's number: each is one higher than the one before.
    pub number: u64,
    /// The random number of who wrote it, in hex.
    pub writer: String,
    /// The trees of the store.
    pub trees: Vec<TreeInfo>,
    /// The first block that can be read.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// Its hash, in hex.
    pub last_hash: String,
    /// The segments, in order of blocks.
    pub segments: Vec<SegmentInfo>,
    /// Segments that others took the place of: the next manifest does not name them, and they go.
    pub replaced: Vec<String>,
    /// What it is sliced by, if it is a slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<SliceInfo>,
}

impl Manifest {
    pub(crate) fn name(number: u64) -> String {
        format!("{MANIFEST}{number:010}.json")
    }

    /// The newest one, if there is any.
    pub(crate) fn newest(objects: &dyn Objects) -> Result<Option<Self>, ArchiveError> {
        let listed = objects.list(MANIFEST)?;
        let number = |name: &str| {
            let digits = name.strip_prefix(MANIFEST)?.strip_suffix(".json")?;
            let number = digits.parse().ok()?;
            (Self::name(number) == name).then_some(number)
        };
        let Some(newest) = listed.iter().filter_map(|object| number(&object.name)).max() else {
            return Ok(None);
        };
        Self::read(objects, newest).map(Some)
    }

    fn read(objects: &dyn Objects, number: u64) -> Result<Self, ArchiveError> {
        let name = Self::name(number);
        let damaged = |what: &str| corrupt(objects, &name, what);
        let bytes = objects.get(&name, MANIFEST_BYTES_MAX)?;
        let bytes = bytes.ok_or_else(|| damaged("it was listed, and is missing"))?;
        let text = std::str::from_utf8(&bytes).map_err(|_| damaged("it is no text"))?;
        let (json, sum) = text.split_once('\n').ok_or_else(|| damaged("it was cut off"))?;
        if sum.trim_end() != format!("{:016x}", xxh3_64(json.as_bytes())) {
            return Err(damaged("its checksum does not match"));
        }
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let malformed = |error: serde_json::Error| damaged(&error.to_string());
        let found = serde_json::from_str::<Format>(json).map_err(malformed)?.format;
        if ![FORMAT, FORMAT_SLICED].contains(&found) {
            let place = format!("{}/{name}", objects.place());
            return Err(ArchiveError::Format { place, found, newest: FORMAT_SLICED });
        }
        let manifest: Self = serde_json::from_str(json).map_err(malformed)?;
        if manifest.number != number || !manifest.is_sound() {
            return Err(damaged("what it says does not fit together"));
        }
        Ok(manifest)
    }

    /// Whether the segments follow each other from the first block to the last.
    fn is_sound(&self) -> bool {
        let mut next = self.first;
        let follow = self.segments.iter().all(|segment| {
            let follows = segment.first == next && segment.first <= segment.last;
            next = segment.last.wrapping_add(1);
            follows
        });
        let is_sliced = self.format == FORMAT_SLICED;
        is_sliced == self.slice.is_some()
            && follow
            && !self.segments.is_empty()
            && next == self.last.wrapping_add(1)
    }

    /// Makes it the newest one. Answers `false` if another writer was faster.
    pub(crate) fn publish(&self, objects: &dyn Objects) -> Result<bool, ArchiveError> {
        let json = serde_json::to_string(self);
        let json = json.map_err(|error| corrupt(objects, "a manifest", &error.to_string()))?;
        let text = format!("{json}\n{:016x}\n", xxh3_64(json.as_bytes()));
        Ok(objects.create(&Self::name(self.number), text.as_bytes())?)
    }

    /// The last block.
    pub fn last_block(&self) -> Option<BlockId> {
        let hash = unhex(&self.last_hash)?;
        Some(BlockId { number: self.last, hash })
    }
}

/// The number of an archive, as segments have it.
pub(crate) fn archive_bytes(hex: &str) -> [u8; 16] {
    unhex(hex).unwrap_or_default()
}

/// A random number that no other writer has.
pub(crate) fn random_id() -> String {
    let half = || RandomState::new().build_hasher().finish().to_be_bytes();
    hex(&[half(), half()].concat())
}
