//! The embeddings of the binary trees and of the Verkle tree through their public face.

mod alone;
mod beside;
mod histories;
mod json;
mod textbook;
mod vectors;
mod verkle;
