//! Proofs of accounts and slots, as `eth_getProof` gives them (EIP-1186).

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use spinney_hash::keccak256;

use super::error::ProofError;
use super::keys::Proof;
use super::node::AccountLeaf;
use super::value::{EMPTY_CODE_HASH, EMPTY_ROOT, decode_slot_value};
use crate::error::{Hex, NotProven};

/// An account's fields as an EIP-1186 object gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "EIP-1186 fixes the fields")]
pub struct AccountFields {
    /// Transactions sent, or contracts made.
    pub nonce: u64,
    /// Balance in wei, big-endian.
    pub balance: [u8; 32],
    /// The root of the account's storage.
    pub storage_hash: [u8; 32],
    /// The Keccak-256 digest of its code.
    pub code_hash: [u8; 32],
}

impl AccountFields {
    /// What stands for an account that is not there: an empty one.
    pub const ABSENT: Self =
        Self { nonce: 0, balance: [0; 32], storage_hash: EMPTY_ROOT, code_hash: EMPTY_CODE_HASH };
    /// The other form in use: both hashes are zero.
    pub const ABSENT_ZERO: Self =
        Self { nonce: 0, balance: [0; 32], storage_hash: [0; 32], code_hash: [0; 32] };
}

/// What is claimed of a slot, and the nodes on its path below the account's storage root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotProof {
    /// The slot, big-endian.
    pub key: [u8; 32],
    /// Its value, big-endian; zero where it is absent.
    pub value: [u8; 32],
    /// The nodes, root first.
    pub proof: Proof,
}

/// What is claimed of an account and some of its slots, with proofs: nothing is known of them yet.
///
/// The members are those of the EIP-1186 object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountProof {
    /// The account.
    pub address: [u8; 20],
    /// Its fields; an account that is not there has those of [`AccountFields::ABSENT`], or of
    /// [`AccountFields::ABSENT_ZERO`].
    pub fields: AccountFields,
    /// The nodes on the account's path, root first.
    pub account_proof: Proof,
    /// The slots.
    pub storage_proof: Vec<SlotProof>,
}

/// An account, or its absence, and slots of it that were proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedAccount {
    fields: Option<AccountFields>,
    slots: BTreeMap<[u8; 32], [u8; 32]>,
}

impl VerifiedAccount {
    /// The account, or `None` where the state has none under the address.
    pub const fn account(&self) -> Option<&AccountFields> {
        self.fields.as_ref()
    }

    /// The value of a slot, big-endian; zero where it is absent.
    ///
    /// # Errors
    /// If the proof was not about the slot.
    pub fn slot(&self, key: &[u8; 32]) -> Result<[u8; 32], NotProven> {
        self.slots.get(key).copied().ok_or_else(|| NotProven { key: key.to_vec() })
    }
}

impl AccountProof {
    /// Checks account and slots against a state root.
    ///
    /// ```
    /// use spinney_proof::mpt::EMPTY_ROOT;
    /// use spinney_proof::mpt::{AccountFields, AccountProof, Proof};
    ///
    /// let nobody = AccountProof {
    ///     address: [7; 20],
    ///     fields: AccountFields::ABSENT,
    ///     account_proof: Proof::default(),
    ///     storage_proof: Vec::new(),
    /// };
    /// assert_eq!(nobody.verify(&EMPTY_ROOT)?.account(), None);
    /// assert!(nobody.verify(&[7; 32]).is_err());
    /// # Ok::<_, spinney_proof::mpt::ProofError>(())
    /// ```
    ///
    /// # Errors
    /// If one of the proofs does not hold, or shows something else than is claimed.
    pub fn verify(&self, root: &[u8; 32]) -> Result<VerifiedAccount, ProofError> {
        let key = keccak256(&self.address);
        let fields = account_fields(&self.account_proof, root, &key)?;
        let claims_absence =
            [AccountFields::ABSENT, AccountFields::ABSENT_ZERO].contains(&self.fields);
        if fields.map_or(!claims_absence, |proven| proven != self.fields) {
            let proven = fields.map_or_else(|| "no account".to_owned(), |proven| proven.describe());
            let claimed = self.fields.describe();
            return Err(ProofError::Differs { key: self.address.to_vec(), proven, claimed });
        }
        let storage_root = fields.map_or(EMPTY_ROOT, |fields| fields.storage_hash);
        let slots = self.storage_proof.iter().map(|slot| slot.verify(&storage_root));
        Ok(VerifiedAccount { fields, slots: slots.collect::<Result<_, _>>()? })
    }
}

impl SlotProof {
    fn verify(&self, storage_root: &[u8; 32]) -> Result<([u8; 32], [u8; 32]), ProofError> {
        let value = slot_word(&self.proof, storage_root, &keccak256(&self.key))?;
        if value == self.value {
            return Ok((self.key, value));
        }
        let (proven, claimed) = (describe_word(&value), describe_word(&self.value));
        Err(ProofError::Differs { key: self.key.to_vec(), proven, claimed })
    }
}

/// What a proof shows of an account, by the digest of its address.
pub(crate) fn account_fields(
    proof: &Proof,
    root: &[u8; 32],
    key: &[u8; 32],
) -> Result<Option<AccountFields>, ProofError> {
    let verified = proof.verify(root, &[key])?;
    let last = proof.nodes().len().saturating_sub(1);
    let malformed = |what| ProofError::Malformed { index: last, what };
    let leaf = verified.get(key).ok().flatten().map(AccountLeaf::read);
    Ok(leaf.transpose().map_err(malformed)?.map(AccountFields::from))
}

/// What a proof shows of a slot, by the digest of its number; zero where it is absent.
pub(crate) fn slot_word(
    proof: &Proof,
    storage_root: &[u8; 32],
    key: &[u8; 32],
) -> Result<[u8; 32], ProofError> {
    let verified = proof.verify(storage_root, &[key])?;
    let Some(rlp) = verified.get(key).ok().flatten() else { return Ok([0; 32]) };
    let value = decode_slot_value(rlp).filter(|value| *value != [0; 32]);
    value.ok_or(ProofError::Malformed {
        index: proof.nodes().len().saturating_sub(1),
        what: "a slot's leaf is no number above zero",
    })
}

impl From<AccountLeaf> for AccountFields {
    fn from(leaf: AccountLeaf) -> Self {
        let AccountLeaf { nonce, balance, storage_root, code_hash } = leaf;
        Self { nonce, balance, storage_hash: storage_root, code_hash }
    }
}

impl AccountFields {
    /// The fields of the account whose leaf has this value; `None` if no account's has.
    pub fn of_leaf(value: &[u8]) -> Option<Self> {
        AccountLeaf::read(value).ok().map(Self::from)
    }

    fn describe(&self) -> String {
        let Self { nonce, balance, storage_hash, code_hash } = self;
        format!(
            "nonce {nonce}, balance {}, storage hash 0x{}, code hash 0x{}",
            describe_word(balance),
            Hex(storage_hash),
            Hex(code_hash)
        )
    }
}

/// A number in hex without leading zeros.
fn describe_word(word: &[u8; 32]) -> String {
    let digits = Hex(word).to_string();
    let digits = digits.trim_start_matches('0');
    format!("0x{}", if digits.is_empty() { "0" } else { digits })
}
