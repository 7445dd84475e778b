//! An account and its slots over time, in a Merkle Patricia trie.

use alloc::vec::Vec;

use spinney_hash::keccak256;

use super::error::SpanError;
use super::frames::{FramesWriter, each};
use super::period::Period;
use crate::error::NotProven;
use crate::mpt::{
    AccountFields, AccountProof, EMPTY_ROOT, Proof, ProofError, account_fields, slot_word,
};

/// What is claimed of an account and some of its slots at blocks that follow each other: nothing is
/// known of it yet.
///
/// The frames of `account` are the nodes on the account's path, those of `storage` the nodes on the
/// path of each slot below the account's storage root.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "these are the parts of the document")]
pub struct AccountSpan {
    /// The account.
    pub address: [u8; 20],
    /// The slots, big-endian.
    pub slots: Vec<[u8; 32]>,
    /// The first block.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// The account's proofs, as frames.
    pub account: Vec<u8>,
    /// The proofs of each slot, as frames.
    pub storage: Vec<Vec<u8>>,
}

/// The values of a slot, in order of blocks.
type Values = Vec<Period<[u8; 32]>>;

/// What an account and its slots were, and when: proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedAccountSpan {
    accounts: Vec<Period<Option<AccountFields>>>,
    slots: Vec<([u8; 32], Values)>,
}

impl VerifiedAccountSpan {
    /// The account, or `None` where the state has none under the address, from the first block on.
    pub fn account(&self) -> &[Period<Option<AccountFields>>] {
        &self.accounts
    }

    /// The values of a slot, big-endian, from the first block on; zero where it is absent.
    ///
    /// # Errors
    /// If the proof was not about the slot.
    pub fn slot(&self, key: &[u8; 32]) -> Result<&[Period<[u8; 32]>], NotProven> {
        let found = self.slots.iter().find(|(slot, _)| slot == key);
        found.map(|(_, runs)| &runs[..]).ok_or_else(|| NotProven { key: key.to_vec() })
    }
}

impl AccountSpan {
    /// Checks account and slots at every block. `trusts` is asked of each block whether a root is
    /// that of its state, as its header says or whoever else is trusted.
    ///
    /// ```
    /// use spinney_proof::mpt::{AccountFields, AccountProof, EMPTY_ROOT, Proof};
    /// use spinney_proof::span::AccountSpanWriter;
    ///
    /// let nobody = AccountProof {
    ///     address: [7; 20],
    ///     fields: AccountFields::ABSENT,
    ///     account_proof: Proof::default(),
    ///     storage_proof: Vec::new(),
    /// };
    /// let mut writer = AccountSpanWriter::new(100, &nobody);
    /// writer.push(&nobody)?;
    /// let verified = writer.finish().verify(|_, root| *root == EMPTY_ROOT)?;
    /// let [run] = verified.account() else { panic!("it did not change") };
    /// assert_eq!((run.first, run.last, run.value), (100, 101, None));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If a root is not trusted, a proof does not hold, or the frames are not of these blocks.
    pub fn verify(
        &self,
        mut trusts: impl FnMut(u64, &[u8; 32]) -> bool,
    ) -> Result<VerifiedAccountSpan, SpanError<ProofError>> {
        if self.slots.len() != self.storage.len() {
            let (slots, found) = (self.slots.len(), self.storage.len());
            return Err(SpanError::Slots { slots, found });
        }
        let (key, blocks) = (keccak256(&self.address), (self.first, self.last));
        let mut accounts = Vec::new();
        each("account", &self.account, blocks, |(from, to), nodes| {
            let proof = Proof::new(nodes.to_vec());
            let root = root_of(nodes);
            if let Some(block) = (from..=to).find(|block| !trusts(*block, &root)) {
                return Err(SpanError::Root { block, got: root });
            }
            let fields = account_fields(&proof, &root, &key);
            let fields =
                fields.map_err(|error| SpanError::Proof { block: from, slot: None, error })?;
            Period::extend(&mut accounts, (from, to), fields);
            Ok(())
        })?;
        let mut roots = Vec::new();
        for Period { first, last, value } in &accounts {
            let root = value.map_or(EMPTY_ROOT, |fields| fields.storage_hash);
            Period::extend(&mut roots, (*first, *last), root);
        }
        let slots = self.slots.iter().zip(&self.storage);
        let slots = slots.map(|(slot, frames)| Ok((*slot, self.slot(slot, frames, &roots)?)));
        Ok(VerifiedAccountSpan { slots: slots.collect::<Result<_, _>>()?, accounts })
    }

