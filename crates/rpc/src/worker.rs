//! Those who answer: threads that read the store, each through a view of its own.
//!
//! Invariants:
//! - a request, or all requests of a batch, are answered from one view;
//! - a view that is not of the store's last commit is not asked, nor held for longer than
//!   [`PATIENCE`] while nobody asks: a writer cannot use again what it holds on to;
//! - whatever becomes of an answer, the thread goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;
use spinney_store::Frozen;
use spinney_tree::PageStore;

use crate::error::Fault;
use crate::kept::{FirstKept, KeptViews};
use crate::methods::Session;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::query::Query;
use crate::queue::{Ask, Job, Next, Queue, Reply};
use crate::request::{self, Request};
use crate::view::{Mark, View};

/// How long a view is held that nobody asks.
const PATIENCE: Duration = Duration::from_secs(1);

/// Methods that read trees which have names: their commits are not those of the state.
const OF_NAMED_TREES: [&[u8]; 2] = [b"spinney_getSumProof", b"spinney_trees"];

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) queue: Queue,
    pub(crate) metrics: Metrics,
    /// Of a store that keeps commits.
    pub(crate) first_kept: Mutex<FirstKept>,
}

/// Answers until the queue is closed.
pub(crate) fn work<P>(store: &P, shared: &Shared)
where
    P: PageStore + 'static,
    for<'s> P::Snapshot<'s>: Send + Sync,
{
    let mut waiting = None;
    loop {
        let job = match waiting.take() {
            Some(job) => job,
            None => match shared.queue.next(None) {
                Next::Job(job) => job,
                Next::Idle => continue,
                Next::Closed => return,
            },
        };
        match catch_unwind(AssertUnwindSafe(|| from_one_view(store, shared, job))) {
            Ok(left) => waiting = left,
            // Who asked sees that no answer comes.
            Err(_) => {
                shared.metrics.panics.inc();
            }
        }
    }
}

/// Answers the body of a request, or of a batch, as a [`Server`](crate::Server) with these options
/// would, in the thread that asks; `None` where nothing wants an answer. For those who have another
/// transport. No limit but those of HTTP is left out.
///
/// ```
/// use spinney_rpc::{Options, answer_alone};
/// use spinney_tree::MemoryStore;
///
/// let body = br#"{"jsonrpc":"2.0","id":1,"method":"spinney_trees"}"#;
/// let answer = answer_alone(&MemoryStore::new(), Options::default(), body);
/// assert_eq!(answer.unwrap(), br#"{"jsonrpc":"2.0","id":1,"result":[]}"#);
/// ```
pub fn answer_alone<P: PageStore + 'static>(
    store: &P,
    options: Options,
    body: &[u8],
) -> Option<Vec<u8>> {
    let (queue, metrics) = (Queue::new(0), Metrics::new(None));
    let deadline = Instant::now() + options.limits.request;
    let cache_bytes = options.cache_bytes;
    let shared = Shared { options, queue, metrics, first_kept: Mutex::default() };
    match View::open(store, cache_bytes) {
        Ok(view) => {
            let mut session = Session::new(&view, &shared.options);
            answer_body(&mut |query| session.answer(query), &shared, body, deadline)
        }
        Err(fault) => answer_body(&mut |_| Err(fault.clone()), &shared, body, deadline),
    }
}

/// Answers jobs as long as the store stays at one commit, and gives back the first one after that.
fn from_one_view<P>(store: &P, shared: &Shared, first: Job) -> Option<Job>
where
    P: PageStore + 'static,
    for<'s> P::Snapshot<'s>: Send + Sync,
{
    let cache_bytes = shared.options.cache_bytes / shared.options.threads.max(1);
    let frozen = match Frozen::of(store) {
        Ok(frozen) => frozen,
        Err(error) => return fail(shared, first, &error.into()),
    };
    let view = match View::open(&frozen, cache_bytes) {
        Ok(view) => view,
        Err(fault) => return fail(shared, first, &fault),
    };
    let mut session = Session::new(&view, &shared.options);
    let mut kept = KeptViews::new(store, &shared.options, &shared.first_kept);
    let head = session.head_number();
    let mut answer = |job| {
        answer_job(&mut |query| kept.answer(&mut session, query), head, shared, job);
    };
    answer(first);
    loop {
        match shared.queue.next(Some(PATIENCE)) {
            Next::Job(job) if has_gone_on(store, &view, asks_for_names(&job)) => return Some(job),
            Next::Job(job) => answer(job),
            Next::Idle if has_gone_on(store, &view, true) => return None,
            Next::Idle => {}
            Next::Closed => return None,
        }
    }
}

/// Whether there was a commit since the view was taken; with `all`, also one of trees that have
/// names. Where that cannot be told, the next view says why.
fn has_gone_on<P: PageStore>(store: &P, view: &View<'_>, all: bool) -> bool {
    let Ok(snapshot) = store.snapshot() else { return true };
    let Ok(now) = Mark::of(&snapshot, all) else { return true };
    if !all {
        return now != view.mark;
    }
    let then = view.store.snapshot().map_err(Fault::from);
    then.and_then(|snapshot| Mark::of(&snapshot, true)).map_or(true, |then| then != now)
}

