//! The methods, by their names.

use std::time::Instant;

use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U64, U256, hex};
use serde::Serialize;
use serde_json::{Value, json};
use spinney_document::{Asked, SumDocument, WordsDocument};
use spinney_state::sum::SumTree;
use spinney_state::{Account, StateError, StateRead as _, kept_blocks, kept_witness};
use spinney_tree::mpt::proof::{AccountFields, Proof};
use spinney_tree::sum::SumNode;
use spinney_tree::{BlockId, PageStore, TreeId};

use crate::discover;
use crate::error::Fault;
use crate::options::Options;
use crate::params::{BlockRef, Keys, SlotName};
use crate::query::{About, Query, Wants};
use crate::view::{EarlierStates, EarlierWords, Mark, View, WordsAt, code_of};
use crate::witness;

/// What the client is called.
const CLIENT: &str = concat!("spinney/", env!("CARGO_PKG_VERSION"));

/// The block that a state is of: one that the store keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The last commit, whichever block it is of.
    Last,
    Earlier(u64),
}

impl At {
    const fn number(self) -> Option<u64> {
        match self {
            Self::Last => None,
            Self::Earlier(number) => Some(number),
        }
    }
}

/// One who asks a view, and keeps what was opened for him.
pub(crate) struct Session<'a, 'v> {
    view: &'a View<'v>,
    options: &'a Options,
    states: EarlierStates<'a, 'v>,
    words: EarlierWords<'a>,
    /// The blocks kept, once they were asked for.
    blocks: Option<Vec<BlockId>>,
    /// The oldest block that somebody else answers for.
    beyond: Option<BlockId>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AccountAnswer {
    address: Address,
    account_proof: Vec<Bytes>,
    balance: U256,
    code_hash: B256,
    nonce: U64,
    storage_hash: B256,
    storage_proof: Vec<SlotAnswer>,
}

#[derive(Serialize)]
struct SlotAnswer {
    key: String,
    value: U256,
    proof: Vec<Bytes>,
}

#[derive(Serialize)]
struct TreeAnswer {
    tree: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    root: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root_sum: Option<String>,
    block: Option<U64>,
    commit: U64,
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(value).map_err(|error| Fault::Internal(error.to_string()))
}

fn nodes(proof: Proof) -> Vec<Bytes> {
    proof.into_nodes().into_iter().map(Bytes::from).collect()
}

impl<'a, 'v> Session<'a, 'v> {
    pub(crate) fn new(view: &'a View<'v>, options: &'a Options) -> Self {
        // As much as there is for pages, of both together.
        let bytes_max = view.cache_bytes / 2;
        let states = EarlierStates::new(bytes_max, |state| state.memory());
        let words = EarlierWords::new(bytes_max, |words| words.memory());
        Self { view, options, states, words, blocks: None, beyond: None }
    }

    /// One who is told which blocks are kept, oldest first.
    pub(crate) fn with_blocks(mut self, blocks: Vec<BlockId>) -> Self {
        self.blocks = Some(blocks);
        self
    }

    /// Says which block is the oldest that commits answer for which the store keeps.
    pub(crate) const fn goes_back_to(&mut self, block: Option<BlockId>) {
        self.beyond = block;
    }

    /// Answers what is asked, as JSON.
    pub(crate) fn answer(&mut self, query: Query) -> Result<Vec<u8>, Fault> {
        let block = query.block;
        match query.wants {
            Wants::Balance(address) => {
                let account = self.account(address, block)?;
                to_json(&account.map_or(U256::ZERO, |account| account.balance))
            }
            Wants::Nonce(address) => {
                let account = self.account(address, block)?;
                to_json(&U64::from(account.map_or(0, |account| account.nonce)))
            }
            Wants::Code(address) => {
                let account = self.account(address, block)?;
                let hash = account.map_or(KECCAK256_EMPTY, |account| account.code_hash);
                to_json(&self.code(&hash)?)
            }
            Wants::Slot(address, slot) => to_json(&B256::from(self.storage(address, slot, block)?)),
            Wants::AccountProof(address, slots) => {
                to_json(&self.account_proof(address, &slots, block)?)
            }
            Wants::Root(tree) => to_json(&self.root(&tree, block)?),
            Wants::KeysProof(tree, keys) => to_json(&self.keys_proof(&tree, keys, block)?),
            Wants::SumProof(namespace, keys) => to_json(&self.sum_proof(&namespace, &keys)?),
            Wants::Witness => self.witness(block),
            Wants::About(about) => self.about(about),
        }
    }

