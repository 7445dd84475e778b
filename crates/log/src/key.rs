use std::ops::Deref;

use smallvec::SmallVec;

/// The key of a row. Most keys need no memory of their own.
///
/// ```
/// use spinney_log::Key;
///
/// let key = Key::from_slice(b"key");
/// assert!(key < Key::from_slice(b"keys"));
/// assert_eq!(&key[..2], b"ke");
/// ```
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(SmallVec<[u8; 48]>);

impl Key {
    /// The first of all keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// The key of these bytes.
    pub fn from_slice(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }

    /// The key of both parts, one behind the other.
    pub fn of(first: u8, rest: &[u8]) -> Self {
        let mut key = SmallVec::with_capacity(rest.len() + 1);
        key.push(first);
        key.extend_from_slice(rest);
        Self(key)
    }

    /// Keeps the first bytes, and puts others behind them.
    pub(crate) fn go_on(&mut self, kept: usize, rest: &[u8]) {
        self.0.truncate(kept);
        self.0.extend_from_slice(rest);
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        // In one piece: the derived one goes byte by byte.
        Self::from_slice(self)
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
