//! `sslmode` and `sslrootcert`, against servers with and without TLS. The certificates are made
//! here.

use std::fs::{self, Permissions};
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use spinney_postgres::{Address, ServerError, Why};
use tempfile::TempDir;
use tracing_subscriber::fmt::MakeWriter;

use crate::server::Server;

/// A certificate that others are signed by, as PEM, and what signs.
fn authority(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    (certificate, Issuer::new(params, key))
}

/// A server whose certificate says `localhost`, or one without TLS; also reached by the address of
/// this machine in its network, if it has one.
struct Scene {
    server: Server,
    folder: TempDir,
    outside: Option<IpAddr>,
}

impl Scene {
    fn new(tls: bool) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let ((root, issuer), (stranger, _)) = (authority("ours"), authority("a stranger"));
        fs::write(folder.path().join("root.crt"), root).unwrap();
        fs::write(folder.path().join("stranger.crt"), stranger).unwrap();
        fs::write(folder.path().join("empty.crt"), "").unwrap();
        let outside = outside();
        let server = Server::start_with(|data| {
            fs::write(data.join("pg_hba.conf"), "host all all all trust\n").unwrap();
            let mut settings = vec![];
            if let Some(outside) = outside {
                settings.push(format!("listen_addresses=127.0.0.1,{outside}"));
            }
            if tls {
                present(data, &issuer);
                settings.push("ssl=on".to_owned());
            }
            settings
        })?;
        Some(Self { server, folder, outside })
    }

    /// The address with other hosts and parameters.
    fn address(&self, host: &str, more: &str) -> Address {
        let url = self.server.url("postgres", "public").replace("127.0.0.1", host);
        let folder = self.folder.path().display();
        Address::new(format!("{url}&{}", more.replace("DIR", &folder.to_string())))
    }

    /// Whether a connection is encrypted, as the server says.
    fn connect(&self, host: &str, more: &str) -> Result<bool, ServerError> {
        let mut client = self.address(host, more).access("test")?.connect()?;
        let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        Ok(client.query_one(sql, &[]).unwrap().get(0))
    }

    #[track_caller]
    fn refuses(&self, host: &str, more: &str, why: Why, what: &str) {
        let error = self.connect(host, more).expect_err("it is refused");
        assert!(error.why() == why && error.to_string().contains(what), "{host} {more}: {error:?}");
    }
}

/// Gives a server a certificate for `localhost`.
fn present(data: &Path, issuer: &Issuer<'_, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, issuer).unwrap();
    fs::write(data.join("server.crt"), certificate.pem()).unwrap();
    fs::write(data.join("server.key"), key.serialize_pem()).unwrap();
    fs::set_permissions(data.join("server.key"), Permissions::from_mode(0o600)).unwrap();
}

/// The address of this machine in its network. Nothing is sent.
fn outside() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn each_mode_asks_for_as_much_as_it_says() {
    let Some(scene) = Scene::new(true) else { return };
    let here = "127.0.0.1";
    for (host, more, encrypted) in [
        (here, "", false),
        (here, "sslmode=disable", false),
        (here, "sslmode=disable&sslrootcert=DIR/root.crt", false),
        (here, "sslmode=prefer", true),
        (here, "sslmode=require", true),
        // The name in the certificate is another one.
        (here, "sslmode=verify-ca&sslrootcert=DIR/root.crt", true),
        (here, "sslmode=require&sslrootcert=DIR/root.crt", true),
        (here, "sslrootcert=DIR/root.crt", true),
        ("localhost", "sslmode=verify-full&sslrootcert=DIR/root.crt", true),
        ("localhost", "sslmode=verify-full&sslrootcert=DIR/root.crt&hostaddr=127.0.0.1", true),
    ] {
        let found = scene.connect(host, more).unwrap_or_else(|e| panic!("{host} {more}: {e}"));
        assert_eq!(found, encrypted, "{host} {more}");
    }
    let stranger = "sslrootcert=DIR/stranger.crt";
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        scene.refuses(
            "localhost",
            &format!("sslmode={mode}&{stranger}"),
            Why::Tls,
            "UnknownIssuer",
        );
    }
    scene.refuses("localhost", stranger, Why::Tls, "UnknownIssuer");
    let named = "sslmode=verify-full&sslrootcert=DIR/root.crt";
    scene.refuses(here, named, Why::Tls, "not valid for");
    scene.refuses(here, "sslrootcert=DIR/none.crt", Why::Tls, "none.crt");
    scene.refuses(here, "sslrootcert=DIR/empty.crt", Why::Tls, "no certificate in it");
    scene.refuses(here, "sslmode=allow", Why::Address, "sslmode is one of disable, prefer");
    let weak = "sslmode=require&sslrootcert=system";
    scene.refuses(here, weak, Why::Address, "verify-full");
    // Nobody here is signed by those.
    let error = scene.connect("localhost", "sslrootcert=system").unwrap_err();
    assert_eq!(error.why(), Why::Tls, "{error}");
}

#[test]
fn a_server_without_tls_is_refused_or_taken_as_it_is() {
    let Some(scene) = Scene::new(false) else { return };
    for mode in ["", "sslmode=disable", "sslmode=prefer"] {
        assert!(!scene.connect("127.0.0.1", mode).unwrap(), "{mode}");
    }
    for mode in ["sslmode=require", "sslrootcert=DIR/root.crt"] {
        scene.refuses("127.0.0.1", mode, Why::Tls, "does not support TLS");
    }
}

/// What is warned of while this lives, in this thread.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl io::Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Heard {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn warned(work: impl FnOnce()) -> String {
    let heard = Heard::default();
    let listener = tracing_subscriber::fmt().with_writer(heard.clone()).with_ansi(false).finish();
    tracing::subscriber::with_default(listener, work);
    let heard = heard.0.lock().unwrap().clone();
    String::from_utf8(heard).unwrap()
}

#[test]
fn another_host_is_reached_by_tls_and_warned_of_without() {
    let (Some(with), Some(without)) = (Scene::new(true), Scene::new(false)) else { return };
    let Some(outside) = with.outside else {
        println!("skipped: this machine has no address but loopback");
        return;
    };
    let host = outside.to_string();
    let quiet = warned(|| {
        assert!(with.connect(&host, "").unwrap(), "prefer is the default");
        assert!(!with.connect(&host, "sslmode=disable").unwrap());
        assert!(!without.connect("127.0.0.1", "sslmode=prefer").unwrap());
    });
    assert_eq!(quiet, "");
    for mode in ["", "sslmode=prefer"] {
        let heard = warned(|| assert!(!without.connect(&host, mode).unwrap()));
        assert!(heard.contains("WARN spinney::postgres"), "{heard}");
        assert!(heard.contains(&format!("the connection to {host}")), "{heard}");
        assert!(heard.contains("is not encrypted: the server has no TLS"), "{heard}");
    }
}