    /// Answers what is asked of the store or the server.
    fn about(&mut self, about: About) -> Result<Vec<u8>, Fault> {
        match about {
            About::ChainId => to_json(&U64::from(self.chain_id()?)),
            About::NetworkId => to_json(&self.chain_id()?.to_string()),
            About::Client => to_json(&CLIENT),
            About::Head => to_json(&U64::from(self.head()?.number)),
            About::Kept => {
                let (oldest, newest) = (self.oldest()?, self.view.head);
                let number = |block: Option<BlockId>| block.map(|block| block.number);
                to_json(&json!({ "earliest": number(oldest), "latest": number(newest) }))
            }
            About::Trees => to_json(&self.trees()?),
            About::Status => to_json(&self.status()?),
            About::Methods => to_json(&discover::document()),
        }
    }

    pub(crate) fn head_number(&self) -> Option<u64> {
        self.view.head.map(|head| head.number)
    }

    fn chain_id(&self) -> Result<u64, Fault> {
        let unknown =
            || Fault::Unable("the store does not say of which chain it is (--chain-id)".into());
        self.options.chain_id.ok_or_else(unknown)
    }

    fn head(&self) -> Result<BlockId, Fault> {
        let none = || Fault::Unable("the store holds the state of no block".into());
        self.view.head.ok_or_else(none)
    }

    /// The blocks kept, oldest first.
    fn blocks(&mut self) -> Result<&[BlockId], Fault> {
        let blocks = match (self.blocks.take(), self.view.head) {
            (Some(blocks), _) => blocks,
            (None, None) => Vec::new(),
            (None, Some(head)) => kept_blocks(&self.view.store.snapshot()?, head)?,
        };
        Ok(self.blocks.insert(blocks))
    }

    /// The oldest block that is answered for.
    fn oldest(&mut self) -> Result<Option<BlockId>, Fault> {
        let (own, beyond) = (self.blocks()?.first().copied(), self.beyond);
        Ok(own.into_iter().chain(beyond).min_by_key(|block| block.number))
    }

    fn at(&mut self, block: BlockRef) -> Result<At, Fault> {
        let head = match block {
            BlockRef::Latest => return Ok(At::Last),
            BlockRef::Pending => return Err(Fault::no_pending()),
            _ => self.head()?,
        };
        let number = match block {
            BlockRef::Number(number) => number,
            BlockRef::Earliest => self.oldest()?.map_or(head.number, |first| first.number),
            BlockRef::Hash(hash) if hash == head.hash => head.number,
            BlockRef::Hash(hash) => {
                let blocks = self.blocks()?;
                let found = blocks.iter().find(|block| block.hash == hash);
                let oldest = blocks.first().map_or(head.number, |first| first.number);
                found.ok_or_else(|| Fault::not_among(&hash, oldest, head.number))?.number
            }
            _ => self.options.finalized(head.number)?,
        };
        Ok(if number == head.number { At::Last } else { At::Earlier(number) })
    }

    /// The number of a block before the last one, and how many blocks it is behind that; `None` of
    /// the last one.
    pub(crate) fn blocks_behind(&mut self, block: BlockRef) -> Result<Option<(u64, u64)>, Fault> {
        let earlier = self.at(block)?.number().zip(self.head_number());
        Ok(earlier.and_then(|(number, head)| Some((number, head.checked_sub(number)?))))
    }

