//! The files of EIP-8347, sound and not, and states that move between trees.

mod catch_up;
mod convert;
mod files;
mod genesis;
#[path = "../../../state/tests/it/embed/json.rs"]
#[expect(dead_code, reason = "the tests of the state use more of it")]
mod json;
mod made;
mod preimages;
mod snapshot;
#[path = "../../../state/tests/it/embed/textbook.rs"]
#[expect(dead_code, reason = "the tests of the state use more of it")]
mod textbook;
