//! Banderwagon: the prime-order group of EIP-6800.

pub(crate) mod batch;
pub(crate) mod element;
mod encoding;
pub(crate) mod short;

pub(crate) use element::Affine;
pub use element::Element;
pub use encoding::DecodeError;
pub(crate) use encoding::{decode_trusted, decompress, encode_and_map};
