//! The snapshot file: all leaves of a partitioned binary tree, under its root.
//!
//! ```text
//! file  root (32) | number of leaves (8, BE) | leaf*
//! leaf  RLP of [key, value]
//! ```
//! Leaves ascend by key, and none comes twice. A key stands at its full length: 34 bytes in the
//! zones 00 (headers) and 01 (code), 66 in zone ff (storage). A value stands as RLP has integers,
//! without leading zeros; a value of zero is no leaf.
//!
//! ```
//! use spinney_migrate::snapshot::{Reader, Writer};
//! use spinney_tree::{HashFunction, bulk, pbt::Pbt};
//!
//! let pbt = Pbt { hash: HashFunction::Blake3 };
//! let (key, mut value) = ([0; 34], [0; 32]);
//! value[31] = 5;
//! let root = bulk::root_of_sorted(&pbt, &[(key, value)])?;
//!
//! let mut writer = Writer::new(Vec::new(), root, 1)?;
//! writer.leaf(&key, &value)?;
//! let (written, file) = writer.finish()?;
//! assert_eq!(file.len(), 32 + 8 + 1 + 1 + 34 + 1);
//!
//! let checked = Reader::new(&file[..])?.check(pbt)?;
//! assert_eq!((checked.file, checked.root, checked.leaves), (written, root.into(), 1));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::io::{Read, Write};

use alloy_primitives::B256;
use alloy_rlp::{Encodable as _, Header};
use spinney_tree::bulk::RootBuilder;
use spinney_tree::pbt::Pbt;

use crate::file::{Digested, FileError, Flaw, Input, Output, hex};

/// Bytes of the longest key.
const KEY_BYTES_MAX: usize = 66;
/// Bytes of the longest leaf behind its list's prefix: 2 and a key, 1 and a value.
const LEAF_BYTES_MAX: usize = 2 + KEY_BYTES_MAX + 1 + 32;

/// A leaf of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its key, 34 or 66 bytes.
    pub key: Vec<u8>,
    /// Its value, with its leading zeros.
    pub value: [u8; 32],
}

/// Keys as they pass.
#[derive(Debug, Default)]
struct LeafOrder {
    key: Vec<u8>,
    passed: u64,
}

impl LeafOrder {
    fn leaf(&mut self, key: &[u8], value: &[u8; 32]) -> Result<(), Flaw> {
        let none = |what| Err(Flaw::Key { key: hex(key), what });
        match (key.first(), key.len()) {
            (Some(0x00 | 0x01), 34) | (Some(0xff), KEY_BYTES_MAX) => {}
            (Some(0x00 | 0x01), _) => return none("its zone has keys of 34 bytes"),
            (Some(0xff), _) => return none("its zone has keys of 66 bytes"),
            _ => return none("there is no such zone"),
        }
        if self.passed > 0 && *self.key >= *key {
            return Err(Flaw::Order { what: "leaf", key: hex(key) });
        }
        if *value == [0; 32] {
            return Err(Flaw::Leaf("a value of zero is no leaf"));
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        self.passed = self.passed.saturating_add(1);
        Ok(())
    }

    const fn count(&self, says: u64) -> Result<(), Flaw> {
        match self.passed == says {
            true => Ok(()),
            false => Err(Flaw::LeafCount { says, has: self.passed }),
        }
    }
}

/// Writes a snapshot file.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: Output<W>,
    order: LeafOrder,
    leaves: u64,
    record: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// The beginning of a file of that root, which so many leaves follow.
    ///
    /// # Errors
    /// If nothing can be written.
    pub fn new(out: W, root: [u8; 32], leaves: u64) -> Result<Self, FileError> {
        let mut out = Output::new(out);
        out.put(&root)?;
        out.put(&leaves.to_be_bytes())?;
        Ok(Self { out, order: LeafOrder::default(), leaves, record: Vec::new() })
    }

    /// Writes a leaf.
    ///
    /// # Errors
    /// If it is not behind the one before it, the tree has no such key, the value is zero, or
    /// nothing can be written.
    pub fn leaf(&mut self, key: &[u8], value: &[u8; 32]) -> Result<(), FileError> {
        let at = self.out.at();
        self.order.leaf(key, value).map_err(|flaw| FileError::Invalid { at, flaw })?;
        let zeros = value.iter().take_while(|byte| **byte == 0).count();
        let value = value.get(zeros..).unwrap_or_default();
        self.record.clear();
        let payload_length = key.length().saturating_add(value.length());
        Header { list: true, payload_length }.encode(&mut self.record);
        key.encode(&mut self.record);
        value.encode(&mut self.record);
        self.out.put(&self.record)
    }

    /// Ends the file, and answers with what it went into; that is not synced.
    ///
    /// # Errors
    /// If leaves are missing or too many, or nothing can be written.
    pub fn finish(self) -> Result<(Digested, W), FileError> {
        let at = self.out.at();
        self.order.count(self.leaves).map_err(|flaw| FileError::Invalid { at, flaw })?;
        self.out.end()
    }
}

