//! What is counted, and how it is told: see `docs/reference/metrics.md`.

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Bounds of the time a method takes, in seconds.
const SECONDS: [f64; 10] = [0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answered {
    method: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByMethod {
    method: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Refused {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ByStage {
    stage: &'static str,
}

/// What somebody counts who follows a chain. Clones count together, and a server tells them: see
/// [`Options::follow`](crate::Options::follow).
#[derive(Clone, Debug, Default)]
pub struct FollowMetrics {
    node_head: Gauge<i64, AtomicI64>,
    lag: Gauge<i64, AtomicI64>,
    blocks: Counter<u64, AtomicU64>,
    roots_checked: Counter<u64, AtomicU64>,
    reorganisations: Counter<u64, AtomicU64>,
    failures: Counter<u64, AtomicU64>,
    archived: Gauge<i64, AtomicI64>,
    stages: Family<ByStage, Counter<f64, AtomicU64>>,
}

impl FollowMetrics {
    /// The node told of its last block.
    pub fn head(&self, number: u64) {
        self.node_head.set(i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// A block was taken in, and its root compared or not; so many of the node's are behind it.
    pub fn block(&self, root_checked: bool, lag: u64) {
        self.blocks.inc();
        self.roots_checked.inc_by(root_checked.into());
        self.lag.set(i64::try_from(lag).unwrap_or(i64::MAX));
    }

    /// A stage took so long for blocks.
    pub fn took(&self, stage: &'static str, time: Duration) {
        self.stages.get_or_create(&ByStage { stage }).inc_by(time.as_secs_f64());
    }

    /// The node left blocks.
    pub fn reorganised(&self) {
        self.reorganisations.inc();
    }

    /// The node did not answer as it should.
    pub fn failed(&self) {
        self.failures.inc();
    }

    /// An archive that grows has all up to this block; there is none without a number.
    pub fn archived(&self, last: Option<u64>) {
        self.archived.set(last.map_or(-1, |last| i64::try_from(last).unwrap_or(i64::MAX)));
    }

    fn register(&self, registry: &mut Registry) {
        let help = "Number of the node's last block";
        registry.register("follow_node_head_block", help, Gauge::clone(&self.node_head));
        let help = "Blocks that the node had behind the last one taken in, when it was";
        registry.register("follow_lag_blocks", help, Gauge::clone(&self.lag));
        registry.register("follow_blocks", "Blocks taken in", Counter::clone(&self.blocks));
        let help = "State roots of blocks that were compared with their headers";
        registry.register("follow_roots_checked", help, Counter::clone(&self.roots_checked));
        let help = "How often the node left blocks that were taken in";
        registry.register("follow_reorganisations", help, Counter::clone(&self.reorganisations));
        let help = "Requests that the node did not answer, or not as it should";
        registry.register("follow_node_failures", help, Counter::clone(&self.failures));
        let help = "Number of the last block that is archived; -1 where no archive grows";
        registry.register("follow_archived_block", help, Gauge::clone(&self.archived));
        let help = "Time that blocks took, by stage; stages go on beside each other";
        let stages = Family::clone(&self.stages);
        registry.register_with_unit("follow_stage", help, Unit::Seconds, stages);
    }
}

/// All that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    seconds: Family<ByMethod, Histogram, fn() -> Histogram>,
    refused: Family<Refused, Counter>,
    pub(crate) connections: Gauge<i64, AtomicI64>,
    pub(crate) panics: Counter<u64, AtomicU64>,
    head: Gauge<i64, AtomicI64>,
    store_bytes: Gauge<i64, AtomicI64>,
}

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

impl Metrics {
    pub(crate) fn new(follow: Option<&FollowMetrics>) -> Self {
        let mut registry = Registry::with_prefix("spinney");
        let requests = Family::default();
        let seconds = Family::new_with_constructor(histogram as fn() -> Histogram);
        let (refused, connections) = (Family::default(), Gauge::default());
        let (panics, head, store_bytes) = (Counter::default(), Gauge::default(), Gauge::default());
        let help = "Requests answered, by method and by what became of them";
        registry.register("rpc_requests", help, Family::clone(&requests));
        let help = "Time that a worker took to answer";
        registry.register_with_unit("rpc_request", help, Unit::Seconds, Family::clone(&seconds));
        let help = "Requests turned away before any of them was read, by reason";
        registry.register("rpc_refused", help, Family::clone(&refused));
        registry.register("rpc_connections", "Connections open", Gauge::clone(&connections));
        let help = "Answers that ended in a bug of ours";
        registry.register("rpc_panics", help, Counter::clone(&panics));
        let help = "Number of the last block whose state the store holds; -1 if none";
        registry.register("head_block", help, Gauge::clone(&head));
        let help = "Bytes of the store's files";
        registry.register_with_unit("store", help, Unit::Bytes, Gauge::clone(&store_bytes));
        if let Some(follow) = follow {
            follow.register(&mut registry);
        }
        Self { registry, requests, seconds, refused, connections, panics, head, store_bytes }
    }

    pub(crate) fn answered(&self, method: &'static str, outcome: &'static str) {
        self.requests.get_or_create(&Answered { method, outcome }).inc();
    }

    pub(crate) fn took(&self, method: &'static str, time: Duration) {
        self.seconds.get_or_create(&ByMethod { method }).observe(time.as_secs_f64());
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&Refused { reason }).inc();
    }

    /// All of it, as Prometheus reads it.
    pub(crate) fn text(&self, head: Option<u64>, store_bytes: Option<u64>) -> String {
        let number = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok());
        self.head.set(number(head).unwrap_or(-1));
        self.store_bytes.set(number(store_bytes).unwrap_or(0));
        let mut text = String::new();
        // It fails only where the string does.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