    fn other(&mut self, tree: TreeId, at: At) -> Result<&(dyn WordsAt + 'a), Fault> {
        let number = at.number();
        let others = &self.view.others;
        let other = others.iter().find(|other| other.id == tree).expect("it is one of the view's");
        Ok(&**self.words.get((tree, number), || other.tree.at(number))?)
    }

    /// The tree that answers where no Merkle Patricia trie is.
    fn main(&mut self, at: At) -> Result<&(dyn WordsAt + 'a), Fault> {
        let none = || Fault::Unable("the store holds no state of Ethereum".into());
        let main = self.view.main().ok_or_else(none)?.id;
        self.other(main, at)
    }

    fn account(&mut self, address: Address, block: BlockRef) -> Result<Option<Account>, Fault> {
        match (&self.view.mpt, self.at(block)?) {
            (Some(state), At::Last) => Ok(state.account(address)?),
            (Some(state), At::Earlier(number)) => {
                Ok(self.states.get(number, || state.at(number))?.account(address)?)
            }
            (None, at) => self.main(at)?.account(&address),
        }
    }

    fn storage(&mut self, address: Address, slot: B256, block: BlockRef) -> Result<U256, Fault> {
        match (&self.view.mpt, self.at(block)?) {
            (Some(state), At::Last) => Ok(state.storage(address, slot)?),
            (Some(state), At::Earlier(number)) => {
                Ok(self.states.get(number, || state.at(number))?.storage(address, slot)?)
            }
            (None, at) => {
                let main = self.main(at)?;
                // Where slots stay when their account goes, they are not its slots any more.
                if main.account(&address)?.is_none() {
                    return Ok(U256::ZERO);
                }
                let word = main.leaf(&main.slot_key(&address, &slot))?;
                Ok(word.map_or(U256::ZERO, U256::from_be_bytes))
            }
        }
    }

    fn code(&self, hash: &B256) -> Result<Bytes, Fault> {
        if *hash == KECCAK256_EMPTY {
            return Ok(Bytes::new());
        }
        let missing = || Fault::Unable(format!("the code of hash {hash} is not stored"));
        code_of(&self.view.store, hash)?.ok_or_else(missing)
    }

    /// The witness of a block, where the store keeps it.
    fn witness(&mut self, block: BlockRef) -> Result<Vec<u8>, Fault> {
        let head = self.head()?;
        let number = self.at(block)?.number().unwrap_or(head.number);
        let blocks = self.blocks()?;
        let oldest = blocks.first().map_or(head.number, |first| first.number);
        let known = blocks.iter().find(|block| block.number == number).map(|block| block.hash);
        if number > head.number {
            let kept = Some((oldest, head.number));
            return Err(StateError::NotKept { block: number, kept }.into());
        }
        if number == 0 {
            return Err(Fault::Unable("the genesis is not executed, and has no witness".into()));
        }
        let kept = kept_witness(&self.view.store.snapshot()?, number)?;
        match kept.filter(|(hash, _)| known.is_none_or(|known| *hash == known)) {
            Some((_, witness)) => witness::to_json(&witness, self.options.limits.answer_bytes),
            None => Err(Fault::Pruned(format!(
                "the witness of block {number} is not kept; --keep-witnesses of spinney follow, or \
                 replay, says of how many blocks it is"
            ))),
        }
    }

