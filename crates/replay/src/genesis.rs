//! geth's `genesis.json`.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::{collections::BTreeMap, fmt, io};

use alloy_consensus::{Header, constants::EMPTY_WITHDRAWALS};
use alloy_eip7928::EMPTY_BLOCK_ACCESS_LIST_HASH;
use alloy_eips::{
    eip1559::INITIAL_BASE_FEE,
    eip4844::DATA_GAS_PER_BLOB,
    eip6110::MAINNET_DEPOSIT_CONTRACT_ADDRESS,
    eip7685::EMPTY_REQUESTS_HASH,
    eip7840::{BLOB_BASE_COST, BlobParams},
};
use alloy_primitives::{Address, B64, B256, U256, keccak256};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use spinney_state::{
    AccountChange, Allocation, Change, Changes, SortedAllocation, StateError, root_of,
};

use crate::{
    config::{ChainConfig, Fork, UnknownFork},
    error::BadBlock,
    json::{HexAddress, HexBytes, HexHash, HexWord, Object, Quantity, Quantity64, UniqueMap},
    rules::{EXTRA_DATA_MAX, Head, check_link},
    source::ChainBlock,
    state_file::{AccountsSeed, BySlot, Sink, StateTaker},
};

/// More blobs than any fork will have: keeps the blob arithmetic far from overflow.
const BLOB_COUNT_MAX: u64 = 1 << 20;

