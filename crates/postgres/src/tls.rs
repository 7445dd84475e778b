//! TLS: which certificates are good enough, and whether a connection came to be encrypted.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::env;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use postgres::Socket;
use postgres::tls::{MakeTlsConnect, TlsConnect};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::ServerError;
use crate::address::Pairs;
use crate::error::Why;

/// How a connection is to be protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

const MODES: [(&str, Mode); 5] = [
    ("disable", Mode::Disable),
    ("prefer", Mode::Prefer),
    ("require", Mode::Require),
    ("verify-ca", Mode::VerifyCa),
    ("verify-full", Mode::VerifyFull),
];

/// What an address says of TLS.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// None where it is left to the host.
    pub(crate) mode: Option<Mode>,
    pub(crate) roots: Roots,
}

/// Where root certificates are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// `~/.postgresql/root.crt`, if it is there.
    Usual,
    /// Those that the system trusts.
    System,
    File(PathBuf),
}

impl Wish {
    pub(crate) fn of(pairs: &Pairs) -> Result<Self, ServerError> {
        let roots = match pairs.get("sslrootcert") {
            None => Roots::Usual,
            Some("system") => Roots::System,
            Some(file) => Roots::File(file.into()),
        };
        let mode = match (pairs.get("sslmode"), &roots) {
            (None, Roots::Usual) => None,
            // Who names certificates wants them to be looked at.
            (None, Roots::File(_)) => Some(Mode::VerifyCa),
            (None, Roots::System) => Some(Mode::VerifyFull),
            (Some(name), _) => {
                let known = MODES.iter().find(|(known, _)| *known == name);
                let names = MODES.map(|(name, _)| name).join(", ");
                let known = known.ok_or_else(|| {
                    ServerError::new(Why::Address, format!("sslmode is one of {names}"))
                })?;
                Some(known.1)
            }
        };
        if roots == Roots::System && mode.is_some_and(|mode| mode < Mode::VerifyFull) {
            // Anybody gets a certificate of these for a name of his own. libpq refuses it as well.
            let what = "sslrootcert=system takes sslmode=verify-full";
            return Err(ServerError::new(Why::Address, what));
        }
        Ok(Self { mode, roots })
    }

    /// What makes connections by this mode, which is not to leave them plain.
    pub(crate) fn connector(&self, mode: Mode) -> Result<Connector, ServerError> {
        let roots = self.roots(mode)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let named = mode == Mode::VerifyFull;
        let verifies = roots.is_some();
        let verifier = Arc::new(Verifier { roots, named, provider: Arc::clone(&provider) });
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| tls_error(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Connector { inner: MakeRustlsConnect::new(config), verifies, state: Arc::default() })
    }

    /// The certificates to verify by, if the mode takes any.
    fn roots(&self, mode: Mode) -> Result<Option<Arc<RootCertStore>>, ServerError> {
        let usual = || env::home_dir().map(|home| home.join(".postgresql/root.crt"));
        let file = match &self.roots {
            Roots::System => return system_roots().map(Some),
            Roots::File(file) => Some(file.clone()),
            Roots::Usual if mode >= Mode::Require => usual().filter(|file| file.exists()),
            Roots::Usual => None,
        };
        match file {
            Some(file) => file_roots(&file).map(Some),
            None if mode >= Mode::VerifyCa => Err(tls_error(
                "there is no root certificate to verify the server's by: name one with \
                 sslrootcert=FILE, or sslrootcert=system",
            )),
            None => Ok(None),
        }
    }
}

fn tls_error(what: impl Into<String>) -> ServerError {
    ServerError::new(Why::Tls, what)
}

fn file_roots(file: &Path) -> Result<Arc<RootCertStore>, ServerError> {
    let unread = |what: &dyn std::fmt::Display| {
        tls_error(format!("cannot read root certificates from {}: {what}", file.display()))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unread(&error))? {
        let certificate = certificate.map_err(|error| unread(&error))?;
        roots.add(certificate).map_err(|error| unread(&error))?;
    }
    match roots.is_empty() {
        true => Err(unread(&"there is no certificate in it")),
        false => Ok(Arc::new(roots)),
    }
}

fn system_roots() -> Result<Arc<RootCertStore>, ServerError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err(tls_error("the system has no root certificates (sslrootcert=system)")),
        false => Ok(Arc::new(roots)),
    }
}

/// Verifies as much of a certificate as a mode asks for. That the server has its key is always
/// verified.
#[derive(Debug)]
struct Verifier {
    /// None: any certificate does.
    roots: Option<Arc<RootCertStore>>,
    /// Whether it has to name the host.
    named: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(roots) = &self.roots else { return Ok(ServerCertVerified::assertion()) };
        let certificate = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            roots,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        )?;
        if self.named {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// How far TLS came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// The server had none, or was not asked.
    Nowhere,
    /// It has some, and both sides did not agree.
    ToNothing,
    /// The connection is encrypted.
    ToTls,
}

/// Makes connections encrypted, and remembers whether the last one came to be so.
#[derive(Clone)]
pub(crate) struct Connector {
    inner: MakeRustlsConnect,
    verifies: bool,
    state: Arc<AtomicU8>,
}

impl Connector {
    /// Whether certificates are looked at.
    pub(crate) fn verifies(&self) -> bool {
        self.verifies
    }

    pub(crate) fn came(&self) -> Came {
        match self.state.load(Ordering::Relaxed) {
            0 => Came::Nowhere,
            1 => Came::ToNothing,
            _ => Came::ToTls,
        }
    }
}

type Inner = <MakeRustlsConnect as MakeTlsConnect<Socket>>::TlsConnect;
type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// One connection to be encrypted.
pub(crate) struct Connect {
    inner: Inner,
    state: Arc<AtomicU8>,
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Stream;
    type TlsConnect = Connect;
    type Error = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Error;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Connect, Self::Error> {
        let inner = MakeTlsConnect::<Socket>::make_tls_connect(&mut self.inner, domain)?;
        Ok(Connect { inner, state: Arc::clone(&self.state) })
    }
}

impl TlsConnect<Socket> for Connect {
    type Stream = Stream;
    type Error = <Inner as TlsConnect<Socket>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Self::Error>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        let Self { inner, state } = self;
        Box::pin(async move {
            state.store(1, Ordering::Relaxed);
            let stream = inner.connect(stream).await?;
            state.store(2, Ordering::Relaxed);
            Ok(stream)
        })
    }
}
