//! Tests of the engine through its public face.
#![expect(missing_docs, reason = "tests")]

mod model;
mod raw;
mod state;
