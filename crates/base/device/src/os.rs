//! What the portable parts of the project use of the operating system, with one implementation for Linux and
//! one of the standard library alone for every other host.
//!
//! `linux` is `rustix`. `portable` is compiled for macOS, Windows and others, and for Linux with
//! `--cfg hectare_portable`, so that the tests run on it (`cargo hunt portable`). The same switch selects the
//! implementation of [`FileDevice`](crate::FileDevice), and that of directories in `hectare-host`. Other crates
//! have no system calls of their own, those aside that are for Linux only.
//!
//! - [`Errno`] is the host's own number of an error, so that texts and kinds are the host's.
//!   [`linux_number`] translates where Linux's numbers are spoken (the engine, FUSE, NBD, the library).
//! - Names in volumes are bytes. On Unix so are those of the host; elsewhere they are Unicode, and names that
//!   are not are refused ([`name_bytes`], [`os_string`]).
//!
//! Hazard: a read or write at a place moves the position of an open file on Windows. Nothing here uses it.

#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
mod portable;

#[cfg(all(target_os = "linux", not(hectare_portable)))]
pub(crate) use linux::magic_of;
#[cfg(all(target_os = "linux", not(hectare_portable)))]
pub use linux::{Errno, boot_time, coarse_now, read_at};
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
pub use portable::{Errno, boot_time, coarse_now, read_at};

#[cfg(unix)]
pub use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
#[cfg(unix)]
pub use std::os::unix::fs::FileExt;
#[cfg(windows)]
pub use std::os::windows::io::{AsHandle as AsFd, BorrowedHandle as BorrowedFd, OwnedHandle as OwnedFd};
#[cfg(windows)]
pub use windows::FileExt;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

#[cfg(windows)]
mod windows;

/// An open file as a device copies from it.
#[cfg(unix)]
#[must_use]
pub fn borrowed<T: AsFd>(file: &T) -> BorrowedFd<'_> {
    file.as_fd()
}

/// An open file as a device copies from it.
#[cfg(windows)]
#[must_use]
pub fn borrowed<T: AsFd>(file: &T) -> BorrowedFd<'_> {
    file.as_handle()
}

/// The host's number of an error; that of a failed device for one that the system did not raise.
#[must_use]
pub fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// The number by which Linux names the error that this host gives that number; EIO for what Linux does not
/// have.
#[must_use]
pub fn linux_number(errno: i32) -> i32 {
    #[cfg(target_os = "linux")]
    return errno;
    #[cfg(not(target_os = "linux"))]
    portable::linux_number(errno)
}

/// The host's number of the error that Linux gives this number; that of a failed device for one that the host
/// does not have.
#[must_use]
pub fn native_number(linux: i32) -> i32 {
    #[cfg(target_os = "linux")]
    return linux;
    #[cfg(not(target_os = "linux"))]
    portable::native_number(linux)
}

/// The first of Linux's numbers for that kind, EIO if it has none.
pub(crate) fn number_of(kind: io::ErrorKind) -> i32 {
    KINDS.iter().find(|(_, listed)| *listed == kind).map_or(EIO, |(number, _)| *number)
}

/// Linux's number of a device that failed.
pub(crate) const EIO: i32 = 5;

/// Linux's numbers and the kinds of `std` for them; where several have one kind, the first is the usual one.
pub(crate) const KINDS: [(i32, io::ErrorKind); 28] = [
    (13, io::ErrorKind::PermissionDenied),
    (1, io::ErrorKind::PermissionDenied),
    (2, io::ErrorKind::NotFound),
    (4, io::ErrorKind::Interrupted),
    (11, io::ErrorKind::WouldBlock),
    (12, io::ErrorKind::OutOfMemory),
    (16, io::ErrorKind::ResourceBusy),
    (17, io::ErrorKind::AlreadyExists),
    (18, io::ErrorKind::CrossesDevices),
    (20, io::ErrorKind::NotADirectory),
    (21, io::ErrorKind::IsADirectory),
    (22, io::ErrorKind::InvalidInput),
    (26, io::ErrorKind::ExecutableFileBusy),
    (27, io::ErrorKind::FileTooLarge),
    (28, io::ErrorKind::StorageFull),
    (30, io::ErrorKind::ReadOnlyFilesystem),
    (31, io::ErrorKind::TooManyLinks),
    (32, io::ErrorKind::BrokenPipe),
    (36, io::ErrorKind::InvalidFilename),
    (39, io::ErrorKind::DirectoryNotEmpty),
    (95, io::ErrorKind::Unsupported),
    (38, io::ErrorKind::Unsupported),
    (104, io::ErrorKind::ConnectionReset),
    (110, io::ErrorKind::TimedOut),
    (111, io::ErrorKind::ConnectionRefused),
    (116, io::ErrorKind::StaleNetworkFileHandle),
    (117, io::ErrorKind::InvalidData),
    (122, io::ErrorKind::QuotaExceeded),
];

