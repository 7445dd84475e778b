//! What a log is told: how it is opened, and what a record does besides its commit.

/// Which commits can be read besides the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// So many of the last ones, the last one included.
    Commits(u64),
    /// All of them: nothing is ever removed.
    All,
}

/// How a log is opened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Which commits can be read besides the last one; `None` for what the log says of itself,
    /// which is the last one alone when it is made.
    pub keep: Option<Keep>,
    /// Bytes of a segment at least. It is not part of the format.
    pub segment_bytes_min: u64,
}

impl Default for Options {
    /// What the log says of itself, and segments from 256 KiB on.
    fn default() -> Self {
        Self { keep: None, segment_bytes_min: 256 << 10 }
    }
}

impl Options {
    /// With other commits kept.
    #[must_use]
    pub const fn keep(mut self, keep: Keep) -> Self {
        self.keep = Some(keep);
        self
    }
}

impl Keep {
    pub(crate) fn encode(self) -> u32 {
        match self {
            Self::Commits(commits) => commits.clamp(1, u64::from(u32::MAX) - 1) as u32,
            Self::All => u32::MAX,
        }
    }

    pub(crate) fn decode(keep: u32) -> Self {
        if keep == u32::MAX { Self::All } else { Self::Commits(u64::from(keep).max(1)) }
    }
}

/// What a record does besides its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chore {
    /// Cleaning and the index keep pace with the commit.
    Pace,
    /// So many bytes are moved.
    Move(u64),
    /// So many bytes of the index are written, and nothing is moved.
    Index(usize),
}
