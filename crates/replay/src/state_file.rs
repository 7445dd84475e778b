//! All accounts of a state in one JSON document: geth's dumps and ours, and genesis allocations.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::{collections::BTreeMap, fmt, io};

use alloy_primitives::{Address, B256, U256, keccak256};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor},
};
use spinney_state::AccountChange;

use crate::json::{
    HexAddress, HexBytes, HexHash, HexWord, Object, Quantity, Quantity64, UniqueMap,
};

/// What a document says of the state that it holds, beside its accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateFile {
    /// How many accounts there were.
    pub account_count: u64,
    /// The state root, where it gives one.
    pub root: Option<B256>,
    /// The block, where it names one, and the block's hash.
    pub block: Option<(u64, Option<B256>)>,
}

/// Why a document was refused. `E` is the error of whoever takes the accounts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateFileError<E: std::error::Error + 'static> {
    /// It is no JSON, or not of a state.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// An account could not be taken.
    #[error(transparent)]
    Taker(E),
}

/// Reads a document account by account, with memory for one account: `{"accounts": {..}}` as a dump
/// has it, or `{"alloc": {..}}` as a genesis has it. Each account is handed on as it would be
/// created.
///
/// That an address is not given twice is for the taker to see.
///
/// ```
/// use std::convert::Infallible;
///
/// let file = br#"{"root": "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421",
///                 "accounts": {}}"#;
/// let found = spinney_replay::read_state_file(&file[..], |_, _| Ok::<_, Infallible>(()))?;
/// assert_eq!(found.account_count, 0);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// The document is malformed, or the taker refuses an account. Accounts before it were taken.
pub fn read_state_file<E: std::error::Error + 'static>(
    input: impl io::Read,
    mut take: impl FnMut(Address, AccountChange) -> Result<(), E>,
) -> Result<StateFile, StateFileError<E>> {
    read(input, &mut Whole { take: &mut take, refused: None })
}

/// Whoever takes a state slot by slot: see [`read_state_slots`].
pub trait StateTaker {
    /// Why it takes no more.
    type Error: std::error::Error + 'static;

    /// Takes a slot that is not zero; its account comes later.
    ///
    /// # Errors
    /// Ends the reading.
    fn slot(&mut self, address: Address, slot: B256, value: U256) -> Result<(), Self::Error>;

    /// Takes an account, without its slots.
    ///
    /// # Errors
    /// Ends the reading.
    fn account(&mut self, address: Address, change: AccountChange) -> Result<(), Self::Error>;
}

/// As [`read_state_file`], with memory for one slot, and one account's code: that neither an
/// address nor a slot is given twice is for the taker to see.
///
/// # Errors
///
/// The document is malformed, or the taker refuses. What came before was taken.
pub fn read_state_slots<T: StateTaker>(
    input: impl io::Read,
    taker: &mut T,
) -> Result<StateFile, StateFileError<T::Error>> {
    read(input, &mut BySlot { taker, refused: None })
}

fn read<S: Sink>(
    input: impl io::Read,
    sink: &mut S,
) -> Result<StateFile, StateFileError<S::Error>> {
    let mut json = serde_json::Deserializer::from_reader(input);
    let read = Document { sink: &mut *sink }.deserialize(&mut json);
    let read = read.and_then(|file| json.end().map(|()| file));
    match sink.refused() {
        Some(error) => Err(StateFileError::Taker(error)),
        None => Ok(read?),
    }
}

/// Where accounts go. What refuses them is kept, since the reader has errors of its own.
pub(crate) trait Sink {
    type Error: std::error::Error + 'static;

    /// The storage of an account as it is read, and as its change has it.
    fn storage<'de, A: MapAccess<'de>>(
        &mut self,
        address: Address,
        map: &mut A,
    ) -> Result<BTreeMap<B256, U256>, A::Error>;

    fn account(&mut self, address: Address, change: AccountChange) -> Result<(), ()>;

    fn refused(&mut self) -> Option<Self::Error>;
}

/// Takes accounts with their storage.
struct Whole<'t, E> {
    take: &'t mut dyn FnMut(Address, AccountChange) -> Result<(), E>,
    refused: Option<E>,
}

impl<E: std::error::Error + 'static> Sink for Whole<'_, E> {
    type Error = E;

