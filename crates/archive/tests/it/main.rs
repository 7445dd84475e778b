//! Places for objects: a folder and a bucket alike, and a bucket behind a network that fails.
#![cfg(feature = "remote")]

mod objects;
mod proxy;
mod remote;
mod weed;
