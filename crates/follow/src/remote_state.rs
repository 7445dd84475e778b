//! The state after one block of a node, as far as somebody reads it, and what blocks do to it.
//!
//! Trie nodes are asked for as they are needed, in proofs that hold under the block's root, and lie
//! under their own digests. What is executed on them stays in memory. Every node that is asked for
//! lies where it lay in the state of that one block, however many blocks were executed since: what
//! these changed is known here.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use spinney_proof::mpt::AccountProof;
use spinney_proof::mpt::partial::{MissingNode, PartialError};
use spinney_replay::{SealedBlock, Witness, WitnessState, WitnessStateError, WorldState};
use spinney_state::{Account, Change, Changes, EMPTY_CODE_HASH, StateRead};

use crate::bisect::{Budget, Names, begins, bytes_under, least};
use crate::error::NodeError;
use crate::node::Node;
use crate::remote::{RemoteBlock, RemoteError};

/// So many accounts and slots are asked for at once: servers bound their answers.
const KEYS_AT_ONCE: usize = 64;
/// So many hashes are made to find a key by whose proof a trie node comes: first those that cost
/// less than a request, and at the end those that take some seconds.
const HASHES_FIRST: u64 = 1 << 17;
const HASHES_MAX: u64 = 1 << 27;

/// A state that is read from a node, each value proven under the root of one block, and that blocks
/// are executed on in memory.
#[derive(Debug)]
pub struct RemoteState<'n> {
    block: RemoteBlock<'n>,
    partial: RefCell<WitnessState>,
    /// Whose code has this hash.
    owners: RefCell<HashMap<B256, Address>>,
    /// Code that blocks made.
    made: HashMap<B256, Bytes>,
    names: RefCell<Names>,
    /// The block that is executed.
    next: u64,
    /// The last block whose witness was asked for.
    witnessed: Cell<Option<u64>>,
}

/// Ways to a trie node that is on the path of no key at hand.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Keys that are known, or found at once.
    Known,
    /// The witness of the block that is executed.
    Witness,
    /// Keys that the node tells of.
    Told,
    /// Keys that are found by many hashes.
    Found,
}

impl<'n> RemoteState<'n> {
    /// The state after a block.
    pub fn new(block: RemoteBlock<'n>) -> Self {
        let partial = WitnessState::new(&Witness::default(), block.root());
        let next = block.number().saturating_add(1);
        Self {
            block,
            partial: RefCell::new(partial),
            owners: RefCell::default(),
            made: HashMap::new(),
            names: RefCell::new(Names::known()),
            next,
            witnessed: Cell::new(None),
        }
    }

