//! What nodes commit to, as parents and pages keep it.
//!
//! ```text
//! commit = flags point*          a stem's values: bit 0 for the lower half, bit 1 for the upper
//!        | 0x04 point            a stem, or an internal node with its prefix
//!        | 0x05 element element  the same at the top of the tree; the second is the root node's
//! point  = element | scalar      what the parent commits to in its place (32, LE)
//! ```
//! An element is the 64 bytes of its curve point with the larger y, x and y big-endian, and
//! trusted: pages have checksums. In an internal node with a prefix the element is that of the node
//! at the fork, and the scalar that of the topmost one.

use std::fmt;

use spinney_proof::verkle::limbs;

use spinney_ipa::{Element, Fr};

use crate::scheme::Commitment;

/// What a node commits to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Commit(pub(super) CommitKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitKind {
    /// A value below a stem of several.
    Value([u8; 32]),
    Halves([Point; 2]),
    Node(Point),
    Top {
        own: [u8; 64],
        root: [u8; 64],
    },
}

/// An element, and what a parent commits to in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) element: [u8; 64],
    pub(super) scalar: [u8; 32],
}

const NODE: u8 = 4;
const TOP: u8 = 5;
const POINT_BYTES: usize = 96;
/// The top bytes of all canonical scalars are below this.
const SCALAR_TOP: u8 = 0x20;

impl Point {
    pub(super) const IDENTITY: Self = {
        let mut element = [0; 64];
        element[63] = 1;
        Self { element, scalar: [0; 32] }
    };

    /// The scalar.
    pub(super) fn scalar(&self) -> Fr {
        Fr::from_limbs(limbs(&self.scalar))
    }

    fn decode(bytes: &[u8; POINT_BYTES]) -> Option<Self> {
        let (element, scalar) = bytes.split_first_chunk()?;
        let scalar: [u8; 32] = scalar.try_into().ok()?;
        // All canonical scalars are below this, and so their differences are short enough.
        (scalar[31] < SCALAR_TOP).then_some(Self { element: *element, scalar })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.element);
        out.extend_from_slice(&self.scalar);
    }
}

/// An element of a page. One that is none, in a page that somebody forged, stands for nothing.
pub(super) fn element(bytes: &[u8; 64]) -> Element {
    Element::from_uncompressed_trusted(bytes).unwrap_or(Element::IDENTITY)
}

impl Commit {
    pub(super) fn of_value(value: &[u8]) -> Self {
        // A page that others made may hold anything.
        Self(CommitKind::Value(value.first_chunk().copied().unwrap_or_default()))
    }

    /// The halves of a stem's values.
    pub(super) const fn halves(&self) -> [Point; 2] {
        match self.0 {
            CommitKind::Halves(halves) => halves,
            _ => [Point::IDENTITY; 2],
        }
    }

    /// The node's own element: of one with a prefix, that at the fork.
    pub(super) const fn own(&self) -> [u8; 64] {
        match self.0 {
            CommitKind::Node(point) => point.element,
            CommitKind::Top { own, .. } => own,
            _ => Point::IDENTITY.element,
        }
    }

    /// What the parent commits to.
    pub(super) const fn scalar(&self) -> [u8; 32] {
        match self.0 {
            CommitKind::Node(point) => point.scalar,
            _ => [0; 32],
        }
    }

    /// What the parent commits to, as a scalar.
    pub(super) fn in_parent(&self) -> Fr {
        Fr::from_limbs(limbs(&self.scalar()))
    }

    pub(super) fn root(&self) -> [u8; 32] {
        match &self.0 {
            CommitKind::Top { root, .. } => element(root).to_compressed(),
            _ => Element::IDENTITY.to_compressed(),
        }
    }
}