/// Why a genesis file was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenesisError {
    /// The blob schedule makes no sense.
    #[error("genesis: blobSchedule.{fork}: {why}")]
    BlobSchedule {
        /// The fork whose entry it is.
        fork: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// It is no JSON, or not of a genesis.
    #[error("genesis: {0}")]
    Json(#[from] serde_json::Error),
    /// Its accounts could not be sorted, or one is given twice.
    #[error("genesis: {0}")]
    State(#[from] StateError),
    /// A value of the configuration or of the header.
    #[error("genesis: {name}: {why}")]
    Value {
        /// Where it stands.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The configuration schedules something that is not implemented.
    #[error("genesis: config.{0} is not supported")]
    Unsupported(String),
}

/// The start of a chain: its rules, its first header and its first state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Genesis {
    /// The rules.
    pub config: ChainConfig,
    /// The header of block 0.
    pub header: Header,
    /// The hash of that header.
    pub hash: B256,
    /// The accounts that block 0 starts with.
    pub alloc: Changes,
}

// Fields: those of the file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GenesisFile<A> {
    config: BTreeMap<String, Box<RawValue>>,
    nonce: Option<Quantity64>,
    timestamp: Option<Quantity64>,
    extra_data: Option<HexBytes>,
    gas_limit: Quantity64,
    difficulty: Quantity,
    #[serde(alias = "mixhash")]
    mix_hash: Option<HexHash>,
    coinbase: Option<HexAddress>,
    number: Option<Quantity64>,
    gas_used: Option<Quantity64>,
    parent_hash: Option<HexHash>,
    base_fee_per_gas: Option<Quantity64>,
    excess_blob_gas: Option<Quantity64>,
    blob_gas_used: Option<Quantity64>,
    slot_number: Option<Quantity64>,
    alloc: A,
}

#[derive(Deserialize)]
struct AllocFile {
    alloc: Alloc,
}

#[derive(Deserialize)]
struct AllocAccount {
    balance: Option<Quantity>,
    nonce: Option<Quantity64>,
    code: Option<HexBytes>,
    storage: Option<UniqueMap<HexWord, HexWord>>,
}

impl Genesis {
    /// Reads geth's `genesis.json`; its accounts are in memory. [`read_sorted`](Self::read_sorted)
    /// has them sorted in bounded memory.
    ///
    /// # Errors
    ///
    /// Names what is wrong, and where; also a fork that is not implemented, if the genesis has it
    /// already.
    pub fn parse(json: &[u8]) -> Result<Self, GenesisError> {
        Self::read(json)
    }

    /// As [`parse`](Self::parse), with memory for its accounts alone. Bytes are asked for one by
    /// one: give a reader that buffers.
    ///
    /// # Errors
    ///
    /// As `parse`; or the input cannot be read.
    pub fn read(input: impl io::Read) -> Result<Self, GenesisError> {
        let Object(file): Object<GenesisFile<Alloc>> = serde_json::from_reader(input)?;
        let (config, header) = file.head()?;
        Ok(Self::new(config, header, file.alloc.0))
    }

    /// As [`read`](Self::read), with its accounts apart, for
    /// [`State::fill`](spinney_state::State::fill): `alloc` is empty. `memory` bounds the bytes of
    /// accounts in memory, of which there may be more than fit.
    ///
    /// ```
    /// use spinney_replay::{Genesis, Replay};
    /// use spinney_state::State;
    /// use spinney_tree::{BlockId, MemoryStore};
    ///
    /// let json = br#"{"config": {"chainId": 7}, "gasLimit": "0x5000", "difficulty": "0x1",
    ///     "alloc": {"0x00000000000000000000000000000000000000aa": {"balance": "16"}}}"#;
    /// let (genesis, accounts) = Genesis::read_sorted(&json[..], 1 << 20)?;
    /// let mut state = State::open(MemoryStore::new(), 1 << 20)?;
    /// state.fill(accounts, BlockId { number: 0, hash: genesis.hash.0 })?;
    /// let replay = Replay::resume(&genesis, state, 0, genesis.hash)?;
    /// assert_eq!(replay.head().hash, Genesis::parse(json)?.hash);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse); or the input cannot be read, or a temporary file fails.
    pub fn read_sorted(
        input: impl io::Read,
        memory: usize,
    ) -> Result<(Self, SortedAllocation), GenesisError> {
        let mut taker = Taker(Allocation::new(memory)?);
        let mut sink = BySlot { taker: &mut taker, refused: None };
        let mut json = serde_json::Deserializer::from_reader(input);
        let read = Streamed { sink: &mut sink }.deserialize(&mut json);
        let read = read.and_then(|rest| json.end().map(|()| rest));
        if let Some(error) = sink.refused() {
            return Err(error.into());
        }
        let Object(file): Object<GenesisFile<Taken>> = serde_json::from_str(&read?)?;
        let (config, header) = file.head()?;
        let accounts = taker.0.sort()?;
        let genesis = Self::of(config, header, accounts.root(), Changes::default());
        Ok((genesis, accounts))
    }

    /// Whether a block may be the first one of this chain: the genesis itself, or the one behind
    /// it.
    ///
    /// # Errors
    ///
    /// It follows something else.
    pub fn check_first(&self, block: &ChainBlock) -> Result<(), Box<BadBlock>> {
        if block.hash == self.hash {
            return Ok(());
        }
        let head = Head::new(self.header.clone(), self.hash, self.header.difficulty);
        check_link(&head, block).map_err(|failure| failure.of(block))
    }

    /// Puts a genesis together: fills in the state root, and the fields that its fork asks for.
    #[expect(clippy::expect_used, reason = "no two addresses have one hash")]
    pub(crate) fn new(config: ChainConfig, header: Header, alloc: Changes) -> Self {
        let root = root_of(&alloc).expect("no two addresses have one hash");
        Self::of(config, header, root, alloc)
    }

    fn of(config: ChainConfig, mut header: Header, state_root: B256, alloc: Changes) -> Self {
        header.state_root = state_root;
        // A timestamp turns a fork on in the genesis too, merged or not.
        let merged = U256::MAX;
        let fork = config.fork(0, header.timestamp, merged);
        if config.london_block == Some(0) {
            header.base_fee_per_gas.get_or_insert(INITIAL_BASE_FEE);
        }
        if fork >= Fork::Shanghai {
            header.withdrawals_root = Some(EMPTY_WITHDRAWALS);
        }
        if fork >= Fork::Cancun {
            header.parent_beacon_block_root = Some(B256::ZERO);
            header.excess_blob_gas.get_or_insert(0);
            header.blob_gas_used.get_or_insert(0);
        }
        if fork >= Fork::Prague {
            header.requests_hash = Some(EMPTY_REQUESTS_HASH);
        }
        if fork >= Fork::Amsterdam {
            header.slot_number.get_or_insert(0);
            header.block_access_list_hash = Some(EMPTY_BLOCK_ACCESS_LIST_HASH);
        }
        let hash = header.hash_slow();
        Self { config, header, hash, alloc }
    }
}

/// Reads the accounts of a genesis alone, from geth's `genesis.json` or from `{"alloc": {...}}`.
///
/// # Errors
///
/// The JSON is malformed, or an address or a slot is there twice.
pub fn parse_alloc(json: &[u8]) -> Result<Changes, GenesisError> {
    let Object(file): Object<AllocFile> = serde_json::from_slice(json)?;
    Ok(file.alloc.0)
}

impl<A> GenesisFile<A> {
    /// All but the accounts.
    fn head(&self) -> Result<(ChainConfig, Header), GenesisError> {
        let config = ConfigReader(&self.config).config()?;
        if let Some(fork) = config.unknown_fork(0, self.timestamp.map_or(0, |time| time.0)) {
            return Err(GenesisError::Unsupported(fork.name.clone()));
        }
        Ok((config, header(self)?))
    }
}

/// Where the accounts of a genesis go.
struct Taker(Allocation);

impl StateTaker for Taker {
    type Error = StateError;

    fn slot(&mut self, address: Address, slot: B256, value: U256) -> Result<(), StateError> {
        self.0.slot(address, slot, value)
    }

    fn account(&mut self, address: Address, mut change: AccountChange) -> Result<(), StateError> {
        // A genesis gives code, and no hashes of any.
        change.code_hash = change.code_hash.filter(|_| change.code.is_some());
        self.0.account(address, &change)
    }
}

/// Accounts that were taken already.
struct Taken;

impl<'de> Deserialize<'de> for Taken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <()>::deserialize(deserializer).map(|()| Self)
    }
}

