//! The Verkle tree of EIP-6800, root for root and proof for proof that of go-verkle and
//! rust-verkle.
//!
//! A key is a *stem* of 31 bytes and a *suffix* of one; values have 32 bytes. A stem commits to
//! itself and to its two halves of 128 values, an internal node to 256 children. The root is an
//! internal node even of one stem, and each byte that stems share costs an internal node with one
//! child.
//!
//! Digits are bytes. A stem is an implicit owner of its values, as in the [unified binary
//! tree](crate::ubt). Commitments follow by difference ([`Differences`]): what a child committed
//! to before and what it commits to now is all that its parent has to know. Unlike hashes they are
//! sums, so neither the order of changes nor their batches show in them.

mod commit;
pub mod json;
mod level;
mod prove;
pub mod reference;

use std::sync::{Arc, OnceLock};

pub use commit::Commit;
use level::{Level, Shape};
use spinney_ipa::{Crs, Element, TableOptions};
pub use spinney_proof::verkle::STEM_BYTES;

use crate::error::Refused;
use crate::ids::SchemeId;
use crate::scheme::Engine;
use crate::scheme::{BranchJob, Children, Differences, Layout, LeafJob, Owner, Scheme};

/// Proofs of the tree: [`spinney_proof::verkle`].
pub mod proof {
    pub use spinney_proof::verkle::{
        Malformed, Proof, ProofFault, StateDiff, StemDiff, SuffixDiff, Verified,
    };
}

/// The Verkle tree over raw keys of 32 bytes. Values have 32 bytes; one of zeros is a value.
///
/// The root is the compressed commitment to the root node, as block headers have it;
/// [`Verkle::root_hash`] is its other name in older software.
///
/// ```
/// use spinney_tree::{bulk, verkle::Verkle};
///
/// let verkle = Verkle::shared();
/// let root = bulk::root_of_sorted(&verkle, &[([0; 32], [0; 32])])?;
/// assert_eq!(root[..4], [0x6b, 0x63, 0x09, 0x05]);
/// assert_eq!(Verkle::root_hash(&root).unwrap()[..4], [0xff, 0x00, 0xa9, 0xf3]);
/// # Ok::<_, spinney_tree::TreeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Verkle {
    crs: Arc<Crs>,
}

impl Verkle {
    /// The tree over these points. A tree that is written to wants them with a table.
    pub const fn new(crs: Arc<Crs>) -> Self {
        Self { crs }
    }

    /// The tree over points with a table that all trees of the process share and that grows to the
    /// default size ([`Crs::with_growing_table`]). The first call makes its beginning, in a
    /// tenth of the time of the whole.
    pub fn shared() -> Self {
        static CRS: OnceLock<Arc<Crs>> = OnceLock::new();
        let crs = CRS.get_or_init(|| Arc::new(Crs::with_growing_table(&TableOptions::default())));
        Self { crs: Arc::clone(crs) }
    }

    /// The tree over points without a table, which is ready at once: for who verifies a few proofs,
    /// and writes nothing.
    ///
    /// ```
    /// use spinney_tree::verkle::Verkle;
    ///
    /// assert_eq!(Verkle::without_table().crs().table_bytes(), 0);
    /// ```
    pub fn without_table() -> Self {
        Self::new(Arc::new(Crs::new()))
    }

    /// The points it commits with.
    pub const fn crs(&self) -> &Arc<Crs> {
        &self.crs
    }

    /// What a parent would hold of the root node, 32 bytes little-endian: the root in older
    /// software. `None` if the bytes are no root.
    pub fn root_hash(root: &[u8; 32]) -> Option<[u8; 32]> {
        Some(Element::from_compressed(root).ok()?.map_to_field().to_le_bytes())
    }
}

impl Scheme for Verkle {
    const LAYOUT: Layout = Layout {
        owner: Some(Owner { bytes: STEM_BYTES, implicit: true }),
        // Eight values of 36 bytes are a page.
        owned_cut_bytes: 300,
        owned_body_bytes: 300,
        ..Layout::of_digits(8)
    };

    type Commit = Commit;
    type Root = [u8; 32];
    type Scratch = Level;
    type Differences = Self;
    type Weights = ();

    fn id(&self) -> SchemeId {
        SchemeId { tree: 6, hash: 0 }
    }

    #[inline(never)]
    fn engine() -> Engine<Self> {
        Engine::here()
    }

    fn admit(&self, key: &[u8], value: Option<&[u8]>) -> Result<bool, Refused> {
        match (key.len(), value.map(<[u8]>::len)) {
            (32, None | Some(32)) => Ok(true),
            (32, Some(got)) => Err(Refused::ValueLength { got, expected: "32 bytes" }),
            (got, _) => Err(Refused::KeyLength { got, expected: "32 bytes" }),
        }
    }

    fn commit_leaves<'a>(
        &self,
        mut jobs: impl Iterator<Item = LeafJob<'a, Commit>>,
        level: &mut Level,
        out: &mut Vec<Commit>,
    ) {
        level.clear();
        // Where it is: each is as large as three commitments.
        while let Some(job) = jobs.next().as_ref() {
            let start = job.suffix.start();
            if let Some(owned) = job.owned {
                level.stem(job, &owned.commit().halves());
            } else if start > STEM_BYTES {
                level.value(job.value);
            } else {
                // Of a key that is alone in its stem.
                level.half(job.suffix.digits().next().unwrap_or_default(), job.value);
            }
        }
        level.finish(&self.crs, out);
    }

    fn commit_branches<'a, B: Children<Commit>>(
        &self,
        mut jobs: impl Iterator<Item = BranchJob<'a, B>>,
        level: &mut Level,
        out: &mut Vec<Commit>,
    ) {
        level.clear();
        while let Some(job) = jobs.next().as_ref() {
            let shape = match job.prefix.end() {
                STEM_BYTES => Shape::Values,
                _ => Shape::Internal(job.prefix),
            };
            match job.children.changes() {
                Some((previous, changes)) => level.branch(shape, Some(&previous), changes),
                None => {
                    let children = job.children.iter();
                    let new = children.map(|(digit, commit)| (digit, None, Some(commit)));
                    level.branch(shape, None, new);
                }
            }
        }
        level.finish(&self.crs, out);
    }

    fn root(&self, top: Option<&Commit>) -> [u8; 32] {
        top.map_or_else(|| Element::IDENTITY.to_compressed(), Commit::root)
    }
}

impl Differences<Commit> for Verkle {
    fn value_commit(value: &[u8]) -> Commit {
        Commit::of_value(value)
    }
}
