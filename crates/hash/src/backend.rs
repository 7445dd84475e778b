//! Which kernels run: found out once, or said by the caller.
//!
//! Invariants:
//! - [`IN_USE`] holds, for each function, `UNKNOWN` or the code of a backend whose CPU features
//!   were detected in this process. Only [`store`] writes it, and it is given available backends
//!   only. Every `unsafe` call of a kernel rests on this.
//! - The backend never changes a digest, so a change while other threads hash is harmless.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::error::Error;
use core::fmt;
use core::str::FromStr;
use core::sync::atomic::{AtomicU8, Ordering};

use crate::HashFunction;

/// Whether the CPU has all of these: asked of it, or, without `std`, of what the crate is built
/// for.
#[cfg(target_arch = "x86_64")]
macro_rules! cpu_has {
    ($($feature:tt),+) => {{
        #[cfg(feature = "std")]
        let has = [$(std::is_x86_feature_detected!($feature) && !is_masked($feature)),+];
        #[cfg(not(feature = "std"))]
        let has = [$(cfg!(target_feature = $feature)),+];
        !has.contains(&false)
    }};
}

/// Whether the tests are to run as on a CPU without this: `.ci/kernels` masks one after the other.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
fn is_masked(_feature: &str) -> bool {
    #[cfg(test)]
    let is_masked =
        std::env::var("SPINNEY_WITHOUT").is_ok_and(|names| names.split(',').any(|n| n == _feature));
    #[cfg(not(test))]
    let is_masked = false;
    is_masked
}

/// A family of kernels.
///
/// The name is what [`Display`](fmt::Display) prints and [`FromStr`] reads:
///
/// ```
/// use spinney_hash::Backend;
///
/// assert_eq!("avx2".parse(), Ok(Backend::Avx2));
/// assert_eq!(Backend::ShaNi.to_string(), "sha-ni");
/// assert!("mmx".parse::<Backend>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Backend {
    /// `avx512`: 16 lanes of 32 bits or 8 lanes of 64 bits; half of that for few inputs. Wants the
    /// F, BW, DQ and VL subsets and what [`Backend::Avx2`] wants. Of SHA-256, fewer than 8 inputs
    /// run on the SHA instructions where there are any.
    Avx512,
    /// `avx2`: 8 lanes of 32 bits or 4 lanes of 64 bits. Wants BMI1 and BMI2 too.
    Avx2,
    /// `sha-ni`: the SHA-256 instructions, four chains interleaved. Other functions run
    /// [`Backend::Portable`] when this one is asked for.
    ShaNi,
    /// `portable`: one input at a time, no intrinsics, on every machine.
    Portable,
}

impl Backend {
    /// Every backend, on whatever machine.
    pub const ALL: [Self; 4] = [Self::Avx512, Self::Avx2, Self::ShaNi, Self::Portable];

    /// Whether this machine can run it.
    ///
    /// ```
    /// use spinney_hash::Backend;
    ///
    /// assert!(Backend::Portable.is_available());
    /// ```
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available() && cpu_has!("avx512f", "avx512bw", "avx512dq", "avx512vl")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => cpu_has!("avx2", "bmi1", "bmi2"),
            #[cfg(target_arch = "x86_64")]
            Self::ShaNi => cpu_has!("sha", "avx"),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx512 | Self::Avx2 | Self::ShaNi => false,
        }
    }

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
                return crate::sha256::calibrate::quickest();
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

    const fn name(self) -> &'static str {
        match self {
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
            Self::ShaNi => "sha-ni",
            Self::Portable => "portable",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = BackendError;

    fn from_str(name: &str) -> Result<Self, BackendError> {
        let named = Self::ALL.into_iter().find(|backend| backend.name() == name);
        named.ok_or_else(|| BackendError::Unknown { name: name.to_owned() })
    }
}

/// Why a backend cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendError {
    /// This machine lacks the instructions.
    Unavailable {
        /// The backend that was asked for.
        backend: Backend,
    },
    /// No backend has this name.
    Unknown {
        /// The name that was given.
        name: String,
    },
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable { backend } => {
                write!(f, "the hash backend {backend} needs instructions that this machine lacks")
            }
            Self::Unknown { name } => {
                write!(f, "no hash backend is called {name:?}; known are")?;
                for (i, backend) in Backend::ALL.iter().enumerate() {
                    write!(f, "{}{backend}", if i == 0 { " " } else { ", " })?;
                }
                Ok(())
            }
        }
    }
}

impl Error for BackendError {}

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
    fn names_read_back() {
        for backend in Backend::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
    }

    #[test]
    fn an_unknown_name_is_told_with_the_known_ones() {
        let error = "sse9".parse::<Backend>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "no hash backend is called \"sse9\"; known are avx512, avx2, sha-ni, portable"
        );
    }

    #[test]
    fn functions_without_sha_instructions_fall_back() {
        assert_eq!(Backend::ShaNi.for_function(HashFunction::Blake3), Backend::Portable);
        assert_eq!(Backend::ShaNi.for_function(HashFunction::Sha256), Backend::ShaNi);
    }
}
