use std::fmt;

use serde::{Serialize, Serializer};

/// Findings that are kept of each kind; the others are counted.
const KEPT: usize = 1_000;

/// Which rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// The block itself is bad, or is not the one that the witness is of.
    Block,
    /// A header is none, in the wrong place, missing, or not needed.
    Header,
    /// A node is needed and not there.
    Missing,
    /// A node is there in the stead of another: one that was there before or will be.
    Stale,
    /// A node is no node.
    Malformed,
    /// A node is not needed.
    Surplus,
    /// A code is missing, or not needed, or not of the state before the block.
    Code,
    /// A key is missing, or not looked up.
    Key,
    /// Entries are not in their order.
    Order,
    /// An entry is there twice.
    Double,
    /// The encoding is not the canonical one.
    Form,
}

impl FindingKind {
    /// One word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Header => "header",
            Self::Missing => "missing",
            Self::Stale => "stale",
            Self::Malformed => "malformed",
            Self::Surplus => "surplus",
            Self::Code => "code",
            Self::Key => "key",
            Self::Order => "order",
            Self::Double => "double",
            Self::Form => "form",
        }
    }
}

/// One rule that is broken, in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Which rule.
    #[serde(serialize_with = "by_name")]
    pub kind: FindingKind,
    /// Where, and how.
    pub what: String,
}

fn by_name<S: Serializer>(kind: &FindingKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

impl Finding {
    /// Names a broken rule.
    pub const fn new(kind: FindingKind, what: String) -> Self {
        Self { kind, what }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.what)
    }
}

/// What is wrong with a witness, in the order in which it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    kept: Vec<Finding>,
    /// How many there are of each kind.
    counts: std::collections::BTreeMap<FindingKind, usize>,
}

impl Findings {
    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// All that are kept: of each kind the first 1,000.
    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.kept.iter()
    }

    /// How many there are of each kind, those that are not kept included.
    pub fn counts(&self) -> impl Iterator<Item = (FindingKind, usize)> {
        self.counts.iter().map(|(kind, count)| (*kind, *count))
    }

    /// How many there are, those that are not kept included.
    pub fn count(&self) -> usize {
        self.counts.values().sum()
    }

    /// Adds one.
    pub fn push(&mut self, finding: Finding) {
        self.say(finding.kind, || finding.what);
    }

    pub(super) fn say(&mut self, kind: FindingKind, what: impl FnOnce() -> String) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= KEPT {
            self.kept.push(Finding::new(kind, what()));
        }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.kept {
            writeln!(f, "{finding}")?;
        }
        for (kind, count) in self.counts().filter(|(_, count)| *count > KEPT) {
            writeln!(f, "{}: and {} more", kind.name(), count - KEPT)?;
        }
        Ok(())
    }
}
