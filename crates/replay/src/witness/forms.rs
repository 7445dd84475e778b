//! The forms in which clients write witnesses, read and written.

use std::io::{self, BufRead, Read as _};

use alloy_consensus::Header;
use alloy_primitives::{Address, B64, B256, Bloom, Bytes, U64, U256, hex};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{
    Finding, FindingKind, MadeWitness, Witness,
    ssz::{self, SszError},
};
use crate::source::ChainBlock;

/// A file of SSZ in one piece, or a line: more is refused.
const FILE_LEN_MAX: u64 = 4 << 30;

/// Who is to read a witness that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WitnessForm {
    /// The canonical form of the execution specifications.
    Canonical,
    /// As geth 1.17 answers `debug_executionWitness`: headers as objects, `keys` null, all code
    /// that was read.
    Geth,
    /// As reth answers it: keys in order of accounts, each before its slots, and all code that was
    /// read.
    Reth,
}

impl MadeWitness {
    /// The JSON object of a form, in one line.
    pub fn to_json(&self, form: WitnessForm) -> String {
        let witness = &self.witness;
        let mut codes = witness.codes.clone();
        if form != WitnessForm::Canonical {
            codes.extend(self.other_codes());
            codes.sort_unstable();
        }
        let text = match form {
            WitnessForm::Canonical => serde_json::to_string(witness),
            WitnessForm::Reth => serde_json::to_string(&Witness {
                codes,
                keys: self.keys_by_account(),
                ..witness.clone()
            }),
            WitnessForm::Geth => {
                let headers = witness.headers.iter().filter_map(|rlp| GethHeader::of(rlp));
                let headers = headers.collect();
                serde_json::to_string(&Geth { headers, codes, state: &witness.state, keys: None })
            }
        };
        text.expect("strings and lists are JSON")
    }
}

#[derive(Serialize)]
struct Geth<'a> {
    headers: Vec<GethHeader>,
    codes: Vec<Bytes>,
    state: &'a [Bytes],
    keys: Option<()>,
}

/// A header as geth writes it, with its hash last.
// Fields: those of a header.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct GethHeader {
    parent_hash: B256,
    sha3_uncles: B256,
    miner: Address,
    state_root: B256,
    transactions_root: B256,
    receipts_root: B256,
    logs_bloom: Bloom,
    difficulty: U256,
    number: U64,
    gas_limit: U64,
    gas_used: U64,
    timestamp: U64,
    extra_data: Bytes,
    mix_hash: B256,
    nonce: B64,
    #[serde(default)]
    base_fee_per_gas: Option<U64>,
    #[serde(default)]
    withdrawals_root: Option<B256>,
    #[serde(default)]
    blob_gas_used: Option<U64>,
    #[serde(default)]
    excess_blob_gas: Option<U64>,
    #[serde(default)]
    parent_beacon_block_root: Option<B256>,
    #[serde(default)]
    requests_hash: Option<B256>,
    #[serde(default)]
    block_access_list_hash: Option<B256>,
    #[serde(default)]
    slot_number: Option<U64>,
    #[serde(default)]
    hash: Option<B256>,
}

impl GethHeader {
    fn of(rlp: &[u8]) -> Option<Self> {
        let header: Header = alloy_rlp::decode_exact(rlp).ok()?;
        let quantity = |value: Option<u64>| value.map(U64::from);
        Some(Self {
            parent_hash: header.parent_hash,
            sha3_uncles: header.ommers_hash,
            miner: header.beneficiary,
            state_root: header.state_root,
            transactions_root: header.transactions_root,
            receipts_root: header.receipts_root,
            logs_bloom: header.logs_bloom,
            difficulty: header.difficulty,
            number: U64::from(header.number),
            gas_limit: U64::from(header.gas_limit),
            gas_used: U64::from(header.gas_used),
            timestamp: U64::from(header.timestamp),
            extra_data: header.extra_data.clone(),
            mix_hash: header.mix_hash,
            nonce: header.nonce,
            base_fee_per_gas: quantity(header.base_fee_per_gas),
            withdrawals_root: header.withdrawals_root,
            blob_gas_used: quantity(header.blob_gas_used),
            excess_blob_gas: quantity(header.excess_blob_gas),
            parent_beacon_block_root: header.parent_beacon_block_root,
            requests_hash: header.requests_hash,
            block_access_list_hash: header.block_access_list_hash,
            slot_number: quantity(header.slot_number),
            hash: Some(header.hash_slow()),
        })
    }

