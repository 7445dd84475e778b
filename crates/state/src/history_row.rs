//! The row of a block in the history.
//!
//! ```text
//! key    block number (8)
//! row    version (1) | block hash (32) | parent number (8) | parent hash (32)
//!        | state root of the parent (32) | form of the body (1: 0 plain, 1 zstd) | body
//! body   accounts                                        in version 1
//!        | length of the accounts, accounts, tree*       in version 2
//! tree   tree id (LEB128), undo of its leaves
//! accounts (address (20), tag (1), fields, slots)*       in order of addresses
//! tag    bits 0-1: 0 absent, 1 changed, 2 whole
//!        bit 2 nonce, bit 3 balance, bit 4 code hash, bit 5 slots
//! fields nonce (LEB128), balance (word), code hash (32), each if its bit is set
//! slots  count (LEB128), (slot (word, bit 7: its digest), value (word, or 0xff: absent))*
//! word   length (1: 0 to 32) and so many bytes, without leading zeros
//! ```
//! Integers are big-endian. Of a whole account the fields without a bit are those of an empty one.
//! The parent is the block before, whatever its number. Version 2 is that of stores with several
//! trees.
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

use std::collections::BTreeMap;
use std::io::Read;

use alloy_primitives::{Address, B256, U256};
use spinney_tree::{BlockId, TreeId};

use crate::Account;
use crate::leaf_undo::LeafUndo;
use crate::row_bytes::{Bytes, Fault, NO_VALUE, put_leb128, put_word};
use crate::undo::{Before, OldAccount, OldFields, Slot, Undo};

/// Of rows that know one tree, and of rows that know several.
const VERSION: u8 = 1;
const VERSION_TREES: u8 = 2;
const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
const ZSTD_LEVEL: i32 = 3;

/// A body that is compressed further than this is kept plain, so that no row asks for more memory.
const RATIO_MAX: usize = 256;

const ABSENT: u8 = 0;
const CHANGED: u8 = 1;
const WHOLE: u8 = 2;
const NONCE: u8 = 1 << 2;
const BALANCE: u8 = 1 << 3;
const CODE_HASH: u8 = 1 << 4;
const SLOTS: u8 = 1 << 5;
const HASHED: u8 = 1 << 7;

/// What the history says of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) block: BlockId,
    /// The block whose state this one was executed on.
    pub(crate) parent: BlockId,
    /// The state root of the parent.
    pub(crate) parent_root: B256,
    pub(crate) undo: Undo,
    /// What takes back the trees beside the first one.
    pub(crate) trees: BTreeMap<TreeId, LeafUndo>,
}

/// The key of a block's row.
pub(crate) fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Above the key of every row.
pub(crate) const AFTER_ALL: [u8; 9] = [0xff; 9];

