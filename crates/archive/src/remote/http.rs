//! Requests over HTTP/1.1, with and without TLS: each with a time limit, and with a note of what
//! came of it.

use std::error::Error as StdError;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::Uri;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{HeaderValue, USER_AGENT};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{self, Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use rustls::{ClientConfig, RootCertStore};
use tokio::time::{Instant, Sleep};

use super::patience::Patience;

/// What an error's body may hold; of a longer one nothing is read.
const ERROR_BODY_MAX: usize = 64 << 10;
/// How long a connection may lie idle. Servers close theirs after 30 seconds and more.
const IDLE: Duration = Duration::from_secs(20);

tokio::task_local! {
    /// What came of the requests that a call made so far.
    pub(super) static SEEN: Arc<Seen>;
}

/// What came of the last request of a call.
#[derive(Clone, Debug)]
pub(super) enum Last {
    /// An answer.
    Answer {
        status: u16,
        /// The error's code and message, where the body has them.
        code: String,
        message: String,
    },
    /// None, or one that broke off.
    Broken {
        text: String,
        /// The server's certificate is not one that we trust.
        untrusted: bool,
    },
}

/// The last request of a call.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<Option<(Last, bool)>>);

impl Seen {
    /// What came of it, and whether it went to the machine's own service for credentials.
    pub(super) fn last(&self) -> Option<(Last, bool)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, last: Last, metadata: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((last, metadata));
    }
}

/// Makes clients that share their connections.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    tls_only: HttpClient,
    any: HttpClient,
}

impl Connector {
    pub(super) fn new(patience: &Patience) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client = |any: bool| {
            let mut tcp = HttpConnector::new();
            tcp.set_connect_timeout(Some(patience.connect));
            tcp.set_nodelay(true);
            tcp.enforce_http(false);
            let https = HttpsConnectorBuilder::new().with_tls_config(tls.clone());
            let https = if any { https.https_or_http() } else { https.https_only() };
            let client = Client::builder(TokioExecutor::new())
                .pool_idle_timeout(IDLE)
                .pool_timer(TokioTimer::new())
                .build(https.enable_http1().wrap_connector(tcp));
            HttpClient::new(Requests { client, patience: *patience })
        };
        Ok(Self { tls_only: client(false), any: client(true) })
    }
}

impl object_store::client::HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allowed = options.get_config_value(&ClientConfigKey::AllowHttp);
        let any = allowed.is_some_and(|value| value == "true");
        Ok(if any { self.any.clone() } else { self.tls_only.clone() })
    }
}

/// A client.
#[derive(Debug)]
struct Requests {
    client: Client<HttpsConnector<HttpConnector>, HttpRequestBody>,
    patience: Patience,
}

#[async_trait]
impl HttpService for Requests {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let agent = HeaderValue::from_static(concat!("spinney/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().entry(USER_AGENT).or_insert(agent);
        let note = Note {
            seen: SEEN.try_with(Arc::clone).unwrap_or_default(),
            metadata: is_metadata(request.uri()),
        };
        let wait = self.patience.answer + Patience::to_carry(request.body().content_length());
        let response = match tokio::time::timeout(wait, self.client.request(request)).await {
            Err(_) => return Err(note.slow(wait)),
            Ok(Err(error)) => return Err(note.refused(error)),
            Ok(Ok(response)) => response,
        };
        let (parts, body) = response.into_parts();
        let status = parts.status.as_u16();
        if parts.status.is_success() {
            note.answer(status, "", "");
            let body = TimedBody::new(body, self.patience.answer, note);
            return Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)));
        }
        // The status says enough where its text is cut off or too long.
        let body = Limited::new(body, ERROR_BODY_MAX).collect();
        let body = match tokio::time::timeout(self.patience.answer, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) | Err(_) => Bytes::new(),
        };
        let text = String::from_utf8_lossy(&body);
        note.answer(status, within(&text, "Code"), within(&text, "Message"));
        Ok(HttpResponse::from_parts(parts, text.into_owned().into()))
    }
}

/// Whether a cloud's machine is asked for its credentials there.
fn is_metadata(uri: &Uri) -> bool {
    let hosts = [
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "metadata.google.internal",
        "metadata",
    ];
    let paths = ["/latest/api/token", "/latest/meta-data/iam/"];
    uri.host().is_some_and(|host| hosts.contains(&host))
        || paths.iter().any(|path| uri.path().starts_with(path))
}

/// The text of the first element of this name.
fn within<'a>(text: &'a str, name: &str) -> &'a str {
    let inside = text.split_once(&format!("<{name}>"));
    let inside = inside.and_then(|(_, rest)| rest.split_once(&format!("</{name}>")));
    inside.map_or("", |(inside, _)| inside)
}

/// Where a request notes what came of it.
#[derive(Debug)]
struct Note {
    seen: Arc<Seen>,
    metadata: bool,
}

impl Note {
    fn answer(&self, status: u16, code: &str, message: &str) {
        let (code, message) = (code.to_owned(), message.to_owned());
        self.seen.note(Last::Answer { status, code, message }, self.metadata);
    }

    fn broken(&self, kind: HttpErrorKind, error: Box<dyn StdError + Send + Sync>) -> HttpError {
        let (mut text, mut untrusted) = (error.to_string(), false);
        let mut source = error.source();
        while let Some(error) = source {
            let inner = error.to_string();
            if !text.ends_with(&inner) {
                text = format!("{text}: {inner}");
            }
            untrusted |= is_untrusted(error);
            source = error.source();
        }
        self.seen.note(Last::Broken { text, untrusted }, self.metadata);
        HttpError::new_boxed(kind, error)
    }

    fn slow(&self, wait: Duration) -> HttpError {
        let text = format!("no answer within {} s", wait.as_secs_f32());
        self.broken(HttpErrorKind::Timeout, text.into())
    }

    fn refused(&self, error: legacy::Error) -> HttpError {
        let kind = if error.is_connect() {
            HttpErrorKind::Connect
        } else {
            // It may have arrived: only what can be done twice is tried again.
            HttpErrorKind::Interrupted
        };
        self.broken(kind, error.into())
    }
}

/// TLS errors come inside of errors of the system, whose sources leave them out.
fn is_untrusted(error: &(dyn StdError + 'static)) -> bool {
    let inner = error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
    let inner = inner.and_then(|error| error.downcast_ref::<rustls::Error>());
    let found = inner.or_else(|| error.downcast_ref::<rustls::Error>());
    matches!(found, Some(rustls::Error::InvalidCertificate(_)))
}

/// A body that is an error when it stands still.
struct TimedBody {
    inner: Incoming,
    limit: Duration,
    still: Pin<Box<Sleep>>,
    note: Note,
}

impl TimedBody {
    fn new(inner: Incoming, limit: Duration, note: Note) -> Self {
        Self { inner, limit, still: Box::pin(tokio::time::sleep(limit)), note }
    }
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let until = Instant::now() + self.limit;
                self.still.as_mut().reset(until);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                let error = self.note.broken(HttpErrorKind::Interrupted, error.into());
                Poll::Ready(Some(Err(error)))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending if self.still.as_mut().poll(context).is_ready() => {
                Poll::Ready(Some(Err(self.note.slow(self.limit))))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