    fn to_rlp(&self) -> Bytes {
        let plain = |value: Option<U64>| value.map(|value| value.to::<u64>());
        let header = Header {
            parent_hash: self.parent_hash,
            ommers_hash: self.sha3_uncles,
            beneficiary: self.miner,
            state_root: self.state_root,
            transactions_root: self.transactions_root,
            receipts_root: self.receipts_root,
            withdrawals_root: self.withdrawals_root,
            logs_bloom: self.logs_bloom,
            difficulty: self.difficulty,
            number: self.number.to(),
            gas_limit: self.gas_limit.to(),
            gas_used: self.gas_used.to(),
            timestamp: self.timestamp.to(),
            mix_hash: self.mix_hash,
            nonce: self.nonce,
            base_fee_per_gas: plain(self.base_fee_per_gas),
            blob_gas_used: plain(self.blob_gas_used),
            excess_blob_gas: plain(self.excess_blob_gas),
            parent_beacon_block_root: self.parent_beacon_block_root,
            requests_hash: self.requests_hash,
            block_access_list_hash: self.block_access_list_hash,
            slot_number: plain(self.slot_number),
            extra_data: self.extra_data.clone(),
        };
        alloy_rlp::encode(header).into()
    }
}

/// A witness as somebody wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GivenWitness {
    /// What it holds. Headers that are objects are in RLP here.
    pub witness: Witness,
    /// In what its encoding differs from the canonical one.
    pub findings: Vec<Finding>,
    /// The block, where that comes along.
    pub block: Option<ChainBlock>,
    /// The chain, where that comes along.
    pub chain_id: Option<u64>,
}

