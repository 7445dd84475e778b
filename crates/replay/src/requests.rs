//! Requests to the consensus layer (EIP-7685) and what they commit to.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_primitives::{Address, B256, Bytes, Log, b256};
use sha2::{Digest, Sha256};

use crate::{error::Check, rules::Failure};

/// The topic of the deposit contract's only event (EIP-6110).
const DEPOSIT_TOPIC: B256 =
    b256!("649bbc62d0e31342afea4e5cd82d4049e7e1ee912fc0889aa790803be39038c5");
const DEPOSIT_EVENT_LEN: usize = 576;
/// Where the event's five fields lie after their length words, and how long they are: public key,
/// withdrawal credentials, amount, signature, index.
const DEPOSIT_FIELDS: [(usize, usize); 5] = [(192, 48), (288, 32), (352, 8), (416, 96), (544, 8)];
const WORD: usize = 32;

/// The requests of a block: their data by type, in order of type from zero.
#[derive(Debug)]
pub(crate) struct Requests(Vec<Vec<u8>>);

impl Requests {
    /// Starts with the deposits (type 0) among the logs of a block.
    pub(crate) fn deposits<'l>(
        contract: Address,
        logs: impl Iterator<Item = &'l Log>,
    ) -> Result<Self, Failure> {
        let mut data = Vec::new();
        let deposits = logs
            .filter(|log| log.address == contract && log.topics().first() == Some(&DEPOSIT_TOPIC));
        for log in deposits {
            push_deposit(&log.data.data, &mut data)?;
        }
        Ok(Self(vec![data]))
    }

    /// Adds the data of the next type.
    pub(crate) fn push(&mut self, data: &Bytes) {
        self.0.push(data.to_vec());
    }

    /// Takes the data by type.
    pub(crate) const fn of(data: Vec<Vec<u8>>) -> Self {
        Self(data)
    }

    /// The data by type.
    pub(crate) fn into_data(self) -> Vec<Bytes> {
        self.0.into_iter().map(Bytes::from).collect()
    }

    /// The commitment in the header: types without data do not count.
    pub(crate) fn hash(&self) -> B256 {
        let mut all = Sha256::new();
        for (kind, data) in (0_u8..).zip(&self.0) {
            if !data.is_empty() {
                let one = Sha256::new().chain_update([kind]).chain_update(data);
                all.update(one.finalize());
            }
        }
        B256::from_slice(&all.finalize())
    }
}

/// Unpacks the event, whose layout has to be exactly this: an event that cannot be read makes the
/// block invalid.
fn push_deposit(event: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
    if event.len() != DEPOSIT_EVENT_LEN {
        let expected = format!("a deposit event of {DEPOSIT_EVENT_LEN} bytes");
        return Err(Failure::new(Check::RequestsHash, expected, event.len()));
    }
    for (index, (offset, len)) in DEPOSIT_FIELDS.into_iter().enumerate() {
        let part = |at: usize, len: usize| event.get(at..)?.get(..len);
        let holds = |at: usize, value: usize| {
            let word = part(at, WORD).and_then(|word| word.split_last_chunk());
            word.is_some_and(|(zeros, tail)| {
                zeros.iter().all(|byte| *byte == 0) && *tail == (value as u64).to_be_bytes()
            })
        };
        let length_at = offset.saturating_sub(WORD);
        let field = part(offset, len)
            .filter(|_| holds(index.saturating_mul(WORD), length_at) && holds(length_at, len));
        let Some(field) = field else {
            let got = format!("field {index} elsewhere");
            return Err(Failure::new(Check::RequestsHash, "a well-formed deposit event", got));
        };
        out.extend_from_slice(field);
    }
    Ok(())
}