    fn account_proof(
        &mut self,
        address: Address,
        names: &[SlotName],
        block: BlockRef,
    ) -> Result<AccountAnswer, Fault> {
        let slots: Vec<B256> = names.iter().map(|name| name.slot).collect();
        let at = self.at(block)?;
        let Some(state) = &self.view.mpt else {
            let hint = "this store has no mpt: spinney_getProof proves what it has";
            return Err(Fault::Unable(hint.into()));
        };
        let (there, proof) = match at {
            At::Last => (state.account(address)?, state.prove(address, &slots)?),
            At::Earlier(number) => {
                let kept = self.states.get(number, || state.at(number))?;
                (kept.account(address)?, kept.prove(address, &slots)?)
            }
        };
        // As geth answers: an account that is there and empty has the hashes of what is empty.
        let fields = if there.is_some() { proof.fields } else { AccountFields::ABSENT_ZERO };
        let storage_proof = proof.storage_proof.into_iter().zip(names).map(|(slot, name)| {
            let key = match name.is_word {
                true => name.slot.to_string(),
                false => format!("{:#x}", U256::from_be_bytes(name.slot.0)),
            };
            SlotAnswer { key, value: U256::from_be_bytes(slot.value), proof: nodes(slot.proof) }
        });
        Ok(AccountAnswer {
            address,
            account_proof: nodes(proof.account_proof),
            balance: U256::from_be_bytes(fields.balance),
            code_hash: fields.code_hash.into(),
            nonce: U64::from(fields.nonce),
            storage_hash: fields.storage_hash.into(),
            storage_proof: storage_proof.collect(),
        })
    }

    /// A tree of the state, by its name.
    fn named(&self, tree: &str) -> Result<Option<TreeId>, Fault> {
        if tree == "mpt" && self.view.mpt.is_some() {
            return Ok(None);
        }
        if let Some(other) = self.view.others.iter().find(|other| other.name == tree) {
            return Ok(Some(other.id));
        }
        let mpt = self.view.mpt.iter().map(|_| "mpt");
        let others = self.view.others.iter().map(|other| &*other.name);
        let held = mpt.chain(others).collect::<Vec<_>>().join(", ");
        let held = if held.is_empty() { "none".into() } else { held };
        Err(Fault::Params(format!("invalid param tree: no {tree:?} is here; those here: {held}")))
    }

    fn root(&mut self, tree: &str, block: BlockRef) -> Result<B256, Fault> {
        let (tree, at) = (self.named(tree)?, self.at(block)?);
        match (tree, &self.view.mpt, at) {
            (Some(tree), _, at) => Ok(self.other(tree, at)?.root()),
            (None, Some(state), At::Earlier(number)) => {
                Ok(self.states.get(number, || state.at(number))?.root())
            }
            (None, state, _) => Ok(state.as_ref().map_or(B256::ZERO, |state| state.root())),
        }
    }

