//! The one error of this crate: what was done, to which file of which volume, and why it failed.
//!
//! It becomes an [`io::Error`] by `?`, with the kind that `std` has for the condition; the text stays. The
//! cause is its [`source`](std::error::Error::source), to be downcast by a caller that must act on it:
//!
//! ```
//! use hectare::{Volume, inode, mkfs};
//! # use hectare::device::{Bytes, MemoryDevice};
//! # let device = std::sync::Arc::new(MemoryDevice::new(Bytes::mib(16)));
//! # mkfs::Format::new().on_device(&*device)?;
//! # let volume = Volume::options().open_device(device)?;
//! let error = volume.read("/etc/passwd").unwrap_err();
//! assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
//! let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref());
//! assert!(matches!(cause, Some(inode::Error::NotFound)));
//! # Ok::<(), hectare::Error>(())
//! ```
//!
//! An `io::Error` becomes one of these by `?` as well, so that a function may return either, whatever it calls.
//!
//! Of what is refused, `inode::Error` says why by name: `PermissionDenied` (EACCES), `NotPermitted` (EPERM),
//! `Immutable` and `AppendOnly` (EPERM, by a flag of the file). `std` has one kind for all of them.

use hectare_device::os::linux_number;
use hectare_device::{Reason, kind_of};
use std::borrow::Cow;
use std::fmt;
use std::io;

/// The result of the operations of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed: one line that names the file and the reason.
pub struct Error(Box<Inner>);

struct Inner {
    /// The device, and the path in its volume.
    place: String,
    kind: io::ErrorKind,
    /// As Linux numbers errors, whatever the host.
    errno: i32,
    cause: Box<dyn std::error::Error + Send + Sync>,
}

/// The cause of the error of a call that was cancelled.
#[derive(Clone, Copy, Debug)]
struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call was cancelled")
    }
}

impl std::error::Error for Cancelled {}

impl Error {
    fn new(place: String, errno: i32, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(Box::new(Inner { place, kind: kind_of(errno), errno, cause: cause.into() }))
    }

    /// The error of a call that its caller cancelled (`ECANCELED`).
    pub(crate) fn cancelled(place: impl Into<String>) -> Self {
        Self::new(place.into(), ECANCELED, Cancelled)
    }

    /// An error of the engine about a path of a volume on the device with this name.
    pub(crate) fn at(device: &str, path: &[u8], cause: hectare_engine::Error) -> Self {
        Self::new(format!("{device}:{}", String::from_utf8_lossy(path)), cause.errno(), cause)
    }

    /// An error of the engine about a whole volume.
    pub(crate) fn of_volume(device: &str, cause: hectare_engine::Error) -> Self {
        Self::new(device.to_owned(), cause.errno(), cause)
    }

    /// An error about an argument, or what an operation found (`EINVAL`).
    pub(crate) fn invalid(
        place: impl Into<String>,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::new(place.into(), EINVAL, cause)
    }

    /// An error of a check that is not the device's.
    #[cfg(feature = "check")]
    pub(crate) fn of_check(place: &str, cause: hectare_check::Error) -> Self {
        let errno = match &cause {
            hectare_check::Error::Unsupported(_) => EOPNOTSUPP,
            hectare_check::Error::OutOfMemory(_) => ENOMEM,
            _ => EINVAL,
        };
        Self::new(place.to_owned(), errno, cause)
    }

    /// An error about content that is no text (`EILSEQ`).
    pub(crate) fn not_text(place: String, cause: std::str::Utf8Error) -> Self {
        Self(Box::new(Inner { place, kind: io::ErrorKind::InvalidData, errno: EILSEQ, cause: cause.into() }))
    }

    /// An error about a file that ends too early (`EIO`), of the kind that `std` has for it.
    pub(crate) fn ends_early(place: String, cause: hectare_engine::Error) -> Self {
        let (kind, errno) = (io::ErrorKind::UnexpectedEof, cause.errno());
        Self(Box::new(Inner { place, kind, errno, cause: cause.into() }))
    }

    /// An error about a handle that does not allow the operation (`EBADF`).
    pub(crate) fn bad_handle(place: impl Into<String>, why: &'static str) -> Self {
        Self::new(place.into(), EBADF, why)
    }

    /// The kind that `std` has for the condition; `Other` for a call that was
    /// [cancelled](Self::is_cancelled), since loops of `std` try again what is `Interrupted`.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.0.kind
    }

    /// The number by which Linux names the condition, on every host.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.0.errno
    }

    /// Whether the call was ended by its [`Watch`](crate::Watch).
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let cause = &self.0.cause;
        let by_device = |error: &hectare_device::Error| *error.reason() == Reason::Cancelled;
        cause.is::<Cancelled>() || cause.downcast_ref().is_some_and(by_device)
    }

    /// The file: the device, a colon and the path in its volume (both paths, with ` -> ` between, of what
    /// renames and links); only the device if the error is about all of
    /// it; "" if it is about neither.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.0.place
    }
}

const EIO: i32 = 5;
const EBADF: i32 = 9;
#[cfg(feature = "check")]
const ENOMEM: i32 = 12;
#[cfg(feature = "build")]
const EACCES: i32 = 13;
#[cfg(feature = "mkfs")]
const EBUSY: i32 = 16;
#[cfg(feature = "mkfs")]
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
#[cfg(feature = "build")]
const ENOSPC: i32 = 28;
const EILSEQ: i32 = 84;
#[cfg(any(feature = "check", feature = "mkfs"))]
const EOPNOTSUPP: i32 = 95;
const ECANCELED: i32 = 125;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause: Cow<'_, str> = self.0.cause.to_string().into();
        // Devices name themselves.
        if self.0.place.is_empty() || cause.starts_with(&self.0.place) {
            f.write_str(&cause)
        } else {
            write!(f, "{}: {cause}", self.0.place)
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("text", &self.to_string())
            .field("kind", &self.0.kind)
            .field("errno", &self.0.errno)
            .field("cause", &self.0.cause)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0.cause)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

