//! What a verified proof shows, for people and for programs.

use std::io;

use serde_json::{Value, json};
use spinney_document::Fact;

use crate::ui::{Answer, Format, Output};

/// What a proof shows: line by line for people, at once in an envelope.
pub(crate) struct Said<'o> {
    output: &'o Output,
    all: Option<Vec<(String, Value)>>,
}

impl<'o> Said<'o> {
    pub(super) fn new(output: &'o Output) -> Self {
        Self { output, all: (output.asked() == Some(Format::Json)).then(Vec::new) }
    }

    /// One thing that it shows: a line for people, fields for programs.
    pub(crate) fn say(&mut self, line: String, fields: Value) -> io::Result<()> {
        match &mut self.all {
            Some(all) => all.push((line, fields)),
            None => self.output.line(&line)?,
        }
        Ok(())
    }

    pub(super) fn facts(&mut self, facts: &[Fact]) -> io::Result<()> {
        facts.iter().try_for_each(|fact| self.say(fact.to_string(), json!(fact)))
    }

    pub(super) fn finish(self) -> anyhow::Result<Answer> {
        // Other forms are lines, which were told as they came.
        let (lines, proven): (Vec<_>, Vec<_>) = self.all.unwrap_or_default().into_iter().unzip();
        Ok(Answer::of(&json!({ "holds": true, "shown": lines, "proven": proven }))?)
    }
}