/// Writes rows, one after another.
pub(crate) struct Packer(Option<zstd::bulk::Compressor<'static>>);

impl Packer {
    pub(crate) fn new() -> Self {
        // It fails only without memory, and then rows are written plain.
        Self(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok())
    }

    fn pack(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        self.0.as_mut()?.compress(body).ok()
    }
}

impl Record {
    pub(crate) fn encode(&self, packer: &mut Packer) -> Vec<u8> {
        let mut row = vec![if self.trees.is_empty() { VERSION } else { VERSION_TREES }];
        row.extend_from_slice(&self.block.hash);
        row.extend_from_slice(&self.parent.number.to_be_bytes());
        row.extend_from_slice(&self.parent.hash);
        row.extend_from_slice(self.parent_root.as_slice());
        let mut body = encode_body(&self.undo);
        if !self.trees.is_empty() {
            let mut accounts = Vec::new();
            put_leb128(body.len() as u64, &mut accounts);
            accounts.append(&mut body);
            body = accounts;
        }
        for (tree, undo) in &self.trees {
            put_leb128(tree.0.into(), &mut body);
            undo.encode(&mut body);
        }
        let fits = |packed: &Vec<u8>| packed.len() < body.len() && body.len() <= bound(packed);
        match packer.pack(&body).filter(fits) {
            Some(packed) => {
                row.push(ZSTD);
                row.extend_from_slice(&packed);
            }
            None => {
                row.push(PLAIN);
                row.extend_from_slice(&body);
            }
        }
        row
    }

    /// The block of a row and the one before it; the rest is not read.
    pub(crate) fn ids(number: u64, row: &[u8]) -> Result<(BlockId, BlockId), Fault> {
        decode_head(number, &mut Bytes(row)).map(|(_, block, parent)| (block, parent))
    }

    /// Reads a row, of which every byte has to make sense.
    pub(crate) fn decode(number: u64, row: &[u8]) -> Result<Self, Fault> {
        let mut bytes = Bytes(row);
        let (version, block, parent) = decode_head(number, &mut bytes)?;
        let parent_root = bytes.array()?.into();
        let unpacked;
        let body = match bytes.byte()? {
            PLAIN => bytes.0,
            ZSTD => {
                unpacked = unpack(bytes.0)?;
                &unpacked
            }
            form => return Err(format!("its body has the unknown form {form}")),
        };
        let mut rest = Bytes(body);
        let accounts = if version == VERSION { rest.rest() } else { rest.counted()? };
        let undo = decode_body(accounts)?;
        let trees = decode_trees(rest)?;
        Ok(Self { block, parent, parent_root, undo, trees })
    }
}

/// What a row begins with: its version, its block and the one before.
fn decode_head(number: u64, bytes: &mut Bytes<'_>) -> Result<(u8, BlockId, BlockId), Fault> {
    let version = bytes.byte()?;
    match version {
        VERSION | VERSION_TREES => {}
        0 => return Err("it has no version".into()),
        newer => {
            return Err(format!(
                "it has version {newer}, and this program knows versions up to {VERSION_TREES}"
            ));
        }
    }
    let block = BlockId { number, hash: bytes.array()? };
    let parent = BlockId { number: u64::from_be_bytes(bytes.array()?), hash: bytes.array()? };
    if parent.number >= number {
        return Err(format!("it names block {} as the one before", parent.number));
    }
    Ok((version, block, parent))
}

/// The most bytes that a compressed body may come to.
fn bound(packed: &[u8]) -> usize {
    packed.len().saturating_mul(RATIO_MAX)
}

fn unpack(packed: &[u8]) -> Result<Vec<u8>, Fault> {
    let fault = |error: std::io::Error| format!("its body cannot be decompressed: {error}");
    let bound = bound(packed);
    let decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(fault)?.single_frame();
    let mut body = Vec::new();
    let mut decoder = decoder.take((bound as u64).saturating_add(1));
    decoder.read_to_end(&mut body).map_err(fault)?;
    if body.len() > bound {
        return Err(format!("its body is more than {RATIO_MAX} times as long as compressed"));
    }
    if !decoder.into_inner().finish().is_empty() {
        return Err("its body goes on after its end".into());
    }
    Ok(body)
}

fn encode_body(undo: &Undo) -> Vec<u8> {
    let mut out = Vec::new();
    for (address, before) in &undo.accounts {
        out.extend_from_slice(address.as_slice());
        match before {
            Before::Absent => out.push(ABSENT),
            Before::Changed(old) => {
                encode_fields(
                    CHANGED,
                    old.nonce,
                    old.balance,
                    old.code_hash,
                    &old.storage,
                    &mut out,
                );
            }
            Before::Whole(old) => {
                let Account { nonce, balance, code_hash } = old.account;
                let nonce = Some(nonce).filter(|nonce| *nonce != 0);
                let balance = Some(balance).filter(|balance| !balance.is_zero());
                let code_hash = Some(code_hash).filter(|hash| *hash != Account::EMPTY.code_hash);
                let storage =
                    old.storage.iter().map(|(slot, value)| (*slot, Some(*value))).collect();
                encode_fields(WHOLE, nonce, balance, code_hash, &storage, &mut out);
            }
        }
    }
    out
}

fn encode_fields(
    kind: u8,
    nonce: Option<u64>,
    balance: Option<U256>,
    code_hash: Option<B256>,
    storage: &BTreeMap<Slot, Option<U256>>,
    out: &mut Vec<u8>,
) {
    let bit = |set: bool, bit: u8| if set { bit } else { 0 };
    out.push(
        kind | bit(nonce.is_some(), NONCE)
            | bit(balance.is_some(), BALANCE)
            | bit(code_hash.is_some(), CODE_HASH)
            | bit(!storage.is_empty(), SLOTS),
    );
    if let Some(nonce) = nonce {
        put_leb128(nonce, out);
    }
    if let Some(balance) = balance {
        put_word(balance, 0, out);
    }
    if let Some(hash) = code_hash {
        out.extend_from_slice(hash.as_slice());
    }
    if storage.is_empty() {
        return;
    }
    put_leb128(storage.len() as u64, out);
    for (slot, value) in storage {
        match slot {
            Slot::Known(slot) => put_word(U256::from_be_bytes(slot.0), 0, out),
            Slot::Hashed(hash) => put_word(U256::from_be_bytes(hash.0), HASHED, out),
        }
        match value {
            Some(value) => put_word(*value, 0, out),
            None => out.push(NO_VALUE),
        }
    }
}

fn decode_body(body: &[u8]) -> Result<Undo, Fault> {
    let mut bytes = Bytes(body);
    let mut undo = Undo::default();
    while !bytes.0.is_empty() {
        let address = Address::from(bytes.array()?);
        if undo.accounts.last_key_value().is_some_and(|(last, _)| *last >= address) {
            return Err(format!("account {address} is out of order"));
        }
        undo.accounts.insert(address, decode_account(&mut bytes)?);
    }
    Ok(undo)
}

fn decode_trees(mut bytes: Bytes<'_>) -> Result<BTreeMap<TreeId, LeafUndo>, Fault> {
    let mut trees = BTreeMap::new();
    while !bytes.0.is_empty() {
        let id = u32::try_from(bytes.leb128()?).map(TreeId);
        let id = id.map_err(|_| Fault::from("it names a tree by a number of more than 32 bits"))?;
        if trees.last_key_value().is_some_and(|(last, _)| *last >= id) {
            return Err(format!("{id} is out of order"));
        }
        trees.insert(id, LeafUndo::decode(&mut bytes)?);
    }
    Ok(trees)
}

fn decode_account(bytes: &mut Bytes<'_>) -> Result<Before, Fault> {
    let tag = bytes.byte()?;
    let kind = tag & 3;
    if tag & !(3 | NONCE | BALANCE | CODE_HASH | SLOTS) != 0 || kind > WHOLE {
        return Err(format!("an account has the unknown tag 0x{tag:02x}"));
    }
    if kind == ABSENT {
        return if tag == ABSENT {
            Ok(Before::Absent)
        } else {
            Err("an account that was absent has fields".into())
        };
    }
    let mut old = OldFields::default();
    if tag & NONCE != 0 {
        old.nonce = Some(bytes.leb128()?);
    }
    if tag & BALANCE != 0 {
        let length = bytes.byte()?;
        old.balance = Some(bytes.word(length)?);
    }
    if tag & CODE_HASH != 0 {
        old.code_hash = Some(bytes.array()?.into());
    }
    if tag & SLOTS != 0 {
        for _ in 0..bytes.leb128()? {
            let (slot, value) = decode_slot(bytes)?;
            if old.storage.last_key_value().is_some_and(|(last, _)| *last >= slot) {
                return Err("slots are out of order".into());
            }
            old.storage.insert(slot, value);
        }
    }
    if kind == CHANGED {
        return Ok(Before::Changed(old));
    }
    let account = Account {
        nonce: old.nonce.unwrap_or(0),
        balance: old.balance.unwrap_or_default(),
        code_hash: old.code_hash.unwrap_or(Account::EMPTY.code_hash),
    };
    let slots = old.storage.into_iter().map(|(slot, value)| Some((slot, value?)));
    let storage = slots.collect::<Option<_>>();
    let storage = storage.ok_or("a whole account has an absent slot")?;
    Ok(Before::Whole(OldAccount { account, storage }))
}

fn decode_slot(bytes: &mut Bytes<'_>) -> Result<(Slot, Option<U256>), Fault> {
    let head = bytes.byte()?;
    let slot = B256::from(bytes.word(head & !HASHED)?);
    let slot = if head & HASHED == 0 { Slot::Known(slot) } else { Slot::Hashed(slot) };
    let value = match bytes.byte()? {
        NO_VALUE => None,
        length => Some(bytes.word(length)?),
    };
    Ok((slot, value))
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{Address, B256, U256, hex};
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use spinney_tree::{BlockId, TreeId};

    use super::{Packer, Record, Slot, key};
    use crate::Account;
    use crate::leaf_undo::LeafUndo;
    use crate::undo::{Before, OldAccount, OldFields, Undo};

    fn word() -> impl Strategy<Value = U256> {
        prop_oneof![
            Just(U256::ZERO),
            (0_u64..300).prop_map(U256::from),
            any::<[u8; 32]>().prop_map(U256::from_be_bytes)
        ]
    }

    fn slot() -> impl Strategy<Value = Slot> {
        (any::<bool>(), word()).prop_map(|(known, word)| {
            if known { Slot::Known(word.into()) } else { Slot::Hashed(word.into()) }
        })
    }

    fn before() -> impl Strategy<Value = Before> {
        let hash =
            prop_oneof![Just(Account::EMPTY.code_hash), any::<[u8; 32]>().prop_map(B256::from)];
        let fields = (
            proptest::option::of(any::<u64>()),
            proptest::option::of(word()),
            proptest::option::of(hash.clone()),
            btree_map(slot(), proptest::option::of(word()), 0..9),
        );
        let changed = fields.prop_map(|(nonce, balance, code_hash, storage)| {
            Before::Changed(OldFields { nonce, balance, code_hash, storage })
        });
        let account = (0_u64..3, word(), hash, btree_map(slot(), word(), 0..9));
        let whole = account.prop_map(|(nonce, balance, code_hash, storage)| {
            Before::Whole(OldAccount { account: Account { nonce, balance, code_hash }, storage })
        });
        prop_oneof![Just(Before::Absent), changed, whole]
    }

    fn leaves() -> impl Strategy<Value = LeafUndo> {
        let key = (0_u8..3, 1_usize..70, any::<u8>());
        let key = key.prop_map(|(byte, len, last)| [vec![byte; len], vec![last]].concat());
        let value = proptest::option::of(word().prop_map(|word| word.to_be_bytes()));
        let note = proptest::option::of(vec(any::<u8>(), 0..9));
        let parts = (
            any::<[u8; 32]>(),
            btree_map(key, value, 0..20),
            btree_map(vec(any::<u8>(), 0..60), note, 0..4),
        );
        parts.prop_map(|(root, leaves, metadata)| LeafUndo { root: root.into(), leaves, metadata })
    }

    fn record() -> impl Strategy<Value = Record> {
        let accounts = btree_map(any::<[u8; 20]>().prop_map(Address::from), before(), 0..20);
        let trees = btree_map((2_u32..300).prop_map(TreeId), leaves(), 0..3);
        let parts = (1_u64.., any::<[u8; 32]>(), accounts, trees);
        parts.prop_map(|(number, hash, accounts, trees)| Record {
            block: BlockId { number, hash },
            parent: BlockId { number: number - 1, hash: hash.map(|byte| !byte) },
            parent_root: B256::from(hash).reverse_bits(),
            undo: Undo { accounts },
            trees,
        })
    }

    trait ReverseBits {
        fn reverse_bits(self) -> Self;
    }

    impl ReverseBits for B256 {
        fn reverse_bits(self) -> Self {
            Self(self.0.map(u8::reverse_bits))
        }
    }

    proptest! {
        #[test]
        fn rows_are_read_as_they_were_written(record in record(), before in record()) {
            let row = record.encode(&mut Packer::new());
            // What was packed before does not show.
            let mut packer = Packer::new();
            before.encode(&mut packer);
            prop_assert_eq!(&record.encode(&mut packer), &row);
            prop_assert_eq!(Record::decode(record.block.number, &row), Ok(record));
        }

        #[test]
        fn damaged_rows_are_no_panic(
            record in record(),
            at in any::<proptest::sample::Index>(),
            flip in 1_u8..,
            cut in any::<proptest::sample::Index>(),
        ) {
            let mut row = record.encode(&mut Packer::new());
            let cut = cut.index(row.len());
            prop_assert!(Record::decode(record.block.number, &row[..cut]).is_err() || cut > 100);
            let at = at.index(row.len());
            row[at] ^= flip;
            let _ = Record::decode(record.block.number, &row);
        }

        #[test]
        fn noise_is_no_panic(noise in vec(any::<u8>(), 0..300)) {
            for (version, form) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
                let mut row = vec![1; 106];
                (row[0], row[105]) = (version, form);
                row.extend_from_slice(&noise);
                let _ = Record::decode(u64::MAX, &row);
            }
        }
    }

    /// Rows outlive the program that wrote them: these bytes may never change.
    #[test]
    fn the_bytes_of_a_row_are_fixed() {
        let slot = B256::with_last_byte(1);
        let old = OldFields {
            nonce: Some(300),
            balance: Some(U256::from(5)),
            storage: [(Slot::Known(slot), None), (Slot::Hashed(slot), Some(U256::ZERO))].into(),
            ..OldFields::default()
        };
        let accounts = [
            (Address::with_last_byte(1), Before::Absent),
            (Address::with_last_byte(2), Before::Changed(old)),
            (Address::with_last_byte(3), Before::Whole(OldAccount::default())),
        ];
        let undo = Undo { accounts: accounts.into() };
        let record = Record {
            block: BlockId { number: 7, hash: [7; 32] },
            parent: BlockId { number: 6, hash: [6; 32] },
            parent_root: B256::repeat_byte(9),
            undo,
            trees: [].into(),
        };
        let body = super::encode_body(&record.undo);
        assert_eq!(
            hex::encode(body),
            "000000000000000000000000000000000000000100\
             00000000000000000000000000000000000000022dac020105020101ff810100\
             000000000000000000000000000000000000000302"
        );
        let row = record.encode(&mut Packer::new());
        assert_eq!(
            hex::encode(&row[..105]),
            format!("01{}0000000000000006{}{}", "07".repeat(32), "06".repeat(32), "09".repeat(32))
        );
        assert_eq!(key(7), [0, 0, 0, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn the_bytes_of_a_section_are_fixed() {
        let undo = LeafUndo {
            root: B256::repeat_byte(9),
            leaves: [
                (vec![1, 2, 3], Some(B256::with_last_byte(7).0)),
                (vec![1, 2, 4], None),
                (vec![1, 3, 0], Some([0; 32])),
            ]
            .into(),
            metadata: [(vec![5], None), (vec![6], Some(vec![])), (vec![7], Some(vec![8]))].into(),
        };
        let record = Record {
            block: BlockId { number: 1, ..BlockId::default() },
            parent: BlockId::default(),
            parent_root: B256::ZERO,
            undo: Undo { accounts: [(Address::ZERO, Before::Absent)].into() },
            trees: [(TreeId(300), undo)].into(),
        };
        let row = record.encode(&mut Packer::new());
        assert_eq!((row[0], row[105]), (2, 1), "it has sections, and is shorter compressed");
        let body = super::unpack(&row[106..]).unwrap();
        let leaves = "020201020203010704ff020103010000";
        assert_eq!(
            hex::encode(body),
            format!("15{}00ac02{}{leaves}03010500010601010702", "00".repeat(20), "09".repeat(32))
                + "08"
        );
        assert_eq!(Record::decode(1, &row), Ok(record));
    }

    #[test]
    fn a_row_that_would_fill_the_memory_is_refused() {
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 3).unwrap();
        assert!(bomb.len() < 10_000);
        let row = [&[1; 105][..], &[1], &bomb].concat();
        let fault = Record::decode(u64::MAX, &row).unwrap_err();
        assert!(fault.contains("256 times"), "{fault}");
        // And what is so dull is kept plain.
        let slots = (0..40_000_u64).map(|at| (Slot::Known(U256::from(at).into()), U256::ZERO));
        let whole = OldAccount { account: Account::EMPTY, storage: slots.collect() };
        let record = Record {
            block: BlockId { number: 1, ..BlockId::default() },
            parent: BlockId::default(),
            parent_root: B256::ZERO,
            undo: Undo { accounts: [(Address::ZERO, Before::Whole(whole))].into() },
            trees: [].into(),
        };
        assert_eq!(Record::decode(1, &record.encode(&mut Packer::new())), Ok(record));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let fault = |row: &[u8]| Record::decode(9, row).unwrap_err();
        assert_eq!(fault(&[]), "it ends too early");
        assert_eq!(fault(&[3]), "it has version 3, and this program knows versions up to 2");
        let mut row = vec![0; 106];
        row[0] = 1;
        row[40] = 9;
        assert_eq!(fault(&row), "it names block 9 as the one before");
        row[40] = 8;
        assert!(Record::decode(9, &row).is_ok());
        row[105] = 2;
        assert_eq!(fault(&row), "its body has the unknown form 2");
        row[105] = 1;
        row.extend_from_slice(b"no zstd");
        assert!(fault(&row).starts_with("its body cannot be decompressed"));
    }
}
