//! Keys over time, in a tree whose values are words.

use alloc::vec::Vec;

use super::error::SpanError;
use super::frames::{FramesWriter, each};
use super::period::Period;
use crate::binary::{BinaryRules, KeysProof, ProofError, VerifiedKeys, Word};
use crate::error::NotProven;

/// What is claimed of keys at blocks that follow each other: nothing is known of it yet.
///
/// The items of a frame are the root, the proof's bytes, and the value of each key, which has no
/// bytes where the key is absent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "these are the parts of the document")]
pub struct KeysSpan {
    /// The keys.
    pub keys: Vec<Vec<u8>>,
    /// The first block.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// The proofs, as frames.
    pub frames: Vec<u8>,
}

/// The values of a key, in order of blocks.
type Words = Vec<Period<Option<Word>>>;

/// What keys held, and when: proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedKeysSpan {
    values: Vec<(Vec<u8>, Words)>,
}

impl VerifiedKeysSpan {
    /// The values of a key from the first block on, `None` where the tree does not hold it.
    ///
    /// # Errors
    /// If the proof was not made for the key.
    pub fn get(&self, key: &[u8]) -> Result<&[Period<Option<Word>>], NotProven> {
        let found = self.values.iter().find(|(of, _)| of == key);
        found.map(|(_, runs)| &runs[..]).ok_or_else(|| NotProven { key: key.to_vec() })
    }

    /// The keys with their values, in the order of the proof.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[Period<Option<Word>>])> {
        self.values.iter().map(|(key, runs)| (&key[..], &runs[..]))
    }
}

impl KeysSpan {
    /// Checks the keys at every block, in a binary tree. `trusts` is asked of each block whether a
    /// root is that of the tree.
    ///
    /// ```
    /// use spinney_hash::HashFunction::Blake3;
    /// use spinney_proof::binary::{KeysProof, Pbt};
    /// use spinney_proof::span::KeysSpanWriter;
    ///
    /// // A tree that holds nothing proves that by nothing.
    /// let proof = KeysProof { entries: vec![(vec![7; 32], None)], proof: vec![] };
    /// let mut writer = KeysSpanWriter::new(1, &[0; 32], &proof);
    /// writer.push(&[0; 32], &proof)?;
    /// let verified = writer.finish().verify(&Pbt { hash: Blake3 }, |_, root| *root == [0; 32])?;
    /// assert_eq!(verified.get(&[7; 32])?[0].last, 2);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a root is not trusted, a proof does not hold, or the frames are not of these blocks.
    pub fn verify<S: BinaryRules>(
        &self,
        tree: &S,
        trusts: impl FnMut(u64, &[u8; 32]) -> bool,
    ) -> Result<VerifiedKeysSpan, SpanError<ProofError>> {
        self.verify_by(trusts, |root, sent| sent.verify(tree, root))
    }

    /// The same in any tree whose proofs are of this kind: `check` verifies one against a root.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn verify_by<E>(
        &self,
        mut trusts: impl FnMut(u64, &[u8; 32]) -> bool,
        mut check: impl FnMut(&[u8; 32], &KeysProof) -> Result<VerifiedKeys, E>,
    ) -> Result<VerifiedKeysSpan, SpanError<E>> {
        let mut values: Vec<_> = self.keys.iter().map(|key| (key.clone(), Vec::new())).collect();
        each("frames", &self.frames, (self.first, self.last), |(from, to), items| {
            let malformed = |what| SpanError::Items { block: from, what };
            let (root, sent) = self.proof(items).map_err(malformed)?;
            if let Some(block) = (from..=to).find(|block| !trusts(*block, &root)) {
                return Err(SpanError::Root { block, got: root });
            }
            let proven = check(&root, &sent);
            proven.map_err(|error| SpanError::Proof { block: from, slot: None, error })?;
            for ((_, runs), (_, value)) in values.iter_mut().zip(sent.entries) {
                Period::extend(runs, (from, to), value);
            }
            Ok(())
        })?;
        Ok(VerifiedKeysSpan { values })
    }

    /// What the items of a frame are.
    fn proof(&self, items: &[Vec<u8>]) -> Result<([u8; 32], KeysProof), &'static str> {
        let [root, proof, values @ ..] = items else { return Err("it has no root and no proof") };
        let root = Word::try_from(&root[..]).map_err(|_| "its root has not 32 bytes")?;
        if values.len() != self.keys.len() {
            return Err("it has not one value a key");
        }
        let mut entries = Vec::with_capacity(values.len());
        for (key, value) in self.keys.iter().zip(values) {
            let value = match &value[..] {
                [] => None,
                value => Some(Word::try_from(value).map_err(|_| "a value has not 32 bytes")?),
            };
            entries.push((key.clone(), value));
        }
        Ok((root, KeysProof { entries, proof: proof.clone() }))
    }
}

/// Writes a [`KeysSpan`], a block after the other.
#[derive(Clone, Debug)]
pub struct KeysSpanWriter {
    keys: Vec<Vec<u8>>,
    first: u64,
    last: u64,
    frames: FramesWriter,
}

impl KeysSpanWriter {
    /// Begins with the root and the proof of a block, which says what keys it is of.
    pub fn new(block: u64, root: &[u8; 32], proof: &KeysProof) -> Self {
        let keys = proof.entries.iter().map(|(key, _)| key.clone()).collect();
        let mut writer = Self { keys, first: block, last: block, frames: FramesWriter::new() };
        writer.add(root, proof);
        writer
    }

    /// Adds those of the next block.
    ///
    /// # Errors
    /// If the proof is of other keys than the first one.
    pub fn push(&mut self, root: &[u8; 32], proof: &KeysProof) -> Result<(), NotProven> {
        let mut given = proof.entries.iter().map(|(key, _)| key);
        if let Some(key) = self.keys.iter().find(|key| given.next() != Some(*key)) {
            return Err(NotProven { key: key.clone() });
        }
        self.last = self.last.saturating_add(1);
        self.add(root, proof);
        Ok(())
    }

    fn add(&mut self, root: &[u8; 32], proof: &KeysProof) {
        let values = proof.entries.iter();
        let values = values.map(|(_, value)| value.as_ref().map_or(&[][..], |value| &value[..]));
        let items: Vec<&[u8]> = [&root[..], &proof.proof].into_iter().chain(values).collect();
        self.frames.push(&items);
    }

    /// The proof of all blocks.
    pub fn finish(self) -> KeysSpan {
        let Self { keys, first, last, frames } = self;
        KeysSpan { keys, first, last, frames: frames.finish() }
    }
}
