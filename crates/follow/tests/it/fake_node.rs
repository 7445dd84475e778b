//! A node that has the blocks it is given, and fails as it is told to.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use alloy_primitives::{Address, B256, U256, hex, keccak256};
use serde_json::{Value, json};
use spinney_follow::Url;
use spinney_replay::{ChainBlock, Genesis, Replay};
use spinney_state::{Changes, KeepHistory, State, StateRead as _};
use spinney_tree::{BlockId, MemoryStore};

/// How it answers.
#[derive(Clone, Debug)]
pub(crate) enum Mood {
    Good,
    /// Connections end without an answer.
    Away,
    Status(u16),
    /// Whatever was asked, this is the answer.
    Text(&'static str),
    /// Answers end in the middle.
    CutOff,
    /// There is no block of any number.
    Null,
    /// Blocks are those behind the ones asked for.
    OtherNumbers,
    /// Blocks have hashes of nothing.
    OtherHashes,
    /// Whole blocks are these; heads are those of before.
    Blocks(Vec<ChainBlock>),
    /// Whole blocks are cut off.
    Malformed,
    /// Proofs are of the first block's state.
    OtherProofs,
    /// Proofs hold, and the account that is told with them is another one.
    OtherFields,
    /// All code is another one.
    OtherCode,
}

/// A state that a node has, and whether it tells names of accounts and slots.
struct Proven {
    state: State<&'static MemoryStore>,
    names: bool,
}

struct Shared {
    genesis: Genesis,
    blocks: Mutex<Vec<ChainBlock>>,
    finalized: Mutex<Option<u64>>,
    proven: Mutex<Option<Proven>>,
    mood: Mutex<Mood>,
    gives_raw: bool,
    asked: Mutex<BTreeMap<String, usize>>,
    /// What it says of a block, by the method and the block's hash; asked by its number, too.
    told: Mutex<BTreeMap<(String, B256), Value>>,
    ended: AtomicBool,
}

pub(crate) struct FakeNode {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl FakeNode {
    pub(crate) fn start(genesis: &Genesis, blocks: &[ChainBlock], gives_raw: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            genesis: genesis.clone(),
            blocks: Mutex::new(blocks.to_vec()),
            finalized: Mutex::default(),
            proven: Mutex::default(),
            mood: Mutex::new(Mood::Good),
            gives_raw,
            asked: Mutex::default(),
            told: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.ended.load(Ordering::Relaxed) {
                    return;
                }
                let serving = Arc::clone(&serving);
                thread::spawn(move || drop(serving.answer(stream.unwrap())));
            }
        });
        Self { address, shared }
    }

    /// A node whose last block does something besides: its header has the root of that, and the
    /// node proves it.
    pub(crate) fn with_fault(genesis: &Genesis, blocks: &[ChainBlock], fault: &Changes) -> Self {
        let (last, before) = blocks.split_last().unwrap();
        let replayed = || {
            let store: &'static MemoryStore = Box::leak(Box::default());
            let mut state = State::open(store, 1 << 22).unwrap();
            state.keep_history(KeepHistory::All);
            let mut replay = Replay::start(genesis, state).unwrap();
            for block in before {
                let _ = replay.block(block).unwrap();
                replay.state_mut().commit().unwrap();
            }
            replay
        };
        let changes = replayed().block(last).unwrap().unwrap().changes;
        let mut state = replayed().into_state();
        state.apply(&changes).unwrap();
        let mut block = last.block.clone();
        block.header.state_root = state.apply(fault).unwrap();
        let block = ChainBlock::new(block);
        let (number, hash) = (block.block.header.number, block.hash.0);
        state.seal(BlockId { number, hash }).unwrap();
        state.commit().unwrap();
        let node = Self::start(genesis, &[before, &[block]].concat(), true);
        node.proves(state, true);
        node
    }

    pub(crate) fn url(&self) -> Url {
        format!("http://{}", self.address).parse().unwrap()
    }

    /// From now on its chain is this.
    pub(crate) fn has(&self, blocks: &[ChainBlock]) {
        *self.shared.blocks.lock().unwrap() = blocks.to_vec();
    }

    /// From now on it proves what this state holds; with `names` it tells names, too.
    pub(crate) fn proves(&self, state: State<&'static MemoryStore>, names: bool) {
        *self.shared.proven.lock().unwrap() = Some(Proven { state, names });
    }

    pub(crate) fn is(&self, mood: Mood) {
        *self.shared.mood.lock().unwrap() = mood;
    }

    pub(crate) fn finalizes(&self, number: Option<u64>) {
        *self.shared.finalized.lock().unwrap() = number;
    }

    /// From now on it says this of a block. It does not know methods by which it says nothing.
    pub(crate) fn tells(&self, method: &str, block: B256, answer: Value) {
        self.shared.told.lock().unwrap().insert((method.to_owned(), block), answer);
    }

    /// How often it was asked that.
    pub(crate) fn asked(&self, method: &str) -> usize {
        self.shared.asked.lock().unwrap().get(method).copied().unwrap_or_default()
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // It looks at it when somebody comes.
        drop(TcpStream::connect(self.address));
    }
}

