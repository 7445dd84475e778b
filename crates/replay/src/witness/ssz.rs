//! What guests take: `SszStatelessInput` of the execution specifications (`stateless.py`), behind
//! two bytes that name its schema.
//!
//! ```text
//! input     = 0x15 (Amsterdam), 0x01 (revision), request*, witness*, chain id (8), keys*
//! request   = payload*, versioned hashes*, parent beacon block root (32), requests*
//! witness   = state*, codes*, headers*
//! ```
//! A star is an offset of 4 bytes; what it names follows in order. Numbers are little-endian.
//! Nothing is taken for its word: an offset that does not fit is an error with its place, and
//! memory is bounded by the input.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_consensus::{
    Block, BlockBody, EMPTY_OMMER_ROOT_HASH, Header, Transaction as _,
    proofs::{calculate_transaction_root, calculate_withdrawals_root},
};
use alloy_eip7928::BlockAccessList;
use alloy_eips::{
    eip2718::{Decodable2718 as _, Encodable2718 as _},
    eip4895::{Withdrawal, Withdrawals},
};
use alloy_primitives::{Address, B256, Bloom, Bytes, U256, keccak256};

use super::{Finding, FindingKind, MadeWitness, Witness};
use crate::{
    requests::Requests,
    senders::public_key,
    source::{ChainBlock, Transaction},
};

const SCHEMA: [u8; 2] = [0x15, 0x01];
const STATE_MAX: usize = 1 << 22;
const CODES_MAX: usize = 1 << 18;
const HEADERS_MAX: usize = 256;
const NODE_LEN_MAX: usize = 1 << 10;
const CODE_LEN_MAX: usize = 1 << 16;
const HEADER_LEN_MAX: usize = 1 << 10;
const EXTRA_DATA_MAX: usize = 32;
const PUBLIC_KEY_LEN: usize = 65;
const WITHDRAWAL_LEN: usize = 44;
/// Deposits, withdrawals, consolidations, deposits and exits of builders.
const REQUEST_LENS: [usize; 5] = [192, 76, 116, 184, 68];

/// Why bytes are no input of a guest, or a block has none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SszError {
    /// The first two bytes are another schema's.
    #[error("expected the schema 0x1501, got 0x{0}")]
    Schema(String),
    /// The text is no hex.
    #[error("the text is no hex")]
    Hex,
    /// A part ends too early.
    #[error("{what}: expected {expected} bytes, got {got}")]
    Short {
        /// The part.
        what: &'static str,
        /// Bytes that it has at least.
        expected: usize,
        /// Bytes that are there.
        got: usize,
    },
    /// An offset lies.
    #[error("{what}, offset {index}: expected {expected}, got {got}")]
    Offset {
        /// The part.
        what: &'static str,
        /// Which of its offsets.
        index: usize,
        /// What it may be.
        expected: String,
        /// What it is.
        got: usize,
    },
    /// There is more of something than is allowed.
    #[error("{what}: expected at most {most}, got {got}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How much may be.
        most: usize,
        /// How much there is.
        got: usize,
    },
    /// Items of one length do not fill their list.
    #[error("{what}: {got} bytes are no whole number of items of {item}")]
    Items {
        /// The list.
        what: &'static str,
        /// Bytes of an item.
        item: usize,
        /// Bytes of the list.
        got: usize,
    },
    /// A transaction or the access list cannot be read.
    #[error("{what}: {error}")]
    Rlp {
        /// Which.
        what: String,
        /// What the decoder met.
        error: String,
    },
    /// The block's hash is not that of its parts.
    #[error("the payload gives the block hash {expected}, and its parts have {got}")]
    BlockHash {
        /// The hash that is given.
        expected: B256,
        /// The hash of the header that the parts make.
        got: B256,
    },
    /// The block is of a fork that no schema is for.
    #[error("block {0} is from before Amsterdam: guests have no input of it")]
    Early(u64),
    /// A signature has no key.
    #[error("transaction {0}: its signature has no public key")]
    Signature(usize),
    /// A number takes more than its field has.
    #[error("{0} takes more than 64 bits")]
    Wide(&'static str),
}