    /// The block whose state the node is asked for.
    pub const fn block(&self) -> &RemoteBlock<'n> {
        &self.block
    }

    /// Asks for several accounts and slots at once, of those that are not known yet. A node that
    /// does not answer to that is asked for each as it is needed.
    ///
    /// # Errors
    /// If the node is away, or one of its proofs does not hold.
    pub fn read_ahead(&self, keys: &BTreeMap<Address, BTreeSet<B256>>) -> Result<(), RemoteError> {
        let mut wanted = Vec::new();
        for (address, slots) in keys {
            let partial = self.partial.borrow();
            let lacks_slot = |slot: &B256| lacks(&partial.storage(*address, *slot));
            let slots: Vec<_> = slots.iter().copied().filter(lacks_slot).collect();
            if slots.is_empty() && lacks(&partial.account(*address)) {
                wanted.push((*address, slots));
            } else {
                let parts = slots.chunks(KEYS_AT_ONCE);
                wanted.extend(parts.map(|part| (*address, part.to_vec())));
            }
        }
        let number = self.block.number();
        let keys = |(_, slots): &(Address, Vec<B256>)| slots.len().saturating_add(1);
        let mut rest = &wanted[..];
        while !rest.is_empty() {
            let sums = rest.iter().scan(0_usize, |sum, one| {
                *sum = sum.saturating_add(keys(one));
                Some(*sum)
            });
            let count = sums.take_while(|sum| *sum <= KEYS_AT_ONCE).count().max(1);
            let (part, behind) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            rest = behind;
            match self.block.ask(|node| node.proofs(part, number)) {
                Ok(proofs) => proofs.into_iter().try_for_each(|proof| self.take(proof))?,
                Err(NodeError::Refused { .. } | NodeError::Answer { .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Takes the nodes of a proof, if it holds.
    fn take(&self, proof: AccountProof) -> Result<(), RemoteError> {
        self.block.check(&proof)?;
        let mut names = self.names.borrow_mut();
        names.add_account(proof.address.into());
        let slots = proof.storage_proof.into_iter().map(|slot| {
            names.add_slot(slot.key.into());
            slot.proof
        });
        let all = [proof.account_proof].into_iter().chain(slots);
        let nodes: Vec<_> = all.flat_map(|one| one.into_nodes()).map(Bytes::from).collect();
        self.partial.borrow_mut().add_nodes(&nodes);
        Ok(())
    }

    fn fetch(&self, account: Address, slot: Option<B256>) -> Result<(), RemoteError> {
        let (number, slots) = (self.block.number(), Vec::from_iter(slot));
        let proof = self.block.ask(|node| node.proof(account, &slots, number))?;
        self.take(proof)
    }

    /// Reads, and asks the node for what is not known.
    fn read<T>(
        &self,
        read: impl Fn(&WitnessState) -> Result<T, WitnessStateError>,
    ) -> Result<T, RemoteError> {
        loop {
            let outcome = read(&self.partial.borrow());
            match outcome {
                Ok(value) => return Ok(value),
                Err(error) => self.supply(error)?,
            }
        }
    }

    /// Asks for the trie node whose lack is an error; so it is known afterwards, or this fails.
    fn supply(&self, error: WitnessStateError) -> Result<(), RemoteError> {
        let WitnessStateError::Node { account, slot, source: PartialError::Missing(missing) } =
            &error
        else {
            return Err(error.into());
        };
        let (account, slot, digest) = (*account, *slot, B256::from(missing.digest));
        let key = slot.map_or_else(|| keccak256(account), keccak256);
        if begins(&key, &missing.path) {
            self.fetch(account, slot)?;
            // A proof that holds has all nodes of the path.
            return if self.has(digest) { Ok(()) } else { Err(error.into()) };
        }
        for way in [Way::Known, Way::Witness, Way::Told, Way::Found] {
            self.go(way, account, slot.is_some(), missing)?;
            if self.has(digest) {
                return Ok(());
            }
        }
        let missing = missing.clone().into();
        Err(RemoteError::Alone { account, slot, missing, block: self.next })
    }

    fn has(&self, digest: B256) -> bool {
        self.partial.borrow().has_node(digest)
    }

    /// Tries a way to a trie node; it need not lead there.
    fn go(
        &self,
        way: Way,
        account: Address,
        is_slot: bool,
        missing: &MissingNode,
    ) -> Result<(), RemoteError> {
        let path = &missing.path;
        let hashes = match way {
            Way::Known => HASHES_FIRST,
            Way::Witness => return self.add_witness(),
            Way::Told => {
                self.add_names(account, is_slot, path)?;
                0
            }
            Way::Found => HASHES_MAX,
        };
        let budget = Budget::new(0, hashes, None);
        if is_slot {
            let known = self.names.borrow().slot(path);
            let slot = known.or_else(|| bytes_under(path, &budget).map(B256::from));
            return slot.map_or(Ok(()), |slot| self.fetch(account, Some(slot)));
        }
        let known = self.names.borrow().account(path);
        let address = known.or_else(|| bytes_under(path, &budget).map(Address::from));
        address.map_or(Ok(()), |address| self.fetch(address, None))
    }

    /// Takes the nodes of the witness of the block that is executed, if the node has it. Nothing of
    /// it is believed: each lies under its own digest.
    fn add_witness(&self) -> Result<(), RemoteError> {
        if self.witnessed.replace(Some(self.next)) == Some(self.next) {
            return Ok(());
        }
        let nodes = if_told(self.block.ask(|node| node.witness_nodes(self.next)))?;
        self.partial.borrow_mut().add_nodes(&nodes.unwrap_or_default());
        Ok(())
    }

    /// Asks for names of accounts or slots under these digits; some nodes know them.
    fn add_names(&self, account: Address, is_slot: bool, path: &[u8]) -> Result<(), RemoteError> {
        let (start, number) = (least(path), self.block.number());
        if !is_slot {
            let told = if_told(self.block.ask(|node| node.accounts_from(start, number)))?;
            let mut names = self.names.borrow_mut();
            told.into_iter().flatten().for_each(|address| names.add_account(address));
            return Ok(());
        }
        // The state before the next block's first transaction is that after this one.
        let next = number.saturating_add(1);
        let ask = |node: &Node| -> Result<Vec<B256>, NodeError> {
            match node.header(next)? {
                Some(header) => node.slots_from(account, start, header.hash_slow()),
                None => Ok(Vec::new()),
            }
        };
        let told = if_told(self.block.ask(ask))?;
        let mut names = self.names.borrow_mut();
        told.into_iter().flatten().for_each(|slot| names.add_slot(slot));
        Ok(())
    }
}

/// What a node need not know: `None` where it refuses, or answers something else.
fn if_told<T>(answer: Result<T, NodeError>) -> Result<Option<T>, NodeError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(NodeError::Refused { .. } | NodeError::Answer { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a read failed for want of a node.
const fn lacks<T>(read: &Result<T, WitnessStateError>) -> bool {
    matches!(read, Err(WitnessStateError::Node { source: PartialError::Missing(_), .. }))
}

impl StateRead for RemoteState<'_> {
    type Error = RemoteError;

    fn account(&self, address: Address) -> Result<Option<Account>, RemoteError> {
        let account = self.read(|partial| partial.account(address))?;
        if let Some(account) = &account {
            self.owners.borrow_mut().insert(account.code_hash, address);
        }
        Ok(account)
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, RemoteError> {
        self.read(|partial| partial.storage(address, slot))
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, RemoteError> {
        if hash == EMPTY_CODE_HASH {
            return Ok(Some(Bytes::new()));
        }
        let known = self.made.get(&hash).cloned();
        if let Some(code) =
            known.map_or_else(|| self.read(|partial| partial.code(hash)), |code| Ok(Some(code)))?
        {
            return Ok(Some(code));
        }
        let owner = self.owners.borrow().get(&hash).copied();
        let Some(owner) = owner else { return Ok(None) };
        let code = self.block.code(owner, hash)?;
        self.partial.borrow_mut().add_code(code.clone());
        Ok(Some(code))
    }
}

impl WorldState for RemoteState<'_> {
    fn apply(&mut self, changes: &Changes) -> Result<B256, RemoteError> {
        let slots = |change: &Change| match change {
            Change::Written(change) => change.storage.keys().copied().collect(),
            Change::Deleted => BTreeSet::new(),
        };
        let written = changes.accounts.iter();
        let written = written.map(|(address, change)| (*address, slots(change))).collect();
        self.read_ahead(&written)?;
        let root = loop {
            match self.partial.get_mut().apply(changes) {
                Ok(root) => break root,
                Err(error) => self.supply(error)?,
            }
        };
        for change in changes.accounts.values() {
            if let Change::Written(change) = change
                && let (Some(hash), Some(code)) = (change.code_hash, &change.code)
            {
                self.made.insert(hash, code.clone());
            }
        }
        Ok(root)
    }

    fn layer_count(&self) -> usize {
        self.partial.borrow().layer_count()
    }

    fn undo_to(&mut self, layer_count: usize) -> Result<(), RemoteError> {
        Ok(self.partial.get_mut().undo_to(layer_count)?)
    }

    fn seal(&mut self, block: &SealedBlock<'_>) -> Result<(), RemoteError> {
        self.next = block.number.saturating_add(1);
        Ok(self.partial.get_mut().seal(block)?)
    }

    fn has_storage(&self, address: Address) -> Result<bool, RemoteError> {
        self.read(|partial| partial.has_storage(address))
    }

    fn commit(&mut self) -> Result<(), RemoteError> {
        Ok(self.partial.get_mut().commit()?)
    }
}
