//! What transactions did, as geth's `prestateTracer` tells it in diff mode.
//!
//! For each account that a transaction changed there is what it was (`pre`) and what of it is
//! another one now (`post`):
//! - in both: fields that `post` leaves out are as they were, and slots that it leaves out are zero
//!   now;
//! - in `post` alone: the account was empty, and what is left out is zero;
//! - in `pre` alone: the account was destroyed, with all of its storage;
//! - newer versions of geth give a code hash of zeros in `post` to an account that is not there any
//!   more.
//!
//! What happens outside of transactions is in no trace: withdrawals, rewards, calls of the
//! protocol. Nor is an account that is made without anything in it, as there were before Spurious
//! Dragon; and a contract that was destroyed in a call that was reverted then is told as destroyed.
//! Roots of headers find these out.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::BufRead,
};

use alloy_primitives::{Address, B256, U256, keccak256};
use serde::{Deserialize, de::Error as _};
use spinney_state::{AccountChange, Change, Changes, EMPTY_CODE_HASH};

use crate::{
    diff::{BlockDiff, DiffError},
    json::{HexAddress, HexBytes, HexHash, HexWord, Object, Quantity, Quantity64, UniqueMap},
    lines::Lines,
};

/// What one transaction did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionTrace {
    /// Its hash, where it is given.
    pub hash: Option<B256>,
    /// What it did.
    pub changes: Changes,
    /// Accounts that it left with nothing, which since Spurious Dragon are none.
    pub emptied: BTreeSet<Address>,
}

/// What the transactions of one block did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockTrace {
    /// The block, where the line says which.
    pub number: Option<u64>,
    /// Its hash, where it is given.
    pub hash: Option<B256>,
    /// Its transactions, in order.
    pub transactions: Vec<TransactionTrace>,
}

/// Reads traces line by line, a block a line, with memory for one line. Blank lines are passed
/// over.
///
/// A line is what `debug_traceBlockByNumber` answers, the envelope of JSON-RPC around it or not; or
/// an element of what `debug_traceChain` answers, which says which block it is of.
///
/// ```
/// use spinney_replay::TraceReader;
///
/// let line = r#"[{"result": {"pre": {}, "post":
///     {"0x00000000000000000000000000000000000a11ce": {"balance": "0x5"}}}}]"#.replace('\n', "");
/// let block = TraceReader::new(line.as_bytes()).next().unwrap()?;
/// assert_eq!(block.transactions[0].changes.accounts.len(), 1);
/// # Ok::<(), spinney_replay::DiffError>(())
/// ```
#[derive(Debug)]
pub struct TraceReader<R>(Lines<R>);

impl<R: BufRead> TraceReader<R> {
    /// Reads from `input`.
    pub fn new(input: R) -> Self {
        Self(Lines::new(input))
    }

    /// The trace of the block that comes next; those that say that they are of earlier ones are
    /// passed over.
    ///
    /// # Errors
    ///
    /// A line cannot be read.
    pub fn of_block(&mut self, number: u64) -> Result<Option<BlockTrace>, DiffError> {
        self.find(|trace| {
            !trace.as_ref().is_ok_and(|trace| trace.number.is_some_and(|of| of < number))
        })
        .transpose()
    }

    /// All lines as state differences, for those who have no blocks: the first one is of block 1,
    /// unless it says otherwise, and roots are not known.
    pub fn into_diffs(self) -> impl Iterator<Item = Result<BlockDiff, DiffError>> {
        let mut next = 1_u64;
        self.map(move |trace| {
            let trace = trace?;
            let number = trace.number.unwrap_or(next);
            next = number.saturating_add(1);
            Ok(BlockDiff::new(number, trace.changes(), None))
        })
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<BlockTrace, DiffError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(BlockTrace::parse)
    }
}

