//! The explorer: a page that asks this server for proofs, and checks them itself.
//!
//! All that it needs is here and comes from this server. The policy that goes with the page lets a
//! browser load and ask nothing else.

use std::sync::LazyLock;

use alloy_primitives::{hex, keccak256};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue,
    IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};

/// What the page may do in a browser.
const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; \
    style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// A file of the page.
struct File {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

const FILES: [File; 7] = [
    File { path: "/", kind: "text/html; charset=utf-8", bytes: include_bytes!("page.html") },
    File {
        path: "/explorer.css",
        kind: "text/css; charset=utf-8",
        bytes: include_bytes!("page.css"),
    },
    File { path: "/explorer.js", kind: SCRIPT, bytes: include_bytes!("page.js") },
    File { path: "/proof.js", kind: SCRIPT, bytes: include_bytes!("proof.js") },
    File { path: "/rpc.js", kind: SCRIPT, bytes: include_bytes!("rpc.js") },
    File { path: "/dom.js", kind: SCRIPT, bytes: include_bytes!("dom.js") },
    File { path: "/verifier.js", kind: SCRIPT, bytes: include_bytes!("verifier.js") },
];

/// The verifiers of `spinney-proof`, as `.ci/verifier` builds them.
const VERIFIER: File = File {
    path: "/verifier.wasm",
    kind: "application/wasm",
    bytes: include_bytes!("verifier.wasm"),
};

/// What the files are known by: a browser that has a file asks whether it is still the same.
static TAGS: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| {
    let tag = |file: &File| {
        let digest = hex::encode(&keccak256(file.bytes)[..16]);
        HeaderValue::from_str(&format!("\"{digest}\"")).expect("hex in quotes")
    };
    files().map(tag).collect()
});

fn files() -> impl Iterator<Item = &'static File> {
    FILES.iter().chain([&VERIFIER])
}

/// The file at a path, if it is one of the page's.
pub(crate) fn answer(path: &str, asked: &HeaderMap) -> Option<Response<Full<Bytes>>> {
    let (file, tag) = files().zip(&*TAGS).find(|(file, _)| file.path == path)?;
    let is_known = asked.get(IF_NONE_MATCH).is_some_and(|known| known == tag);
    let bytes = if is_known { &[][..] } else { file.bytes };
    let mut response = Response::new(Full::new(Bytes::from_static(bytes)));
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(ETAG, tag.clone());
    for (name, value) in [
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CONTENT_TYPE, file.kind),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Some(response)
}
