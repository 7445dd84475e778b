//! The two prime fields.

mod element;
mod fq;
mod fr;
mod inversion;
mod montgomery;

pub use element::NotCanonical;
pub use fq::Fq;
pub(crate) use fq::{ROOT_EXPONENT, SYMBOL_EXPONENT, SquareRoots};
pub use fr::Fr;
pub(crate) use montgomery::sub_limbs;
