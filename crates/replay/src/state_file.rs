//! All accounts of a state in one JSON document: geth's dumps and ours, and genesis allocations.

use std::{cell::RefCell, fmt, io};

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
/// has it, or `{"alloc": {..}}` as a genesis has it. Each account is handed on as it would be created.
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
    let refused = RefCell::new(None);
    let mut take = |address, change| {
        take(address, change).map_err(|error| drop(refused.borrow_mut().replace(error)))
    };
    let mut json = serde_json::Deserializer::from_reader(input);
    let read = Document { take: &mut take }.deserialize(&mut json);
    let read = read.and_then(|file| json.end().map(|()| file));
    if let Some(error) = refused.take() {
        return Err(StateFileError::Taker(error));
    }
    Ok(read?)
}

/// Takes an account; where it does not, the reason lies elsewhere.
type Take<'t> = &'t mut dyn FnMut(Address, AccountChange) -> Result<(), ()>;

struct Document<'t> {
    take: Take<'t>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Block {
    number: Quantity64,
    hash: Option<HexHash>,
}

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = StateFile;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<StateFile, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
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
                    file.account_count = map.next_value_seed(Accounts { take: &mut *self.take })?;
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

struct Accounts<'t> {
    take: Take<'t>,
}

impl<'de> DeserializeSeed<'de> for Accounts<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Accounts<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of accounts by address")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<u64, A::Error> {
        let mut count = 0;
        while let Some(HexAddress(address)) = map.next_key()? {
            let Object(account): Object<Account> = map.next_value()?;
            let change = account.change(address)?;
            (self.take)(address, change).map_err(|()| A::Error::custom("refused"))?;
            count += 1;
        }
        Ok(count)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Account {
    balance: Option<Quantity>,
    nonce: Option<Quantity64>,
    code: Option<HexBytes>,
    code_hash: Option<HexHash>,
    storage: Option<UniqueMap<HexWord, HexWord>>,
}

impl Account {
    fn change<E: serde::de::Error>(self, address: Address) -> Result<AccountChange, E> {
        let code = self.code.map(|code| code.0).filter(|code| !code.is_empty());
        let given = self.code_hash.map(|hash| hash.0);
        let computed = code.as_ref().map(keccak256);
        if let (Some(expected), Some(got)) = (given, computed)
            && expected != got
        {
            let why =
                format_args!("{address}: its code has hash {got}, and codeHash is {expected}");
            return Err(E::custom(why));
        }
        let storage = self.storage.unwrap_or_default().0.into_iter();
        let storage = storage.map(|(slot, value)| (slot.0, U256::from_be_bytes(value.0.0)));
        Ok(AccountChange {
            fresh: false,
            nonce: Some(self.nonce.map_or(0, |nonce| nonce.0)),
            balance: Some(self.balance.map_or(U256::ZERO, |balance| balance.0)),
            code_hash: computed.or(given),
            code,
            storage: storage.filter(|(_, value)| !value.is_zero()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
    use spinney_state::AccountChange;

    use super::{StateFile, StateFileError, read_state_file};

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
