//! Blocks as geth exports them: RLP, one after another, compressed or not.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::{
    fmt,
    io::{BufRead, BufReader, Cursor, Read, Seek, SeekFrom},
};

use alloy_consensus::{Block, EthereumTxEnvelope, Header, TxEip4844};
use alloy_eip7928::BlockAccessList;
use alloy_primitives::{B256, Sealed};
use alloy_rlp::Decodable as _;

use crate::error::SourceError;

/// A transaction as it lies in a block.
pub type Transaction = EthereumTxEnvelope<TxEip4844>;

/// The most bytes that a block may have. Osaka allows 8 MiB (EIP-7934); before it the gas limit
/// kept the blocks of every public chain below a third of this.
pub const BLOCK_LEN_MAX: u64 = 32 << 20;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A frame that asks for a window above 128 MiB is refused: memory stays bounded.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// So many blocks are passed over to find the last one.
const SKIPPED_MAX: usize = 100_000;
/// A byte, and eight that say how long a list is.
const LIST_HEAD_LEN_MAX: u64 = 9;
const BUFFER_LEN: usize = 256 << 10;
/// Header, transactions, ommers, withdrawals.
const NETWORK_ITEMS: usize = 4;

/// A block, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChainBlock {
    /// The block.
    pub block: Block<Transaction>,
    /// The hash of its header.
    pub hash: B256,
    /// The byte at which it starts, in the uncompressed source.
    pub offset: u64,
    /// Bytes that it takes there.
    pub len: u64,
    /// Its access list (EIP-7928), where that comes along: geth exports it as a fifth item of the
    /// block.
    pub access_list: Option<BlockAccessList>,
}

impl ChainBlock {
    /// A block that comes from no file.
    pub fn new(block: Block<Transaction>) -> Self {
        let hash = block.header.hash_slow();
        let len = Block::rlp_length_for(&block.header, &block.body) as u64;
        Self { block, hash, offset: 0, len, access_list: None }
    }

    /// Bytes of the form in which nodes send it, which has no access list.
    pub(crate) fn network_len(&self) -> u64 {
        match self.access_list {
            None => self.len,
            Some(_) => Block::rlp_length_for(&self.block.header, &self.block.body) as u64,
        }
    }

    /// Its RLP, as [`ChainReader`] reads it.
    pub fn to_rlp(&self) -> Vec<u8> {
        let block = alloy_rlp::encode(&self.block);
        let Some(list) = &self.access_list else { return block };
        let mut items = &block[..];
        // Its own encoding, so that this cannot fail.
        let Ok(header) = alloy_rlp::Header::decode(&mut items) else { return block };
        let list = alloy_rlp::encode(list);
        let mut out = Vec::with_capacity(block.len().saturating_add(list.len()));
        let payload_length = header.payload_length.saturating_add(list.len());
        alloy_rlp::Header { list: true, payload_length }.encode(&mut out);
        out.extend_from_slice(items);
        out.extend_from_slice(&list);
        out
    }
}

/// Reads blocks one by one, with memory for one block.
///
/// After an error it ends: where the next block begins is not known.
pub struct ChainReader<'r> {
    input: Box<dyn BufRead + Send + 'r>,
    offset: u64,
    failed: bool,
}

