//! Bytes that are written from the end.
//!
//! A page is written children first, and what says how long they are stands in front of them. Written forwards,
//! a node's children are moved to make room for it, once a level; from the end, each byte is written once.
//!
//! Places are counted from the end, so they stay what they are when there comes more.

/// Bytes that grow towards the front.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Written from `at` on.
    bytes: Vec<u8>,
    at: usize,
}

/// What was put between two moments: how many bytes there were before and after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Tail {
    /// How many bytes there are.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// How many bytes of memory are held.
    pub(crate) const fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Puts bytes in front of all others.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        let end = self.at;
        self.at -= bytes.len();
        self.bytes[self.at..end].copy_from_slice(bytes);
    }

    /// Sees to it that so many bytes can be put without moving the others.
    fn make_room(&mut self, room: usize) {
        if self.at < room {
            let more = room.max(self.bytes.len()).max(4_096);
            let mut bytes = vec![0; more + self.bytes.len()];
            bytes[more + self.at..].copy_from_slice(&self.bytes[self.at..]);
            self.bytes = bytes;
            self.at += more;
        }
    }

    /// Forgets what was put since there were `from` bytes.
    pub(crate) const fn cut(&mut self, from: usize) {
        self.at = self.bytes.len() - from;
    }

    /// What was put since there were `from` bytes.
    pub(crate) fn since(&self, from: usize) -> &[u8] {
        &self.bytes[self.at..self.bytes.len() - from]
    }

    /// As [`Tail::since`], with so many bytes in front whose content is of no account.
    pub(crate) fn framed(&mut self, room: usize, from: usize) -> &mut [u8] {
        self.make_room(room);
        let end = self.bytes.len() - from;
        &mut self.bytes[self.at - room..end]
    }

    /// What was put in front last, and may be changed.
    pub(crate) fn front(&mut self) -> &mut [u8] {
        &mut self.bytes[self.at..]
    }
}

#[cfg(test)]
mod tests {
    use super::Tail;

    #[test]
    fn places_stay_while_bytes_come_and_go() {
        let mut tail = Tail::default();
        tail.put(b"end");
        let mut whole = b"end".to_vec();
        for n in 1..200_usize {
            let from = tail.len();
            tail.put(&vec![n as u8; n]);
            whole.splice(..0, vec![n as u8; n]);
            assert_eq!(tail.since(from), vec![n as u8; n]);
            tail.framed(n, from).fill(0xff);
            tail.cut(from);
            tail.put(&vec![n as u8; n]);
            assert_eq!(tail.since(0), whole);
            assert_eq!(tail.since(from), vec![n as u8; n]);
        }
    }
}
