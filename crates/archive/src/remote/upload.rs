//! An object that is written in parts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::{MultipartUpload, ObjectStore as _, PutPayload};
use tokio::task::JoinHandle;
use xxhash_rust::xxh3::Xxh3;

use super::bucket::Bucket;
use super::fault::failed;
use crate::objects::{ObjectError, Upload};

/// The bytes of a part. An object of no more than that is put at once.
const PART: usize = 8 << 20;
/// As many parts are under way at once.
const UNDER_WAY: usize = 2;
/// As many parts servers accept.
const PARTS_MAX: usize = 10_000;
/// How long an upload that is given up may take to be so.
const GIVE_UP: Duration = Duration::from_secs(10);

/// An object that is being written to a bucket.
#[derive(Debug)]
pub(super) struct RemoteUpload {
    bucket: Arc<Bucket>,
    name: String,
    /// What is in no part yet.
    rest: Vec<u8>,
    length: u64,
    /// Of all bytes, to know the object again.
    digest: Xxh3State,
    /// There is none before the first part.
    upload: Option<Box<dyn MultipartUpload>>,
    parts: usize,
    under_way: VecDeque<JoinHandle<Result<(), ObjectError>>>,
    /// A part is missing: there is no way on.
    broken: bool,
}

#[derive(Default)]
struct Xxh3State(Xxh3);

impl std::fmt::Debug for Xxh3State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Xxh3State")
    }
}

impl RemoteUpload {
    pub(super) fn new(bucket: Arc<Bucket>, name: &str) -> Result<Self, ObjectError> {
        bucket.path(name)?;
        Ok(Self {
            bucket,
            name: name.to_owned(),
            rest: Vec::new(),
            length: 0,
            digest: Xxh3State::default(),
            upload: None,
            parts: 0,
            under_way: VecDeque::new(),
            broken: false,
        })
    }

    fn failed(&self, retryable: bool, text: &str) -> ObjectError {
        failed(self.bucket.place(&self.name), retryable, text.to_owned())
    }

    /// Sends what is gathered.
    fn send(&mut self) -> Result<(), ObjectError> {
        if self.parts == PARTS_MAX {
            let text = format!("it has more than {PARTS_MAX} parts of {PART} bytes: cut it up");
            return Err(self.failed(false, &text));
        }
        self.land(UNDER_WAY - 1)?;
        let mut upload = match self.upload.take() {
            Some(upload) => upload,
            None => self.begin()?,
        };
        let part = Bytes::from(std::mem::take(&mut self.rest));
        let length = part.len();
        let work = upload.put_part(PutPayload::from(part));
        self.upload = Some(upload);
        self.parts += 1;
        let (bucket, name) = (Arc::clone(&self.bucket), self.name.clone());
        let work =
            async move { bucket.call(&name, length, work).await.map_err(|fault| fault.error) };
        self.under_way.extend(self.bucket.spawn(work));
        Ok(())
    }

    fn begin(&self) -> Result<Box<dyn MultipartUpload>, ObjectError> {
        let (bucket, name) = (Arc::clone(&self.bucket), self.name.clone());
        let path = bucket.path(&name)?;
        self.bucket.wait(async move {
            let begun =
                bucket.call(&name, 0, bucket.store.put_multipart_opts(&path, Default::default()));
            begun.await.map_err(|fault| fault.error)
        })
    }

    /// Waits until no more than that many parts are under way.
    fn land(&mut self, most: usize) -> Result<(), ObjectError> {
        while self.under_way.len() > most {
            let Some(part) = self.under_way.pop_front() else { break };
            let place = self.bucket.place(&self.name);
            self.bucket.wait(async move {
                part.await.unwrap_or_else(|error| Err(failed(place, false, error.to_string())))
            })?;
        }
        Ok(())
    }

    /// Makes an object of the parts.
    fn complete(&mut self) -> Result<(), ObjectError> {
        self.land(0)?;
        let Some(mut upload) = self.upload.take() else { return Ok(()) };
        let (bucket, name) = (Arc::clone(&self.bucket), self.name.clone());
        let (upload, done) = self.bucket.wait(async move {
            let done = bucket.call(&name, 0, upload.complete()).await;
            Ok((upload, done))
        })?;
        let Err(fault) = done else { return Ok(()) };
        // It may have been done all the same, by a try whose answer was lost.
        let lost = fault.status == 404 || fault.error.is_retryable();
        if lost && self.is_there().unwrap_or(false) {
            return Ok(());
        }
        self.upload = Some(upload);
        Err(match fault.error {
            ObjectError::Missing { .. } => {
                self.failed(true, "the server has lost the upload; write the object again")
            }
            error => error,
        })
    }

    /// Whether the object has our bytes: all of them are read.
    fn is_there(&self) -> Result<bool, ObjectError> {
        let (bucket, name) = (Arc::clone(&self.bucket), self.name.clone());
        let (length, digest) = (self.length, self.digest.0.digest128());
        self.bucket.wait(async move {
            if bucket.length(&name).await? != length {
                return Ok(false);
            }
            let (mut found, mut at) = (Xxh3::new(), 0);
            while at < length {
                let end = length.min(at + PART as u64);
                found.update(&bucket.read(&name, at..end).await?);
                at = end;
            }
            Ok(found.digest128() == digest)
        })
    }

    fn broken(&mut self, result: Result<(), ObjectError>) -> Result<(), ObjectError> {
        self.broken |= result.is_err();
        result
    }
}

impl Upload for RemoteUpload {
    fn write(&mut self, mut bytes: &[u8]) -> Result<(), ObjectError> {
        if self.broken {
            return Err(self.failed(true, "a part of it failed; write the object again"));
        }
        self.digest.0.update(bytes);
        self.length += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.rest.len() == PART {
                let sent = self.send();
                self.broken(sent)?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(PART - self.rest.len()));
            self.rest.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), ObjectError> {
        if self.broken {
            return Err(self.failed(true, "a part of it failed; write the object again"));
        }
        if self.upload.is_none() {
            let (bucket, name) = (Arc::clone(&self.bucket), self.name.clone());
            let whole = Bytes::from(std::mem::take(&mut self.rest));
            return self.bucket.wait(async move { bucket.put(&name, whole).await });
        }
        self.send()?;
        self.complete()
    }
}

impl Drop for RemoteUpload {
    fn drop(&mut self) {
        let Some(mut upload) = self.upload.take() else { return };
        let mut under_way = std::mem::take(&mut self.under_way);
        let (bucket, name) = (Arc::clone(&self.bucket), self.name.clone());
        // What cannot be told the server now, its rule for parts that lie about has to see to.
        let _ = self.bucket.wait(async move {
            // A server may keep a part that comes to its end behind that of the upload.
            let landed = async {
                while let Some(part) = under_way.front_mut() {
                    let _ = part.await;
                    under_way.pop_front();
                }
            };
            if tokio::time::timeout(GIVE_UP, landed).await.is_err() {
                for part in under_way {
                    part.abort();
                    let _ = part.await;
                }
            }
            let given_up = bucket.call(&name, 0, upload.abort());
            let _ = tokio::time::timeout(GIVE_UP, given_up).await;
            Ok(())
        });
    }
}
