//! The `spinney` binary as its users meet it: standard output, standard error and exit codes.

mod access_lists;
#[cfg(unix)]
mod archive;
mod bench;
mod binary;
mod bisect;
#[cfg(unix)]
mod buckets;
mod catch_up;
mod chains;
mod chunks;
mod convert;
mod db;
mod documents;
mod explorer;
#[path = "../../../follow/tests/it/fake_node.rs"]
#[expect(dead_code, reason = "the tests of the follower use more of it")]
mod fake_node;
#[cfg(unix)]
mod follow;
mod full_disk;
mod growing;
#[cfg(target_os = "linux")]
mod hangs;
mod history;
mod import;
mod interrupts;
mod kills;
mod log;
mod pairs;
mod places;
mod proofs;
mod references;
mod refusals;
#[cfg(unix)]
mod remote;
mod replay;
mod root;
mod schemas;
mod scratch;
#[cfg(unix)]
mod secrets;
#[cfg(unix)]
mod serve;
#[cfg(unix)]
#[path = "../../../store/tests/it/server.rs"]
mod server;
mod several;
mod snapshot;
#[cfg(unix)]
mod spans;
mod sql;
mod stage;
#[cfg(unix)]
mod sums;
mod support;
mod tapd;
#[path = "../../../tapd/tests/it/databases.rs"]
#[expect(dead_code, reason = "the tests of the reader use more of it")]
mod tapd_databases;
mod terminal;
mod traces;
mod verbs;
#[cfg(unix)]
#[path = "../../../archive/tests/remote/weed.rs"]
#[expect(dead_code, reason = "the tests of places use more of it")]
mod weed;
