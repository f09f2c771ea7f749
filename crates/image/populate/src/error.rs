//! The errors of reading sources: one line each, with the path and the reason.

use hectare_device::Cancel;
use hectare_device::os::Errno;
use hectare_units::Bytes;
use std::borrow::Cow;
use std::fmt;
use std::io;

/// A path as bytes, shown on one line: control characters and bytes that are not UTF-8 are escaped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownPath(Box<[u8]>);

impl ShownPath {
    /// A path to be shown.
    #[must_use]
    pub fn new(path: &[u8]) -> Self {
        Self(path.into())
    }

    /// The path of `entry` inside `source` with `separator` between them; just `source` if `entry` is empty.
    pub(crate) fn inside(source: &[u8], separator: u8, entry: &[u8]) -> Self {
        let mut path = source.to_vec();
        if !entry.is_empty() {
            if path.last() != Some(&separator) {
                path.push(separator);
            }
            path.extend_from_slice(entry);
        }
        Self(path.into())
    }

    /// The path itself.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for ShownPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for char in chunk.valid().chars() {
                if char.is_control() { write!(f, "{}", char.escape_default())? } else { write!(f, "{char}")? }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Why sources could not be read into a tree, or a file's data could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused an operation.
    #[error("{path}: can't {doing}: {cause}")]
    Io {
        /// The file or directory.
        path: ShownPath,
        /// What was tried ("open", "list", "read").
        doing: &'static str,
        /// What the system said.
        cause: io::Error,
    },
    /// The permissions of a source forbid reading it.
    #[error(
        "{path}: permission denied: run as somebody who may read it, or leave it out with --exclude; what is \
         your own `unshare --map-current-user --keep-caps` lets you read"
    )]
    Unreadable {
        /// The file or directory.
        path: ShownPath,
    },
    /// A source is not as it was when it was scanned.
    #[error("{path}: {what} while it was being read: stop what changes it and build again")]
    Changed {
        /// The file or directory.
        path: ShownPath,
        /// What happened to it ("it became shorter").
        what: &'static str,
    },
    /// A source holds something that can't be put into an image.
    #[error("{path}: {reason}")]
    Refused {
        /// The entry, inside its source.
        path: ShownPath,
        /// Why not.
        reason: Cow<'static, str>,
    },
    /// An archive breaks the format.
    #[error("{archive}: {reason} (at byte {at} of the archive)")]
    Archive {
        /// The archive.
        archive: ShownPath,
        /// Where in the (decompressed) archive.
        at: Bytes,
        /// What is wrong.
        reason: Cow<'static, str>,
    },
    /// An archive ends too early.
    #[error("{archive}: the archive is truncated: it ends at byte {at}, inside {inside}")]
    Truncated {
        /// The archive.
        archive: ShownPath,
        /// Its (decompressed) length.
        at: Bytes,
        /// What is truncated.
        inside: Cow<'static, str>,
    },
    /// A line of a description of files can't be applied, or is not understood.
    #[error("{file}:{line}: {reason}")]
    Spec {
        /// The file with the line.
        file: ShownPath,
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong.
        reason: Cow<'static, str>,
    },
    /// More bytes than were allowed.
    #[error("{path}: the sources unpack to more than {limit} bytes, which --max-size allows")]
    TooLarge {
        /// The entry that was too much.
        path: ShownPath,
        /// What was allowed.
        limit: Bytes,
    },
    /// The directory for temporary files has no room for the copy of an archive.
    #[error(
        "{folder}: no room for the unpacked copy of {archive}, of which more than {limit} bytes are \
         to be kept \
         there: set TMPDIR to a folder with more room"
    )]
    NoRoom {
        /// The directory for temporary files.
        folder: ShownPath,
        /// The archive.
        archive: ShownPath,
        /// What may be taken there.
        limit: Bytes,
    },
    /// More of something than a tree can count.
    #[error("the sources hold more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How much of it a tree holds at most.
        limit: u64,
    },
    /// The caller wants no more ([`Options::cancel`](crate::Options::cancel)).
    #[error("reading the sources was cancelled")]
    Cancelled,
    /// An option's value has no meaning.
    #[error("{option} {value:?}: {reason}")]
    Option {
        /// The option ("--exclude").
        option: &'static str,
        /// The value given.
        value: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl Error {
    /// Fails if the caller wants no more.
    pub(crate) fn unless(cancel: &Cancel) -> Result<(), Self> {
        if cancel.is_cancelled() { Err(Self::Cancelled) } else { Ok(()) }
    }

    /// The error for a failed system call: a missing permission says what to do about it.
    pub(crate) fn io(path: ShownPath, doing: &'static str, cause: impl Into<io::Error>) -> Self {
        let cause = cause.into();
        match cause.kind() {
            io::ErrorKind::PermissionDenied => Self::Unreadable { path },
            _ => Self::Io { path, doing, cause },
        }
    }

    /// The error for a failed system call on something that was there a moment ago.
    pub(crate) fn io_listed(path: ShownPath, doing: &'static str, cause: impl Into<io::Error>) -> Self {
        let cause = cause.into();
        match cause.kind() {
            io::ErrorKind::NotFound => Self::Changed { path, what: "it vanished" },
            // ELOOP is O_NOFOLLOW meeting a link, ENOTDIR O_DIRECTORY meeting something else; ENXIO comes of a socket,
            // and on other hosts of anything that would make one wait.
            _ if [Errno::LOOP, Errno::NOTDIR, Errno::NXIO]
                .iter()
                .any(|errno| cause.raw_os_error() == Some(errno.raw_os_error())) =>
            {
                Self::Changed { path, what: "it was replaced" }
            }
            _ => Self::io(path, doing, cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_always_one_line() {
        assert_eq!(ShownPath::new(b"a\nb\xffc\xc3\xa4").to_string(), "a\\nb\\xffc\u{e4}");
    }
}