/// The error of what was given one, such as a `Read` of a file; one that was made of an [`Error`] is that again.
/// Its [`place`](Error::place) is empty if it has none.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => own,
            Err(error) => Self::of_host(String::new(), error),
        }
    }
}

impl From<hectare_device::Error> for Error {
    fn from(error: hectare_device::Error) -> Self {
        Self::new(error.device().to_owned(), error.raw_os_error(), error)
    }
}

/// Errors of making volumes: a device's and a host's keep their numbers, the rest is about arguments.
#[cfg(feature = "mkfs")]
impl Error {
    /// An error of looking whether another host has a volume in use.
    pub(crate) fn living(place: &str, cause: hectare_mmp::Error) -> Self {
        match cause {
            hectare_mmp::Error::Device(cause) => cause.into(),
            cause @ hectare_mmp::Error::InUse(_) => Self::new(place.to_owned(), EBUSY, cause),
            cause @ hectare_mmp::Error::Unsupported(_) => Self::new(place.to_owned(), EOPNOTSUPP, cause),
            other => Self::invalid(place, other),
        }
    }

    /// An error of making a volume.
    pub(crate) fn of_format(place: &str, cause: hectare_mkfs::Error) -> Self {
        match cause {
            hectare_mkfs::Error::Device(cause) => cause.into(),
            cause @ hectare_mkfs::Error::Occupied { .. } => Self::new(place.to_owned(), EEXIST, cause),
            other => Self::invalid(place, other),
        }
    }
}

/// The number of Linux's for an error that has only a kind, because the host did not raise it.
fn errno_of(kind: io::ErrorKind) -> i32 {
    match kind {
        io::ErrorKind::NotFound => 2,
        io::ErrorKind::PermissionDenied => 13,
        io::ErrorKind::AlreadyExists => 17,
        io::ErrorKind::InvalidInput => EINVAL,
        _ => EIO,
    }
}

impl Error {
    /// An error of the host's.
    pub(crate) fn of_host(place: impl Into<String>, cause: io::Error) -> Self {
        let errno = cause.raw_os_error().map_or_else(|| errno_of(cause.kind()), linux_number);
        Self(Box::new(Inner { place: place.into(), kind: cause.kind(), errno, cause: cause.into() }))
    }
}

#[cfg(feature = "build")]
impl Error {
    /// An error of the sources of an image, which names the source itself.
    pub(crate) fn of_sources(cause: hectare_populate::Error) -> Self {
        use hectare_populate::Error as Cause;
        let errno = match &cause {
            Cause::Cancelled => ECANCELED,
            Cause::Unreadable { .. } => EACCES,
            Cause::NoRoom { .. } => ENOSPC,
            Cause::Io { cause, .. } => {
                cause.raw_os_error().map_or_else(|| errno_of(cause.kind()), linux_number)
            }
            _ => EINVAL,
        };
        Self::new(String::new(), errno, cause)
    }

    pub(crate) fn of_image(place: &str, cause: hectare_populate::ImageError) -> Self {
        use hectare_populate::ImageError as Cause;
        match cause {
            Cause::Source(cause) => Self::of_sources(cause),
            Cause::Format(cause) => Self::of_format(place, cause),
            Cause::Device(cause) => cause.into(),
            other => Self::invalid(place, other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "build")]
    #[test]
    fn regression_a_file_that_exists_has_its_number() {
        let exists = io::Error::new(io::ErrorKind::AlreadyExists, "the file exists");
        assert_eq!(Error::of_host("disk.img", exists).errno(), 17);
        assert_eq!(Error::of_host("disk.img", io::Error::other("odd")).errno(), EIO);
    }

    #[test]
    fn an_error_names_its_file_and_becomes_one_of_std() {
        let error = Error::at("disk.img", b"/etc/x", hectare_engine::Error::NotFound);
        assert_eq!(error.to_string(), "disk.img:/etc/x: no such file or directory");
        assert_eq!((error.kind(), error.errno()), (io::ErrorKind::NotFound, 2));
        let error = io::Error::from(error);
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("disk.img:/etc/x"));
        let inner = error.into_inner().unwrap();
        let source = std::error::Error::source(&*inner).unwrap();
        assert!(source.downcast_ref::<hectare_engine::Error>().is_some());
    }

    #[test]
    fn an_error_of_std_becomes_one_and_its_own_returns() {
        let error = Error::at("disk.img", b"/etc/x", hectare_engine::Error::NotFound);
        let back = Error::from(io::Error::from(error));
        assert_eq!((back.place(), back.errno()), ("disk.img:/etc/x", 2));
        let other = Error::from(io::Error::new(io::ErrorKind::AlreadyExists, "it is there"));
        let seen = (other.place(), other.errno(), other.kind(), other.to_string());
        assert_eq!(seen, ("", 17, io::ErrorKind::AlreadyExists, "it is there".to_owned()));
    }

    #[test]
    fn an_error_of_a_device_has_its_place_and_debug_has_the_line() {
        let busy = Reason::Busy("it is in use".to_owned());
        let cause = hectare_device::Error::new("disk.img", hectare_device::Operation::Open, None, busy);
        let error = Error::from(cause);
        assert_eq!((error.place(), error.errno()), ("disk.img", 16));
        assert_eq!(error.to_string(), "disk.img: cannot open: it is in use");
        assert!(format!("{error:?}").contains("\"disk.img: cannot open: it is in use\""), "{error:?}");
    }
}