impl fmt::Debug for ChainReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChainReader").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl<'r> ChainReader<'r> {
    /// Reads from plain or zstd-compressed bytes: their first bytes tell.
    ///
    /// # Errors
    ///
    /// The first bytes cannot be read.
    pub fn new(mut input: impl Read + Send + 'r) -> Result<Self, SourceError> {
        let mut magic = Vec::with_capacity(ZSTD_MAGIC.len());
        let io = |error| SourceError::Io { offset: 0, error };
        input.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut magic).map_err(io)?;
        let is_zstd = magic == ZSTD_MAGIC;
        let whole = Cursor::new(magic).chain(input);
        let input: Box<dyn BufRead + Send + 'r> = if is_zstd {
            let mut decoder = zstd::stream::read::Decoder::new(whole).map_err(io)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(io)?;
            Box::new(BufReader::with_capacity(BUFFER_LEN, decoder))
        } else {
            Box::new(BufReader::with_capacity(BUFFER_LEN, whole))
        };
        Ok(Self { input, offset: 0, failed: false })
    }

    /// The number of the last block of a file, found by the lengths of its blocks: their contents
    /// are passed over. `None` of a compressed file, of one with more than 100,000 blocks, and of
    /// one that holds anything else: who reads it is told what.
    pub fn last_number(mut file: impl Read + Seek) -> Option<u64> {
        let len = file.seek(SeekFrom::End(0)).ok()?;
        let (mut last, mut at) = (0, 0_u64);
        for _ in 0..SKIPPED_MAX {
            if at >= len {
                break;
            }
            let mut head = Vec::with_capacity(LIST_HEAD_LEN_MAX as usize);
            file.seek(SeekFrom::Start(at)).ok()?;
            file.by_ref().take(LIST_HEAD_LEN_MAX).read_to_end(&mut head).ok()?;
            let digits = length_digits(*head.first()?)?;
            let head = head.get(..=usize::from(digits))?;
            last = at;
            at = at.checked_add(head.len() as u64)?.checked_add(payload_len(head))?;
        }
        let block_len = at.checked_sub(last).filter(|len| at > 0 && *len <= BLOCK_LEN_MAX)?;
        if at != len {
            return None;
        }
        let mut raw = Vec::new();
        file.seek(SeekFrom::Start(last)).ok()?;
        file.take(block_len).read_to_end(&mut raw).ok()?;
        name(&raw).map(|(number, _)| number)
    }

    /// Bytes of uncompressed blocks read so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn read_block(&mut self) -> Result<Option<ChainBlock>, SourceError> {
        let offset = self.offset;
        let Some(raw) = self.read_list()? else { return Ok(None) };
        let (sealed, access_list) = decode(&raw).map_err(|error| SourceError::Malformed {
            offset,
            block: name(&raw),
            error,
        })?;
        let (block, hash) = sealed.into_parts();
        let block = ChainBlock { block, hash, offset, len: raw.len() as u64, access_list };
        if block.to_rlp() != raw {
            // The decoder passes over the length of the string around a typed transaction.
            let error = alloy_rlp::Error::Custom("it is not the one encoding of its content");
            return Err(SourceError::Malformed { offset, block: name(&raw), error });
        }
        Ok(Some(block))
    }

    /// Reads one RLP list whole, its header included.
    fn read_list(&mut self) -> Result<Option<Vec<u8>>, SourceError> {
        let offset = self.offset;
        let mut raw = Vec::new();
        if self.extend(&mut raw, 1)? == 0 {
            return Ok(None);
        }
        let first = raw.first().copied().unwrap_or_default();
        let Some(digits) = length_digits(first) else {
            return Err(SourceError::NotABlock { offset, got: first });
        };
        let got = self.extend(&mut raw, digits.into())?;
        if got < digits.into() {
            let (expected, got) = (u64::from(digits).saturating_add(1), got.saturating_add(1));
            return Err(SourceError::Truncated { offset, expected, got });
        }
        let payload_len = payload_len(&raw);
        let header_len = raw.len() as u64;
        let expected = payload_len.saturating_add(header_len);
        if expected > BLOCK_LEN_MAX {
            return Err(SourceError::TooLong { offset, expected: BLOCK_LEN_MAX, got: expected });
        }
        let got = self.extend(&mut raw, payload_len)?;
        if got < payload_len {
            let got = header_len.saturating_add(got);
            return Err(SourceError::Truncated { offset, expected, got });
        }
        Ok(Some(raw))
    }

    /// Appends up to `len` bytes; the buffer grows with what is there, not with what is promised.
    fn extend(&mut self, raw: &mut Vec<u8>, len: u64) -> Result<u64, SourceError> {
        let before = raw.len();
        let result = self.input.by_ref().take(len).read_to_end(raw);
        let got = raw.len().saturating_sub(before) as u64;
        self.offset = self.offset.saturating_add(got);
        result.map_err(|error| SourceError::Io { offset: self.offset, error })?;
        Ok(got)
    }
}

impl Iterator for ChainReader<'_> {
    type Item = Result<ChainBlock, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let item = self.read_block().transpose();
        self.failed = !matches!(item, Some(Ok(_)));
        item
    }
}

/// How many bytes of its payload's length are behind the first byte of a list, eight at most.
fn length_digits(first: u8) -> Option<u8> {
    (first >= 0xc0).then(|| first.saturating_sub(0xf7))
}

/// Bytes of a list's payload, by its first byte and the digits behind it.
fn payload_len(head: &[u8]) -> u64 {
    match head {
        [] => 0,
        [first] => u64::from(first.saturating_sub(0xc0)),
        [_, digits @ ..] => digits.iter().fold(0, |len, byte| (len << 8) | u64::from(*byte)),
    }
}

type DecodedBlock = (Sealed<Block<Transaction>>, Option<BlockAccessList>);

/// A block in the form of the network, or with its access list behind that.
fn decode(raw: &[u8]) -> alloy_rlp::Result<DecodedBlock> {
    let items = alloy_rlp::Header::decode_bytes(&mut &*raw, true)?;
    let mut rest = items;
    for _ in 0..NETWORK_ITEMS {
        skip(&mut rest)?;
    }
    if rest.is_empty() {
        return Ok((Block::decode_sealed(&mut &*raw)?, None));
    }
    let network_items = items.strip_suffix(rest).unwrap_or(items);
    let list = BlockAccessList::decode(&mut rest)?;
    if !rest.is_empty() {
        return Err(alloy_rlp::Error::Custom("it goes on behind its access list"));
    }
    let mut network = Vec::with_capacity(raw.len());
    alloy_rlp::Header { list: true, payload_length: network_items.len() }.encode(&mut network);
    network.extend_from_slice(network_items);
    Ok((Block::decode_sealed(&mut &network[..])?, Some(list)))
}

/// Goes past one item, if there is one.
fn skip(rest: &mut &[u8]) -> alloy_rlp::Result<()> {
    if rest.is_empty() {
        return Ok(());
    }
    let mut payload = *rest;
    let header = alloy_rlp::Header::decode(&mut payload)?;
    *rest = payload.get(header.payload_length..).ok_or(alloy_rlp::Error::InputTooShort)?;
    Ok(())
}

/// Number and hash of a block of which perhaps only the header can be read.
fn name(raw: &[u8]) -> Option<(u64, B256)> {
    let mut payload = alloy_rlp::Header::decode_bytes(&mut &*raw, true).ok()?;
    let header = Header::decode_sealed(&mut payload).ok()?;
    Some((header.number, header.hash()))
}
