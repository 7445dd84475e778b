//! A node's JSON-RPC, over HTTP.
//!
//! Invariants:
//! - what a node makes us hold is bounded: an answer by its bytes, a request by its time;
//! - an answer is what was asked for, or an error that says what came instead;
//! - a block's hash is the one of its bytes, never the one that the node gives.

use std::fmt;
use std::io::Read as _;
use std::time::Duration;

use alloy_primitives::{B256, Bytes, U64};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use spinney_migrate::AccessList;
use spinney_replay::{BlockTrace, ChainBlock, ChainReader};
use spinney_tree::BlockId;

use crate::error::NodeError;
use crate::node_block::{NodeBlock, header_alone};
use crate::url::Url;

/// The longest answer that is read: a batch of blocks of 32 MiB at most, as hexadecimal digits.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// How long a node may take to take a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long it may take for an answer.
const ANSWER: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Answer {
    id: Option<u64>,
    #[serde(default)]
    result: Option<Box<RawValue>>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct RpcError {
    code: i64,
    message: String,
}

/// The part of a block that says which one it is.
#[derive(Deserialize)]
struct Named {
    number: U64,
    hash: B256,
}

/// A call: a method and its parameters.
pub(crate) type Call = (&'static str, Value);

/// What is answered to a call of a batch.
pub(crate) type Answered = Result<Box<RawValue>, NodeError>;

pub(crate) const BY_NUMBER: &str = "eth_getBlockByNumber";
const RAW: &str = "debug_getRawBlock";
const LIST: &str = "eth_getBlockAccessList";
const TRACE: &str = "debug_traceBlockByHash";

/// A node that is asked over HTTP.
pub struct Node {
    url: Url,
    agent: ureq::Agent,
    /// Whether it gives blocks as RLP; known once it was asked.
    gives_raw: std::sync::OnceLock<bool>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Node {
    /// A node; nobody is asked yet.
    pub fn new(url: Url) -> Self {
        Self::within(url, ANSWER)
    }

    /// A node that may take so long for an answer.
    pub(crate) fn within(url: Url, answer: Duration) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(CONNECT.min(answer)))
            .timeout_global(Some(answer))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .build();
        Self { url, agent: config.into(), gives_raw: std::sync::OnceLock::new() }
    }

    /// Where it listens.
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// Number and hash of its last block.
    ///
    /// # Errors
    /// If it does not answer, or not that.
    pub fn head(&self) -> Result<BlockId, NodeError> {
        let head: Option<Named> = self.ask(BY_NUMBER, json!(["latest", false]))?;
        let head = head.ok_or_else(|| NodeError::answer(BY_NUMBER, "it has no last block"))?;
        Ok(BlockId { number: head.number.to(), hash: head.hash.0 })
    }

    /// The number of the last block that it calls final, if it says so of any.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn finalized(&self) -> Result<Option<u64>, NodeError> {
        match self.ask::<Option<Named>>(BY_NUMBER, json!(["finalized", false])) {
            Ok(named) => Ok(named.map(|named| named.number.to())),
            // As nodes say that they know of none.
            Err(NodeError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The hash that it says its block of this number has.
    ///
    /// # Errors
    /// If it does not answer, or of another block.
    pub fn hash_of(&self, number: u64) -> Result<Option<B256>, NodeError> {
        let named: Option<Named> = self.ask(BY_NUMBER, json!([quantity(number), false]))?;
        named.map(|named| check_number(number, named.number.to()).map(|()| named.hash)).transpose()
    }

    /// Its blocks of these numbers, up to the first that it does not have.
    ///
    /// # Errors
    /// If it does not answer, or with something that is no block of that number.
    pub(crate) fn blocks(
        &self,
        numbers: std::ops::Range<u64>,
    ) -> Result<Vec<ChainBlock>, NodeError> {
        let raw = match self.gives_raw.get() {
            Some(false) => None,
            _ => match self.raw_blocks(numbers.clone()) {
                Ok(blocks) => Some(blocks),
                Err(error) if error.is_unknown_method() => None,
                Err(error) => return Err(error),
            },
        };
        let _ = self.gives_raw.set(raw.is_some());
        raw.map_or_else(|| self.json_blocks(numbers), Ok)
    }

    fn raw_blocks(&self, numbers: std::ops::Range<u64>) -> Result<Vec<ChainBlock>, NodeError> {
        let calls = numbers.clone().map(|number| (RAW, json!([quantity(number)]))).collect();
        let mut blocks = Vec::new();
        for (number, answer) in numbers.zip(self.batch(calls)?) {
            let raw: Option<Bytes> = match answer {
                Ok(raw) => read(RAW, &raw)?,
                // Some nodes have an error for a block that is not there, others no bytes.
                Err(error) if !error.is_unknown_method() && !blocks.is_empty() => None,
                Err(error) => return Err(error),
            };
            let Some(raw) = raw.filter(|raw| !raw.is_empty()) else { break };
            let mut reader = ChainReader::new(&raw[..]).map_err(|e| NodeError::answer(RAW, e))?;
            let block = reader.next().transpose().map_err(|e| NodeError::answer(RAW, e))?;
            let block = block.ok_or_else(|| NodeError::answer(RAW, "an empty block"))?;
            if reader.offset() != raw.len() as u64 {
                return Err(NodeError::answer(RAW, "bytes behind the block"));
            }
            check_number(number, block.block.header.number)?;
            blocks.push(block);
        }
        Ok(blocks)
    }

    fn json_blocks(&self, numbers: std::ops::Range<u64>) -> Result<Vec<ChainBlock>, NodeError> {
        let calls = numbers.clone().map(|n| (BY_NUMBER, json!([quantity(n), true]))).collect();
        let mut blocks = Vec::new();
        for (number, answer) in numbers.zip(self.batch(calls)?) {
            let Some(block) = read::<Option<NodeBlock>>(BY_NUMBER, &answer?)? else { break };
            let ommers = self.ommers(number, block.ommer_count())?;
            let block = block.into_block(ommers)?;
            check_number(number, block.block.header.number)?;
            blocks.push(block);
        }
        Ok(blocks)
    }

    fn ommers(&self, number: u64, count: usize) -> Result<Vec<alloy_consensus::Header>, NodeError> {
        const METHOD: &str = "eth_getUncleByBlockNumberAndIndex";
        (0..count as u64)
            .map(|at| {
                let header: Option<alloy_consensus::Header> =
                    self.ask(METHOD, json!([quantity(number), quantity(at)]))?;
                header.ok_or_else(|| NodeError::answer(METHOD, "it does not have that ommer"))
            })
            .collect()
    }

    /// Blocks of these numbers without what is in them, where a block cannot have ommers; whole
    /// ones else.
    ///
    /// # Errors
    /// As [`blocks`](Self::blocks), or one is not there.
    pub(crate) fn headers(
        &self,
        numbers: std::ops::Range<u64>,
    ) -> Result<Vec<ChainBlock>, NodeError> {
        let calls = numbers.clone().map(|n| (BY_NUMBER, json!([quantity(n), false]))).collect();
        let mut headers = Vec::new();
        for (number, answer) in numbers.clone().zip(self.batch(calls)?) {
            let header: Option<alloy_consensus::Header> = read(BY_NUMBER, &answer?)?;
            let missing = || NodeError::answer(BY_NUMBER, format!("it has no block {number}"));
            let header = header.ok_or_else(missing)?;
            check_number(number, header.number)?;
            if !header.difficulty.is_zero() {
                return self.blocks(numbers);
            }
            headers.push(header_alone(header));
        }
        Ok(headers)
    }

    /// The access list of a block whose header names one; `None` where the node does not give it.
    ///
    /// # Errors
    /// If it does not answer, or with another list than the header names.
    pub(crate) fn access_list(&self, block: &ChainBlock) -> Result<Option<AccessList>, NodeError> {
        let Some(named) = block.block.header.block_access_list_hash else { return Ok(None) };
        let list: Box<RawValue> = match self.ask(LIST, json!([block.hash])) {
            Err(error) if error.is_unknown_method() => return Ok(None),
            list => list?,
        };
        if list.get() == "null" {
            return Ok(None);
        }
        let list = AccessList::read_json(list.get(), named);
        list.map(Some).map_err(|error| NodeError::answer(LIST, error))
    }

    /// What the transactions of a block did, as the node's prestateTracer says it in diff mode.
    ///
    /// # Errors
    /// If it does not answer, or with something else.
    pub(crate) fn trace(&self, block: &ChainBlock) -> Result<BlockTrace, NodeError> {
        let how = json!({ "tracer": "prestateTracer", "tracerConfig": { "diffMode": true } });
        let trace: Box<RawValue> = self.ask(TRACE, json!([block.hash, how]))?;
        BlockTrace::parse(trace.get().as_bytes()).map_err(|error| NodeError::answer(TRACE, error))
    }

    /// Asks one thing.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        method: &'static str,
        params: Value,
    ) -> Result<T, NodeError> {
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": method, "params": params });
        let bytes = self.post(&body)?;
        read(method, &take(method, 0, parse(method, &bytes)?)?)
    }

    /// Asks several things at once; the answers come in their order.
    pub(crate) fn batch(&self, calls: Vec<Call>) -> Result<Vec<Answered>, NodeError> {
        let Some((first, _)) = calls.first().cloned() else { return Ok(Vec::new()) };
        let body = (0_u64..).zip(&calls).map(|(id, (method, params))| {
            json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
        });
        let bytes = self.post(&Value::Array(body.collect()))?;
        let is_one = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        if is_one {
            // A batch that is refused as a whole.
            let answer: Answer = parse(first, &bytes)?;
            let what = || NodeError::answer(first, "one answer to a batch");
            return Err(answer.error.map_or_else(what, |error| refused(first, error)));
        }
        let mut answers: Vec<Answer> = parse(first, &bytes)?;
        answers.sort_by_key(|answer| answer.id);
        if answers.len() != calls.len() {
            let what = format!("{} answers to {} calls", answers.len(), calls.len());
            return Err(NodeError::answer(first, what));
        }
        let named = (0_u64..).zip(&calls).zip(answers);
        Ok(named.map(|((id, (method, _)), answer)| take(method, id, answer)).collect())
    }

    fn post(&self, body: &Value) -> Result<Vec<u8>, NodeError> {
        let failed = |error: &dyn fmt::Display| NodeError::Unreachable {
            url: self.url.clone(),
            error: error.to_string(),
        };
        let request = self.agent.post(self.url.as_str()).header("content-type", "application/json");
        let mut response = request.send(body.to_string()).map_err(|error| failed(&error))?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(NodeError::Status { url: self.url.clone(), status });
        }
        let mut bytes = Vec::new();
        let mut reader = response.body_mut().as_reader().take(ANSWER_BYTES_MAX + 1);
        reader.read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        if bytes.len() as u64 > ANSWER_BYTES_MAX {
            return Err(failed(&format_args!("an answer of more than {ANSWER_BYTES_MAX} bytes")));
        }
        Ok(bytes)
    }
}

fn parse<T: DeserializeOwned>(method: &'static str, bytes: &[u8]) -> Result<T, NodeError> {
    serde_json::from_slice(bytes).map_err(|error| NodeError::answer(method, error))
}

fn refused(method: &'static str, RpcError { code, message }: RpcError) -> NodeError {
    // It is shown to people: no more than a line of it.
    let message = message.chars().filter(|c| !c.is_control()).take(300).collect();
    NodeError::Refused { method, code, message }
}

fn take(method: &'static str, id: u64, answer: Answer) -> Result<Box<RawValue>, NodeError> {
    match answer {
        Answer { error: Some(error), .. } => Err(refused(method, error)),
        Answer { id: got, .. } if got != Some(id) => {
            Err(NodeError::answer(method, "the answer is to another request"))
        }
        // A result of null is none, too.
        Answer { result, .. } => Ok(result.unwrap_or_else(null)),
    }
}

fn null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

pub(crate) fn read<T: DeserializeOwned>(
    method: &'static str,
    raw: &RawValue,
) -> Result<T, NodeError> {
    serde_json::from_str(raw.get()).map_err(|error| NodeError::answer(method, error))
}

pub(crate) fn check_number(expected: u64, got: u64) -> Result<(), NodeError> {
    let what = || NodeError::answer(BY_NUMBER, format!("asked for block {expected}, got {got}"));
    (expected == got).then_some(()).ok_or_else(what)
}

pub(crate) fn quantity(number: u64) -> String {
    format!("{number:#x}")
}
