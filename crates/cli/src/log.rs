//! What the libraries tell of themselves, for those who measure: events with figures.

use std::io;

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::failure::Failure;

/// Writes the events that a filter lets through on standard error, a line each.
pub(crate) fn listen(filter: &str) -> anyhow::Result<()> {
    let targets: Targets = filter.parse().map_err(|error| {
        Failure::new(format!("{filter} is no filter (--log)"))
            .because(anyhow::Error::new(error))
            .hint("say info, or spinney::chunk=info,spinney::pipeline=debug")
    })?;
    let lines = fmt::layer().with_writer(io::stderr).with_ansi(false).with_filter(targets);
    tracing_subscriber::registry().with(lines).try_init()?;
    Ok(())
}
