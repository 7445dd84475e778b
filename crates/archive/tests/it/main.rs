//! Tests of archives through their public face.

mod extend;
mod histories;
mod objects;
mod slices;
