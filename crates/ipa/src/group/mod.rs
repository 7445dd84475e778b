//! Banderwagon: the prime-order group of EIP-6800.

pub(crate) mod batch;
mod element;
mod encoding;

pub use element::Element;
pub(crate) use element::{Affine, CURVE_D};
pub use encoding::DecodeError;
pub(crate) use encoding::decompress;
