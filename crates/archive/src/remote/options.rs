//! What a bucket is called, and who may use it how long.

use std::fmt;
use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::list::PaginatedListStore;
use object_store::{ObjectStore, RetryConfig};

use super::http::Connector;
use super::patience::Patience;

/// With what a bucket is opened.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct RemoteOptions {
    /// Names and values as in the environment: `AWS_ACCESS_KEY_ID` and so on.
    pub variables: Vec<(String, String)>,
    /// How long is waited.
    pub patience: Patience,
}

impl RemoteOptions {
    /// What the process's environment says, and the usual patience.
    pub fn from_env() -> Self {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            Scheme::ALL.iter().any(|scheme| name.starts_with(scheme.variables())).then_some(())?;
            Some((name, value))
        });
        Self { variables: variables.collect(), ..Self::default() }
    }
}

/// Values may be secrets: names alone are shown.
impl fmt::Debug for RemoteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.variables.iter().map(|(name, _)| name).collect();
        f.debug_struct("RemoteOptions")
            .field("variables", &names)
            .field("patience", &self.patience)
            .finish()
    }
}

/// What object stores can do that we use.
pub(super) trait Store: ObjectStore + PaginatedListStore {}
impl<T: ObjectStore + PaginatedListStore> Store for T {}

/// Who keeps the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    S3,
    Gs,
    Az,
}

impl Scheme {
    const ALL: [Self; 3] = [Self::S3, Self::Gs, Self::Az];

    const fn name(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gs => "gs",
            Self::Az => "az",
        }
    }

    /// What the names of its variables begin with.
    pub(super) const fn variables(self) -> &'static str {
        match self {
            Self::S3 => "AWS_",
            Self::Gs => "GOOGLE_",
            Self::Az => "AZURE_",
        }
    }
}

/// What a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) scheme: Scheme,
    bucket: String,
    /// Ends with `/`, or is empty.
    pub(super) prefix: String,
}

impl Location {
    /// What is wrong with a URL is said without it: it may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, &'static str> {
        let (scheme, rest) = url.split_once("://").ok_or("it is no URL")?;
        let scheme = Scheme::ALL.into_iter().find(|known| known.name() == scheme);
        let scheme = scheme.ok_or("it does not begin with s3://, gs:// or az://")?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let plain = |text: &str| {
            let known = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
            !text.is_empty() && text.bytes().all(known) && text != "." && text != ".."
        };
        if !plain(bucket) {
            return Err("its bucket is not ASCII letters, digits, `-`, `_` and `.`; \
                        credentials belong into the environment");
        }
        let prefix = prefix.trim_end_matches('/');
        if !prefix.is_empty() && !prefix.split('/').all(plain) {
            return Err("its prefix is not ASCII letters, digits, `-`, `_` and `.`, \
                        and a `/` between two names");
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self { scheme, bucket: bucket.to_owned(), prefix })
    }

    /// The URL again.
    pub(super) fn url(&self) -> String {
        let Self { scheme, bucket, prefix } = self;
        format!("{}://{bucket}/{prefix}", scheme.name()).trim_end_matches('/').to_owned()
    }

    /// The store, and the same without retries.
    pub(super) fn connect(
        &self,
        options: &RemoteOptions,
        connector: &Connector,
    ) -> object_store::Result<[Arc<dyn Store>; 2]> {
        let retries = options.patience.retries();
        let once = RetryConfig { max_retries: 0, ..retries.clone() };
        Ok([self.store(options, connector, retries)?, self.store(options, connector, once)?])
    }

    fn store(
        &self,
        options: &RemoteOptions,
        connector: &Connector,
        retries: RetryConfig,
    ) -> object_store::Result<Arc<dyn Store>> {
        let begins = self.scheme.variables();
        let variables = options.variables.iter().filter(|(name, _)| name.starts_with(begins));
        let variables = variables.map(|(name, value)| (name.to_ascii_lowercase(), value));
        let connector = connector.clone();
        Ok(match self.scheme {
            Scheme::S3 => {
                let mut builder = AmazonS3Builder::new();
                for (name, value) in variables {
                    if let Ok(key) = name.parse() {
                        builder = builder.with_config(key, value);
                    }
                }
                // Of many objects at once not all servers know how to remove them.
                let builder = builder
                    .with_conditional_put(S3ConditionalPut::ETagMatch)
                    .with_disable_bulk_delete(true)
                    .with_bucket_name(&self.bucket)
                    .with_http_connector(connector)
                    .with_retry(retries);
                Arc::new(builder.build()?)
            }
            Scheme::Gs => {
                let mut builder = GoogleCloudStorageBuilder::new();
                for (name, value) in variables {
                    if let Ok(key) = name.parse() {
                        builder = builder.with_config(key, value);
                    }
                }
                let builder = builder.with_bucket_name(&self.bucket);
                Arc::new(builder.with_http_connector(connector).with_retry(retries).build()?)
            }
            Scheme::Az => {
                let mut builder = MicrosoftAzureBuilder::new();
                for (name, value) in variables {
                    if let Ok(key) = name.parse() {
                        builder = builder.with_config(key, value);
                    }
                }
                let builder = builder.with_container_name(&self.bucket);
                Arc::new(builder.with_http_connector(connector).with_retry(retries).build()?)
            }
        })
    }
}

/// What must not be shown: the values of variables that name keys, tokens and the like.
pub(super) fn secrets(variables: &[(String, String)]) -> Vec<String> {
    let secret = |name: &str| {
        ["KEY", "TOKEN", "SECRET", "PASSWORD", "SAS"].iter().any(|part| name.contains(part))
    };
    let found = variables.iter().filter(|(name, value)| secret(name) && value.len() >= 4);
    found.map(|(_, value)| value.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_passwords_in_them_refused() {
        let read = |url: &str| Location::parse(url).map(|location| location.url());
        assert_eq!(read("s3://bucket").unwrap(), "s3://bucket");
        assert_eq!(read("gs://bucket/a/b.c/").unwrap(), "gs://bucket/a/b.c");
        assert_eq!(Location::parse("az://c/a").unwrap().prefix, "a/");
        for url in
            ["bucket", "ftp://a", "s3://", "s3:///a", "s3://u:p@b/a", "s3://b/a?x", "s3://b//a"]
        {
            read(url).unwrap_err();
        }
        for url in ["s3://b/../a", "s3://b/.", "s3://../a", "s3://b/a b"] {
            read(url).unwrap_err();
        }
    }

    #[test]
    fn options_show_names_alone() {
        let variables = vec![("AWS_SECRET_ACCESS_KEY".to_owned(), "marked".to_owned())];
        let options = RemoteOptions { variables, ..RemoteOptions::default() };
        let shown = format!("{options:?}");
        assert!(shown.contains("AWS_SECRET_ACCESS_KEY") && !shown.contains("marked"), "{shown}");
        assert_eq!(secrets(&options.variables), ["marked"]);
    }
}
