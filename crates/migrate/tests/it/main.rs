//! The files of EIP-8347, sound and not.

mod preimages;
mod snapshot;
