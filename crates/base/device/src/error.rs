//! The error of a device operation, on one line: which device, what was tried, where, and why it failed.
//!
//! The error is one pointer wide, because the hot path returns `Result<()>` for every block and the detail is
//! needed only when something failed. It can be cloned, so that a volume that stops at its first failure can
//! keep the error and show it again.

use crate::Span;
use crate::os::{Errno, linux_number, number_of};
use hectare_units::Bytes;
use std::fmt;
use std::io;
use std::sync::Arc;

/// The outcome of a device operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What was tried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Operation {
    /// Reading bytes.
    Read,
    /// Writing bytes.
    Write,
    /// Making everything written durable.
    Flush,
    /// Making a range read as zeros.
    Zero,
    /// Giving a range up.
    Discard,
    /// Copying from an open file.
    Copy,
    /// Changing the length.
    Resize,
    /// Opening an existing device.
    Open,
    /// Making a new one.
    Create,
    /// Giving a finished file its final name.
    Publish,
}

impl Operation {
    /// The operations that reach a device once it is open; the others happen to paths.
    pub const ON_DEVICE: [Self; 7] =
        [Self::Read, Self::Write, Self::Flush, Self::Zero, Self::Discard, Self::Copy, Self::Resize];

    /// Whether it may change what the device holds.
    #[must_use]
    pub const fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Zero | Self::Discard | Self::Copy | Self::Resize)
    }

    /// Its name as a verb.
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Zero => "zero",
            Self::Discard => "discard",
            Self::Copy => "copy",
            Self::Resize => "resize",
            Self::Open => "open",
            Self::Create => "create",
            Self::Publish => "publish",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb())
    }
}

/// Why it failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The system said no; the number is the host's ([`os::Errno`](crate::os::Errno)).
    Io(i32),
    /// The system said no when the file copied from was read; the number is the host's.
    Source(i32),
    /// The range does not lie inside the device, which has this many bytes.
    OutOfRange(Bytes),
    /// The device gave fewer bytes than its length promised: it shrank while in use.
    EndsEarly,
    /// The device was opened for reading only.
    ReadOnly,
    /// It is in use; the text says by what, as far as that can be found out, and what to do.
    Busy(String),
    /// The device itself failed in a way that the host has no number for: of this kind, in its own words.
    Own(io::ErrorKind, String),
    /// The path names a directory.
    IsADirectory,
    /// The path does not name a device; the text says what it is.
    NotADevice(&'static str),
    /// There is a file of this name, and it was not to be overwritten.
    Exists,
    /// This device cannot do that; the text says why.
    Unsupported(&'static str),
    /// Its length does not suit direct I/O, which works in units of this many bytes.
    Unaligned(u32),
    /// The server that has it refused, or can't be reached; the text says why.
    Remote(String),
    /// Another host has taken it; the text says who.
    Taken(String),
    /// The file system that holds it does not support a file of this many bytes.
    TooLarge(Bytes),
    /// The map of a disk image is damaged; the text says how.
    Damaged(String),
    /// What it is made of on request can't be read, or is not what it was; the text says what.
    Origin(String),
    /// The caller wants no more ([`Cancel`](crate::Cancel)); nothing was tried.
    Cancelled,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(errno) => f.write_str(&message(*errno)),
            Self::Source(errno) => write!(f, "reading the source failed: {}", message(*errno)),
            Self::OutOfRange(size) => write!(f, "that is beyond its end, it has {size} bytes"),
            Self::EndsEarly => f.write_str("it became shorter while in use"),
            Self::ReadOnly => f.write_str("it was opened for reading only"),
            Self::Busy(text)
            | Self::Remote(text)
            | Self::Origin(text)
            | Self::Taken(text)
            | Self::Own(_, text) => f.write_str(text),
            Self::IsADirectory => f.write_str("it is a directory"),
            Self::NotADevice(what) => f.write_str(what),
            Self::Damaged(how) => write!(f, "the disk image is damaged: {how}"),
            Self::Exists => f.write_str("it exists already"),
            Self::Cancelled => f.write_str("the call was cancelled"),
            Self::Unsupported(why) => f.write_str(why),
            Self::Unaligned(unit) => {
                write!(f, "direct I/O needs a length that is a multiple of {unit} bytes")
            }
            Self::TooLarge(len) => write!(
                f,
                "the file system that holds it takes no file of {len} bytes; XFS and tmpfs take 2^63 - 1"
            ),
        }
    }
}