/// A genesis whose accounts go elsewhere as they are read; the rest is JSON again, with null in
/// their place.
struct Streamed<'s, S> {
    sink: &'s mut S,
}

impl<'de, S: Sink> DeserializeSeed<'de> for Streamed<'_, S> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Streamed<'_, S> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = match &name[..] {
                "alloc" => {
                    map.next_value_seed(AccountsSeed { sink: &mut *self.sink })?;
                    "null".into()
                }
                _ => map.next_value::<Box<RawValue>>()?.get().to_owned(),
            };
            let name = serde_json::to_string(&name).map_err(A::Error::custom)?;
            fields.push(format!("{name}:{value}"));
        }
        Ok(format!("{{{}}}", fields.join(",")))
    }
}

/// Accounts, as changes that make them; each is turned into one as it is read.
struct Alloc(Changes);

impl<'de> Deserialize<'de> for Alloc {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Accounts;
        impl<'de> Visitor<'de> for Accounts {
            type Value = Alloc;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Alloc, A::Error> {
                let mut changes = Changes::default();
                while let Some((address, account)) = map.next_entry::<HexAddress, _>()? {
                    let Object(account): Object<AllocAccount> = account;
                    let change = Change::Written(account.into_change());
                    if changes.accounts.insert(address.0, change).is_some() {
                        return Err(A::Error::custom(format_args!("{address:?} is given twice")));
                    }
                }
                Ok(Alloc(changes))
            }
        }
        deserializer.deserialize_map(Accounts)
    }
}

impl AllocAccount {
    fn into_change(self) -> AccountChange {
        let code = self.code.map(|code| code.0).filter(|code| !code.is_empty());
        let storage = self.storage.unwrap_or_default().0.into_iter();
        AccountChange {
            fresh: false,
            nonce: Some(self.nonce.map_or(0, |nonce| nonce.0)),
            balance: Some(self.balance.map_or(U256::ZERO, |balance| balance.0)),
            code_hash: code.as_ref().map(keccak256),
            code,
            storage: storage
                .map(|(slot, value)| (slot.0, U256::from_be_bytes(value.0.0)))
                .filter(|(_, value)| !value.is_zero())
                .collect(),
        }
    }
}

fn header<A>(file: &GenesisFile<A>) -> Result<Header, GenesisError> {
    let extra_data = file.extra_data.clone().unwrap_or_default().0;
    if extra_data.len() > EXTRA_DATA_MAX {
        return Err(GenesisError::Value {
            name: "extraData".into(),
            why: format!("expected at most {EXTRA_DATA_MAX} bytes, got {}", extra_data.len()),
        });
    }
    if let Some(Quantity64(number)) = file.number
        && number != 0
    {
        return Err(GenesisError::Value {
            name: "number".into(),
            why: format!("expected 0, got {number}"),
        });
    }
    // Above what any block may have; and far from where the arithmetic ends.
    let blob_gas = [("excessBlobGas", file.excess_blob_gas), ("blobGasUsed", file.blob_gas_used)];
    for (name, gas) in blob_gas {
        if let Some(Quantity64(got)) = gas
            && got > BLOB_COUNT_MAX * DATA_GAS_PER_BLOB
        {
            let why = format!("{got} is absurd");
            return Err(GenesisError::Value { name: name.into(), why });
        }
    }
    Ok(Header {
        parent_hash: file.parent_hash.unwrap_or_default().0,
        beneficiary: file.coinbase.map(|coinbase| coinbase.0).unwrap_or_default(),
        difficulty: file.difficulty.0,
        gas_limit: file.gas_limit.0,
        gas_used: file.gas_used.map_or(0, |gas| gas.0),
        timestamp: file.timestamp.map_or(0, |timestamp| timestamp.0),
        extra_data,
        mix_hash: file.mix_hash.unwrap_or_default().0,
        nonce: B64::from(file.nonce.map_or(0, |nonce| nonce.0).to_be_bytes()),
        base_fee_per_gas: file.base_fee_per_gas.map(|fee| fee.0),
        excess_blob_gas: file.excess_blob_gas.map(|gas| gas.0),
        blob_gas_used: file.blob_gas_used.map(|gas| gas.0),
        slot_number: file.slot_number.map(|slot| slot.0),
        ..Header::default()
    })
}