    fn storage<'de, A: MapAccess<'de>>(
        &mut self,
        _: Address,
        map: &mut A,
    ) -> Result<BTreeMap<B256, U256>, A::Error> {
        let storage = map.next_value::<Option<UniqueMap<HexWord, HexWord>>>()?.unwrap_or_default();
        let slots = storage.0.into_iter().map(|(slot, value)| (slot.0, word(value)));
        Ok(slots.filter(|(_, value)| !value.is_zero()).collect())
    }

    fn account(&mut self, address: Address, change: AccountChange) -> Result<(), ()> {
        (self.take)(address, change).map_err(|error| self.refused = Some(error))
    }

    fn refused(&mut self) -> Option<E> {
        self.refused.take()
    }
}

/// Takes slots one by one.
pub(crate) struct BySlot<'t, T: StateTaker> {
    pub(crate) taker: &'t mut T,
    pub(crate) refused: Option<T::Error>,
}

impl<T: StateTaker> Sink for BySlot<'_, T> {
    type Error = T::Error;

    fn storage<'de, A: MapAccess<'de>>(
        &mut self,
        address: Address,
        map: &mut A,
    ) -> Result<BTreeMap<B256, U256>, A::Error> {
        map.next_value_seed(Slots { sink: self, address })?;
        Ok(BTreeMap::new())
    }

    fn account(&mut self, address: Address, change: AccountChange) -> Result<(), ()> {
        self.taker.account(address, change).map_err(|error| self.refused = Some(error))
    }

    fn refused(&mut self) -> Option<T::Error> {
        self.refused.take()
    }
}

/// The storage of an account, which may be null.
struct Slots<'s, 't, T: StateTaker> {
    sink: &'s mut BySlot<'t, T>,
    address: Address,
}

impl<'de, T: StateTaker> DeserializeSeed<'de> for Slots<'_, '_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, T: StateTaker> Visitor<'de> for Slots<'_, '_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of words by slot")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some((HexWord(slot), value)) = map.next_entry()? {
            let value = word(value);
            if value.is_zero() {
                continue;
            }
            if let Err(error) = self.sink.taker.slot(self.address, slot, value) {
                self.sink.refused = Some(error);
                return Err(A::Error::custom("refused"));
            }
        }
        Ok(())
    }
}

fn word(value: HexWord) -> U256 {
    U256::from_be_bytes(value.0.0)
}

struct Document<'t, S> {
    sink: &'t mut S,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Block {
    number: Quantity64,
    hash: Option<HexHash>,
}

impl<'de, S: Sink> DeserializeSeed<'de> for Document<'_, S> {
    type Value = StateFile;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<StateFile, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Document<'_, S> {
    type Value = StateFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with accounts, or with alloc")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StateFile, A::Error> {
        let mut file = StateFile::default();
        let mut seen = false;
        while let Some(name) = map.next_key::<String>()? {
            match &name[..] {
                "accounts" | "alloc" if seen => {
                    return Err(A::Error::custom("the accounts are given twice"));
                }
                "accounts" | "alloc" => {
                    seen = true;
                    file.account_count =
                        map.next_value_seed(AccountsSeed { sink: &mut *self.sink })?;
                }
                "root" => file.root = Some(map.next_value::<HexHash>()?.0),
                "block" => {
                    let Object(block): Object<Block> = map.next_value()?;
                    file.block = Some((block.number.0, block.hash.map(|hash| hash.0)));
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if seen { Ok(file) } else { Err(A::Error::custom("it has neither accounts nor alloc")) }
    }
}

pub(crate) struct AccountsSeed<'t, S> {
    pub(crate) sink: &'t mut S,
}

impl<'de, S: Sink> DeserializeSeed<'de> for AccountsSeed<'_, S> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for AccountsSeed<'_, S> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of accounts by address")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<u64, A::Error> {
        let mut count = 0;
        while let Some(HexAddress(address)) = map.next_key()? {
            let change = map.next_value_seed(Account { sink: &mut *self.sink, address })?;
            self.sink.account(address, change).map_err(|()| A::Error::custom("refused"))?;
            count = u64::saturating_add(count, 1);
        }
        Ok(count)
    }
}

