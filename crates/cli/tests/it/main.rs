//! The `spinney` binary as its users meet it: standard output, standard error and exit codes.

mod chains;
mod db;
mod interrupts;
mod replay;
mod root;
mod support;
mod verbs;
