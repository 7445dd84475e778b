//! What went wrong, in words: from what came of the last request of a call.

use std::time::Duration;

use super::http::{Last, Seen};
use crate::objects::ObjectError;

/// How much of a server's own words is passed on.
const WORDS_MAX: usize = 200;

/// An error, and what the server answered.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) error: ObjectError,
    /// 0 where there was no answer.
    pub(super) status: u16,
    /// There is an object of this name already.
    pub(super) exists: bool,
}

impl Fault {
    /// From an error of the store, and what came of the last request.
    pub(super) fn new(
        place: String,
        error: &object_store::Error,
        seen: &Seen,
        secrets: &[String],
    ) -> Self {
        let exists = matches!(
            error,
            object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }
        );
        let Some((last, metadata)) = seen.last() else {
            let text = without(secrets, &error.to_string());
            return Self { error: failed(place, false, text), status: 0, exists };
        };
        let (status, retryable, text) = match last {
            Last::Answer { status, code, message } => {
                let missing = matches!(error, object_store::Error::NotFound { .. });
                if (missing || status == 404) && !metadata && is_object_missing(&code) {
                    return Self { error: ObjectError::Missing { place }, status, exists };
                }
                let (retryable, advice) = judge(status, &code);
                let words = words(secrets, status, &code, &message);
                let text = if (200..300).contains(&status) {
                    format!("{words} that cannot be read: {}", without(secrets, &error.to_string()))
                } else {
                    format!("{words}: {advice}")
                };
                (status, retryable, text)
            }
            Last::Broken { text, untrusted: true } => {
                let advice = "add the certificate of who signed the server's to the system's, or \
                              name a file with it in SSL_CERT_FILE";
                (0, false, format!("{text}: {advice}"))
            }
            // There is no such service: it will not be there later.
            Last::Broken { text, .. } => (0, !metadata, text),
        };
        let text = if metadata {
            format!(
                "no credentials in the environment, and none from the machine's own service \
                 ({text}): set them, see docs/reference/object-storage.md"
            )
        } else {
            text
        };
        Self { error: failed(place, retryable, without(secrets, &text)), status, exists }
    }

    /// A call that went on for too long.
    pub(super) fn slow(place: String, limit: Duration, seen: &Seen, secrets: &[String]) -> Self {
        let last = match seen.last() {
            None => "no request ended".to_owned(),
            Some((Last::Answer { status, code, message }, _)) => {
                let (_, advice) = judge(status, &code);
                let words = words(secrets, status, &code, &message);
                let advice = if status < 300 { "" } else { advice };
                format!("the last request: {words}: {advice}").trim_end_matches(": ").to_owned()
            }
            Some((Last::Broken { text, .. }, _)) => format!("the last request: {text}"),
        };
        let text = format!("not done within {} s; {last}", limit.as_secs());
        Self { error: failed(place, true, without(secrets, &text)), status: 0, exists: false }
    }

    /// An error that is not the server's.
    pub(super) const fn own(error: ObjectError) -> Self {
        Self { error, status: 0, exists: false }
    }
}

pub(super) fn failed(place: String, retryable: bool, text: String) -> ObjectError {
    ObjectError::Failed { place, retryable, source: text.into() }
}

/// Whether a 404 speaks of the object, and not of the bucket or an upload.
fn is_object_missing(code: &str) -> bool {
    !["NoSuchBucket", "ContainerNotFound", "NoSuchUpload"].contains(&code)
}

/// Whether the same request may succeed later, and what to do about it.
fn judge(status: u16, code: &str) -> (bool, &'static str) {
    match (status, code) {
        (_, "NoSuchBucket" | "ContainerNotFound") => {
            (false, "make the bucket, or mend its name in the URL")
        }
        (_, "NoSuchUpload") => {
            (true, "the server knows nothing of the upload any more; write the object again")
        }
        (_, "RequestTimeTooSkewed") => (false, "set this machine's clock"),
        (_, "ExpiredToken" | "InvalidToken") => {
            (false, "get a new session token (AWS_SESSION_TOKEN)")
        }
        (301 | 302 | 307 | 308, _) | (_, "AuthorizationHeaderMalformed") => (
            false,
            "the bucket lies in another region, or at another address: set AWS_REGION, or \
             AWS_ENDPOINT_URL",
        ),
        (401 | 403, _) => {
            (false, "check the credentials in the environment and what the bucket's policy allows")
        }
        (501, _) => (false, "the server cannot do this; see docs/reference/object-storage.md"),
        (408 | 425 | 429 | 500.., _) => (true, "the server is busy or ill; try again later"),
        (409, _) => (true, "others change the same object; try again"),
        _ => (false, "see docs/reference/object-storage.md for what a server has to support"),
    }
}

fn words(secrets: &[String], status: u16, code: &str, message: &str) -> String {
    let plain = |text: &str| {
        let text: String = text.chars().filter(|c| !c.is_control()).take(WORDS_MAX).collect();
        // A server may repeat what was signed.
        let signed = text.to_ascii_lowercase().contains("signature=");
        if signed { String::new() } else { text }
    };
    let mut words = format!("the server answers {status}");
    for part in [plain(&without(secrets, code)), plain(&without(secrets, message))] {
        if !part.is_empty() {
            words = format!("{words} {part}");
        }
    }
    words.trim_end_matches('.').to_owned()
}

fn without(secrets: &[String], text: &str) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "[hidden]"))
}
