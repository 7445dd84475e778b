//! A bucket's prefix, the threads that talk to it, and one call after another.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use object_store::list::PaginatedListOptions;
use object_store::path::Path;
use object_store::{
    GetOptions, GetRange, GetResult, ObjectStoreExt as _, PutMode, PutOptions, PutPayload,
};
use tokio::runtime::Runtime;

use super::fault::{Fault, failed};
use super::http::{Connector, SEEN, Seen};
use super::options::{Location, RemoteOptions, Store, secrets};
use super::patience::{Patience, backoff};
use crate::objects::{Listed, ObjectError};

/// The threads that wait for the network.
const THREADS: usize = 2;
/// What names consist of.
const LETTERS: &str = "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// No object is larger: what is more, servers do not take for the end of a range.
const OBJECT_MAX: u64 = 1 << 50;
/// How often bytes are asked for that come in the wrong number.
const TRIES: usize = 4;

/// A bucket's prefix.
pub(super) struct Bucket {
    /// Taken when this goes.
    runtime: Option<Runtime>,
    pub(super) store: Arc<dyn Store>,
    /// Without retries: of these we have to know.
    once: Arc<dyn Store>,
    location: Location,
    pub(super) patience: Patience,
    secrets: Vec<String>,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.location.url()).finish()
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // Waiting for the threads would be a panic within another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Bucket {
    pub(super) fn open(url: &str, options: &RemoteOptions) -> Result<Self, ObjectError> {
        let location = Location::parse(url).map_err(|wrong| {
            failed("the URL of the archive".to_owned(), false, wrong.to_owned())
        })?;
        let cannot = |text: String| failed(location.url(), false, text);
        let connector =
            Connector::new(&options.patience).map_err(|error| cannot(error.to_string()))?;
        let secrets = secrets(&options.variables);
        let [store, once] = location.connect(options, &connector).map_err(|error| {
            Fault::new(location.url(), &error, &Seen::default(), &secrets).error
        })?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(4)
            .thread_name("spinney-remote")
            .enable_all()
            .build()
            .map_err(|error| cannot(error.to_string()))?;
        let patience = options.patience;
        Ok(Self { runtime: Some(runtime), store, once, location, patience, secrets })
    }

    pub(super) fn url(&self) -> String {
        self.location.url()
    }

    /// What an object is called in messages.
    pub(super) fn place(&self, name: &str) -> String {
        if name.is_empty() { self.url() } else { format!("{}/{name}", self.url()) }
    }

    /// Where an object of this name lies.
    pub(super) fn path(&self, name: &str) -> Result<Path, ObjectError> {
        if !is_name(name) {
            let text = "no name of an object: ASCII letters, digits, `-` and `.`, and not `.` or \
                        `..` alone";
            return Err(failed(self.place(name), false, text.to_owned()));
        }
        Ok(Path::from(format!("{}{name}", self.location.prefix)))
    }

    /// Begins work on our threads.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<tokio::task::JoinHandle<T>> {
        self.runtime.as_ref().map(|runtime| runtime.spawn(work))
    }

    /// Does work on our threads and waits for it, within another runtime, too.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ObjectError>> + Send + 'static,
    ) -> Result<T, ObjectError> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.spawn(async move {
            // Whoever waits waits for ever.
            let _ = answer.send(work.await);
        });
        answered.recv().unwrap_or_else(|_| {
            Err(failed(self.url(), false, "the work ended without an answer: a bug".to_owned()))
        })
    }

    /// One call to the store, with its retries, for so many bytes.
    pub(super) async fn call<T>(
        &self,
        name: &str,
        bytes: usize,
        work: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, Fault> {
        let (seen, limit) = (Arc::<Seen>::default(), self.limit(bytes));
        let place = self.place(name);
        match tokio::time::timeout(limit, SEEN.scope(Arc::clone(&seen), work)).await {
            Err(_) => Err(Fault::slow(place, limit, &seen, &self.secrets)),
            Ok(done) => done.map_err(|error| Fault::new(place, &error, &seen, &self.secrets)),
        }
    }

    fn limit(&self, bytes: usize) -> Duration {
        self.patience.call + Patience::to_carry(bytes)
    }

    /// A whole object of at most `most` bytes. It is asked for as a range, since the answer to one
    /// says how long the object is beside how long the answer is.
    pub(super) async fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, ObjectError> {
        let path = self.path(name)?;
        let range = 0..most.min(OBJECT_MAX) + 1;
        for _ in 0..TRIES {
            let bounded = Some(GetRange::Bounded(range.clone()));
            let options = GetOptions { range: bounded, ..GetOptions::default() };
            let work = async {
                let answer = self.store.get_opts(&path, options).await?;
                let size = answer.meta.size;
                if size > most {
                    return Ok((size, Vec::new()));
                }
                Ok((size, collect(answer, size).await?))
            };
            match self.call(name, cap(most), work).await {
                Ok((size, _)) if size > most => {
                    let text = format!("it has {size} bytes, more than {most}");
                    return Err(failed(self.place(name), false, text));
                }
                Ok((size, bytes)) if bytes.len() as u64 == size => return Ok(Some(bytes)),
                Ok(_) => {}
                // An empty one has no range.
                Err(Fault { status: 416, .. }) => match self.length(name).await {
                    Ok(0) => return Ok(Some(Vec::new())),
                    Ok(_) => {}
                    Err(ObjectError::Missing { .. }) => return Ok(None),
                    Err(error) => return Err(error),
                },
                Err(Fault { error: ObjectError::Missing { .. }, .. }) => return Ok(None),
                Err(fault) => return Err(fault.error),
            }
        }
        Err(self.cut(name))
    }

    /// The bytes of a range.
    pub(super) async fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, ObjectError> {
        let path = self.path(name)?;
        let short = || ObjectError::Short { place: self.place(name), end: range.end };
        if range.is_empty() {
            let length = self.length(name).await?;
            return if length < range.end { Err(short()) } else { Ok(Vec::new()) };
        }
        let wanted = range.end - range.start;
        for _ in 0..TRIES {
            let bounded = Some(GetRange::Bounded(range.clone()));
            let options = GetOptions { range: bounded, ..GetOptions::default() };
            let work = async {
                let answer = self.store.get_opts(&path, options).await?;
                if answer.meta.size < range.end {
                    return Ok(None);
                }
                collect(answer, wanted).await.map(Some)
            };
            match self.call(name, cap(wanted), work).await {
                Ok(None) => return Err(short()),
                Ok(Some(bytes)) if bytes.len() as u64 == wanted => return Ok(bytes),
                Ok(Some(_)) => {}
                // No byte of the range is there.
                Err(Fault { status: 416, .. }) => return Err(short()),
                Err(fault) => return Err(fault.error),
            }
        }
        Err(self.cut(name))
    }

    fn cut(&self, name: &str) -> ObjectError {
        let text = "the answers have another length than they say: something between here and \
                    the server cuts them off";
        failed(self.place(name), true, text.to_owned())
    }

    /// An object's length in bytes.
    pub(super) async fn length(&self, name: &str) -> Result<u64, ObjectError> {
        let path = self.path(name)?;
        let found = self.call(name, 0, self.store.head(&path)).await;
        found.map(|found| found.size).map_err(|fault| fault.error)
    }

    /// Makes an object where there is none.
    ///
    /// A try that failed may have been done all the same. Then the next one finds an object with
    /// our bytes.
    pub(super) async fn create(&self, name: &str, bytes: Bytes) -> Result<bool, ObjectError> {
        let path = self.path(name)?;
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let until = Instant::now() + self.limit(bytes.len());
        let (mut unsure, mut pause) = (false, Pause::default());
        loop {
            let payload = PutPayload::from(bytes.clone());
            let work = self.once.put_opts(&path, payload, options.clone());
            let failed = match self.call(name, bytes.len(), work).await {
                Ok(_) => return Ok(true),
                Err(fault) => fault,
            };
            if failed.exists {
                match self.get(name, bytes.len() as u64).await {
                    Ok(Some(there)) => return Ok(unsure && there == bytes),
                    // It went again, or the server wants another try.
                    Ok(None) => {}
                    // It is larger.
                    Err(error) if !error.is_retryable() && self.length(name).await.is_ok() => {
                        return Ok(false);
                    }
                    Err(error) => return Err(error),
                }
            } else if failed.error.is_retryable() {
                unsure = true;
            } else {
                return Err(failed.error);
            }
            if !pause.before(until).await {
                let retry = |text: String| self::failed(self.place(name), true, text);
                return Err(if failed.exists {
                    retry("the server says that it is there, and that it is not".to_owned())
                } else {
                    failed.error
                });
            }
        }
    }

    /// Makes or replaces an object.
    pub(super) async fn put(&self, name: &str, bytes: Bytes) -> Result<(), ObjectError> {
        let path = self.path(name)?;
        let length = bytes.len();
        let work = self.store.put(&path, PutPayload::from(bytes));
        self.call(name, length, work).await.map(|_| ()).map_err(|fault| fault.error)
    }

    pub(super) async fn remove(&self, name: &str) -> Result<(), ObjectError> {
        let path = self.path(name)?;
        let until = Instant::now() + self.patience.call;
        let mut pause = Pause::default();
        loop {
            match self.call(name, 0, self.store.delete(&path)).await {
                Ok(()) => return Ok(()),
                Err(Fault { error: ObjectError::Missing { .. }, .. }) => return Ok(()),
                Err(fault) if fault.error.is_retryable() && pause.before(until).await => {}
                Err(fault) => return Err(fault.error),
            }
        }
    }

    /// All objects whose names begin like this. What is called otherwise than we call objects is
    /// not ours, and left out.
    pub(super) async fn list(&self, begins: &str) -> Result<Vec<Listed>, ObjectError> {
        if !begins.bytes().all(is_letter) {
            return Ok(Vec::new());
        }
        let mut listed = Vec::new();
        match self.pages(begins, &mut listed).await {
            Ok(()) => {}
            // A name that the store's client cannot read, such as `a//b`: it is nowhere below ours.
            Err(Fault { status: 200, .. }) => {
                listed.clear();
                if is_name(begins) {
                    match self.length(begins).await {
                        Ok(bytes) => listed.push(Listed { name: begins.to_owned(), bytes }),
                        Err(ObjectError::Missing { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                for letter in LETTERS.chars() {
                    let begins = format!("{begins}{letter}");
                    self.pages(&begins, &mut listed).await.map_err(|fault| fault.error)?;
                }
            }
            Err(fault) => return Err(fault.error),
        }
        listed.sort_unstable();
        listed.dedup();
        Ok(listed)
    }

    async fn pages(&self, begins: &str, listed: &mut Vec<Listed>) -> Result<(), Fault> {
        let prefix = &self.location.prefix;
        let begins = format!("{prefix}{begins}");
        let begins = Some(begins.as_str()).filter(|begins| !begins.is_empty());
        let mut token = None;
        loop {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                page_token: token.clone(),
                ..PaginatedListOptions::default()
            };
            let page = self.call("", 0, self.store.list_paginated(begins, options)).await?;
            for object in page.result.objects {
                let name = object.location.as_ref().strip_prefix(prefix.as_str());
                if let Some(name) = name.filter(|name| is_name(name)) {
                    listed.push(Listed { name: name.to_owned(), bytes: object.size });
                }
            }
            match page.page_token {
                None => return Ok(()),
                next if next == token => {
                    let text = "the server lists the same page again and again".to_owned();
                    return Err(Fault::own(failed(self.url(), true, text)));
                }
                next => token = next,
            }
        }
    }
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.'
}

/// Whether we call objects like this.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_letter) && name != "." && name != ".."
}

/// A length, for a time limit.
fn cap(bytes: u64) -> usize {
    const LONG: usize = 64 << 20;
    usize::try_from(bytes).unwrap_or(LONG).min(LONG)
}

/// The bytes of an answer; of one that is too long, a few more than `length`.
async fn collect(answer: GetResult, length: u64) -> object_store::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut stream = answer.into_stream();
    while let Some(piece) = stream.try_next().await? {
        if bytes.is_empty() {
            bytes.reserve_exact(usize::try_from(length).unwrap_or(0).max(piece.len()));
        }
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 > length {
            break;
        }
    }
    Ok(bytes)
}

/// Waits between tries, a little longer each time.
#[derive(Debug, Default)]
struct Pause(Option<Duration>);

impl Pause {
    /// Waits, and says `false` instead where there is no time left.
    async fn before(&mut self, until: Instant) -> bool {
        let config = backoff();
        let pause = self.0.map_or(config.init_backoff, |last| last * 2).min(config.max_backoff);
        self.0 = Some(pause);
        if Instant::now() + pause >= until {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }
}