/// A snapshot whose leaves have the root that it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The file.
    pub file: Digested,
    /// Its root.
    pub root: B256,
    /// Its leaves.
    pub leaves: u64,
}

/// Reads a snapshot file, in memory that does not grow with it.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    order: LeafOrder,
    root: B256,
    leaves: u64,
}

impl<R: Read> Reader<R> {
    /// The beginning of a file.
    ///
    /// # Errors
    /// If it is too short, or cannot be read.
    pub fn new(file: R) -> Result<Self, FileError> {
        let mut input = Input::new(file);
        let (mut root, mut leaves) = (B256::ZERO, [0; 8]);
        input.take(&mut root.0, "the root")?;
        input.take(&mut leaves, "the number of leaves")?;
        let leaves = u64::from_be_bytes(leaves);
        Ok(Self { input, order: LeafOrder::default(), root, leaves })
    }

    /// The root that the file says.
    pub const fn root(&self) -> B256 {
        self.root
    }

    /// The number of leaves that the file says.
    pub const fn leaves(&self) -> u64 {
        self.leaves
    }

    /// The next leaf.
    ///
    /// # Errors
    /// If the file is not valid, or cannot be read.
    pub fn leaf(&mut self) -> Result<Option<Leaf>, FileError> {
        let at = self.input.at();
        let invalid = |flaw| FileError::Invalid { at, flaw };
        let mut prefix = [0];
        if !self.input.take_or_end(&mut prefix, "a leaf")? {
            self.order.count(self.leaves).map_err(invalid)?;
            return Ok(None);
        }
        if self.order.passed == self.leaves {
            return Err(invalid(Flaw::Trailing));
        }
        let length = match prefix[0] {
            short @ 0xc0..=0xf7 => usize::from(short.saturating_sub(0xc0)),
            0xf8 => {
                let mut length = [0];
                self.input.take(&mut length, "a leaf")?;
                match length[0] {
                    0..56 => return Err(invalid(Flaw::Leaf("its length is not the shortest"))),
                    length => usize::from(length),
                }
            }
            _ => return Err(invalid(Flaw::Leaf("it is no list of a key and a value"))),
        };
        let mut bytes = [0; LEAF_BYTES_MAX];
        let Some(bytes) = bytes.get_mut(..length) else {
            return Err(invalid(Flaw::Leaf("it is longer than any leaf")));
        };
        self.input.take(bytes, "a leaf")?;
        let leaf = decode(bytes).map_err(invalid)?;
        self.order.leaf(&leaf.key, &leaf.value).map_err(invalid)?;
        Ok(Some(leaf))
    }

    /// Reads what is left, and answers for the whole file; the root is taken as it stands.
    ///
    /// # Errors
    /// If the file is not valid, or cannot be read.
    pub fn finish(mut self) -> Result<Digested, FileError> {
        while self.leaf()?.is_some() {}
        self.input.end()
    }

    /// Reads all leaves, and makes sure that they have the root that the file says.
    ///
    /// # Errors
    /// If the file is not valid, cannot be read, or has leaves of another root.
    pub fn check(mut self, pbt: Pbt) -> Result<Checked, FileError> {
        let mut builder = RootBuilder::new(pbt);
        // The tree asks for less of a leaf than the file does.
        let refused =
            |_| FileError::Invalid { at: 0, flaw: Flaw::Leaf("the tree takes no such leaf") };
        while let Some(Leaf { key, value }) = self.leaf()? {
            builder.push(&key, &value).map_err(refused)?;
        }
        let (says, leaves) = (self.root, self.leaves);
        let file = self.input.end()?;
        let is = B256::from(builder.finish().map_err(refused)?);
        if is != says {
            let (says, is) = (hex(says.as_slice()), hex(is.as_slice()));
            return Err(FileError::Invalid { at: 0, flaw: Flaw::Root { says, is } });
        }
        Ok(Checked { file, root: says, leaves })
    }
}

/// A key and a value, and nothing else.
fn decode(mut bytes: &[u8]) -> Result<Leaf, Flaw> {
    let key = Header::decode_bytes(&mut bytes, false);
    let key = key.map_err(|_| Flaw::Leaf("its key is no canonical string"))?;
    let digits = Header::decode_bytes(&mut bytes, false);
    let digits = digits.map_err(|_| Flaw::Leaf("its value is no canonical string"))?;
    if !bytes.is_empty() {
        return Err(Flaw::Leaf("it goes on behind its value"));
    }
    if digits.first() == Some(&0) {
        return Err(Flaw::Leaf("its value has a leading zero"));
    }
    let mut value = [0; 32];
    let start = value.len().checked_sub(digits.len());
    let Some(place) = start.and_then(|start| value.get_mut(start..)) else {
        return Err(Flaw::Leaf("its value is longer than 32 bytes"));
    };
    place.copy_from_slice(digits);
    Ok(Leaf { key: key.to_vec(), value })
}