/// Strings of the host's as bytes: on Unix what they are, elsewhere UTF-8, extended for what is not Unicode (it
/// is then a name that [`os_string`] refuses).
pub trait OsStrExt {
    /// The bytes.
    fn as_bytes(&self) -> &[u8];
}

impl OsStrExt for OsStr {
    fn as_bytes(&self) -> &[u8] {
        self.as_encoded_bytes()
    }
}

/// The bytes of a name that the host listed.
///
/// # Errors
/// If it is not Unicode, on a host where names have to be.
pub fn name_bytes(name: &OsStr) -> io::Result<&[u8]> {
    if cfg!(unix) || name.to_str().is_some() {
        return Ok(name.as_bytes());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the name is not Unicode: rename it"))
}

/// The host's name or path with these bytes.
///
/// # Errors
/// If they are not UTF-8, on a host where names are Unicode.
pub fn os_string(bytes: &[u8]) -> io::Result<OsString> {
    #[cfg(unix)]
    return Ok(std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec()));
    #[cfg(not(unix))]
    match str::from_utf8(bytes) {
        Ok(text) => Ok(text.into()),
        Err(_) => {
            let reason = "the name is not UTF-8, and this host has no such names";
            Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
        }
    }
}

/// The host's path with these bytes; what is no name on this host ([`os_string`]) becomes an empty path, which
/// names nothing.
#[must_use]
pub fn path_of(bytes: &[u8]) -> PathBuf {
    os_string(bytes).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn clocks_go_forward_and_know_the_year() {
        let (before, (seconds, nanoseconds)) = (boot_time(), coarse_now());
        let system = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!(system.as_secs().abs_diff(seconds.unsigned_abs()) <= 60 && nanoseconds < 1_000_000_000);
        std::thread::sleep(Duration::from_millis(2));
        assert!(boot_time() >= before + Duration::from_millis(2));
    }

    #[test]
    fn reading_at_a_place_says_how_much_there_was() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"abcdef", 0).unwrap();
        let mut buf = [0; 4];
        assert_eq!(read_at(borrowed(&file), &mut buf, 1), Ok(4));
        assert_eq!(&buf, b"bcde");
        assert_eq!(read_at(borrowed(&file), &mut buf, 5), Ok(1));
        assert_eq!(read_at(borrowed(&file), &mut buf, 6), Ok(0));
    }

    #[test]
    fn errors_keep_their_text_and_kind() {
        let error = io::Error::from(Errno::NOSPC);
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(errno_of(&error), Errno::NOSPC);
        assert_eq!(errno_of(&io::ErrorKind::UnexpectedEof.into()), Errno::IO);
        assert_eq!(linux_number(Errno::NOSPC.raw_os_error()), 28);
        assert_eq!(linux_number(Errno::OPNOTSUPP.raw_os_error()), 95);
        assert_eq!(linux_number(Errno::DQUOT.raw_os_error()), 122);
    }

    #[test]
    fn names_are_bytes() {
        assert_eq!(os_string("\u{e4}/b".as_bytes()).unwrap(), OsStr::new("\u{e4}/b"));
        assert_eq!(OsStr::new("\u{e4}").as_bytes(), "\u{e4}".as_bytes());
        assert_eq!(name_bytes(OsStr::new("a")).unwrap(), b"a");
        assert_eq!(os_string(b"\xff").is_ok(), cfg!(unix));
    }
}
