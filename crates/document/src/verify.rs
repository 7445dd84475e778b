//! What claims of one state show.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_primitives::{Address, B256, Bytes};
use spinney_state::TreeName;
use spinney_state::embed::{Embedding, Word};
use spinney_tree::KeyProofs;
use spinney_tree::binary::proof::VerifiedKeys;
use spinney_tree::mpt::proof::{AccountProof, Proof, ProofError};
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::verkle::proof::{Proof as VerkleProof, StateDiff};

use crate::asked::Asked;
use crate::fact::Fact;
use crate::read::{Claim, WitnessClaim, WordsClaim};
use crate::refuted::Refuted;

impl Claim {
    /// Checks it under a root of a tree, and answers with what it shows.
    ///
    /// # Errors
    /// If it does not hold, or is of another kind of tree.
    pub fn verify(&self, root: &B256, tree: TreeName) -> Result<Vec<Fact>, Refuted> {
        match (self, tree) {
            (Self::Keys { entries, preimages, proof }, TreeName::Mpt) => {
                Ok(show_keys(root, entries, preimages.as_deref(), proof)?)
            }
            (Self::Account(proof), TreeName::Mpt) => show_account(root, proof),
            (Self::Words(claim), TreeName::Ubt(hash)) => claim.verify_in(root, &Ubt { hash }),
            (Self::Words(claim), TreeName::Pbt(hash)) => claim.verify_in(root, &Pbt { hash }),
            (Self::Words(claim), TreeName::Verkle) => {
                claim.verify_in(root, &Verkle::without_table())
            }
            (Self::Witness(claim), _) => claim.verify(root),
            _ => Err(Refuted::OtherKind(tree)),
        }
    }

    /// The stems of a Verkle tree that are said to be absent, and whose absence no proof can show.
    pub fn unsure_stems(&self, tree: TreeName) -> Vec<Bytes> {
        let stems = match self {
            Self::Witness(claim) => claim.proof.unsure_stems(&claim.diff),
            Self::Words(claim) if tree == TreeName::Verkle => {
                let key =
                    |(key, value): &(Vec<u8>, Option<Word>)| Some((*key.first_chunk()?, *value));
                let diff = StateDiff::of(claim.proof.entries.iter().filter_map(key));
                VerkleProof::from_bytes(&claim.proof.proof)
                    .map_or_else(|_| Vec::new(), |proof| proof.unsure_stems(&diff))
            }
            _ => Vec::new(),
        };
        stems.into_iter().map(|stem| Bytes::copy_from_slice(&stem)).collect()
    }
}

#[expect(clippy::expect_used, reason = "what was verified for these keys has them all")]
fn show_keys(
    root: &B256,
    entries: &[(Bytes, Option<Bytes>)],
    preimages: Option<&[Bytes]>,
    proof: &Proof,
) -> Result<Vec<Fact>, ProofError> {
    let keys: Vec<_> = entries.iter().map(|(key, _)| key).collect();
    let verified = proof.verify(&root.0, &keys)?;
    let describe = |value: Option<&[u8]>| match value {
        Some(value) => Bytes::copy_from_slice(value).to_string(),
        None => "nothing".to_owned(),
    };
    let preimages = preimages.unwrap_or_default().iter().map(Some);
    let preimages = preimages.chain(std::iter::repeat(None));
    let fact = |((key, claimed), preimage): (&(Bytes, Option<Bytes>), Option<&Bytes>)| {
        let proven = verified.get(key).expect("it was verified for all of the keys");
        let claimed = claimed.as_ref().map(|value| &value[..]);
        if proven != claimed {
            let [proven, claimed] = [proven, claimed].map(describe);
            return Err(ProofError::Differs { key: key.to_vec(), proven, claimed });
        }
        let value = proven.map(Bytes::copy_from_slice);
        Ok(Fact::Key { key: key.clone(), preimage: preimage.cloned(), value })
    };
    entries.iter().zip(preimages).map(fact).collect()
}