impl Proven {
    fn answer(&self, method: &str, params: &Value, mood: &Mood) -> Option<Value> {
        match method {
            "eth_getProof" => Some(self.proof(params, mood)),
            "eth_getCode" => {
                let address = serde_json::from_value(params[0].clone()).unwrap();
                let state = self.state.at(quantity(&params[1])).unwrap();
                let account = state.account(address).unwrap();
                let code = account.and_then(|it| state.code(it.code_hash).unwrap());
                let other = matches!(mood, Mood::OtherCode);
                Some(if other { json!("0x60") } else { json!(code.unwrap_or_default()) })
            }
            _ if !self.names => None,
            "debug_accountRange" => Some(self.accounts(params)),
            _ => Some(self.slots(params)),
        }
    }

    fn proof(&self, params: &Value, mood: &Mood) -> Value {
        let address = serde_json::from_value(params[0].clone()).unwrap();
        let slots: Vec<B256> = serde_json::from_value(params[1].clone()).unwrap();
        let number = if matches!(mood, Mood::OtherProofs) { 1 } else { quantity(&params[2]) };
        let proof = self.state.at(number).unwrap().prove(address, &slots).unwrap();
        let hex = |nodes: &[Vec<u8>]| nodes.iter().map(hex::encode_prefixed).collect::<Vec<_>>();
        let word = |word: &[u8; 32]| json!(U256::from_be_bytes(*word));
        let slots = proof.storage_proof.iter().map(|slot| {
            let (key, value) = (B256::from(slot.key), word(&slot.value));
            json!({ "key": key, "value": value, "proof": hex(slot.proof.nodes()) })
        });
        let nonce = proof.fields.nonce + u64::from(matches!(mood, Mood::OtherFields));
        json!({
            "address": address,
            "nonce": format!("{nonce:#x}"),
            "balance": word(&proof.fields.balance),
            "codeHash": B256::from(proof.fields.code_hash),
            "storageHash": B256::from(proof.fields.storage_hash),
            "accountProof": hex(proof.account_proof.nodes()),
            "storageProof": slots.collect::<Vec<_>>(),
        })
    }

    /// As geth: accounts from a key on, by their addresses.
    fn accounts(&self, params: &Value) -> Value {
        let start: B256 = serde_json::from_value(params[1].clone()).unwrap();
        let dump = self.state.dump().unwrap();
        let all = dump.accounts().map(Result::unwrap).filter(|account| account.key >= start);
        let some = all.take(3).map(|account| (account.address.to_string(), json!({})));
        json!({ "accounts": some.collect::<serde_json::Map<_, _>>(), "next": "" })
    }

    /// As geth, of the last block alone.
    fn slots(&self, params: &Value) -> Value {
        let address: Address = serde_json::from_value(params[2].clone()).unwrap();
        let start: B256 = serde_json::from_value(params[3].clone()).unwrap();
        let dump = self.state.dump().unwrap();
        let mut all = dump.accounts().map(Result::unwrap);
        let account = all.find(|account| account.address == address);
        let slots = account.into_iter().flat_map(|account| account.storage);
        let slots = slots.map(|(slot, _)| (keccak256(slot), slot));
        let named = slots.filter(|(key, _)| *key >= start).map(|(key, slot)| {
            // Some nodes know the hash alone.
            let known = (key[31] % 4 != 0).then_some(slot);
            (key.to_string(), json!({ "key": known, "value": "0x" }))
        });
        json!({ "storage": named.collect::<serde_json::Map<_, _>>(), "nextKey": null })
    }
}