impl MadeWitness {
    /// The input of a guest that is to execute `block`, which the witness is of.
    ///
    /// # Errors
    /// If the block is from before Amsterdam.
    pub fn to_ssz(&self, chain_id: u64, block: &ChainBlock) -> Result<Vec<u8>, SszError> {
        let list = self.report.access_list.as_ref();
        let list = list.ok_or(SszError::Early(block.block.header.number))?;
        let request = request(block, list, &self.report.requests)?;
        let witness = encode_witness(&self.witness);
        let transactions = block.block.body.transactions.iter().enumerate();
        let keys = transactions
            .map(|(index, transaction)| public_key(transaction).ok_or(SszError::Signature(index)));
        let keys: Vec<[u8; PUBLIC_KEY_LEN]> = keys.collect::<Result<_, _>>()?;
        let mut out = Container::default();
        out.variable(request);
        out.variable(witness);
        out.fixed(&chain_id.to_le_bytes());
        out.variable(keys.concat());
        Ok([&SCHEMA[..], &out.finish()].concat())
    }
}

fn encode_witness(witness: &Witness) -> Vec<u8> {
    let mut out = Container::default();
    for list in [&witness.state, &witness.codes, &witness.headers] {
        out.variable(encode_list(list));
    }
    out.finish()
}

fn request(
    block: &ChainBlock,
    list: &BlockAccessList,
    requests: &[Bytes],
) -> Result<Vec<u8>, SszError> {
    let transactions = &block.block.body.transactions;
    let hashes = transactions.iter().filter_map(|transaction| transaction.blob_versioned_hashes());
    let hashes: Vec<B256> = hashes.flatten().copied().collect();
    let mut asked = Container::default();
    for index in 0..REQUEST_LENS.len() {
        asked.variable(requests.get(index).map_or_else(Vec::new, |data| data.to_vec()));
    }
    let mut out = Container::default();
    out.variable(payload(block, list)?);
    out.variable(hashes.iter().flat_map(|hash| hash.0).collect());
    out.fixed(block.block.header.parent_beacon_block_root.unwrap_or_default().as_slice());
    out.variable(asked.finish());
    Ok(out.finish())
}

fn payload(block: &ChainBlock, list: &BlockAccessList) -> Result<Vec<u8>, SszError> {
    let (header, body) = (&block.block.header, &block.block.body);
    let transactions: Vec<_> =
        body.transactions.iter().map(|transaction| transaction.encoded_2718()).collect();
    let mut withdrawals = Vec::new();
    for one in body.withdrawals.iter().flat_map(|all| all.iter()) {
        withdrawals.extend(one.index.to_le_bytes());
        withdrawals.extend(one.validator_index.to_le_bytes());
        withdrawals.extend(one.address);
        withdrawals.extend(one.amount.to_le_bytes());
    }
    let mut out = Container::default();
    out.fixed(header.parent_hash.as_slice());
    out.fixed(header.beneficiary.as_slice());
    out.fixed(header.state_root.as_slice());
    out.fixed(header.receipts_root.as_slice());
    out.fixed(header.logs_bloom.as_slice());
    out.fixed(header.mix_hash.as_slice());
    for number in [header.number, header.gas_limit, header.gas_used, header.timestamp] {
        out.fixed(&number.to_le_bytes());
    }
    out.variable(header.extra_data.to_vec());
    let base_fee = U256::from(header.base_fee_per_gas.unwrap_or_default());
    out.fixed(&base_fee.to_le_bytes::<32>());
    out.fixed(block.hash.as_slice());
    out.variable(encode_list(&transactions));
    out.variable(withdrawals);
    out.fixed(&header.blob_gas_used.unwrap_or_default().to_le_bytes());
    out.fixed(&header.excess_blob_gas.unwrap_or_default().to_le_bytes());
    out.variable(alloy_rlp::encode(list));
    out.fixed(&header.slot_number.unwrap_or_default().to_le_bytes());
    Ok(out.finish())
}

