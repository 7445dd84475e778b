//! The partitioned binary tree of EIP-8297.
//!
//! Keys have 1 to 8,192 bytes, and none begins another; values have 32 bytes. A leaf hashes its
//! whole key, so moving it changes nothing; a branch hashes the bits that all below it share beyond
//! its parent's. That is the engine's own normal form, digits being bits. The tree keeps zeros:
//! that a slot of zeros is absent is the state's rule.
//!
//! ```
//! use spinney_tree::{HashFunction, bulk, pbt::Pbt};
//!
//! let pbt = Pbt { hash: HashFunction::Blake3 };
//! let root = bulk::root_of_sorted(&pbt, &[([0xab], [1; 32])])?;
//! assert_eq!(root[..4], [0x2e, 0xbe, 0xea, 0x9f]);
//! # Ok::<_, spinney_tree::TreeError>(())
//! ```

pub mod reference;

use spinney_hash::Digest;
pub use spinney_proof::binary::Pbt;
use spinney_proof::binary::{PBT_BRANCH, PBT_LEAF};

use crate::binary::{EMPTY, Hasher, admit_value, scheme_id};
use crate::error::Refused;
use crate::ids::SchemeId;
use crate::scheme::Engine;
use crate::scheme::{BranchJob, Children, Layout, LeafJob, Scheme};

/// Buffers of the scheme.
#[derive(Debug, Default)]
pub struct PbtScratch {
    hasher: Hasher,
}

impl Scheme for Pbt {
    const LAYOUT: Layout = Layout::of_digits(1);

    type Commit = Digest;
    type Root = Digest;
    type Scratch = PbtScratch;
    type Differences = ();
    type Weights = ();

    fn id(&self) -> SchemeId {
        scheme_id(4, self.hash)
    }

    #[inline(never)]
    fn engine() -> Engine<Self> {
        Engine::here()
    }

    fn admit(&self, key: &[u8], value: Option<&[u8]>) -> Result<bool, Refused> {
        if key.is_empty() {
            return Err(Refused::KeyLength { got: 0, expected: "1 to 8,192 bytes" });
        }
        admit_value(value)
    }

    fn commit_leaves<'a>(
        &self,
        jobs: impl Iterator<Item = LeafJob<'a, Digest>>,
        PbtScratch { hasher }: &mut PbtScratch,
        out: &mut Vec<Digest>,
    ) {
        hasher.clear();
        for job in jobs {
            hasher.bytes.push(PBT_LEAF);
            job.put_key(&mut hasher.bytes);
            hasher.bytes.extend_from_slice(job.value);
            hasher.end();
        }
        hasher.finish(self.hash, out);
    }

    fn commit_branches<'a, B: Children<Digest>>(
        &self,
        jobs: impl Iterator<Item = BranchJob<'a, B>>,
        PbtScratch { hasher }: &mut PbtScratch,
        out: &mut Vec<Digest>,
    ) {
        hasher.clear();
        for job in jobs {
            let bits = u16::try_from(job.prefix.len()).unwrap_or(u16::MAX);
            hasher.bytes.push(PBT_BRANCH);
            hasher.bytes.extend_from_slice(&bits.to_be_bytes());
            job.prefix.put_packed(&mut hasher.bytes);
            job.children.iter().for_each(|(_, commit)| hasher.bytes.extend_from_slice(&commit));
            hasher.end();
        }
        hasher.finish(self.hash, out);
    }

    fn root(&self, top: Option<&Digest>) -> Digest {
        top.copied().unwrap_or(EMPTY)
    }
}
