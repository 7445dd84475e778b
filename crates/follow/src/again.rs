//! A question that is asked again where nobody answers.

use std::thread;
use std::time::Duration;

use crate::error::NodeError;

/// A node that does not answer is asked so often, after a pause that doubles.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);

/// Asks a node, and again where it is away or refuses as HTTP does. `may` is looked at before each
/// try; `None` if it said no before there was an answer.
pub(crate) fn asked<T>(
    may: impl Fn() -> bool,
    ask: impl Fn() -> Result<T, NodeError>,
) -> Option<Result<T, NodeError>> {
    let mut pause = PAUSE;
    for tried in 1..=TRIES {
        if !may() {
            return None;
        }
        match ask() {
            Err(NodeError::Unreachable { .. } | NodeError::Status { .. }) if tried < TRIES => {
                thread::sleep(pause);
                pause = pause.saturating_mul(2);
            }
            answer => return Some(answer),
        }
    }
    None
}
