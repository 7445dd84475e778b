//! What there has to be, kept in memory and computed by the textbooks.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use alloy_primitives::{Address, B256, keccak256};
use spinney_migrate::{AccessList, ListError};
use spinney_state::{Account, Change, Changes};
use spinney_tree::mpt::{account_value, reference, slot_value};
use spinney_tree::pbt::Pbt;
use spinney_tree::sum::{self, Profile, SumNode};
use spinney_tree::ubt::Ubt;
use spinney_tree::{BlockId, HashFunction};

use crate::textbook::{self, Accounts};

pub(crate) const PBT: Pbt = Pbt { hash: HashFunction::Blake3 };
pub(crate) const UBT: Ubt = Ubt { hash: HashFunction::Sha256 };

/// A state: what accounts there are, and the roots that follow.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) accounts: Accounts,
    /// The leaves of a UBT, which depend on all blocks so far.
    pub(crate) ubt: textbook::Ubt,
    mpt_root: OnceCell<B256>,
    pbt_root: OnceCell<B256>,
    ubt_root: OnceCell<B256>,
}

impl Book {
    fn after(&self, changes: &Changes) -> Self {
        let mut book =
            Self { accounts: self.accounts.clone(), ubt: self.ubt.clone(), ..Self::default() };
        book.accounts.apply(changes);
        book.ubt.apply(&textbook::ubt_stem(UBT.hash), changes);
        book
    }

    pub(crate) fn mpt_root(&self) -> B256 {
        *self.mpt_root.get_or_init(|| mpt_root(&self.accounts))
    }

    pub(crate) fn pbt(&self) -> textbook::Pbt {
        textbook::Pbt(self.accounts.clone())
    }

    pub(crate) fn pbt_root(&self) -> B256 {
        *self.pbt_root.get_or_init(|| self.pbt().root(PBT.hash))
    }

    pub(crate) fn ubt_root(&self) -> B256 {
        *self.ubt_root.get_or_init(|| self.ubt.root(UBT.hash))
    }
}

/// The root of the Merkle Patricia trie.
pub(crate) fn mpt_root(accounts: &Accounts) -> B256 {
    let accounts = accounts.0.iter().map(|(address, held)| {
        let Account { nonce, balance, code_hash } = held.account;
        let value = account_value(nonce, &balance.to_be_bytes(), &code_hash.0);
        let slots = held.storage.iter();
        let slots =
            slots.map(|(slot, value)| (keccak256(slot).to_vec(), slot_value(&value.to_be_bytes())));
        (keccak256(address).to_vec(), reference::Account { value, storage: slots.collect() })
    });
    reference::state_root(&accounts.collect()).into()
}

/// A block: what its parts did, and the state after it.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) id: BlockId,
    pub(crate) parent: B256,
    steps: Vec<Changes>,
    all: Changes,
    /// The slots of accounts that were destroyed and made again.
    replaced: BTreeMap<Address, Vec<B256>>,
    /// Whether an access list can say what it did.
    pub(crate) is_said: bool,
    pub(crate) after: Rc<Book>,
}

impl Block {
    pub(crate) fn new(id: BlockId, before: Option<&Self>, steps: Vec<Changes>) -> Self {
        let blank = Book::default();
        let base = before.map_or(&blank, |before| &before.after);
        let (mut all, mut accounts) = (Changes::default(), base.accounts.clone());
        let mut replaced = BTreeMap::new();
        for step in &steps {
            for (address, change) in &step.accounts {
                let went = match change {
                    Change::Deleted => true,
                    Change::Written(change) => change.fresh,
                };
                let slots = || {
                    let held = accounts.0.get(address);
                    held.map(|held| held.storage.keys().copied().collect()).unwrap_or_default()
                };
                if went {
                    replaced.entry(*address).or_insert_with(slots);
                }
            }
            accounts.apply(step);
            all.then(step);
        }
        replaced.retain(|address, _| matches!(all.accounts[address], Change::Written(_)));
        let is_left_empty =
            |address: &Address| accounts.0.get(address).is_some_and(|held| held.account.is_empty());
        let is_said = !all.accounts.keys().any(is_left_empty);
        let after = Rc::new(base.after(&all));
        let parent = before.map_or(B256::ZERO, |before| before.id.hash.into());
        Self { id, parent, steps, all, replaced, is_said, after }
    }

    pub(crate) fn list(&self) -> Result<AccessList, ListError> {
        AccessList::of((1..).zip(&self.steps), &self.all, &self.replaced)
    }
}

/// The blocks of a chain, of which the state of the last one is there.
pub(crate) type Blocks = Vec<Rc<Block>>;

/// A sum tree.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    pub(crate) profile: Profile,
    pub(crate) leaves: sum::reference::Leaves,
    pub(crate) root: SumNode,
}

impl Sums {
    pub(crate) fn new(profile: Profile) -> Self {
        Self { profile, leaves: BTreeMap::new(), root: profile.empty_node(0) }
    }

    /// The tree after a batch.
    pub(crate) fn after(&self, batch: &sum::reference::Leaves) -> Self {
        let mut after = self.clone();
        sum::reference::apply(&mut after.leaves, batch).expect("sums are small");
        after.root = sum::reference::root(self.profile, &after.leaves).expect("sums are small");
        after
    }
}

/// What is durable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durable {
    /// Of the store itself; none before it is made.
    pub(crate) chain: Blocks,
    /// The oldest block whose state is kept.
    pub(crate) oldest: u64,
    pub(crate) sums: BTreeMap<String, Sums>,
    /// The chain of the store that the state was converted into, up to the block where it stands.
    pub(crate) copy: Option<Blocks>,
}

impl Durable {
    pub(crate) fn head(&self) -> Option<&Rc<Block>> {
        self.chain.last()
    }

    /// A block by its number.
    pub(crate) fn block(&self, number: u64) -> &Rc<Block> {
        &self.chain[number as usize]
    }
}
