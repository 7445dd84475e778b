//! commonware's ordered database whose root proves what a key holds now
//! (`qmdb::current::ordered::fixed`), as its own benchmarks set it up.
//!
//! Its tree is over a log of operations: a root tells in which order commits were made, and not
//! keys and values alone. All of it is asynchronous, so a thread of its own runs it.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use commonware_cryptography::Blake3;
use commonware_runtime::buffer::paged::{CacheRef, page_size};
use commonware_runtime::tokio::{Config, Context, Runner};
use commonware_runtime::{BLOB_PAGE_SIZE, Runner as _, Strategizer as _, Supervisor as _};
use commonware_storage::journal::contiguous::fixed::Config as LogConfig;
use commonware_storage::merkle::full::Config as TreeConfig;
use commonware_storage::merkle::mmb::Family;
use commonware_storage::qmdb;
use commonware_storage::qmdb::current::{FixedConfig, ordered::fixed::Db};
use commonware_storage::qmdb::floor::Proportional;
use commonware_storage::translator::EightCap;
use commonware_utils::sequence::FixedBytes;
use commonware_utils::{NZU64, NZUsize};

use crate::Error;
use crate::inputs::{KEY_BYTES, Leaf, VALUE_BYTES};

/// Operations in a file of the log. What is past use goes by whole files.
const ITEMS_PER_BLOB: NonZeroU64 = NZU64!(1_000_000);
const BUFFER: NonZeroUsize = NZUsize!(2 << 20);
/// Bytes of the bitmap under one leaf that says which operations are current.
const CHUNK: usize = 32;

enum Request {
    Commit(Vec<Leaf>),
    Value([u8; KEY_BYTES]),
}

type Failure = qmdb::Error<Family>;
/// Nothing of a commit, and the bytes of a value.
type Answer = Result<Option<Vec<u8>>, Failure>;

// Fields are dropped in this order: the thread ends when there can be no more requests.
pub struct Commonware {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    _thread: Joined,
}

/// A thread that is waited for.
struct Joined(Option<JoinHandle<()>>);

impl Drop for Joined {
    fn drop(&mut self) {
        // If it panicked, it has said so, and whoever asked it has got no answer.
        drop(self.0.take().map(JoinHandle::join));
    }
}

impl Commonware {
    pub fn open(folder: &Path, cache_mib: usize, value_bytes: usize) -> Result<Self, Error> {
        match value_bytes {
            VALUE_BYTES => Self::start::<VALUE_BYTES>(folder, cache_mib),
            32 => Self::start::<32>(folder, cache_mib),
            _ => Err(format!("values have {VALUE_BYTES} bytes or 32").into()),
        }
    }

    fn start<const N: usize>(folder: &Path, cache_mib: usize) -> Result<Self, Error> {
        let cores = std::thread::available_parallelism()?;
        let pages = NonZeroUsize::new((cache_mib << 20) / usize::try_from(BLOB_PAGE_SIZE)?);
        let pages = pages.ok_or("a cache without pages")?;
        let config = Config::new().with_worker_threads(cores.get()).with_storage_directory(folder);
        let (requests, asked) = mpsc::channel();
        let (told, answers) = mpsc::channel();
        let serve = move |context| async move {
            if let Err(error) = serve::<N>(context, (cores, pages), &asked, &told).await {
                // Where nobody waits for an answer, nobody misses the error.
                drop(told.send(Err(error)));
            }
        };
        let thread = std::thread::Builder::new().spawn(|| Runner::new(config).start(serve))?;
        let started = Self { requests, answers, _thread: Joined(Some(thread)) };
        // It has opened its store when it answers for the first time.
        started.answers.recv()??;
        Ok(started)
    }

    fn ask(&self, request: Request) -> Result<Option<Vec<u8>>, Error> {
        self.requests.send(request)?;
        Ok(self.answers.recv()??)
    }
}

impl crate::worker::Subject for Commonware {
    fn commit(&mut self, changes: &[Leaf]) -> Result<(), Error> {
        self.ask(Request::Commit(changes.to_vec()))?;
        Ok(())
    }

    fn value(&self, key: &[u8; KEY_BYTES]) -> Result<Option<Vec<u8>>, Error> {
        self.ask(Request::Value(*key))
    }
}

/// Opens the store, says so by an answer, and answers requests until there are no more.
async fn serve<const N: usize>(
    context: Context,
    (cores, pages): (NonZeroUsize, NonZeroUsize),
    requests: &Receiver<Request>,
    answers: &Sender<Answer>,
) -> Result<(), Failure> {
    let page_cache = CacheRef::new(page_size(BLOB_PAGE_SIZE), pages);
    let config = FixedConfig {
        merkle_config: TreeConfig {
            journal_partition: "tree".into(),
            metadata_partition: "pinned".into(),
            items_per_blob: ITEMS_PER_BLOB,
            write_buffer: BUFFER,
            replay_buffer: BUFFER,
            strategy: context.strategy(cores),
            page_cache: page_cache.clone(),
        },
        journal_config: LogConfig {
            partition: "log".into(),
            items_per_blob: ITEMS_PER_BLOB,
            page_cache,
            write_buffer: BUFFER,
            replay_buffer: BUFFER,
        },
        grafted_metadata_partition: "current".into(),
        translator: EightCap,
        init_cache: None,
        init_buffer: BUFFER,
        init_concurrency: (),
    };
    let mut store =
        Db::<Family, _, FixedBytes<KEY_BYTES>, FixedBytes<N>, Blake3, _, CHUNK, _>::init(
            context.child("store"),
            config,
            None,
        )
        .await?;
    let mut pruned = 0;
    let mut answer = None;
    while answers.send(Ok(answer)).is_ok()
        && let Ok(request) = requests.recv()
    {
        answer = match request {
            Request::Value(key) => store.get(&key.into()).await?.map(|value| value.to_vec()),
            Request::Commit(changes) => {
                let mut batch = store.new_batch();
                for (key, value) in changes {
                    let value = std::array::from_fn(|at| value[at]);
                    batch = batch.write(key.into(), Some(FixedBytes::new(value)));
                }
                let batch = batch.merkleize(&store, None, &mut Proportional).await?;
                store = store.apply_batch(batch).await?.commit().await?;
                // Without this the log would only grow. Each call is a commit more, so it is made
                // where there is a whole file to remove.
                let boundary = store.sync_boundary();
                if *boundary - pruned >= ITEMS_PER_BLOB.get() {
                    store = store.prune(boundary).await?;
                    pruned = *boundary;
                }
                None
            }
        };
    }
    Ok(())
}