fn quantity(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

impl Shared {
    fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut stream = stream;
        loop {
            let mut length = 0;
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                let line = line.trim().to_ascii_lowercase();
                if let Some(given) = line.strip_prefix("content-length: ") {
                    length = given.parse().unwrap();
                }
                if line.is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let mood = self.mood.lock().unwrap().clone();
            let (status, text) = match mood {
                Mood::Away => return Ok(()),
                Mood::Status(status) => (status, String::new()),
                Mood::Text(text) => (200, text.to_owned()),
                mood => (200, self.body(&serde_json::from_slice(&body).unwrap(), &mood)),
            };
            let len = text.len();
            let head = "Content-Type: application/json\r\nContent-Length";
            let mut answer =
                format!("HTTP/1.1 {status} Some Reason\r\n{head}: {len}\r\n\r\n{text}");
            let is_cut_off = matches!(*self.mood.lock().unwrap(), Mood::CutOff);
            if is_cut_off {
                answer.truncate(answer.len() - len.div_ceil(2));
            }
            // In one piece, which no side waits for the rest of.
            stream.write_all(answer.as_bytes())?;
            if is_cut_off {
                return Ok(());
            }
        }
    }

    fn body(&self, asked: &Value, mood: &Mood) -> String {
        // All of a batch is of one moment, as nodes do not promise: the follower may not need it.
        match asked {
            Value::Array(calls) => {
                let answers = calls.iter().map(|call| self.call(call, mood));
                Value::Array(answers.collect()).to_string()
            }
            call => self.call(call, mood).to_string(),
        }
    }

    fn call(&self, call: &Value, mood: &Mood) -> Value {
        let method = call["method"].as_str().unwrap();
        *self.asked.lock().unwrap().entry(method.to_owned()).or_default() += 1;
        let of_state =
            ["eth_getProof", "eth_getCode", "debug_accountRange", "debug_storageRangeAt"];
        if of_state.contains(&method) {
            let proven = self.proven.lock().unwrap();
            let result = proven.as_ref().and_then(|it| it.answer(method, &call["params"], mood));
            let no_method = json!({ "code": -32601, "message": "there is no such method" });
            let (name, answer) = result.map_or(("error", no_method), |result| ("result", result));
            return json!({ "jsonrpc": "2.0", "id": call["id"], name: answer });
        }
        let blocks = self.blocks.lock().unwrap();
        let given = call["params"][0].as_str().unwrap();
        let mut number = match given {
            "latest" => Some(blocks.len() as u64),
            "finalized" => *self.finalized.lock().unwrap(),
            number => u64::from_str_radix(number.trim_start_matches("0x"), 16).ok(),
        };
        let is_number = given.starts_with("0x");
        match mood {
            Mood::Null if is_number => number = None,
            Mood::OtherNumbers if is_number => number = number.map(|n| n.saturating_sub(1)),
            _ => {}
        }
        let whole = method == "debug_getRawBlock" || call["params"][1] == true;
        let other = match mood {
            Mood::Blocks(blocks) if whole => Some(blocks),
            _ => None,
        };
        let block = number.and_then(|number| {
            let at = usize::try_from(number).unwrap().checked_sub(1)?;
            other.map_or(&blocks[..], |other| &other[..]).get(at)
        });
        let result = match method {
            "debug_getRawBlock" if !self.gives_raw => return unknown(call),
            "debug_getRawBlock" => match block {
                // As geth does.
                None => json!("0x"),
                Some(block) => {
                    let mut rlp = block.to_rlp();
                    if matches!(mood, Mood::Malformed) {
                        rlp.pop();
                    }
                    if matches!(mood, Mood::OtherHashes) {
                        let mut other = block.block.clone();
                        other.header.parent_hash = B256::repeat_byte(1);
                        rlp = ChainBlock::new(other).to_rlp();
                    }
                    json!(hex::encode_prefixed(rlp))
                }
            },
            "eth_getBlockByNumber" => match (block, number) {
                (Some(block), _) => {
                    let mut json = serde_json::to_value(&block.block.header).unwrap();
                    json["hash"] = json!(block.hash);
                    if call["params"][1] == true {
                        let body = &block.block.body;
                        json["transactions"] = serde_json::to_value(&body.transactions).unwrap();
                        json["withdrawals"] = serde_json::to_value(&body.withdrawals).unwrap();
                        json["uncles"] = json!([]);
                        if matches!(mood, Mood::OtherHashes) {
                            json["hash"] = json!(B256::repeat_byte(1));
                        }
                        if matches!(mood, Mood::Malformed) {
                            json["transactions"] = json!(["0x"]);
                        }
                    }
                    json
                }
                (None, Some(0)) => {
                    let mut json = serde_json::to_value(&self.genesis.header).unwrap();
                    json["hash"] = json!(self.genesis.hash);
                    json
                }
                (None, _) => Value::Null,
            },
            other => {
                let told = self.told.lock().unwrap();
                let named = given.parse().ok().or_else(|| block.map(|block| block.hash));
                let answer = named.and_then(|block| {
                    let of_block = told.get(&(other.to_owned(), block))?;
                    Some(of_block.clone())
                });
                match answer {
                    Some(answer) => answer,
                    None if told.keys().any(|(method, _)| method == other) => Value::Null,
                    None => return unknown(call),
                }
            }
        };
        json!({ "jsonrpc": "2.0", "id": call["id"], "result": result })
    }
}

fn unknown(call: &Value) -> Value {
    let error = json!({ "code": -32601, "message": "there is no such method" });
    json!({ "jsonrpc": "2.0", "id": call["id"], "error": error })
}
