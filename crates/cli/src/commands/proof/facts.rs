//! What a verified proof shows, for people and for programs.

use serde_json::{Value, json};

use crate::ui::{Answer, Format, Output};

/// One thing that a proof shows: a line for people, fields for programs.
pub(crate) struct Fact {
    pub(crate) line: String,
    pub(crate) fields: Value,
}

/// What a proof shows: line by line for people, at once in an envelope.
pub(crate) struct Said<'o> {
    output: &'o Output,
    all: Option<Vec<Fact>>,
}

impl<'o> Said<'o> {
    pub(super) fn new(output: &'o Output) -> Self {
        Self { output, all: (output.asked() == Some(Format::Json)).then(Vec::new) }
    }

    pub(crate) fn say(&mut self, fact: Fact) -> std::io::Result<()> {
        match &mut self.all {
            Some(all) => all.push(fact),
            None => self.output.line(&fact.line)?,
        }
        Ok(())
    }

    pub(super) fn finish(self) -> anyhow::Result<Answer> {
        // Other forms are lines, which were told as they came.
        let all = self.all.unwrap_or_default().into_iter().map(|fact| (fact.line, fact.fields));
        let (lines, proven): (Vec<String>, Vec<Value>) = all.unzip();
        Ok(Answer::of(&json!({ "holds": true, "shown": lines, "proven": proven }))?)
    }
}
