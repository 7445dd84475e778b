//! A server that answers JSON-RPC from a store of Ethereum's state, or from an archive of one: the
//! standard methods that read accounts, slots and code, and prove them, at any block that is kept;
//! and `spinney_*` for the trees that no standard method knows. The page `docs/reference/rpc.md`
//! has each method.
//!
//! Requests come over HTTP/1.1 to one thread, which reads no store. They wait in a bounded line for
//! threads that do, each through a view of one commit. So who reads waits for nobody who writes, in
//! this process or in another one, and all requests of a batch are answered from one state.
//!
//! A browser that opens the server's address gets the explorer: a page that looks up accounts, and
//! checks each proof with a verifier of its own.
#![forbid(unsafe_code)]

mod archived;
mod discover;
mod error;
mod explorer;
mod hosts;
mod kept;
mod methods;
mod metrics;
mod options;
mod params;
mod query;
mod queue;
mod request;
mod server;
mod view;
mod witness;
mod worker;

pub use hosts::{HostError, Hosts};
pub use metrics::FollowMetrics;
pub use options::{Finality, Limits, Options, StoreBytes};
pub use server::{Server, Stop};
pub use worker::answer_alone;