/// The system's text for one of its numbers, without the number.
fn message(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// What an error of the standard library says, on one line.
fn reason_of(error: &io::Error) -> Reason {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner.map(Error::reason) {
        // The length is that of the other device.
        None | Some(Reason::OutOfRange(_)) => {}
        Some(reason) => return reason.clone(),
    }
    match (error.raw_os_error(), error.kind()) {
        (_, io::ErrorKind::UnexpectedEof) if error.get_ref().is_none() => Reason::EndsEarly,
        (Some(number), _) => Reason::Io(number),
        (None, kind) => Reason::Own(kind, error.to_string().replace('\n', " ")),
    }
}

/// The kind that storage fails with if it says this one. Others would be taken for an answer about a file of the
/// volume (that it is missing, or there already), or for a call to be repeated.
fn storage_kind(kind: io::ErrorKind) -> io::ErrorKind {
    use io::ErrorKind as Kind;
    match kind {
        Kind::StorageFull
        | Kind::QuotaExceeded
        | Kind::FileTooLarge
        | Kind::ReadOnlyFilesystem
        | Kind::PermissionDenied
        | Kind::ResourceBusy
        | Kind::Unsupported
        | Kind::OutOfMemory
        | Kind::TimedOut
        | Kind::ConnectionRefused
        | Kind::ConnectionReset
        | Kind::StaleNetworkFileHandle => kind,
        _ => Kind::Other,
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Detail {
    device: Arc<str>,
    operation: Operation,
    span: Option<Span>,
    reason: Reason,
}

/// A failed operation on a device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", self.describe())]
pub struct Error(Box<Detail>);

impl Error {
    /// A failure of `operation` on the device called `device`; `span` where the operation has a place.
    #[must_use]
    pub fn new(device: &str, operation: Operation, span: Option<Span>, reason: Reason) -> Self {
        Self(Box::new(Detail { device: device.into(), operation, span, reason }))
    }

    /// A failure with an error of the standard library, whose number, or words, are kept, and of kinds without a
    /// number those that storage has: out of space, read-only, permission, connections. All others are EIO, or a
    /// device's "not found" would be taken for a missing file. An error that was made of one of a device has that
    /// one's reason.
    #[must_use]
    pub fn io(device: &str, operation: Operation, span: Option<Span>, error: &io::Error) -> Self {
        Self::new(device, operation, span, reason_of(error))
    }

    /// A failure with the error of a bare system call.
    pub(crate) fn errno(device: &str, operation: Operation, span: Option<Span>, errno: Errno) -> Self {
        Self::new(device, operation, span, Reason::Io(errno.raw_os_error()))
    }

    fn describe(&self) -> String {
        let Detail { device, operation, span, reason } = &*self.0;
        match span {
            Some(Span { len, .. }) if *operation == Operation::Resize => {
                format!("{device}: cannot resize to {len} bytes: {reason}")
            }
            Some(Span { at, len }) => {
                format!("{device}: cannot {operation} {len} bytes at byte {at}: {reason}")
            }
            None => format!("{device}: cannot {operation}: {reason}"),
        }
    }

    /// The name of the device, usually its path.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.0.device
    }

    /// What was tried.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.0.operation
    }

    /// Where, if the operation has a place.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        self.0.span
    }

    /// Why it failed.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.0.reason
    }

    /// Whether the storage below has no room left: a full host file system, or a quota reached.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        match self.0.reason {
            Reason::Io(n) => n == Errno::NOSPC.raw_os_error() || n == Errno::DQUOT.raw_os_error(),
            Reason::Own(kind, _) => {
                matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }

    /// Whether the device is in use elsewhere.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self.0.reason, Reason::Busy(_))
    }

    /// The number of Linux's that says it best, on every host, for edges that speak in those.
    #[must_use]
    pub fn raw_os_error(&self) -> i32 {
        let errno = match self.0.reason {
            Reason::Io(n) | Reason::Source(n) => return linux_number(n),
            Reason::Own(kind, _) => return number_of(storage_kind(kind)),
            Reason::IsADirectory => return number_of(io::ErrorKind::IsADirectory),
            Reason::OutOfRange(_)
            | Reason::EndsEarly
            | Reason::Remote(_)
            | Reason::Taken(_)
            | Reason::Damaged(_)
            | Reason::Origin(_) => Errno::IO,
            Reason::ReadOnly => Errno::ROFS,
            Reason::Busy(_) => Errno::BUSY,
            Reason::NotADevice(_) => Errno::NOTBLK,
            Reason::Exists => Errno::EXIST,
            Reason::Unsupported(_) => Errno::OPNOTSUPP,
            Reason::Unaligned(_) => Errno::INVAL,
            Reason::TooLarge(_) => Errno::FBIG,
            Reason::Cancelled => Errno::CANCELED,
        };
        linux_number(errno.raw_os_error())
    }
}