impl Commitment for Commit {
    fn encode(&self, out: &mut Vec<u8>) {
        match &self.0 {
            CommitKind::Value(_) => unreachable!("pages keep the value itself"),
            CommitKind::Halves(halves) => {
                let at = out.len();
                out.push(0);
                for (bit, half) in halves.iter().enumerate() {
                    if *half != Point::IDENTITY {
                        out[at] |= 1 << bit;
                        half.encode(out);
                    }
                }
            }
            CommitKind::Node(point) => {
                out.push(NODE);
                point.encode(out);
            }
            CommitKind::Top { own, root } => {
                out.push(TOP);
                out.extend_from_slice(own);
                out.extend_from_slice(root);
            }
        }
    }

    fn length(bytes: &[u8]) -> Option<usize> {
        let points = match *bytes.first()? {
            flags @ 0..4 => flags.count_ones() as usize,
            NODE => 1,
            TOP => return (bytes.len() > 128).then_some(129),
            _ => return None,
        };
        let len = 1 + points * POINT_BYTES;
        // The last byte of each scalar is what a point may be refused for.
        let sound = |point: &[u8; POINT_BYTES]| point[POINT_BYTES - 1] < SCALAR_TOP;
        let (points, _) = bytes.get(1..len)?.as_chunks();
        points.iter().all(sound).then_some(len)
    }

    fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let (flags, rest) = bytes.split_first()?;
        let (kind, len) = match *flags {
            flags @ 0..4 => {
                let (mut halves, mut at) = ([Point::IDENTITY; 2], 0);
                for (bit, half) in halves.iter_mut().enumerate() {
                    if flags >> bit & 1 == 1 {
                        *half = Point::decode(rest.get(at..)?.first_chunk()?)?;
                        at += POINT_BYTES;
                    }
                }
                (CommitKind::Halves(halves), at)
            }
            NODE => (CommitKind::Node(Point::decode(rest.first_chunk()?)?), POINT_BYTES),
            TOP => {
                let (own, rest) = rest.split_first_chunk()?;
                (CommitKind::Top { own: *own, root: *rest.first_chunk()? }, 128)
            }
            _ => return None,
        };
        Some((Self(kind), 1 + len))
    }
}

impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            CommitKind::Value(_) => "Value",
            CommitKind::Halves(_) => "Halves",
            CommitKind::Node(_) => "Node",
            CommitKind::Top { .. } => "Top",
        };
        write!(f, "Commit::{name}(0x{})", crate::error::hex(&self.scalar()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point() -> impl Strategy<Value = Point> {
        let bytes = (prop::array::uniform32(any::<u8>()), prop::array::uniform32(any::<u8>()));
        (bytes, prop::array::uniform32(any::<u8>())).prop_map(|((x, y), mut scalar)| {
            scalar[31] %= SCALAR_TOP;
            let mut element = [0; 64];
            element[..32].copy_from_slice(&x);
            element[32..].copy_from_slice(&y);
            Point { element, scalar }
        })
    }

    fn commit() -> impl Strategy<Value = Commit> {
        let half = prop_oneof![Just(Point::IDENTITY), point()];
        prop_oneof![
            (half.clone(), half).prop_map(|(low, high)| Commit(CommitKind::Halves([low, high]))),
            point().prop_map(|point| Commit(CommitKind::Node(point))),
            (point(), point()).prop_map(|(own, root)| {
                Commit(CommitKind::Top { own: own.element, root: root.element })
            }),
        ]
    }

    proptest! {
        #[test]
        fn commitments_come_back(commit in commit(), tail in any::<[u8; 3]>()) {
            let mut bytes = Vec::new();
            commit.encode(&mut bytes);
            let len = bytes.len();
            bytes.extend(tail);
            prop_assert_eq!(Commit::decode(&bytes), Some((commit, len)));
            for cut in 0..len {
                prop_assert_eq!(Commit::decode(&bytes[..cut]), None);
                prop_assert_eq!(Commit::length(&bytes[..cut]), None);
            }
        }

        #[test]
        fn lengths_are_of_those_that_are_read(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(flags) = bytes.first_mut() {
                *flags %= 8;
            }
            prop_assert_eq!(Commit::length(&bytes), Commit::decode(&bytes).map(|(_, len)| len));
        }
    }
}