impl BlockTrace {
    /// Reads one line.
    ///
    /// # Errors
    ///
    /// It is no JSON of a traced block; a transaction could not be traced, or not in diff mode; or
    /// code is left out. Unknown and repeated fields are errors too.
    pub fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        let is_list = line.trim_ascii_start().first() == Some(&b'[');
        let (number, hash, items) = if is_list {
            (None, None, serde_json::from_slice(line)?)
        } else {
            let Object(line): Object<TraceLine> = serde_json::from_slice(line)?;
            if let Some(error) = line.error {
                return Err(serde_json::Error::custom(format!("the node answered {error}")));
            }
            let items = line.result.or(line.traces);
            let missing = || serde_json::Error::missing_field("result");
            (line.block, line.hash, items.ok_or_else(missing)?)
        };
        let items: Vec<Object<TxTraceResult>> = items;
        let item = |(index, Object(item)): (usize, Object<TxTraceResult>)| {
            item.read()
                .map_err(|error| serde_json::Error::custom(format!("transaction {index}: {error}")))
        };
        Ok(Self {
            number: number.map(|number| number.0),
            hash: hash.map(|hash| hash.0),
            transactions: items.into_iter().enumerate().map(item).collect::<Result<_, _>>()?,
        })
    }

    /// All that the transactions did, by the rules since Spurious Dragon.
    pub fn changes(&self) -> Changes {
        let mut all = Changes::default();
        for transaction in &self.transactions {
            let mut changes = transaction.changes.clone();
            for address in &transaction.emptied {
                changes.accounts.insert(*address, Change::Deleted);
            }
            all.then(&changes);
        }
        all
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceLine {
    #[serde(default, rename = "jsonrpc")]
    _version: Option<String>,
    #[serde(default, rename = "id")]
    _id: serde::de::IgnoredAny,
    #[serde(default)]
    error: Option<serde_json::Value>,
    #[serde(default)]
    result: Option<Vec<Object<TxTraceResult>>>,
    #[serde(default)]
    traces: Option<Vec<Object<TxTraceResult>>>,
    #[serde(default)]
    block: Option<Quantity64>,
    #[serde(default)]
    hash: Option<HexHash>,
}

/// A transaction: the trace, or an object around it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TxTraceResult {
    #[serde(default)]
    tx_hash: Option<HexHash>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    result: Option<Object<Sides>>,
    #[serde(default)]
    pre: Option<Accounts>,
    #[serde(default)]
    post: Option<Accounts>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sides {
    pre: Accounts,
    post: Accounts,
}

type Accounts = UniqueMap<HexAddress, Object<TraceAccount>>;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TraceAccount {
    #[serde(default)]
    balance: Option<Quantity>,
    #[serde(default)]
    nonce: Option<Quantity64>,
    #[serde(default)]
    code: Option<HexBytes>,
    #[serde(default)]
    code_hash: Option<HexHash>,
    #[serde(default)]
    storage: UniqueMap<HexWord, Quantity>,
}

impl TxTraceResult {
    fn read(self) -> Result<TransactionTrace, String> {
        if let Some(error) = self.error {
            return Err(format!("it was not traced: {error}"));
        }
        let sides = match (self.result, self.pre, self.post) {
            (Some(Object(sides)), None, None) => sides,
            (None, Some(pre), Some(post)) => Sides { pre, post },
            _ => return Err("it has no `pre` and `post`".into()),
        };
        let mut trace = TransactionTrace {
            hash: self.tx_hash.map(|hash| hash.0),
            ..TransactionTrace::default()
        };
        let Sides { pre, mut post } = sides;
        for (address, Object(before)) in pre.0 {
            match post.0.remove(&address) {
                Some(Object(after)) => trace.take(address.0, Some(before), after)?,
                None => drop(trace.changes.accounts.insert(address.0, Change::Deleted)),
            }
        }
        for (address, Object(after)) in post.0 {
            trace.take(address.0, None, after)?;
        }
        Ok(trace)
    }
}

impl TransactionTrace {
    /// Notes what became of an account; without `before` it was empty.
    fn take(
        &mut self,
        address: Address,
        before: Option<TraceAccount>,
        after: TraceAccount,
    ) -> Result<(), String> {
        let hash = after.code_hash.map(|hash| hash.0);
        if hash == Some(B256::ZERO) {
            self.changes.accounts.insert(address, Change::Deleted);
            return Ok(());
        }
        let code = after.code.map(|code| code.0);
        let code_hash = code.as_ref().map(keccak256);
        let shown = code_hash.unwrap_or(EMPTY_CODE_HASH);
        if hash.is_some_and(|hash| hash != shown) {
            let found = if code.is_some() { "another code" } else { "no code" };
            return Err(format!(
                "{address} has {found} beside its code hash: trace without disableCode"
            ));
        }
        let was_empty = before.is_none();
        let before = before.unwrap_or_default();
        let change = AccountChange {
            fresh: false,
            nonce: after.nonce.map(|nonce| nonce.0).or(was_empty.then_some(0)),
            balance: after.balance.map(|balance| balance.0).or(was_empty.then_some(U256::ZERO)),
            code_hash,
            code,
            storage: storage(&before, &after.storage.0),
        };
        let had_code = before.code.as_ref().is_some_and(|code| !code.0.is_empty());
        let keeps =
            |new: Option<U256>, old: Option<U256>| !new.or(old).unwrap_or_default().is_zero();
        let has_nonce =
            keeps(change.nonce.map(U256::from), before.nonce.map(|nonce| U256::from(nonce.0)));
        let has_balance = keeps(change.balance, before.balance.map(|balance| balance.0));
        let has_code = change.code_hash.map_or(had_code, |hash| hash != EMPTY_CODE_HASH);
        if !(has_nonce || has_balance || has_code) {
            self.emptied.insert(address);
        }
        self.changes.accounts.insert(address, Change::Written(change));
        Ok(())
    }
}

/// Slots that changed: those that were something and are not named any more are zero.
fn storage(before: &TraceAccount, after: &BTreeMap<HexWord, Quantity>) -> BTreeMap<B256, U256> {
    let cleared = before.storage.0.keys().map(|slot| (slot.0, U256::ZERO));
    let set = after.iter().map(|(slot, value)| (slot.0, value.0));
    cleared.chain(set).collect()
}

#[cfg(test)]
mod tests {
    use super::BlockTrace;

    fn refusal(line: &str) -> String {
        BlockTrace::parse(line.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn every_envelope_is_read() {
        let hash = format!("0x{}", "01".repeat(32));
        let item = format!(r#"{{"txHash": "{hash}", "result": {{"pre": {{}}, "post": {{}}}}}}"#);
        let lines = [
            format!("[{item}]"),
            format!(r#"{{"jsonrpc": "2.0", "id": 1, "result": [{item}]}}"#),
            format!(r#"{{"block": "0x7", "hash": null, "traces": [{item}]}}"#),
        ];
        let [list, answer, chain] = lines.map(|line| BlockTrace::parse(line.as_bytes()).unwrap());
        assert_eq!((list.number, list.transactions.len()), (None, 1));
        assert_eq!(list, answer);
        assert_eq!((chain.number, &chain.transactions), (Some(7), &list.transactions));
        assert_eq!(
            BlockTrace::parse(br#"[{"pre": {}, "post": {}}]"#).unwrap().transactions.len(),
            1
        );
    }

    #[test]
    fn what_is_no_difference_is_told() {
        let error = r#"{"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "gone"}}"#;
        assert!(refusal(error).contains("gone"));
        let plain = r#"[{"result": {"0x00000000000000000000000000000000000a11ce": {"nonce": 1}}}]"#;
        assert!(refusal(plain).contains("expected `pre` or `post`"), "{}", refusal(plain));
        assert!(refusal(r#"[{"error": "too slow"}]"#).contains("transaction 0: it was not traced"));
        assert!(refusal(r#"{"jsonrpc": "2.0", "id": 1}"#).contains("missing field `result`"));
        let hash = "0x0101010101010101010101010101010101010101010101010101010101010101";
        let address = "0x00000000000000000000000000000000000a11ce";
        let post = format!(r#"{{"{address}": {{"codeHash": "{hash}"}}}}"#);
        let codeless = format!(r#"[{{"pre": {{}}, "post": {post}}}]"#);
        assert!(refusal(&codeless).contains("without disableCode"));
    }
}
