//! A prefix of a bucket of an object store as a place for objects.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;

use crate::objects::{Listed, ObjectError, Objects, Upload};

mod bucket;
mod fault;
mod http;
mod options;
mod patience;
mod upload;

pub use options::RemoteOptions;
pub use patience::Patience;

use bucket::Bucket;
use upload::RemoteUpload;

/// As many reads of [`Objects::read_many`] are under way at once.
const READS: usize = 16;

/// A prefix of a bucket: Amazon S3 and what speaks its protocol, Google Cloud Storage, Azure.
///
/// Calls block; two threads of its own do the work. Clones share them. The bucket needs strongly
/// consistent reads and listings, and puts with `If-None-Match: *`; see
/// docs/reference/object-storage.md.
///
/// A [`create`](Objects::create) whose answer was lost is told from another's by its bytes: two who
/// create an object of the same name need different bytes.
#[derive(Clone, Debug)]
pub struct Remote {
    bucket: Arc<Bucket>,
}

impl Remote {
    /// Opens `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`, with
    /// credentials and endpoint from the environment. Nothing is asked for yet.
    ///
    /// # Errors
    /// [`ObjectError::Failed`], not retryable, for a URL or an environment that does not do.
    pub fn open(url: &str) -> Result<Self, ObjectError> {
        Self::open_with(url, &RemoteOptions::from_env())
    }

    /// The same with what is given in place of the environment.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(url: &str, options: &RemoteOptions) -> Result<Self, ObjectError> {
        Ok(Self { bucket: Arc::new(Bucket::open(url, options)?) })
    }
}

impl Objects for Remote {
    fn place(&self) -> String {
        self.bucket.url()
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, ObjectError> {
        let (bucket, prefix) = (Arc::clone(&self.bucket), prefix.to_owned());
        self.bucket.wait(async move { bucket.list(&prefix).await })
    }

    fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, ObjectError> {
        let (bucket, name) = (Arc::clone(&self.bucket), name.to_owned());
        self.bucket.wait(async move { bucket.get(&name, most).await })
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, ObjectError> {
        let (bucket, name) = (Arc::clone(&self.bucket), name.to_owned());
        self.bucket.wait(async move { bucket.read(&name, range).await })
    }

    fn read_many(&self, wants: &[(&str, Range<u64>)]) -> Vec<Result<Vec<u8>, ObjectError>> {
        let bucket = Arc::clone(&self.bucket);
        let owned: Vec<_> =
            wants.iter().map(|(name, range)| ((*name).to_owned(), range.clone())).collect();
        let all = self.bucket.wait(async move {
            let reads = owned.into_iter().map(|(name, range)| {
                let bucket = Arc::clone(&bucket);
                async move { bucket.read(&name, range).await }
            });
            Ok(futures_util::stream::iter(reads).buffered(READS).collect().await)
        });
        // One by one, should that ever end without an answer.
        all.unwrap_or_else(|_: ObjectError| {
            wants.iter().map(|(name, range)| self.read(name, range.clone())).collect()
        })
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, ObjectError> {
        let bytes = Bytes::copy_from_slice(bytes);
        let (bucket, name) = (Arc::clone(&self.bucket), name.to_owned());
        self.bucket.wait(async move { bucket.create(&name, bytes).await })
    }

    fn upload(&self, name: &str) -> Result<Box<dyn Upload>, ObjectError> {
        Ok(Box::new(RemoteUpload::new(Arc::clone(&self.bucket), name)?))
    }

    fn remove(&self, name: &str) -> Result<(), ObjectError> {
        let (bucket, name) = (Arc::clone(&self.bucket), name.to_owned());
        self.bucket.wait(async move { bucket.remove(&name).await })
    }
}
