//! Follows a node over JSON-RPC: blocks are fetched, executed and checked like those of a file,
//! root by root, and a state takes them in.
//!
//! Nothing that the node says is believed: a block is decoded, hashed and linked to the one before
//! it, and executed; its header's root is compared with the state's. What the node alone can say is
//! which of two good chains is its own, and which blocks are final.
#![forbid(unsafe_code)]

mod again;
mod ancestor;
mod bisect;
mod block_name;
mod blocks;
mod error;
mod explain;
mod follower;
mod node;
mod node_block;
mod node_state;
mod remote;
mod remote_start;
mod remote_state;
mod told;
mod url;

pub use bisect::{
    AccountDifference, AccountSeen, BisectError, BisectOptions, Bisected, BlockSeen, DifferenceRow,
    Divergence, SlotDifference, bisect_nodes, bisect_store,
};
pub use block_name::{BlockName, BlockNameError};
pub use error::{FollowError, NodeError};
pub use follower::{FollowEvent, FollowOptions, Followed, Follower};
pub use node::Node;
pub use remote::{RemoteBlock, RemoteError, Vouched};
pub use remote_start::{RemoteStart, RemoteStartError};
pub use remote_state::RemoteState;
pub use told::TakeBy;
pub use url::{Url, UrlError};