/// A container that is being written.
#[derive(Default)]
struct Container {
    fixed: Vec<u8>,
    /// Where in the fixed part an offset goes, and what it names.
    variable: Vec<(usize, Vec<u8>)>,
}

impl Container {
    fn fixed(&mut self, bytes: &[u8]) {
        self.fixed.extend_from_slice(bytes);
    }

    fn variable(&mut self, bytes: Vec<u8>) {
        self.variable.push((self.fixed.len(), bytes));
        self.fixed.extend_from_slice(&[0; 4]);
    }

    fn finish(self) -> Vec<u8> {
        let Self { fixed: mut out, variable } = self;
        for (at, bytes) in variable {
            let offset = u32::try_from(out.len()).unwrap_or(u32::MAX);
            if let Some(place) = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
                *place = offset.to_le_bytes();
            }
            out.extend_from_slice(&bytes);
        }
        out
    }
}

/// A list of items of any length: their offsets, then they.
fn encode_list<B: AsRef<[u8]>>(items: &[B]) -> Vec<u8> {
    let mut out = Container::default();
    for item in items {
        out.variable(item.as_ref().to_vec());
    }
    out.finish()
}

/// What an input holds.
pub(super) type Decoded = (Witness, ChainBlock, u64, Vec<Finding>);

/// Reads an input.
pub(super) fn decode(bytes: &[u8]) -> Result<Decoded, SszError> {
    let Some((schema, bytes)) = bytes.split_at_checked(SCHEMA.len()) else {
        return Err(SszError::Short { what: "the input", expected: 2, got: bytes.len() });
    };
    if schema != SCHEMA {
        return Err(SszError::Schema(alloy_primitives::hex::encode(schema)));
    }
    let input = Parts::of("the input", bytes, 20, &[0, 4, 16])?;
    let [request, witness, keys] = input.variable([0, 1, 2]);
    let chain_id = input.number(8)?;
    let parts = Parts::of("the witness", witness, 12, &[0, 4, 8])?;
    let [state, codes, headers] = parts.variable([0, 1, 2]);
    let witness = Witness {
        state: decode_list("state", state, STATE_MAX, NODE_LEN_MAX)?,
        codes: decode_list("codes", codes, CODES_MAX, CODE_LEN_MAX)?,
        keys: Vec::new(),
        headers: decode_list("headers", headers, HEADERS_MAX, HEADER_LEN_MAX)?,
    };
    let (block, hashes) = decode_request(request)?;
    let keys = items("public keys", keys, PUBLIC_KEY_LEN)?;
    let mut findings = Vec::new();
    let mut form = |what: String| findings.push(Finding::new(FindingKind::Form, what));
    let transactions = &block.block.body.transactions;
    if keys.len() != transactions.len() {
        let (keys, count) = (keys.len(), transactions.len());
        form(format!("public keys: there are {keys} for {count} transactions"));
    } else {
        for (index, (key, transaction)) in keys.iter().zip(transactions).enumerate() {
            if public_key(transaction).is_none_or(|own| own[..] != **key) {
                form(format!("public keys, entry {index}: it is not that of the transaction"));
            }
        }
    }
    let own = transactions.iter().filter_map(|transaction| transaction.blob_versioned_hashes());
    let own: Vec<&[u8]> = own.flatten().map(|hash| hash.as_slice()).collect();
    if own != hashes {
        form("versioned hashes: they are not those of the transactions".to_owned());
    }
    Ok((witness, block, chain_id, findings))
}

