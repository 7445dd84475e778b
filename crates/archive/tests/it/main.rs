//! Tests of archives through their public face.

mod histories;
mod objects;
