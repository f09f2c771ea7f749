//! The errors of operations on a volume.
//!
//! One flat enum whose variants are the conditions a caller can act on; each has the `errno` that the kernel
//! gives for the same condition ([`Error::errno`]), so that a mount needs no second table, and the kind that
//! `std` has for it ([`Error::kind`]). The text names the object where the caller would not know it (an inode,
//! a feature); the path-level API adds paths.
//!
//! What is refused has three names, which are those of the conditions and not of each other:
//!
//! | name | `errno` | it is refused by |
//! |---|---|---|
//! | [`Error::PermissionDenied`] | `EACCES` | the permission bits or the ACL of a file |
//! | [`Error::NotPermitted`] | `EPERM` | who the caller is, or what the file is, whatever the permissions |
//! | [`Error::Immutable`], [`Error::AppendOnly`] | `EPERM` | a flag of the file, for everyone until it is cleared |

use hectare_alloc::AllocError;
use hectare_ext4::error::{Corrupt, FormatError, Place, Unsupported};
use hectare_ext4::quota::Kind as QuotaKind;
use hectare_units::{Bytes, InodeNr, OutOfMemory};
use std::io;

/// The engine's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such name, or no such inode any more.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists already.
    #[error("the file exists already")]
    Exists,
    /// The operation needs a directory.
    #[error("not a directory")]
    NotADirectory,
    /// The target is a directory.
    #[error("it is a directory")]
    IsADirectory,
    /// The directory holds entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A name is longer than 255 bytes, or a symlink's target longer than a block or 4095 bytes.
    #[error("a name is longer than 255 bytes, or a symbolic link's target than a block or 4095 bytes")]
    NameTooLong,
    /// A size beyond what the format or the file's map can hold.
    #[error("the file would be larger than the format allows")]
    FileTooLarge,
    /// The inode has as many links as it can have.
    #[error("too many links")]
    TooManyLinks,
    /// The volume is full; with the size of the failed request where that is known.
    #[error("the volume is full")]
    NoSpace,
    /// A user, group or project has used what it may (`EDQUOT`).
    #[error("{kind} {id} is at the limit of its quota of {what}")]
    QuotaExceeded {
        /// What the quota is by.
        kind: QuotaKind,
        /// The user, the group or the project.
        id: u32,
        /// Space or inodes.
        what: &'static str,
    },
    /// There is no free inode.
    #[error("the volume has no free inode")]
    NoInodes,
    /// The directory can't take another name although there is space (htree limits).
    #[error("the directory's index is full")]
    DirectoryFull,
    /// The volume may be read, but not written before it is repaired (`EUCLEAN`): it is marked as having errors,
    /// was not closed and has no journal, or its superblock contradicts itself.
    #[error("{0}: run hectare repair or e2fsck -fy on it before writing")]
    NeedsRepair(String),
    /// The argument makes no sense.
    #[error("{0}")]
    Invalid(&'static str),
    /// Too many symlinks on the way.
    #[error("too many levels of symbolic links")]
    SymlinkLoop,
    /// There is no such attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The attribute does not fit the inode or its attribute block.
    #[error(
        "the attribute does not fit: those of a file share a block; with the feature ea_inode, each value \
         has up to 65536 bytes"
    )]
    AttributeTooLarge,
    /// The inode has the flag that forbids every change (`EPERM`).
    #[error("inode {0} is immutable (chattr -i takes the flag away)")]
    Immutable(InodeNr),
    /// The inode has the flag that lets it only grow (`EPERM`).
    #[error("inode {0} is append-only (chattr -a takes the flag away)")]
    AppendOnly(InodeNr),
    /// The caller lacks the right to do that, whatever the permissions (`EPERM`).
    #[error("{0}")]
    NotPermitted(&'static str),
    /// The permissions of the file do not allow it (`EACCES`).
    #[error("permission denied")]
    PermissionDenied,
    /// The directory holds the files of another project (`EXDEV`).
    #[error("the directory belongs to another project: copy the file into it")]
    OtherProject,
    /// The files lie on different volumes (`EXDEV`).
    #[error("the files lie on different volumes")]
    OtherVolume,
    /// A handle leads to an inode that is gone, perhaps with another in its place (`ESTALE`).
    #[error("the handle of inode {0} is stale: the file is gone")]
    Stale(InodeNr),
    /// A directory has one name, and no second (`EPERM`).
    #[error("a directory can't have a second name")]
    LinkToDirectory,
    /// The volume was opened for reading only.
    #[error("the volume is open for reading only")]
    ReadOnly,
    /// Another host may have the volume in use (MMP, `EBUSY`); the text says what to do.
    #[error("{0}")]
    InUse(String),
    /// It is the root directory, or the `.` or `..` of one, which always stay (`EBUSY`).
    #[error("{0}")]
    Busy(&'static str),
    /// A write that the format allows but this program does not do yet, named.
    #[error("{0}")]
    Unsupported(String),
    /// The bytes on the device break the format; the text ends with how they can be read all the same.
    #[error("{0}{advice}", advice = advice(.0))]
    Corrupt(#[from] Corrupt),
    /// The device does not hold a volume; the text says what it holds, and what to do.
    #[error("{0}")]
    NotAVolume(String),
    /// A volume can't be made with these options.
    #[error("{0}")]
    Format(String),
    /// The device failed.
    #[error("{0}")]
    Device(#[from] hectare_device::Error),
    /// An earlier write failed, or metadata corruption was found on a volume that must not continue then
    /// ([`OnError`](crate::OnError)), so that nothing more is written.
    #[error("nothing more is written, since something went wrong earlier: {0}")]
    Aborted(String),
    /// The system refused memory.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The volume was closed.
    #[error("the volume is closed")]
    Closed,
    /// A read beyond the end; kept apart so that callers can report how much is missing.
    #[error("only {have} of {want} bytes are there")]
    Short {
        /// Bytes present.
        have: Bytes,
        /// Bytes requested.
        want: Bytes,
    },
}

/// The option with which a volume with this fault can be read
/// ([`OpenOptions::tolerances`](crate::OpenOptions) and its neighbours).
fn advice(corrupt: &Corrupt) -> &'static str {
    let is_about = |what: &str| corrupt.structure.contains(what);
    if corrupt.reason.contains("too few for a superblock") {
        return "";
    }
    if corrupt.reason.contains("is the image truncated?") {
        return " (--allow-truncated reads what is there)";
    }
    if is_about("superblock") && !is_about("journal") {
        return " (--superblock auto reads it with a backup, hectare salvage brings out what is left)";
    }
    if is_about("journal") {
        return " (--no-journal reads the volume as it lies)";
    }
    match (corrupt.is_checksum, is_about("group descriptor")) {
        (true, _) => " (--ignore-checksums reads it all the same)",
        (false, true) => " (--superblock auto reads it with a backup)",
        (false, false) => "",
    }
}

impl Error {
    /// The number by which Linux names this condition.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotFound => 2,
            Self::Immutable(_) | Self::AppendOnly(_) | Self::NotPermitted(_) | Self::LinkToDirectory => 1,
            Self::Device(error) => error.raw_os_error(),
            Self::Short { .. } | Self::Aborted(_) => 5,
            Self::Closed => 9,
            Self::OutOfMemory(_) => 12,
            Self::PermissionDenied => 13,
            Self::InUse(_) | Self::Busy(_) => 16,
            Self::Exists => 17,
            Self::OtherProject | Self::OtherVolume => 18,
            Self::NotADirectory => 20,
            Self::IsADirectory => 21,
            Self::Invalid(_) | Self::Format(_) | Self::NotAVolume(_) => 22,
            Self::FileTooLarge => 27,
            Self::NoSpace | Self::NoInodes | Self::DirectoryFull | Self::AttributeTooLarge => 28,
            Self::ReadOnly => 30,
            Self::TooManyLinks => 31,
            Self::NameTooLong => 36,
            Self::NotEmpty => 39,
            Self::SymlinkLoop => 40,
            Self::NoAttribute => 61,
            Self::Unsupported(_) => 95,
            Self::Stale(_) => 116,
            Self::Corrupt(_) | Self::NeedsRepair(_) => 117,
            Self::QuotaExceeded { .. } => 122,
        }
    }

    /// The kind that `std` has for this condition, on every host ([`hectare_device::kind_of`]).
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        hectare_device::kind_of(self.errno())
    }
}

