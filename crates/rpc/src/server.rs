//! HTTP/1.1: connections, their limits, and how the server begins and ends.
//!
//! Invariants:
//! - what a client makes the server hold is bounded: its header, its body, its place in the line,
//!   its answer, and the time for each of them;
//! - this thread reads no store: it waits for nothing but the network and the line.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use serde_json::Value;
use spinney_archive::Archive;
use spinney_tree::PageStore;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio_io_timeout::TimeoutStream;

use crate::archived;
use crate::error::Fault;
use crate::explorer;
use crate::metrics::Metrics;
use crate::options::{Options, StoreBytes};
use crate::queue::{Ask, Job, Queue, Reply};
use crate::worker::{Shared, work, write_answer};

/// How long what was begun may take to end, once the server is told to stop.
const GRACE: Duration = Duration::from_secs(5);
/// How long it waits after the system refused it a connection.
const AFTER_REFUSAL: Duration = Duration::from_millis(50);
/// The longest header of a request, in bytes.
const HEADER_BYTES_MAX: usize = 16 << 10;

/// Ends a server.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    /// Takes no more connections; what was asked is answered, for some seconds at most.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    async fn asked(&self) {
        let mut asked = self.0.subscribe();
        // It ends with its sender, which this holds.
        let _ = asked.wait_for(|asked| *asked).await;
    }
}