/// An account, as it would be created.
struct Account<'t, S> {
    sink: &'t mut S,
    address: Address,
}

impl<'de, S: Sink> DeserializeSeed<'de> for Account<'_, S> {
    type Value = AccountChange;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<AccountChange, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Account<'_, S> {
    type Value = AccountChange;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AccountChange, A::Error> {
        let (mut balance, mut nonce, mut code, mut code_hash) = (None, None, None, None);
        let mut storage = None;
        while let Some(name) = map.next_key::<String>()? {
            let name = match &name[..] {
                "balance" if balance.is_none() => {
                    balance = Some(map.next_value::<Option<Quantity>>()?);
                    continue;
                }
                "nonce" if nonce.is_none() => {
                    nonce = Some(map.next_value::<Option<Quantity64>>()?);
                    continue;
                }
                "code" if code.is_none() => {
                    code = Some(map.next_value::<Option<HexBytes>>()?);
                    continue;
                }
                "codeHash" if code_hash.is_none() => {
                    code_hash = Some(map.next_value::<Option<HexHash>>()?);
                    continue;
                }
                "storage" if storage.is_none() => {
                    storage = Some(self.sink.storage(self.address, &mut map)?);
                    continue;
                }
                "balance" | "nonce" | "code" | "codeHash" | "storage" => name,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
        }
        let code = code.flatten().map(|code| code.0).filter(|code| !code.is_empty());
        let given = code_hash.flatten().map(|hash| hash.0);
        let computed = code.as_ref().map(keccak256);
        if let (Some(expected), Some(got)) = (given, computed)
            && expected != got
        {
            let why = format_args!(
                "{}: its code has hash {got}, and codeHash is {expected}",
                self.address
            );
            return Err(A::Error::custom(why));
        }
        Ok(AccountChange {
            fresh: false,
            nonce: Some(nonce.flatten().map_or(0, |nonce| nonce.0)),
            balance: Some(balance.flatten().map_or(U256::ZERO, |balance| balance.0)),
            code_hash: computed.or(given),
            code,
            storage: storage.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
    use spinney_state::AccountChange;

    use super::{StateFile, StateFileError, StateTaker, read_state_file, read_state_slots};

    #[derive(Debug)]
    struct Never;

    impl fmt::Display for Never {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("never")
        }
    }

    impl std::error::Error for Never {}

    type Read = Result<(StateFile, Vec<(Address, AccountChange)>), StateFileError<Never>>;

    fn read(json: &str) -> Read {
        let mut accounts = Vec::new();
        let file = read_state_file(json.as_bytes(), |address, change| {
            accounts.push((address, change));
            Ok(())
        })?;
        Ok((file, accounts))
    }

    #[test]
    fn a_dump_and_an_allocation_are_read_alike() {
        let account = r#"{"balance": "16", "nonce": 2, "root": "0x00", "codeHash":
            "0x5fe7f977e71dba2ea1a68e21057beebb9be2ac30c6410aa38d4f3fbe41dcffd2", "code": "0x01",
            "storage": {"0x01": "2a", "0x02": "0x0"}, "key": "0xab"}"#;
        let dump = format!(
            r#"{{"root": "{:064x}", "block": {{"number": 7, "hash": "0x{:064x}"}},
                "accounts": {{"0x00000000000000000000000000000000000000aa": {account}}}}}"#,
            5, 6
        );
        let (file, accounts) = read(&dump).unwrap();
        assert_eq!(file.root, Some(B256::with_last_byte(5)));
        assert_eq!(file.block, Some((7, Some(B256::with_last_byte(6)))));
        assert_eq!(file.account_count, 1);
        let code = Bytes::from_static(&[1]);
        let expected = AccountChange {
            fresh: false,
            nonce: Some(2),
            balance: Some(U256::from(16)),
            code_hash: Some(keccak256(&code)),
            code: Some(code),
            storage: [(B256::with_last_byte(1), U256::from(42))].into(),
        };
        assert_eq!(accounts, [(Address::with_last_byte(0xaa), expected)]);

        let alloc = r#"{"config": {"a": [1]}, "alloc":
            {"00000000000000000000000000000000000000aa": {"balance": "0x10"}}, "number": "0x0"}"#;
        let (file, accounts) = read(alloc).unwrap();
        assert_eq!((file.root, file.block, file.account_count), (None, None, 1));
        assert_eq!(accounts[0].1.balance, Some(U256::from(16)));
    }

    /// Gathers what is taken slot by slot.
    #[derive(Default)]
    struct Gathered {
        slots: Vec<(Address, B256, U256)>,
        accounts: Vec<(Address, AccountChange)>,
        refuses: bool,
    }

    impl StateTaker for Gathered {
        type Error = Never;

        fn slot(&mut self, address: Address, slot: B256, value: U256) -> Result<(), Never> {
            self.slots.push((address, slot, value));
            if self.refuses { Err(Never) } else { Ok(()) }
        }

        fn account(&mut self, address: Address, change: AccountChange) -> Result<(), Never> {
            self.accounts.push((address, change));
            Ok(())
        }
    }

    #[test]
    fn slots_come_one_by_one_before_their_account() {
        let json = r#"{"alloc": {"00000000000000000000000000000000000000aa":
            {"storage": {"0x01": "2a", "0x02": "0x0", "0x01": "1"}, "balance": "0x10"},
            "00000000000000000000000000000000000000bb": {"storage": null}}}"#;
        let mut taken = Gathered::default();
        let file = read_state_slots(json.as_bytes(), &mut taken).unwrap();
        assert_eq!(file.account_count, 2);
        let (aa, one) = (Address::with_last_byte(0xaa), B256::with_last_byte(1));
        // What is given twice is for the taker to see.
        assert_eq!(taken.slots, [(aa, one, U256::from(42)), (aa, one, U256::ONE)]);
        assert_eq!(taken.accounts.len(), 2);
        assert_eq!(taken.accounts[0].1.balance, Some(U256::from(16)));
        assert!(taken.accounts[0].1.storage.is_empty());

        let mut taken = Gathered { refuses: true, ..Gathered::default() };
        let error = read_state_slots(json.as_bytes(), &mut taken).unwrap_err();
        assert!(matches!(error, StateFileError::Taker(Never)), "{error}");
        assert_eq!(taken.slots.len(), 1);
        assert!(read(json).unwrap_err().to_string().contains("twice"));
        for (field, value) in [("balance", "1"), ("storage", "{}"), ("code", "null")] {
            let account = format!("{{\"{field}\": {value}, \"{field}\": {value}}}");
            let json = format!(
                r#"{{"alloc": {{"00000000000000000000000000000000000000aa": {account}}}}}"#
            );
            let error = read(&json).unwrap_err().to_string();
            assert!(error.contains("duplicate field"), "{error}");
        }
    }

    #[test]
    fn what_is_no_state_is_refused() {
        for (json, what) in [
            ("", "EOF"),
            ("[]", "expected an object"),
            ("{}", "neither accounts nor alloc"),
            (r#"{"accounts": {}, "alloc": {}}"#, "given twice"),
            (r#"{"accounts": {}} {}"#, "trailing"),
            (r#"{"accounts": {"0xab": {}}}"#, "expected 20 bytes in hex"),
            (r#"{"accounts": {"0x00000000000000000000000000000000000000aa": []}}"#, "an object"),
            (
                r#"{"accounts": {"0x00000000000000000000000000000000000000aa":
                    {"code": "0x01", "codeHash": "0x00"}}}"#,
                "expected 32 bytes in hex",
            ),
            (r#"{"accounts": {}, "block": {"number": 1, "parent": 0}}"#, "unknown field"),
        ] {
            let error = read(json).unwrap_err().to_string();
            assert!(error.contains(what), "{json}: {error}");
        }
        let wrong = format!(
            r#"{{"alloc": {{"0x00000000000000000000000000000000000000aa":
                {{"code": "0x01", "codeHash": "0x{:064x}"}}}}}}"#,
            1
        );
        assert!(read(&wrong).unwrap_err().to_string().contains("its code has hash 0x5fe7f977"));
    }

    #[test]
    fn the_takers_error_comes_back() {
        let json = r#"{"alloc": {"0x00000000000000000000000000000000000000aa": {}}}"#;
        let error = read_state_file(json.as_bytes(), |_, _| Err(Never)).unwrap_err();
        assert!(matches!(error, StateFileError::Taker(Never)), "{error}");
    }
}
