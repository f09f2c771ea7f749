//! Opening a cache file, and whose it is. Only Linux says that: on other hosts there are no cache files.

#[cfg(all(target_os = "linux", not(hectare_portable)))]
pub(super) use linux::{is_trusted, open};
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
pub(super) use portable::{is_trusted, open};

#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod linux {
    use rustix::fs::OFlags;
    use std::fs::{File, Metadata};
    use std::io;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::path::Path;

    /// Opens or makes the file, for its owner alone.
    pub(in super::super) fn open(path: &Path) -> io::Result<File> {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0))
            .open(path)
    }

    /// Whether nobody but this user can have written it.
    pub(in super::super) fn is_trusted(metadata: &Metadata) -> bool {
        metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0
    }
}

#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
mod portable {
    use std::fs::{File, Metadata};
    use std::io;
    use std::path::Path;

    /// Refused.
    pub(in super::super) fn open(_: &Path) -> io::Result<File> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the owner of the file can't be determined on this host",
        ))
    }

    /// Never.
    pub(in super::super) const fn is_trusted(_: &Metadata) -> bool {
        false
    }
}