/// Why a witness could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WitnessFileError {
    /// The file could not be read.
    #[error("reading witnesses: {0}")]
    Io(#[from] io::Error),
    /// It is JSON, and no witness.
    #[error("witness {index} (from line {line} on): {error}")]
    Json {
        /// Which of the file's witnesses, from 0 on.
        index: usize,
        /// The line where it begins, from 1 on.
        line: usize,
        /// What the parser met.
        error: serde_json::Error,
    },
    /// It is no JSON, and no SSZ.
    #[error("neither JSON nor the SSZ of a guest's input: {0}")]
    Ssz(#[from] SszError),
    /// It is larger than what is read.
    #[error("a witness takes more than {FILE_LEN_MAX} bytes")]
    TooLong,
}

/// Reads the witnesses of a file one by one, with memory for one.
///
/// A file is SSZ, binary or as hex, of one witness; or JSON objects one after another, each a
/// witness, the answer of a JSON-RPC server that holds one, or an object with it under `witness`.
#[derive(Debug)]
pub struct WitnessReader<R> {
    input: R,
    index: usize,
    line: usize,
    ended: bool,
}

impl<R: BufRead> WitnessReader<R> {
    /// Reads from the start of `input`.
    pub const fn new(input: R) -> Self {
        Self { input, index: 0, line: 1, ended: false }
    }

    fn read(&mut self) -> Result<Option<GivenWitness>, WitnessFileError> {
        let first = loop {
            let buffer = self.input.fill_buf()?;
            let Some(first) = buffer.first() else { return Ok(None) };
            if !first.is_ascii_whitespace() {
                break *first;
            }
            self.line += usize::from(*first == b'\n');
            self.input.consume(1);
        };
        if first == b'{' || self.index > 0 { self.json().map(Some) } else { self.ssz().map(Some) }
    }

    /// Reads lines until they are a whole object: most often it is one.
    fn json(&mut self) -> Result<GivenWitness, WitnessFileError> {
        let (start, mut bytes, mut tried) = (self.line, Vec::new(), 0);
        loop {
            let limit = FILE_LEN_MAX.saturating_sub(bytes.len() as u64);
            let read = self.input.by_ref().take(limit).read_until(b'\n', &mut bytes)?;
            self.line += 1;
            if read == 0 && limit == 0 {
                return Err(WitnessFileError::TooLong);
            }
            // An object over many lines is not tried at each of them.
            if read > 0 && tried > 0 && bytes.len() < tried * 2 && !bytes.ends_with(b"}\n") {
                continue;
            }
            match serde_json::from_slice::<Outer<'_>>(&bytes).and_then(Outer::into_given) {
                Ok(given) => {
                    self.index += 1;
                    return Ok(given);
                }
                Err(error) if error.is_eof() && read > 0 => tried = bytes.len(),
                Err(error) => {
                    return Err(WitnessFileError::Json { index: self.index, line: start, error });
                }
            }
        }
    }

    fn ssz(&mut self) -> Result<GivenWitness, WitnessFileError> {
        let mut bytes = Vec::new();
        self.input.by_ref().take(FILE_LEN_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_LEN_MAX {
            return Err(WitnessFileError::TooLong);
        }
        if bytes.starts_with(b"0x") {
            let text = bytes.trim_ascii_end();
            bytes = hex::decode(text).map_err(|_| SszError::Hex)?;
        }
        self.index += 1;
        let (witness, block, chain_id, findings) = ssz::decode(&bytes)?;
        Ok(GivenWitness { witness, findings, block: Some(block), chain_id: Some(chain_id) })
    }
}

impl<R: BufRead> Iterator for WitnessReader<R> {
    type Item = Result<GivenWitness, WitnessFileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.read().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// An object with a witness in it, or itself one.
#[derive(Deserialize)]
struct Outer<'a> {
    #[serde(borrow, default, deserialize_with = "even_null")]
    state: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    codes: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    keys: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    headers: Option<&'a RawValue>,
    #[serde(borrow)]
    witness: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

impl Outer<'_> {
    fn into_given(self) -> serde_json::Result<GivenWitness> {
        match self.witness.or(self.result) {
            // One level: what lies deeper is no witness.
            Some(inner) => serde_json::from_str::<Outer<'_>>(inner.get())?.into_witness(),
            None => self.into_witness(),
        }
    }

    fn into_witness(self) -> serde_json::Result<GivenWitness> {
        let mut findings = Vec::new();
        let mut form = |what: String| findings.push(Finding::new(FindingKind::Form, what));
        let mut list = |name: &str, raw: Option<&RawValue>, may_lack: bool| {
            match raw.map(RawValue::get) {
                Some("null") => form(format!("{name} is null, where a list belongs")),
                None if may_lack => {}
                None => return Err(serde::de::Error::custom(format!("it has no {name}"))),
                Some(text) => return serde_json::from_str::<Vec<Bytes>>(text),
            }
            Ok(Vec::new())
        };
        let state = list("state", self.state, false)?;
        let codes = list("codes", self.codes, false)?;
        // An empty list of keys is left out in the canonical form.
        let keys = list("keys", self.keys, true)?;
        if keys.is_empty() && self.keys.is_some_and(|keys| keys.get() != "null") {
            form("keys is empty, and is to be left out".to_owned());
        }
        let text = self.headers.map_or("null", RawValue::get);
        let given: Option<Vec<AnyHeader>> = serde_json::from_str(text)?;
        if given.is_none() {
            form("there are no headers".to_owned());
        }
        let mut headers = Vec::new();
        let mut objects = 0;
        for header in given.unwrap_or_default() {
            headers.push(match header {
                AnyHeader::Rlp(rlp) => rlp,
                AnyHeader::Object(object) => {
                    objects += 1;
                    object.to_rlp()
                }
            });
        }
        if objects > 0 {
            form(format!("headers: {objects} of them are objects, where RLP belongs"));
        }
        let witness = Witness { state, codes, keys, headers };
        Ok(GivenWitness { witness, findings, block: None, chain_id: None })
    }
}

/// Tells a field that is null from one that is not there.
fn even_null<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AnyHeader {
    Rlp(Bytes),
    Object(Box<GethHeader>),
}
