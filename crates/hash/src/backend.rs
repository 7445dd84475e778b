//! The families of kernels, and which of them this machine can run.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::error::Error;
use core::fmt;
use core::str::FromStr;

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
}