/// Reads `config`. Raw values, because a terminal total difficulty is a number that JSON readers
/// round.
struct ConfigReader<'a>(&'a BTreeMap<String, Box<RawValue>>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlobEntry {
    target: u64,
    max: u64,
    base_fee_update_fraction: u64,
}

const BLOCK_FORKS: [&str; 15] = [
    "homesteadBlock",
    "daoForkBlock",
    "eip150Block",
    "eip155Block",
    "eip158Block",
    "byzantiumBlock",
    "constantinopleBlock",
    "petersburgBlock",
    "istanbulBlock",
    "muirGlacierBlock",
    "berlinBlock",
    "londonBlock",
    "arrowGlacierBlock",
    "grayGlacierBlock",
    "mergeNetsplitBlock",
];
const TIME_FORKS: [&str; 5] =
    ["shanghaiTime", "cancunTime", "pragueTime", "osakaTime", "amsterdamTime"];
const BLOB_FORKS: [(&str, &str); 5] = [
    ("bpo1", "bpo1Time"),
    ("bpo2", "bpo2Time"),
    ("bpo3", "bpo3Time"),
    ("bpo4", "bpo4Time"),
    ("bpo5", "bpo5Time"),
];

impl ConfigReader<'_> {
    fn config(&self) -> Result<ChainConfig, GenesisError> {
        if self.raw("clique").is_some() {
            return Err(GenesisError::Unsupported("clique".into()));
        }
        let eip155_block = self.number("eip155Block")?;
        let eip158_block = self.number("eip158Block")?;
        if eip155_block != eip158_block {
            return Err(GenesisError::Unsupported("eip155Block apart from eip158Block".into()));
        }
        let takes_dao_fork = match self.raw("daoForkSupport") {
            Some(raw) => parse::<bool>("daoForkSupport", raw)?,
            None => false,
        };
        let deposit_contract = match self.raw("depositContractAddress") {
            Some(raw) => parse::<HexAddress>("depositContractAddress", raw)?.0,
            None => MAINNET_DEPOSIT_CONTRACT_ADDRESS,
        };
        let chain_id = self.number("chainId")?.ok_or_else(|| GenesisError::Value {
            name: "config.chainId".into(),
            why: "is missing".into(),
        })?;
        let config = ChainConfig {
            chain_id,
            homestead_block: self.number("homesteadBlock")?,
            dao_fork_block: self.number("daoForkBlock")?.filter(|_| takes_dao_fork),
            eip150_block: self.number("eip150Block")?,
            eip158_block,
            byzantium_block: self.number("byzantiumBlock")?,
            constantinople_block: self.number("constantinopleBlock")?,
            petersburg_block: self.number("petersburgBlock")?,
            istanbul_block: self.number("istanbulBlock")?,
            muir_glacier_block: self.number("muirGlacierBlock")?,
            berlin_block: self.number("berlinBlock")?,
            london_block: self.number("londonBlock")?,
            arrow_glacier_block: self.number("arrowGlacierBlock")?,
            gray_glacier_block: self.number("grayGlacierBlock")?,
            merge_netsplit_block: self.number("mergeNetsplitBlock")?,
            terminal_total_difficulty: self.quantity("terminalTotalDifficulty")?,
            shanghai_time: self.number("shanghaiTime")?,
            cancun_time: self.number("cancunTime")?,
            prague_time: self.number("pragueTime")?,
            osaka_time: self.number("osakaTime")?,
            amsterdam_time: self.number("amsterdamTime")?,
            unknown_forks: self.unknown_forks()?,
            deposit_contract,
            blob_schedule: self.blob_schedule()?,
        };
        Ok(config)
    }

    /// Forks that are not known here: their blocks would be replayed by the wrong rules.
    fn unknown_forks(&self) -> Result<Vec<UnknownFork>, GenesisError> {
        let known = |name: &str| {
            BLOCK_FORKS.contains(&name)
                || TIME_FORKS.contains(&name)
                || BLOB_FORKS.iter().any(|(_, time)| *time == name)
        };
        let mut unknown = Vec::new();
        for name in self.0.keys() {
            let is_fork = name.ends_with("Block") || name.ends_with("Time");
            if is_fork && !known(name) {
                let first = self.number(name)?;
                unknown.extend(first.map(|first| UnknownFork::new(name.clone(), first)));
            }
        }
        Ok(unknown)
    }

    fn blob_schedule(&self) -> Result<Vec<(u64, BlobParams)>, GenesisError> {
        let entries: BTreeMap<String, BlobEntry> = match self.raw("blobSchedule") {
            Some(raw) => parse("blobSchedule", raw)?,
            None => BTreeMap::new(),
        };
        let mut schedule: Vec<(u64, BlobParams)> = Vec::new();
        let forks = [("cancun", "cancunTime"), ("prague", "pragueTime"), ("osaka", "osakaTime")];
        let osaka_time = self.number("osakaTime")?;
        for (fork, time) in forks.into_iter().chain(BLOB_FORKS) {
            let Some(time) = self.number(time)? else { continue };
            let params = match (entries.get(fork), fork, schedule.last()) {
                (Some(entry), _, _) => entry.params(fork)?,
                (None, "cancun", _) => BlobParams::cancun(),
                (None, "prague", _) => BlobParams::prague(),
                (None, _, Some((_, before))) => *before,
                // Osaka and later name only what they change.
                (None, _, None) => BlobParams::prague(),
            };
            let is_osaka = osaka_time.is_some_and(|osaka| osaka <= time);
            let params = if is_osaka {
                params
                    .with_max_blobs_per_tx(BlobParams::osaka().max_blobs_per_tx)
                    .with_blob_base_cost(BLOB_BASE_COST)
            } else {
                params.with_max_blobs_per_tx(params.max_blob_count)
            };
            // Of forks that begin together the last one holds.
            schedule.pop_if(|(before, _)| *before == time);
            schedule.push((time, params));
        }
        if !schedule.is_sorted_by_key(|(time, _)| *time) {
            return Err(GenesisError::BlobSchedule {
                fork: "*".into(),
                why: "forks are out of order",
            });
        }
        Ok(schedule)
    }

    fn raw(&self, name: &str) -> Option<&RawValue> {
        self.0.get(name).map(|raw| &**raw).filter(|raw| raw.get() != "null")
    }

    fn number(&self, name: &str) -> Result<Option<u64>, GenesisError> {
        let Some(value) = self.quantity(name)? else { return Ok(None) };
        u64::try_from(value).map(Some).map_err(|_| GenesisError::Value {
            name: format!("config.{name}"),
            why: format!("{value} does not fit into 64 bits"),
        })
    }

    fn quantity(&self, name: &str) -> Result<Option<U256>, GenesisError> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        Quantity::parse(raw.get().trim_matches('"')).map(|value| Some(value.0)).map_err(|why| {
            GenesisError::Value {
                name: format!("config.{name}"),
                why: format!("{why}: {:.80}", raw.get()),
            }
        })
    }
}

impl BlobEntry {
    fn params(&self, fork: &str) -> Result<BlobParams, GenesisError> {
        let refuse = |why| Err(GenesisError::BlobSchedule { fork: fork.into(), why });
        if self.base_fee_update_fraction == 0 {
            return refuse("baseFeeUpdateFraction is zero");
        }
        if self.max == 0 || self.max > BLOB_COUNT_MAX {
            return refuse("max is zero or absurd");
        }
        if self.target > self.max {
            return refuse("target is above max");
        }
        Ok(BlobParams {
            target_blob_count: self.target,
            max_blob_count: self.max,
            update_fraction: self.base_fee_update_fraction.into(),
            ..BlobParams::cancun()
        })
    }
}

fn parse<'a, T: Deserialize<'a>>(name: &str, raw: &'a RawValue) -> Result<T, GenesisError> {
    serde_json::from_str(raw.get()).map_err(|error| GenesisError::Value {
        name: format!("config.{name}"),
        why: error.to_string(),
    })
}