fn asks_for_names(job: &Job) -> bool {
    let Ask::Answer(body) = &job.ask else { return false };
    // An escape may hide any name.
    body.contains(&b'\\')
        || OF_NAMED_TREES.iter().any(|name| body.windows(name.len()).any(|part| part == *name))
}

/// Answers a job that no view could be opened for.
fn fail(shared: &Shared, job: Job, fault: &Fault) -> Option<Job> {
    let reply = match &job.ask {
        Ask::Head => Reply::Head(Err(fault.to_string())),
        Ask::Answer(body) => {
            let mut answer = |_| Err(fault.clone());
            Reply::Answer(answer_body(&mut answer, shared, body, job.deadline))
        }
    };
    let _ = job.reply.send(reply);
    None
}

/// Whoever answers what is asked.
type Answers<'a> = dyn FnMut(Query) -> Result<Vec<u8>, Fault> + 'a;

/// Answers a job, where the last block is `head`.
pub(crate) fn answer_job(answers: &mut Answers<'_>, head: Option<u64>, shared: &Shared, job: Job) {
    // Who asked is gone.
    if job.reply.is_closed() || Instant::now() >= job.deadline {
        return;
    }
    let reply = match &job.ask {
        Ask::Head => Reply::Head(Ok(head)),
        Ask::Answer(body) => Reply::Answer(answer_body(answers, shared, body, job.deadline)),
    };
    let _ = job.reply.send(reply);
}

/// Answers a request or a batch; none where nothing of it wants an answer.
fn answer_body(
    answers: &mut Answers<'_>,
    shared: &Shared,
    body: &[u8],
    deadline: Instant,
) -> Option<Vec<u8>> {
    let limits = &shared.options.limits;
    let mut out = Vec::new();
    let refused = |fault: Fault| {
        shared.metrics.answered("unknown", fault.outcome());
        let mut out = Vec::new();
        write_answer(&mut out, &Value::Null, Err(fault));
        Some(out)
    };
    if !request::is_batch(body) {
        return match request::read_one(body) {
            Ok(request) => {
                answer_request(answers, shared, request, deadline, &mut out);
                (!out.is_empty()).then_some(out)
            }
            Err(fault) => refused(fault),
        };
    }
    match request::count(body, limits.batch) {
        Err(fault) => return refused(fault),
        Ok(count) if count > limits.batch => {
            return refused(Fault::Request(format!("batch too large (max {})", limits.batch)));
        }
        Ok(_) => {}
    }
    out.push(b'[');
    let read = request::read_batch(body, limits.batch, |request| {
        let start = out.len();
        if start > 1 {
            out.push(b',');
        }
        let comma = out.len();
        answer_request(answers, shared, request, deadline, &mut out);
        if out.len() == comma {
            out.truncate(start);
        }
    });
    if let Err(fault) = read {
        return refused(fault);
    }
    out.push(b']');
    (out.len() > 2).then_some(out)
}

fn answer_request(
    answers: &mut Answers<'_>,
    shared: &Shared,
    request: Request,
    deadline: Instant,
    out: &mut Vec<u8>,
) {
    let limits = &shared.options.limits;
    let (most, start) = (limits.answer_bytes, Instant::now());
    let (method, answer) = match request.call {
        Err(fault) => ("unknown", Err(fault)),
        Ok(call) => {
            let known = crate::discover::known(&call.method);
            let answer = match () {
                () if start >= deadline => Err(Fault::TimedOut),
                () if out.len() > most => Err(Fault::TooLarge(most)),
                () => Query::read(&call.method, call.params, limits).and_then(&mut *answers),
            };
            (known.unwrap_or("unknown"), answer)
        }
    };
    let answer = match answer {
        Ok(json) if out.len().saturating_add(json.len()) > most => Err(Fault::TooLarge(most)),
        answer => answer,
    };
    let outcome = answer.as_ref().map_or_else(Fault::outcome, |_| "ok");
    shared.metrics.answered(method, outcome);
    shared.metrics.took(method, start.elapsed());
    if let Some(id) = request.id {
        write_answer(out, &id, answer);
    }
}

pub(crate) fn write_answer(out: &mut Vec<u8>, id: &Value, answer: Result<Vec<u8>, Fault>) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.to_string().as_bytes());
    match answer {
        Ok(json) => {
            out.extend_from_slice(br#","result":"#);
            out.extend_from_slice(&json);
        }
        Err(fault) => {
            let error = serde_json::json!({ "code": fault.code(), "message": fault.to_string() });
            out.extend_from_slice(br#","error":"#);
            out.extend_from_slice(error.to_string().as_bytes());
        }
    }
    out.push(b'}');
}