    fn keys_proof(
        &mut self,
        tree: &str,
        keys: Keys,
        block: BlockRef,
    ) -> Result<WordsDocument, Fault> {
        let Some(id) = self.named(tree)? else {
            return Err(Fault::Params("invalid param tree: eth_getProof proves in mpt".into()));
        };
        let at = self.at(block)?;
        let tree = self.other(id, at)?;
        let (account, keys) = match keys {
            Keys::Raw(keys) => (None, keys.into_iter().map(|key| key.to_vec()).collect()),
            Keys::Account { address, slots, chunks } => {
                let asked = Asked { address, slots, chunks };
                let keys = account_keys(tree, &asked)?;
                (Some(asked), keys)
            }
        };
        let mut sorted: Vec<&Vec<u8>> = keys.iter().collect();
        sorted.sort_unstable();
        if keys.is_empty() || sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Fault::Params("invalid param keys: none, or one is given twice".into()));
        }
        let proof = match tree.prove(&keys) {
            Err(StateError::Tree(spinney_tree::TreeError::Refused { source, .. })) => {
                return Err(Fault::Params(format!("invalid param keys: {source}")));
            }
            proof => proof?,
        };
        let value = |key: &Vec<u8>| Ok(tree.leaf(key)?.map(B256::from));
        let values = keys.iter().map(value).collect::<Result<_, Fault>>()?;
        let (root, block) = (tree.root(), tree.block().map(|block| U64::from(block.number)));
        let keys = keys.into_iter().map(Bytes::from).collect();
        let others = self.view.others.iter();
        let name = others.filter(|other| other.id == id).map(|other| other.name.clone()).collect();
        let proof = proof.proof.into();
        Ok(WordsDocument { tree: name, root, block, account, keys, values, proof })
    }

    fn sum_proof(&self, namespace: &str, keys: &[[u8; 32]]) -> Result<Vec<SumDocument>, Fault> {
        let store = &self.view.store;
        let tree = SumTree::open(store, namespace, self.view.cache_bytes)?;
        let missing = || Fault::Unable(format!("no sum tree of namespace {namespace:?} is here"));
        let tree = tree.ok_or_else(missing)?;
        let (root, profile) = (tree.root(), tree.profile());
        let answer = |(key, proven)| SumDocument::new(profile, root, key, &proven);
        Ok(keys.iter().zip(tree.prove(keys)?).map(answer).collect())
    }

    /// All trees, with names or without.
    fn trees(&self) -> Result<Vec<TreeAnswer>, Fault> {
        let mark = Mark::of(&self.view.store.snapshot()?, true)?;
        let mut names = mark.names().to_vec();
        let mut trees = Vec::new();
        for record in mark.records() {
            let (id, record) = record?;
            let named = names.iter().position(|named| named.id == id);
            let namespace = named.map(|place| names.swap_remove(place).name);
            let node = <[u8; 40]>::try_from(&record.root[..]).ok().map(SumNode::from);
            let node = node.filter(|_| record.scheme.tree == 5);
            let root = node.as_ref().map_or(&record.root[..], |node| &node.hash[..]);
            trees.push(TreeAnswer {
                tree: tree_name(record.scheme.to_string()),
                namespace,
                root: Some(hex::encode_prefixed(root)),
                root_sum: node.map(|node| node.sum.to_string()),
                block: record.block.map(|block| U64::from(block.number)),
                commit: U64::from(record.commit),
            });
        }
        // Those that have a name, and no commit yet.
        trees.extend(names.into_iter().map(|named| TreeAnswer {
            tree: named.scheme.to_string(),
            namespace: Some(named.name),
            root: None,
            root_sum: None,
            block: None,
            commit: U64::ZERO,
        }));
        Ok(trees)
    }

    fn status(&mut self) -> Result<Value, Fault> {
        let oldest = self.oldest()?;
        let block = |block: Option<BlockId>| {
            block.map(|block| {
                let hash = B256::from(block.hash);
                json!({ "number": U64::from(block.number), "hash": hash })
            })
        };
        let finalized = self.view.head.and_then(|head| self.options.finalized(head.number).ok());
        Ok(json!({
            "client": CLIENT,
            "chainId": self.options.chain_id.map(U64::from),
            "head": block(self.view.head),
            "oldest": block(oldest),
            "finalized": finalized.map(U64::from),
            "startedSecondsAgo": Instant::now().duration_since(self.options.started).as_secs(),
        }))
    }
}

/// The keys that hold an account, then those of slots and chunks.
fn account_keys(tree: &dyn WordsAt, asked: &Asked) -> Result<Vec<Vec<u8>>, Fault> {
    let account = tree.account(&asked.address)?;
    if account.is_none() && !asked.chunks.is_empty() {
        return Err(Fault::Params("invalid param chunks: the account is not there".into()));
    }
    let code_hash = account.map(|account| account.code_hash).unwrap_or_default();
    let mut keys = tree.account_keys(&asked.address);
    keys.extend(asked.slots.iter().map(|slot| tree.slot_key(&asked.address, slot)));
    let chunk = |chunk: &u32| tree.chunk_key(&asked.address, &code_hash, *chunk);
    keys.extend(asked.chunks.iter().map(chunk));
    Ok(keys)
}

/// As trees are asked for: both tries are `mpt`.
fn tree_name(scheme: String) -> String {
    if scheme.starts_with("mpt") { "mpt".into() } else { scheme }
}