fn decode_request(bytes: &[u8]) -> Result<(ChainBlock, Vec<&[u8]>), SszError> {
    let parts = Parts::of("the request", bytes, 44, &[0, 4, 40])?;
    let [payload, hashes, requests] = parts.variable([0, 1, 2]);
    let beacon_root = B256::from(parts.array::<32>(8)?);
    let hashes = items("versioned hashes", hashes, 32)?;
    let asked = Parts::of("the execution requests", requests, 20, &[0, 4, 8, 12, 16])?;
    let data = asked.variable([0, 1, 2, 3, 4]);
    for (data, len) in data.iter().zip(REQUEST_LENS) {
        items("the execution requests", data, len)?;
    }
    let requests = Requests::of(data.iter().map(|data| data.to_vec()).collect());

    let what = "the payload";
    let parts = Parts::of(what, payload, 540, &[436, 504, 508, 528])?;
    let [extra_data, transactions, withdrawals, list] = parts.variable([0, 1, 2, 3]);
    if extra_data.len() > EXTRA_DATA_MAX {
        let got = extra_data.len();
        return Err(SszError::TooMany { what: "extra data", most: EXTRA_DATA_MAX, got });
    }
    let base_fee = U256::from_le_bytes(parts.array::<32>(440)?);
    let base_fee = u64::try_from(base_fee).map_err(|_| SszError::Wide("the base fee"))?;
    let transactions = decode_transactions(transactions)?;
    let withdrawals = decode_withdrawals(withdrawals)?;
    let access_list: BlockAccessList = alloy_rlp::decode_exact(list).map_err(|error| {
        SszError::Rlp { what: "the access list".into(), error: error.to_string() }
    })?;
    let header = Header {
        parent_hash: parts.array::<32>(0)?.into(),
        ommers_hash: EMPTY_OMMER_ROOT_HASH,
        beneficiary: Address::from(parts.array::<20>(32)?),
        state_root: parts.array::<32>(52)?.into(),
        transactions_root: calculate_transaction_root(&transactions),
        receipts_root: parts.array::<32>(84)?.into(),
        withdrawals_root: Some(calculate_withdrawals_root(&withdrawals)),
        logs_bloom: Bloom::from(parts.array::<256>(116)?),
        mix_hash: parts.array::<32>(372)?.into(),
        number: parts.number(404)?,
        gas_limit: parts.number(412)?,
        gas_used: parts.number(420)?,
        timestamp: parts.number(428)?,
        base_fee_per_gas: Some(base_fee),
        blob_gas_used: Some(parts.number(512)?),
        excess_blob_gas: Some(parts.number(520)?),
        parent_beacon_block_root: Some(beacon_root),
        requests_hash: Some(requests.hash()),
        block_access_list_hash: Some(keccak256(list)),
        slot_number: Some(parts.number(532)?),
        extra_data: Bytes::copy_from_slice(extra_data),
        ..Header::default()
    };
    let expected = B256::from(parts.array::<32>(472)?);
    let body = BlockBody {
        transactions,
        ommers: Vec::new(),
        withdrawals: Some(Withdrawals::new(withdrawals)),
    };
    let mut block = ChainBlock::new(Block::new(header, body));
    if block.hash != expected {
        return Err(SszError::BlockHash { expected, got: block.hash });
    }
    block.access_list = Some(access_list);
    Ok((block, hashes))
}

fn decode_transactions(bytes: &[u8]) -> Result<Vec<Transaction>, SszError> {
    let all = decode_list("transactions", bytes, usize::MAX, usize::MAX)?;
    let decoded = all.iter().enumerate().map(|(index, bytes)| {
        let what = format!("transaction {index}");
        Transaction::decode_2718_exact(bytes)
            .map_err(|error| SszError::Rlp { what, error: error.to_string() })
    });
    decoded.collect()
}

fn decode_withdrawals(bytes: &[u8]) -> Result<Vec<Withdrawal>, SszError> {
    let what = "a withdrawal";
    let all = items("withdrawals", bytes, WITHDRAWAL_LEN)?.into_iter().map(|bytes| {
        let parts = Parts { what, bytes, variable: Vec::new() };
        Ok(Withdrawal {
            index: parts.number(0)?,
            validator_index: parts.number(8)?,
            address: Address::from(parts.array::<20>(16)?),
            amount: parts.number(36)?,
        })
    });
    all.collect()
}

