//! Places for objects: a folder and a bucket alike, and a bucket behind a network that fails.

mod objects;
mod proxy;
mod remote;
mod weed;