impl From<Error> for io::Error {
    /// An error of the kind that `std` has for the condition; [`io::Error::into_inner`] gives this one back.
    fn from(error: Error) -> Self {
        Self::new(kind_of(error.raw_os_error()), error)
    }
}

/// The kind that `std` has for what Linux numbers `errno`, on every host.
///
/// Content that breaks a format (`EUCLEAN`, `EILSEQ`) is `InvalidData`, for which the kernel's numbers are not
/// used otherwise. A call that its caller cancelled (`ECANCELED`) is `Other`, not `Interrupted`: loops of `std`
/// try again what was interrupted.
#[must_use]
pub fn kind_of(errno: i32) -> io::ErrorKind {
    match errno {
        84 | 117 => io::ErrorKind::InvalidData,
        125 => io::ErrorKind::Other,
        _ => known(errno),
    }
}

/// As `std` has it, which also has kinds that can't be named yet.
#[cfg(target_os = "linux")]
fn known(errno: i32) -> io::ErrorKind {
    io::Error::from_raw_os_error(errno).kind()
}

/// The host has other numbers.
#[cfg(not(target_os = "linux"))]
fn known(errno: i32) -> io::ErrorKind {
    listed(errno)
}

/// What a host with other numbers is asked for; `Other` for what is not in the list.
#[cfg(any(test, not(target_os = "linux")))]
fn listed(errno: i32) -> io::ErrorKind {
    crate::os::KINDS
        .iter()
        .find(|(number, _)| *number == errno)
        .map_or(io::ErrorKind::Other, |(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::{EIO, KINDS};

    #[cfg(target_os = "linux")]
    #[test]
    fn the_list_for_other_hosts_says_what_std_says_here() {
        for errno in (1..134).filter(|errno| *errno != 117) {
            let (ours, theirs) = (listed(errno), io::Error::from_raw_os_error(errno).kind());
            assert!(ours == theirs || ours == io::ErrorKind::Other, "{errno}: {ours:?}, {theirs:?}");
        }
        assert_eq!(kind_of(Errno::CANCELED.raw_os_error()), io::ErrorKind::Other);
        assert_eq!(kind_of(117), io::ErrorKind::InvalidData);
    }

    #[test]
    fn an_error_of_std_has_the_kind_and_gives_it_back() {
        let error = Error::errno("disk.img", Operation::Write, None, Errno::NOSPC);
        let shown = error.to_string();
        let error = io::Error::from(error);
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::StorageFull, shown));
        assert!(error.into_inner().unwrap().downcast::<Error>().unwrap().is_no_space());
    }

    #[test]
    fn a_kind_has_a_number_of_that_kind() {
        for (_, kind) in KINDS {
            assert_eq!(kind_of(number_of(kind)), kind);
        }
        assert_eq!(number_of(io::ErrorKind::Other), EIO);
    }

    #[test]
    fn what_has_no_number_keeps_its_kind_and_its_words() {
        let own = io::Error::new(io::ErrorKind::StorageFull, "the pool\nis full");
        let error = Error::io("pool", Operation::Write, None, &own);
        assert_eq!(error.to_string(), "pool: cannot write: the pool is full");
        assert!(error.is_no_space());
        assert_eq!(error.raw_os_error(), linux_number(Errno::NOSPC.raw_os_error()));
        // One device made of another has the reason of that one, not its text once more.
        let around = Error::io("mirror", Operation::Write, None, &io::Error::from(error));
        assert_eq!(around.to_string(), "mirror: cannot write: the pool is full");
        // What would be taken for an answer about a file, or tried again for ever.
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::AlreadyExists, io::ErrorKind::Interrupted] {
            let odd = Error::io("pool", Operation::Read, None, &io::Error::new(kind, "object gone"));
            assert_eq!(
                (odd.to_string().as_str(), odd.raw_os_error()),
                ("pool: cannot read: object gone", EIO)
            );
        }
        let other = Error::io("pool", Operation::Read, None, &io::Error::other("no quorum"));
        assert_eq!((other.to_string().as_str(), other.raw_os_error()), ("pool: cannot read: no quorum", EIO));
    }

    #[test]
    fn one_line_names_device_place_and_reason() {
        let span = Span::new(Bytes::new(4096), Bytes::new(512));
        let error = Error::errno("disk.img", Operation::Write, Some(span), Errno::NOSPC);
        assert_eq!(
            error.to_string(),
            "disk.img: cannot write 512 bytes at byte 4096: No space left on device"
        );
        assert!(error.is_no_space());
        let error = Error::new("disk.img", Operation::Open, None, Reason::IsADirectory);
        assert_eq!(error.to_string(), "disk.img: cannot open: it is a directory");
        assert!(!error.is_no_space());
    }

    #[test]
    fn a_result_costs_one_pointer() {
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}
