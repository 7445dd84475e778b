//! Tests of archives through their public face.

mod blocks;
mod extend;
mod histories;
mod objects;
mod reads;
mod slices;
