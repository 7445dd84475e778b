//! What the libraries tell of themselves: warnings, and for those who measure events with figures.

use std::fmt::{Debug, Write as _};
use std::io;

use spinney_postgres::WARNINGS;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::failure::Failure;
use crate::ui::output::Warnings;

/// Tells warnings, and writes the events that a filter lets through on standard error, a line each.
pub(crate) fn listen(filter: Option<&str>, warnings: Warnings) -> anyhow::Result<()> {
    let lines = filter.map(|filter| {
        let targets: Targets = filter.parse().map_err(|error| {
            Failure::new(format!("{filter} is no filter (--log)"))
                .because(anyhow::Error::new(error))
                .hint("say info, or spinney::chunk=info,spinney::pipeline=debug")
        })?;
        let lines = fmt::layer().with_writer(io::stderr).with_ansi(false).with_filter(targets);
        Ok::<_, Failure>(lines)
    });
    let own = Targets::new().with_target(WARNINGS, tracing::Level::WARN);
    let registry = tracing_subscriber::registry().with(lines.transpose()?);
    registry.with(Teller(warnings).with_filter(own)).try_init()?;
    Ok(())
}

/// Tells events as the warnings that they are.
struct Teller(Warnings);

impl<S: Subscriber> Layer<S> for Teller {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.add(&message.0);
    }
}

/// What an event says.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}
