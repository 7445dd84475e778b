//! Tests of the engine through its public face.

mod model;
mod raw;
mod state;