fn show_account(root: &B256, proof: &AccountProof) -> Result<Vec<Fact>, Refuted> {
    let verified = proof.verify(&root.0)?;
    let (address, account) = (Address::from(proof.address), verified.account());
    let account = account.map(Into::into);
    let mut all = vec![Fact::Account { address, blocks: None, account }];
    for slot in &proof.storage_proof {
        let value = Some(B256::from(verified.slot(&slot.key)?));
        all.push(Fact::Slot { slot: slot.key.into(), blocks: None, value });
    }
    Ok(all)
}

impl WordsClaim {
    fn verify_in<S: Embedding + KeyProofs>(
        &self,
        root: &B256,
        scheme: &S,
    ) -> Result<Vec<Fact>, Refuted> {
        let verified = scheme.verify_keys(&root.0, &self.proof)?;
        let Some(asked) = &self.account else {
            let shown = |(key, value): (&[u8], Option<&Word>)| word_of(key, value);
            return Ok(verified.iter().map(shown).collect());
        };
        let claimed: Vec<_> = self.proof.entries.iter().map(|(key, _)| key.clone()).collect();
        let fields = scheme.account_keys(&asked.address);
        let other = || Refuted::OtherKeys(asked.address);
        let leaves = fields.iter().map(|key| Ok(verified.get(key).map_err(|_| other())?.copied()));
        let leaves: Vec<_> = leaves.collect::<Result<_, Refuted>>()?;
        let account = scheme.read_account(&asked.address, &leaves)?;
        let code_hash = account.map(|(account, _)| account.code_hash).unwrap_or_default();
        let rest = asked.keys_below(scheme, &code_hash);
        let lacks_code = account.is_none() && !asked.chunks.is_empty();
        if claimed != [&fields[..], &rest].concat() || lacks_code {
            return Err(other());
        }
        let (address, account) = (asked.address, account.map(Into::into));
        let mut all = vec![Fact::Account { address, blocks: None, account }];
        all.extend(below(asked, &rest, &verified)?);
        Ok(all)
    }
}

/// A key of a tree of words, and what it has there.
fn word_of(key: &[u8], value: Option<&Word>) -> Fact {
    let (key, value) = (Bytes::copy_from_slice(key), value.copied().map(B256::from));
    Fact::Word { key, blocks: None, value, becomes: None }
}

/// What is shown of slots and chunks, whose keys are given in order.
fn below(asked: &Asked, keys: &[Vec<u8>], verified: &VerifiedKeys) -> Result<Vec<Fact>, Refuted> {
    let value = |key: &Vec<u8>| -> Result<Option<B256>, Refuted> {
        Ok(verified.get(key)?.copied().map(B256::from))
    };
    let mut keys = keys.iter();
    let mut all = Vec::new();
    for (slot, key) in asked.slots.iter().zip(keys.by_ref()) {
        all.push(Fact::Slot { slot: *slot, blocks: None, value: value(key)? });
    }
    for (chunk, key) in asked.chunks.iter().zip(keys) {
        all.push(Fact::Chunk { chunk: *chunk, value: value(key)? });
    }
    Ok(all)
}

impl WitnessClaim {
    /// Checks an execution witness, and answers with what it shows, the root after its changes
    /// included.
    fn verify(&self, root: &B256) -> Result<Vec<Fact>, Refuted> {
        let verkle = Verkle::without_table();
        let verified = self.proof.verify(verkle.crs(), &root.0, &self.diff)?;
        let mut all = Vec::new();
        for (key, entry) in self.diff.entries() {
            let becomes = entry.new.map(|new| Some(B256::from(new)));
            let value = entry.current.map(B256::from);
            let key = Bytes::copy_from_slice(&key);
            all.push(Fact::Word { key, blocks: None, value, becomes });
        }
        let root_after = B256::from(verified.post_root(verkle.crs())?);
        all.push(Fact::RootAfter { root_after });
        Ok(all)
    }
}
