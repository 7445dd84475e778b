//! Which kernels run: found out once, or said by the caller.
//!
//! Invariants:
//! - [`IN_USE`] holds, for each function, `UNKNOWN` or the code of a backend whose CPU features
//!   were detected in this process. Only [`store`] writes it, and it is given available backends
//!   only. Every `unsafe` call of a kernel rests on this.
//! - The backend never changes a digest, so a change while other threads hash is harmless.

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};

#[cfg(feature = "std")]
use crate::sha256::calibrate::quickest;
use crate::{Backend, BackendError, HashFunction};

impl Backend {
    /// The backend that `function` runs on when nothing is said: the first available one in the
    /// order that measurements gave (docs/decisions), which is AVX-512, AVX2, portable. For SHA-256
    /// the SHA instructions come before them all, except on CPUs on which AVX-512 is quicker: the
    /// first call times both (with the feature `std`; there is no clock without).
    ///
    /// ```
    /// use spinney_hash::{Backend, HashFunction};
    ///
    /// assert!(Backend::detect(HashFunction::Blake3).is_available());
    /// ```
    pub fn detect(function: HashFunction) -> Self {
        let order: &[Self] = match function {
            #[cfg(feature = "std")]
            HashFunction::Sha256 if Self::Avx512.is_available() && Self::ShaNi.is_available() => {
                return quickest();
            }
            HashFunction::Sha256 => &[Self::ShaNi, Self::Avx512, Self::Avx2],
            HashFunction::Keccak256 | HashFunction::Blake3 => &[Self::Avx512, Self::Avx2],
        };
        let found = order.iter().find(|backend| backend.is_available());
        found.copied().unwrap_or(Self::Portable)
    }

    /// Itself, or the portable one where `function` has no kernel of this family.
    fn for_function(self, function: HashFunction) -> Self {
        if self == Self::ShaNi && function != HashFunction::Sha256 { Self::Portable } else { self }
    }
}

/// The backend of each function, as [`backends`] reports it.
///
/// ```
/// println!("hash kernels: {}", spinney_hash::backends());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backends {
    /// What Keccak-256 runs on.
    pub keccak256: Backend,
    /// What SHA-256 runs on.
    pub sha256: Backend,
    /// What BLAKE3 runs on.
    pub blake3: Backend,
}

impl fmt::Display for Backends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keccak256, sha256, blake3 } = self;
        write!(f, "keccak256={keccak256} sha256={sha256} blake3={blake3}")
    }
}

/// The backends in use.
pub fn backends() -> Backends {
    Backends {
        keccak256: backend(HashFunction::Keccak256),
        sha256: backend(HashFunction::Sha256),
        blake3: backend(HashFunction::Blake3),
    }
}

/// The backend in use for one function: detected at the first call, or set before.
pub fn backend(function: HashFunction) -> Backend {
    match IN_USE[function as usize].load(Ordering::Relaxed) {
        AVX512 => Backend::Avx512,
        AVX2 => Backend::Avx2,
        SHA_NI => Backend::ShaNi,
        PORTABLE => Backend::Portable,
        _ => {
            let detected = Backend::detect(function);
            store(function, detected);
            detected
        }
    }
}

/// Makes every function of this process run on `backend`, or again on what is detected for `None`.
///
/// For tests, measurements and bug reports; digests do not depend on it.
///
/// ```
/// use spinney_hash::{Backend, keccak256, set_backend};
///
/// let digest = keccak256(b"spinney");
/// set_backend(Some(Backend::Portable)).unwrap();
/// assert_eq!(keccak256(b"spinney"), digest);
/// set_backend(None).unwrap();
/// ```
///
/// # Errors
/// If this machine cannot run it; nothing has changed then.
pub fn set_backend(backend: Option<Backend>) -> Result<(), BackendError> {
    if let Some(backend) = backend
        && !backend.is_available()
    {
        return Err(BackendError::Unavailable { backend });
    }
    for function in HashFunction::ALL {
        store(function, backend.unwrap_or_else(|| Backend::detect(function)));
    }
    Ok(())
}

const UNKNOWN: u8 = 0;
const AVX512: u8 = 1;
const AVX2: u8 = 2;
const SHA_NI: u8 = 3;
const PORTABLE: u8 = 4;

static IN_USE: [AtomicU8; 3] = [const { AtomicU8::new(UNKNOWN) }; 3];

fn store(function: HashFunction, backend: Backend) {
    assert!(backend.is_available(), "only available backends are put to use");
    let code = match backend.for_function(function) {
        Backend::Avx512 => AVX512,
        Backend::Avx2 => AVX2,
        Backend::ShaNi => SHA_NI,
        Backend::Portable => PORTABLE,
    };
    IN_USE[function as usize].store(code, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_without_sha_instructions_fall_back() {
        assert_eq!(Backend::ShaNi.for_function(HashFunction::Blake3), Backend::Portable);
        assert_eq!(Backend::ShaNi.for_function(HashFunction::Sha256), Backend::ShaNi);
    }
}