    /// The values of a slot below storage roots.
    fn slot(
        &self,
        slot: &[u8; 32],
        frames: &[u8],
        roots: &[Period<[u8; 32]>],
    ) -> Result<Values, SpanError<ProofError>> {
        let (key, mut values) = (keccak256(slot), Vec::new());
        each("storage", frames, (self.first, self.last), |(from, to), nodes| {
            let proof = Proof::new(nodes.to_vec());
            let begun = roots.partition_point(|root| root.last < from);
            let held = roots.iter().skip(begun).take_while(|root| root.first <= to);
            for root in held {
                let (first, last) = (root.first.max(from), root.last.min(to));
                let value = slot_word(&proof, &root.value, &key);
                let value = value.map_err(|error| SpanError::Proof {
                    block: first,
                    slot: Some(*slot),
                    error,
                })?;
                Period::extend(&mut values, (first, last), value);
            }
            Ok(())
        })?;
        Ok(values)
    }
}

/// The root of the trie that a proof is of: the digest of its first node.
fn root_of(nodes: &[Vec<u8>]) -> [u8; 32] {
    nodes.first().map_or(EMPTY_ROOT, |node| keccak256(node))
}

/// Writes an [`AccountSpan`], a block after the other.
#[derive(Clone, Debug)]
pub struct AccountSpanWriter {
    address: [u8; 20],
    slots: Vec<[u8; 32]>,
    first: u64,
    last: u64,
    account: FramesWriter,
    storage: Vec<FramesWriter>,
}

impl AccountSpanWriter {
    /// Begins with the proof of a block, which says what account and slots it is of.
    pub fn new(block: u64, proof: &AccountProof) -> Self {
        let slots: Vec<_> = proof.storage_proof.iter().map(|slot| slot.key).collect();
        let mut writer = Self {
            address: proof.address,
            storage: slots.iter().map(|_| FramesWriter::new()).collect(),
            slots,
            first: block,
            last: block,
            account: FramesWriter::new(),
        };
        writer.add(proof);
        writer
    }

    /// Adds the proof of the next block.
    ///
    /// # Errors
    /// If it is of another account, or of other slots, than the first one.
    pub fn push(&mut self, proof: &AccountProof) -> Result<(), NotProven> {
        if proof.address != self.address {
            return Err(NotProven { key: self.address.to_vec() });
        }
        let mut given = proof.storage_proof.iter().map(|slot| slot.key);
        if let Some(slot) = self.slots.iter().find(|slot| given.next() != Some(**slot)) {
            return Err(NotProven { key: slot.to_vec() });
        }
        self.last = self.last.saturating_add(1);
        self.add(proof);
        Ok(())
    }

    fn add(&mut self, proof: &AccountProof) {
        self.account.push(proof.account_proof.nodes());
        for (frames, slot) in self.storage.iter_mut().zip(&proof.storage_proof) {
            frames.push(slot.proof.nodes());
        }
    }

    /// The proof of all blocks.
    pub fn finish(self) -> AccountSpan {
        let Self { address, slots, first, last, account, storage } = self;
        let storage = storage.into_iter().map(FramesWriter::finish).collect();
        AccountSpan { address, slots, first, last, account: account.finish(), storage }
    }
}
