//! Accounts and slots in the binary trees and in the Verkle tree: what `spinney_getProof` answers.
//!
//! The keys are computed here, of the address and the slots that were asked for: an answer about
//! other keys shows nothing of them.

use spinney_ipa::Crs;
use spinney_proof::binary::{BinaryRules, KeysProof, Pbt, Ubt, Word};
use spinney_proof::embed::verkle::AccountKeys;
use spinney_proof::embed::{self, Header, Odd};
use spinney_proof::verkle;

use crate::question::{Fixed, HexBytes, Number, Question, same};
use crate::refused::Refused;
use crate::shown::{Shown, ShownPath};

#[derive(serde::Deserialize)]
struct WordsAnswer {
    tree: String,
    root: Fixed<32>,
    address: Fixed<20>,
    #[serde(default)]
    slots: Vec<Number>,
    keys: Vec<HexBytes>,
    values: Vec<Option<Fixed<32>>>,
    proof: HexBytes,
}

/// The keys of an account's header, then those of its slots.
struct Keys {
    header: Vec<Vec<u8>>,
    slots: Vec<Vec<u8>>,
}

/// How accounts lie in a binary tree.
pub(crate) trait Embedded: BinaryRules {
    /// The keys of the account and the slots that are asked for.
    fn header_keys(&self, address: &[u8; 20]) -> Vec<Vec<u8>>;

    /// The key of a slot.
    fn slot_key(&self, address: &[u8; 20], slot: &Word) -> Vec<u8>;

    /// The account whose leaves are these.
    fn read(leaves: &[Option<Word>]) -> Result<Option<Header>, Odd>;
}

impl Embedded for Ubt {
    fn header_keys(&self, address: &[u8; 20]) -> Vec<Vec<u8>> {
        let stem = embed::ubt::header(self.hash, address);
        let places = [embed::ubt::BASIC_DATA, embed::ubt::CODE_HASH];
        places.map(|place| embed::ubt::key(stem, place).to_vec()).into()
    }

    fn slot_key(&self, address: &[u8; 20], slot: &Word) -> Vec<u8> {
        embed::ubt::slot_key(self.hash, address, slot).to_vec()
    }

    fn read(leaves: &[Option<Word>]) -> Result<Option<Header>, Odd> {
        embed::ubt::read_header(leaves)
    }
}

impl Embedded for Pbt {
    fn header_keys(&self, address: &[u8; 20]) -> Vec<Vec<u8>> {
        let places = [embed::pbt::BASIC_DATA, embed::pbt::CODE_HASH, embed::pbt::DELEGATION];
        places.map(|place| embed::pbt::header_key(self.hash, address, place).to_vec()).into()
    }

    fn slot_key(&self, address: &[u8; 20], slot: &Word) -> Vec<u8> {
        embed::pbt::slot_key(self.hash, address, slot)
    }

    fn read(leaves: &[Option<Word>]) -> Result<Option<Header>, Odd> {
        embed::pbt::read_header(leaves)
    }
}

impl Keys {
    fn all(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.header.iter().chain(&self.slots)
    }

    /// The keys whose paths are shown: the first of the header, and those of slots.
    fn drawn(&self) -> impl Iterator<Item = (&'static str, &Vec<u8>)> {
        let header = self.header.iter().take(1).map(|key| ("account", key));
        header.chain(self.slots.iter().map(|key| ("slot", key)))
    }
}

/// What was sent, if it is about these keys and no others.
fn sent(question: &Question, keys: &Keys) -> Result<KeysProof, Refused> {
    let answer: WordsAnswer = question.answer()?;
    question.is_of(&answer.tree, answer.root)?;
    same("address", question.address()?, answer.address)?;
    if question.slots != answer.slots {
        return Err(Refused::Slots);
    }
    let (given, values) = (answer.keys.len(), answer.values.len());
    if given != values {
        return Err(Refused::Values { keys: given, values });
    }
    if !keys.all().eq(answer.keys.iter().map(|HexBytes(key)| key)) {
        return Err(Refused::Keys { address: question.address()?.to_string() });
    }
    let values = answer.values.into_iter().map(|value| value.map(|Fixed(word)| word));
    let keys = answer.keys.into_iter().map(|HexBytes(key)| key);
    let HexBytes(proof) = answer.proof;
    Ok(KeysProof { entries: keys.zip(values).collect(), proof })
}

/// What the values of a proof that holds say.
fn shown(
    sent: &KeysProof,
    keys: &Keys,
    read: impl Fn(&[Option<Word>]) -> Result<Option<Header>, Odd>,
) -> Result<Shown, Refused> {
    let values: Vec<Option<Word>> = sent.entries.iter().map(|(_, value)| *value).collect();
    let (header, slots) = values.split_at_checked(keys.header.len()).unwrap_or_default();
    Ok(Shown {
        account: read(header)?.map(Into::into),
        slots: slots.iter().map(|value| value.as_ref().map(crate::shown::quantity)).collect(),
        bytes: sent.proof.len(),
        ..Shown::default()
    })
}

/// Checks an account and its slots in a binary tree.
pub(crate) fn check_binary<T: Embedded>(tree: &T, question: &Question) -> Result<Shown, Refused> {
    let Fixed(address) = question.address()?;
    let slots = question.slots.iter().map(|slot| tree.slot_key(&address, &slot.0)).collect();
    let keys = Keys { header: tree.header_keys(&address), slots };
    let sent = sent(question, &keys)?;
    let root = &question.root.0;
    let _ = sent.verify(tree, root)?;
    let mut shown = shown(&sent, &keys, T::read)?;
    shown.digit_bits = 1;
    for (of, key) in keys.drawn() {
        shown.paths.push(ShownPath::new(of, key, sent.path(tree, root, key)?));
    }
    Ok(shown)
}

/// Checks an account and its slots in a Verkle tree.
pub(crate) fn check_verkle(question: &Question) -> Result<Shown, Refused> {
    let crs = Crs::new();
    let Fixed(address) = question.address()?;
    let account = AccountKeys::new(&crs, &address);
    let stem = account.stem(&crs, &[0; 32]);
    let places = [embed::ubt::BASIC_DATA, embed::ubt::CODE_HASH];
    let slot_key = |slot: &Word| embed::verkle::slot_key(&crs, &account, slot).to_vec();
    let keys = Keys {
        header: places.map(|place| embed::ubt::key(stem, place).to_vec()).into(),
        slots: question.slots.iter().map(|slot| slot_key(&slot.0)).collect(),
    };
    let sent = sent(question, &keys)?;
    let entries = sent.entries.iter();
    let words = entries.filter_map(|(key, value)| Some((*key.first_chunk::<32>()?, *value)));
    let diff = verkle::StateDiff::of(words);
    let proof = verkle::Proof::from_bytes(&sent.proof)?;
    let verified = proof.verify(&crs, &question.root.0, &diff)?;
    let mut shown = shown(&sent, &keys, embed::ubt::read_header)?;
    shown.digit_bits = 8;
    shown.unsure = !proof.unsure_stems(&diff).is_empty();
    for (of, key) in keys.drawn() {
        let steps = key.first_chunk().map(|word| verified.path(word)).unwrap_or_default();
        shown.paths.push(ShownPath::new(of, key, steps));
    }
    Ok(shown)
}