/// A container that is being read.
struct Parts<'a> {
    what: &'static str,
    bytes: &'a [u8],
    variable: Vec<&'a [u8]>,
}

impl<'a> Parts<'a> {
    /// Follows the offsets that lie at these places of a fixed part of so many bytes.
    fn of(
        what: &'static str,
        bytes: &'a [u8],
        fixed: usize,
        places: &[usize],
    ) -> Result<Self, SszError> {
        if bytes.len() < fixed {
            return Err(SszError::Short { what, expected: fixed, got: bytes.len() });
        }
        let mut parts = Self { what, bytes, variable: Vec::new() };
        let mut offsets = Vec::with_capacity(places.len());
        for place in places {
            offsets.push(u32::from_le_bytes(parts.array(*place)?) as usize);
        }
        parts.variable = cut(what, bytes, &offsets, fixed)?;
        Ok(parts)
    }

    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], SszError> {
        let found = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        let (what, got) = (self.what, self.bytes.len());
        found.copied().ok_or(SszError::Short { what, expected: at.saturating_add(N), got })
    }

    fn number(&self, at: usize) -> Result<u64, SszError> {
        self.array(at).map(u64::from_le_bytes)
    }

    fn variable<const N: usize>(&self, which: [usize; N]) -> [&'a [u8]; N] {
        which.map(|index| self.variable.get(index).copied().unwrap_or_default())
    }
}

/// Cuts bytes at offsets, of which the first has to be `first`.
fn cut<'a>(
    what: &'static str,
    bytes: &'a [u8],
    offsets: &[usize],
    first: usize,
) -> Result<Vec<&'a [u8]>, SszError> {
    let mut cuts = Vec::with_capacity(offsets.len());
    for (index, start) in offsets.iter().copied().enumerate() {
        let next = index.saturating_add(1);
        let end = offsets.get(next).copied().unwrap_or(bytes.len());
        if index == 0 && start != first {
            let expected = first.to_string();
            return Err(SszError::Offset { what, index, expected, got: start });
        }
        let Some(part) = bytes.get(start..end) else {
            let (index, got) = if start > bytes.len() { (index, start) } else { (next, end) };
            let expected = format!("from {start} to {}", bytes.len());
            return Err(SszError::Offset { what, index, expected, got });
        };
        cuts.push(part);
    }
    Ok(cuts)
}

fn decode_list(
    what: &'static str,
    bytes: &[u8],
    most: usize,
    len_max: usize,
) -> Result<Vec<Bytes>, SszError> {
    let Some(first) = bytes.first_chunk() else {
        return match bytes.len() {
            0 => Ok(Vec::new()),
            got => Err(SszError::Short { what, expected: 4, got }),
        };
    };
    let first = u32::from_le_bytes(*first) as usize;
    if first == 0 || !first.is_multiple_of(4) || first > bytes.len() {
        let expected = format!("a multiple of 4 up to {}", bytes.len());
        return Err(SszError::Offset { what, index: 0, expected, got: first });
    }
    let table = bytes.get(..first).unwrap_or_default();
    let got = table.len() / 4;
    if got > most {
        return Err(SszError::TooMany { what, most, got });
    }
    let offsets: Vec<_> =
        table.as_chunks().0.iter().map(|chunk| u32::from_le_bytes(*chunk) as usize).collect();
    let parts = cut(what, bytes, &offsets, first)?;
    if let Some(got) = parts.iter().map(|part| part.len()).find(|len| *len > len_max) {
        return Err(SszError::TooMany { what, most: len_max, got });
    }
    Ok(parts.into_iter().map(Bytes::copy_from_slice).collect())
}

fn items<'a>(what: &'static str, bytes: &'a [u8], item: usize) -> Result<Vec<&'a [u8]>, SszError> {
    let items = bytes.chunks_exact(item);
    if !items.remainder().is_empty() {
        return Err(SszError::Items { what, item, got: bytes.len() });
    }
    Ok(items.collect())
}
