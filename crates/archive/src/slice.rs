//! Slices: archives that hold what some accounts need of each block, and nothing else.
//!
//! Invariants:
//! - of a tree in which an account's keys lie together a slice has each row on the way to the keys
//!   of its accounts, or below. Proofs of keys that are there are made of these. Where there are no
//!   such keys, a proof shows what stands in their place, a fork or a leaf of others: the rows of
//!   that are there, too. Other trees are left out;
//! - a row that is outside of a slice is refused, whether the whole archive has it or not: nobody
//!   is told that it is absent.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, keccak256};
use serde::{Deserialize, Serialize};
use spinney_state::MPT;
use spinney_state::embed::{PBT, pbt};
use spinney_tree::mpt::MptState;
use spinney_tree::pbt::Pbt;
use spinney_tree::{HashFunction, Scheme as _, Table, is_on_path};

use crate::error::ArchiveError;
use crate::forms::TreeInfo;
use crate::hex::{hex, unhex, unhex_all};
use crate::window::{HASHES, WITNESS};

/// What follows all keys of witnesses in a store.
const WITNESSES_END: &[u8] = b"witness0";
/// A leaf of a PBT has so many bytes of code.
const CHUNK_BYTES: u64 = 31;
/// So many leaves of code lie together.
const GROUP_CHUNKS: u32 = 256;

/// What an archive is sliced by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SliceInfo {
    /// The accounts' addresses in hex, in order.
    pub addresses: Vec<String>,
    /// All code that they had.
    pub codes: Vec<SlicedCode>,
    /// The keys in hex of pages beside the paths of the accounts' keys: proofs that an account, its
    /// storage or its code is not there are made of them, too.
    pub beside: Vec<String>,
    /// The trees of the whole archive that are left out.
    pub without: Vec<TreeInfo>,
}

/// Code that an account of a slice had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SlicedCode {
    /// Its Keccak-256 digest in hex.
    pub hash: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Which rows a slice has.
#[derive(Debug)]
pub(crate) struct Slice {
    addresses: BTreeSet<[u8; 20]>,
    /// What the keys of the accounts begin with, in each tree.
    prefixes: BTreeMap<u32, Vec<Vec<u8>>>,
    /// Pages beside their paths.
    beside: BTreeSet<Vec<u8>>,
    codes: BTreeSet<[u8; 32]>,
    /// The hashes of the addresses.
    hashes: BTreeSet<[u8; 32]>,
    without: BTreeSet<u32>,
}

impl Slice {
    /// Of what a manifest says; nothing if that makes no sense.
    pub(crate) fn of(info: &SliceInfo, trees: &[TreeInfo]) -> Option<Self> {
        let addresses = info.addresses.iter().map(|address| unhex(address));
        let addresses: BTreeSet<[u8; 20]> = addresses.collect::<Option<_>>()?;
        let codes = info.codes.iter().map(|code| Some((unhex(&code.hash)?, code.bytes)));
        let codes: BTreeMap<[u8; 32], u64> = codes.collect::<Option<_>>()?;
        let of_tree = |tree: &TreeInfo| Some((tree.id, prefixes(tree, &addresses, &codes)?));
        let prefixes = trees.iter().map(of_tree).collect::<Option<_>>()?;
        let beside = info.beside.iter().map(|row| unhex_all(row)).collect::<Option<_>>()?;
        let hashes = addresses.iter().map(|address| keccak256(address).0).collect();
        let without = info.without.iter().map(|tree| tree.id).collect();
        let codes = codes.into_keys().collect();
        Some(Self { addresses, prefixes, beside, codes, hashes, without })
    }

    pub(crate) const fn addresses(&self) -> &BTreeSet<[u8; 20]> {
        &self.addresses
    }

    /// What keys of a tree begin with that belong to the slice.
    pub(crate) fn prefixes(&self, tree: u32) -> &[Vec<u8>] {
        self.prefixes.get(&tree).map_or(&[], Vec::as_slice)
    }

