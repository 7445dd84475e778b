//! A place for objects by what a person calls it.

use std::sync::Arc;

use crate::folder::Folder;
use crate::objects::{ObjectError, Objects};

/// Why a text names no place that we know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// A bucket, and this program was built without those.
    #[error(
        "buckets ({scheme}://) are not built in: build with the feature `remote`, or name a folder"
    )]
    NotBuiltIn {
        /// What the URL begins with.
        scheme: String,
    },
    /// A URL of another kind.
    #[error(
        "{scheme}:// is no place for an archive: name a folder, s3://BUCKET/PREFIX, \
         gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
    )]
    UnknownScheme {
        /// What the URL begins with.
        scheme: String,
    },
    /// Nothing.
    #[error("it is empty: name a folder or a URL")]
    Empty,
}

/// The place of this name: a URL (`s3://BUCKET/PREFIX`, `gs://`, `az://`), or else a folder.
///
/// # Errors
/// [`ObjectError::Failed`], not retryable: its source is a [`PlaceError`], or what the bucket's
/// environment lacks.
pub fn place(text: &str) -> Result<Arc<dyn Objects>, ObjectError> {
    let wrong = |error: PlaceError| ObjectError::Failed {
        place: "the archive's place".to_owned(),
        retryable: false,
        source: error.into(),
    };
    match text.split_once("://") {
        None if text.is_empty() => Err(wrong(PlaceError::Empty)),
        None => Ok(Arc::new(Folder::new(text))),
        #[cfg(feature = "remote")]
        Some(("s3" | "gs" | "az", _)) => Ok(Arc::new(crate::Remote::open(text)?)),
        #[cfg(not(feature = "remote"))]
        Some((scheme @ ("s3" | "gs" | "az"), _)) => {
            Err(wrong(PlaceError::NotBuiltIn { scheme: scheme.to_owned() }))
        }
        Some((scheme, _)) => Err(wrong(PlaceError::UnknownScheme { scheme: scheme.to_owned() })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> PlaceError {
        match place(text) {
            Err(ObjectError::Failed { retryable: false, source, .. }) => {
                source.downcast_ref::<PlaceError>().expect("what is wrong with the name").clone()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_place_is_a_folder_or_a_url() {
        assert_eq!(place("some/folder").unwrap().place(), "some/folder");
        assert_eq!(why(""), PlaceError::Empty);
        assert_eq!(why("ftp://a/b"), PlaceError::UnknownScheme { scheme: "ftp".to_owned() });
        #[cfg(not(feature = "remote"))]
        for scheme in ["s3", "gs", "az"] {
            let error = why(&format!("{scheme}://bucket/prefix"));
            assert_eq!(error, PlaceError::NotBuiltIn { scheme: scheme.to_owned() });
            assert!(error.to_string().contains("remote"), "{error}");
        }
        #[cfg(feature = "remote")]
        assert_eq!(place("s3://bucket/prefix/").unwrap().place(), "s3://bucket/prefix");
    }
}