impl From<Error> for io::Error {
    /// An error of the same kind; [`io::Error::into_inner`] gives this one back.
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

impl From<Unsupported> for Error {
    fn from(error: Unsupported) -> Self {
        Self::Unsupported(error.0)
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        match error {
            FormatError::Corrupt(corrupt) => Self::Corrupt(corrupt),
            FormatError::Unsupported(unsupported) => unsupported.into(),
        }
    }
}

impl From<hectare_mmp::Error> for Error {
    fn from(error: hectare_mmp::Error) -> Self {
        match error {
            hectare_mmp::Error::Device(error) => error.into(),
            hectare_mmp::Error::Corrupt(corrupt) => Self::Corrupt(corrupt),
            hectare_mmp::Error::InUse(text) => Self::InUse(text),
            other => Self::Unsupported(other.to_string()),
        }
    }
}

impl From<AllocError<Error>> for Error {
    fn from(error: AllocError<Error>) -> Self {
        match error {
            AllocError::NoSpace => Self::NoSpace,
            AllocError::Source(inner) => inner,
            AllocError::Miscounted { group, announced, counted } => {
                let what = format!("{announced} free clusters are announced, and it has {counted}");
                Corrupt::new("the block bitmap", Place::Group(group), what).into()
            }
            other => Corrupt::new("the block bitmaps", Place::Volume, other.to_string()).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_device::{Operation, Reason};
    use std::error::Error as _;

    #[test]
    fn what_is_refused_has_one_name_for_each_condition() {
        let nr = InodeNr::new(12);
        for (error, errno) in [
            (Error::PermissionDenied, 13),
            (Error::NotPermitted("only root may"), 1),
            (Error::Immutable(nr), 1),
            (Error::AppendOnly(nr), 1),
            (Error::LinkToDirectory, 1),
        ] {
            assert_eq!((error.errno(), error.kind()), (errno, io::ErrorKind::PermissionDenied), "{error}");
        }
        assert_eq!(Error::Immutable(nr).to_string(), "inode 12 is immutable (chattr -i takes the flag away)");
    }

    #[test]
    fn the_source_of_a_failed_device_is_its_error() {
        let device = hectare_device::Error::new("disk.img", Operation::Write, None, Reason::Io(28));
        let error = Error::from(device.clone());
        assert_eq!((error.errno(), error.to_string()), (28, device.to_string()));
        assert_eq!(error.source().unwrap().downcast_ref(), Some(&device));
        let corrupt = Error::from(Corrupt::new("a node", Place::Volume, "it is odd"));
        assert!(corrupt.source().unwrap().downcast_ref::<Corrupt>().is_some());
        assert_eq!(corrupt.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn an_error_of_std_has_the_kind_and_gives_it_back() {
        for (error, kind) in [
            (Error::NotFound, io::ErrorKind::NotFound),
            (Error::Exists, io::ErrorKind::AlreadyExists),
            (Error::NotEmpty, io::ErrorKind::DirectoryNotEmpty),
            (Error::ReadOnly, io::ErrorKind::ReadOnlyFilesystem),
            (Error::NoSpace, io::ErrorKind::StorageFull),
            (Error::OtherVolume, io::ErrorKind::CrossesDevices),
            (Error::Unsupported("no".into()), io::ErrorKind::Unsupported),
            (hectare_mmp::Error::InUse("by another".into()).into(), io::ErrorKind::ResourceBusy),
        ] {
            let shown = error.to_string();
            let error = io::Error::from(error);
            assert_eq!((error.kind(), error.to_string()), (kind, shown));
            assert!(error.into_inner().unwrap().is::<Error>());
        }
    }
}