    /// Whether a row belongs to the slice, be it there or not.
    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        const PAGES: u8 = Table::Pages as u8;
        const ROOTS: u8 = Table::Roots as u8;
        const CODES: u8 = Table::Codes as u8;
        const PREIMAGES: u8 = Table::Preimages as u8;
        const META: u8 = Table::Meta as u8;
        let Some((&table, key)) = key.split_first() else { return false };
        let tree = || key.first_chunk().map(|id| u32::from_be_bytes(*id));
        match table {
            PAGES => {
                let prefixes = tree().and_then(|tree| self.prefixes.get(&tree));
                let mut prefixes = prefixes.into_iter().flatten();
                prefixes.any(|prefix| is_on_path(key, prefix)) || self.beside.contains(key)
            }
            ROOTS => tree().is_none_or(|tree| !self.without.contains(&tree)),
            CODES => key.try_into().is_ok_and(|hash: [u8; 32]| self.codes.contains(&hash)),
            PREIMAGES => key.try_into().is_ok_and(|hash: [u8; 32]| self.hashes.contains(&hash)),
            // What a tree notes of accounts begins with the tree's id.
            META => key.first() != Some(&0),
            HASHES => true,
            _ => false,
        }
    }

    /// Whether all rows between two keys belong to the slice.
    pub(crate) fn holds_all(&self, table: Table, low: &[u8], high: Option<&[u8]>) -> bool {
        let begins = |key: &[u8]| key.first().copied();
        // Of `meta` what trees note of accounts lies in front of all else.
        let behind_notes = begins(low).is_some_and(|first| first > 0);
        let has_witnesses = low < WITNESSES_END && high.is_none_or(|high| high > WITNESS);
        table == Table::Meta && behind_notes && !has_witnesses
    }

    /// Why a row is refused.
    pub(crate) fn refusal(&self, place: String, key: &[u8]) -> ArchiveError {
        let what = match key.split_first() {
            Some((&table, key)) if table == Table::Pages as u8 => {
                let id = key.first_chunk().map_or(0, |id| u32::from_be_bytes(*id));
                format!("a page of tree {id} on the way to other accounts")
            }
            Some((&table, key)) if table == Table::Codes as u8 => {
                format!("the code of hash 0x{}", hex(key))
            }
            _ => format!("row 0x{}", hex(key)),
        };
        self.outside(place, what)
    }

    /// Why something is refused that has a name.
    pub(crate) fn outside(&self, place: String, what: String) -> ArchiveError {
        ArchiveError::Sliced { place, accounts: self.addresses.len(), what }
    }

    pub(crate) fn check_account(
        &self,
        place: String,
        address: &[u8; 20],
    ) -> Result<(), ArchiveError> {
        match self.addresses.contains(address) {
            true => Ok(()),
            false => Err(self.outside(place, format!("account 0x{}", hex(address)))),
        }
    }
}

/// What the keys of accounts begin with in a tree; nothing if slots lie anywhere there.
pub(crate) fn prefixes(
    tree: &TreeInfo,
    addresses: &BTreeSet<[u8; 20]>,
    codes: &BTreeMap<[u8; 32], u64>,
) -> Option<Vec<Vec<u8>>> {
    if tree.id == MPT.0 && tree.scheme() == MptState.id() {
        return Some(addresses.iter().map(|address| keccak256(address).to_vec()).collect());
    }
    let hash = pbt_hash(tree)?;
    let mut prefixes = Vec::new();
    for address in addresses {
        let address = Address::from(*address);
        prefixes.push(pbt::header_prefix(hash, &address).to_vec());
        prefixes.push(pbt::storage_prefix(hash, &address).to_vec());
    }
    for (code, bytes) in codes {
        let chunks = u32::try_from(bytes.div_ceil(CHUNK_BYTES)).ok()?;
        for first in (0..chunks).step_by(GROUP_CHUNKS as usize) {
            let key = pbt::chunk_key(hash, code, first);
            prefixes.extend(key.split_last().map(|(_, prefix)| prefix.to_vec()));
        }
    }
    Some(prefixes)
}

/// The hash function of a PBT.
pub(crate) fn pbt_hash(tree: &TreeInfo) -> Option<HashFunction> {
    let hashes = [HashFunction::Keccak256, HashFunction::Sha256, HashFunction::Blake3];
    let is = |hash: &HashFunction| tree.id == PBT.0 && tree.scheme() == (Pbt { hash: *hash }).id();
    hashes.into_iter().find(is)
}