/// A server that listens, and does not answer yet.
///
/// ```
/// use spinney_rpc::{Options, Server, Stop};
/// use spinney_tree::MemoryStore;
///
/// let server = Server::bind("127.0.0.1:0".parse()?, None)?;
/// println!("listening at {}", server.address());
/// let stop = Stop::default();
/// stop.stop();
/// server.run(&MemoryStore::new(), Options::default(), &stop)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Server {
    listener: StdListener,
    metrics: Option<StdListener>,
    address: SocketAddr,
    store_bytes: StoreBytes,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Listens at an address, and at another one for whoever asks for metrics.
    ///
    /// # Errors
    /// If somebody else listens there, or the system does not let us.
    pub fn bind(address: SocketAddr, metrics: Option<SocketAddr>) -> io::Result<Self> {
        let listen = |address: SocketAddr| {
            let listener = StdListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok::<_, io::Error>(listener)
        };
        let listener = listen(address)?;
        let address = listener.local_addr()?;
        let metrics = metrics.map(listen).transpose()?;
        Ok(Self { listener, metrics, address, store_bytes: Arc::new(|| None) })
    }

    /// Who is asked how many bytes the store takes.
    #[must_use]
    pub fn with_store_bytes(mut self, store_bytes: StoreBytes) -> Self {
        self.store_bytes = store_bytes;
        self
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it tells its metrics, if it does.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Answers from a store until it is stopped. Whoever else has the store may write to it
    /// meanwhile.
    ///
    /// # Errors
    /// If the system has no threads or no memory for it.
    pub fn run<P>(self, store: &P, options: Options, stop: &Stop) -> io::Result<()>
    where
        P: PageStore + 'static,
        for<'s> P::Snapshot<'s>: Send + Sync,
    {
        self.with_workers(options, stop, &|shared| work(store, shared))
    }

    /// Does some work on a store, and answers from it meanwhile. What the work answers comes with
    /// how answering ended.
    ///
    /// # Errors
    /// If no thread can be made. Then nothing was done.
    pub fn run_beside<P, T>(
        self,
        store: &P,
        options: Options,
        work: impl FnOnce() -> T,
    ) -> io::Result<(T, io::Result<()>)>
    where
        P: PageStore + Sync + 'static,
        for<'s> P::Snapshot<'s>: Send + Sync,
    {
        /// Ends a server when it goes, also by a panic.
        struct Stops(Stop);
        impl Drop for Stops {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        let stops = Stops(Stop::default());
        let stop = stops.0.clone();
        thread::scope(|scope| {
            let served = thread::Builder::new().name("serve".into());
            let served = served.spawn_scoped(scope, || self.run(store, options, &stop))?;
            let done = work();
            drop(stops);
            match served.join() {
                Ok(served) => Ok((done, served)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Answers from an archive until it is stopped: at every block that it holds. Whoever writes to
    /// it may add blocks meanwhile.
    ///
    /// # Errors
    /// If the system has no threads or no memory for it.
    pub fn run_archive(self, archive: &Archive, options: Options, stop: &Stop) -> io::Result<()> {
        thread::scope(|scope| {
            // The other end goes with this one.
            let (_ends, ended) = mpsc::channel();
            let looks = options.clone();
            let refresher = thread::Builder::new().name("refresh".into());
            refresher.spawn_scoped(scope, move || archived::refresh(archive, &looks, &ended))?;
            self.with_workers(options, stop, &|shared| archived::work(archive, shared))
        })
    }

    fn with_workers(
        self,
        options: Options,
        stop: &Stop,
        work: &(dyn Fn(&Shared) + Sync),
    ) -> io::Result<()> {
        let threads = options.threads.max(1);
        let queue = Queue::new(options.limits.waiting);
        let metrics = Metrics::new(options.follow.as_ref());
        let shared = Arc::new(Shared { options, queue, metrics, first_kept: Mutex::default() });
        thread::scope(|scope| {
            // Whatever happens here, the workers end.
            let closes = Closes(&shared.queue);
            for _ in 0..threads {
                let shared = &*shared;
                let worker = thread::Builder::new().name("rpc".into());
                worker.spawn_scoped(scope, || work(shared))?;
            }
            let outcome = self.listen(&shared, stop);
            drop(closes);
            outcome
        })
    }

    fn listen(self, shared: &Arc<Shared>, stop: &Stop) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let sending = Arc::new(AtomicUsize::new(0));
        let shared = Arc::clone(shared);
        let http = Arc::new(Http { shared, store_bytes: self.store_bytes, sending });
        runtime.block_on(async {
            if let Some(listener) = self.metrics {
                let listener = TcpListener::from_std(listener)?;
                let (http, stop) = (Arc::clone(&http), stop.clone());
                tokio::spawn(async move { accept(listener, &http, Port::Metrics, &stop).await });
            }
            let listener = TcpListener::from_std(self.listener)?;
            accept(listener, &http, Port::Rpc, stop).await;
            Ok(())
        })
    }
}

/// Closes a line when it goes.
struct Closes<'q>(&'q Queue);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What answers at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Port {
    Rpc,
    Metrics,
}

/// What all connections share.
struct Http {
    shared: Arc<Shared>,
    store_bytes: StoreBytes,
    /// Bytes of the answers that are being sent.
    sending: Arc<AtomicUsize>,
}

/// Takes connections until the server is told to stop, and waits for a moment until they end.
async fn accept(listener: TcpListener, http: &Arc<Http>, port: Port, stop: &Stop) {
    let limits = &http.shared.options.limits;
    let permits = Arc::new(Semaphore::new(limits.connections.max(1)));
    let graceful = GracefulShutdown::new();
    let mut stopped = pin!(stop.asked());
    loop {
        let permit = pin!(Arc::clone(&permits).acquire_owned());
        let Either::Left((Ok(permit), _)) = select(permit, stopped.as_mut()).await else { break };
        let accepted = match select(pin!(listener.accept()), stopped.as_mut()).await {
            Either::Left((accepted, _)) => accepted,
            Either::Right(_) => break,
        };
        let Ok((stream, _)) = accepted else {
            // There are too many files open, most often: others may be closed in a moment.
            tokio::time::sleep(AFTER_REFUSAL).await;
            continue;
        };
        let connection = graceful.watch(connection(stream, http, port));
        let http = Arc::clone(http);
        tokio::spawn(async move {
            http.shared.metrics.connections.inc();
            // What a client does wrong is nothing to us.
            let _ = connection.await;
            http.shared.metrics.connections.dec();
            drop(permit);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
}

fn connection(
    stream: TcpStream,
    http: &Arc<Http>,
    port: Port,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = hyper::Error> + Send + use<> {
    let limits = &http.shared.options.limits;
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write));
    let http_1 = {
        let mut http_1 = http1::Builder::new();
        http_1.timer(TokioTimer::new()).header_read_timeout(limits.read);
        http_1.max_buf_size(HEADER_BYTES_MAX).half_close(false);
        http_1
    };
    let http = Arc::clone(http);
    let service = service_fn(move |request| {
        let http = Arc::clone(&http);
        async move { Ok::<_, std::convert::Infallible>(http.respond(request, port).await) }
    });
    http_1.serve_connection(TokioIo::new(Box::pin(stream)), service)
}

type Answer = Response<Full<Bytes>>;

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn json(status: StatusCode, body: Bytes) -> Answer {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An error that is nobody's answer in particular.
fn fault(status: StatusCode, fault: Fault) -> Answer {
    let mut out = Vec::new();
    write_answer(&mut out, &Value::Null, Err(fault));
    json(status, out.into())
}

/// Bytes that are counted as long as they are there.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

impl Http {
    async fn respond(&self, request: Request<Incoming>, port: Port) -> Answer {
        if port == Port::Rpc
            && let Some(host) = self.other_host(&request)
        {
            self.shared.metrics.refused("host");
            let why = format!(
                "the host {host:.100?} is not this server's: ask by address or localhost, or name \
                 it with --hosts"
            );
            return fault(StatusCode::FORBIDDEN, Fault::Request(why));
        }
        let path = request.uri().path();
        if let Some(file) = self.file(&request, port) {
            return file;
        }
        match (port, request.method(), path) {
            (_, &Method::GET, "/health") => plain(StatusCode::OK, "ok\n"),
            (_, &Method::GET, "/ready") => self.ready().await,
            (Port::Metrics, &Method::GET, "/metrics") => self.metrics().await,
            (Port::Rpc, &Method::POST, "/") => self.rpc(request).await,
            (Port::Rpc, _, "/") => {
                let allowed = if self.shared.options.explorer { "GET, HEAD, POST" } else { "POST" };
                let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "send a POST\n");
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
                response
            }
            _ => plain(StatusCode::NOT_FOUND, "not found\n"),
        }
    }

    /// A host that a request asks for, and that this is not. Who names none is no browser.
    fn other_host(&self, request: &Request<Incoming>) -> Option<String> {
        let named = request.headers().get_all(HOST).iter();
        let named = named.map(|host| String::from_utf8_lossy(host.as_bytes()));
        let target = request.uri().authority().map(|host| host.as_str().into());
        let hosts = &self.shared.options.hosts;
        named.chain(target).find(|host| !hosts.answers_to(host)).map(Cow::into_owned)
    }

    /// A file of the explorer, if one is asked for.
    fn file(&self, request: &Request<Incoming>, port: Port) -> Option<Answer> {
        let is_asked = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_here = port == Port::Rpc && self.shared.options.explorer;
        (is_asked && is_here)
            .then(|| explorer::answer(request.uri().path(), request.headers()))
            .flatten()
    }

    /// Asks a worker, and waits as long as a request may take.
    async fn ask(&self, ask: Ask) -> Result<Reply, Fault> {
        let limits = &self.shared.options.limits;
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + limits.request;
        let busy = |_| Fault::Busy("too many requests are waiting: try again");
        self.shared.queue.push(Job { ask, deadline, reply }).map_err(busy)?;
        match tokio::time::timeout_at(deadline.into(), answer).await {
            Ok(Ok(reply)) => Ok(reply),
            // Who takes a job whose time is over drops it, which may be seen before the timeout.
            Ok(Err(_)) if Instant::now() < deadline => {
                Err(Fault::Internal("the request was not answered: this is a bug".into()))
            }
            Ok(Err(_)) | Err(_) => Err(Fault::TimedOut),
        }
    }

    async fn head(&self) -> Result<Option<u64>, String> {
        match self.ask(Ask::Head).await {
            Ok(Reply::Head(head)) => head,
            Ok(Reply::Answer(_)) => Err("another answer came".into()),
            Err(fault) => Err(fault.to_string()),
        }
    }

    async fn ready(&self) -> Answer {
        match self.head().await {
            Ok(Some(head)) => plain(StatusCode::OK, format!("block {head}\n")),
            Ok(None) => plain(StatusCode::OK, "no block\n"),
            Err(error) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        }
    }

    async fn metrics(&self) -> Answer {
        let head = self.head().await.ok().flatten();
        let text = self.shared.metrics.text(head, (self.store_bytes)());
        let mut response = plain(StatusCode::OK, text);
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }

    async fn rpc(&self, request: Request<Incoming>) -> Answer {
        let refused = |reason, status, why: Fault| {
            self.shared.metrics.refused(reason);
            fault(status, why)
        };
        if !is_json(&request) {
            self.shared.metrics.refused("content_type");
            let text = "the content type is to be application/json\n";
            return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
        }
        let limits = &self.shared.options.limits;
        let too_long = || {
            let why = format!("a body of more than {} bytes", limits.body_bytes);
            refused("body", StatusCode::PAYLOAD_TOO_LARGE, Fault::Request(why))
        };
        if request.body().size_hint().lower() > limits.body_bytes as u64 {
            return too_long();
        }
        let body = Limited::new(request.into_body(), limits.body_bytes).collect();
        let body = match tokio::time::timeout(limits.read, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<LengthLimitError>() => return too_long(),
            Ok(Err(_)) => {
                let why = Fault::Request("the body ended before its end".into());
                return refused("connection", StatusCode::BAD_REQUEST, why);
            }
            Err(_) => {
                let why = Fault::Request("the body took too long".into());
                return refused("slow", StatusCode::REQUEST_TIMEOUT, why);
            }
        };
        let answer = match self.ask(Ask::Answer(body)).await {
            Ok(Reply::Answer(Some(answer))) => answer,
            Ok(Reply::Answer(None) | Reply::Head(_)) => return json(StatusCode::OK, Bytes::new()),
            Err(why @ Fault::Busy(_)) => {
                return refused("waiting", StatusCode::SERVICE_UNAVAILABLE, why);
            }
            Err(why @ Fault::TimedOut) => return refused("time", StatusCode::OK, why),
            Err(why) => return fault(StatusCode::INTERNAL_SERVER_ERROR, why),
        };
        let sent = self.sending.fetch_add(answer.len(), Ordering::Relaxed);
        let is_too_much = sent > 0 && sent.saturating_add(answer.len()) > limits.answers_bytes;
        let answer = Counted(answer, Arc::clone(&self.sending));
        if is_too_much {
            let why = Fault::Busy("too many answers are being sent: try again");
            return refused("answers", StatusCode::SERVICE_UNAVAILABLE, why);
        }
        json(StatusCode::OK, Bytes::from_owner(answer))
    }
}

/// Whether a body is said to be JSON: what a page of another site sends unasked is not.
fn is_json(request: &Request<Incoming>) -> bool {
    let given = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = given.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    ["application/json", "application/json-rpc", "application/jsonrequest"]
        .iter()
        .any(|known| kind.eq_ignore_ascii_case(known))
}
