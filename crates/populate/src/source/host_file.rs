//! Files of the host that are named by themselves, not as part of a source.
//!
//! Such a file is opened twice: when it is added, and when its data is copied. The path can lead elsewhere by
//! then, so a file is known by its identity, size and time, as one of a directory is.

use super::builder::{DraftData, DraftKind};
use super::folder::{holes_of, meta, timestamp};
use crate::error::{Error, ShownPath};
use crate::time::PackedTime;
use crate::tree::{HostFile, Meta};
use hectare_host::stat_open;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Opens a file to read it.
pub(crate) fn open(path: &[u8]) -> Result<OwnedFd, Error> {
    // NONBLOCK: it may be a pipe, and must not make us wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(Path::new(OsStr::from_bytes(path)), flags, Mode::empty())
        .map_err(|errno| Error::io(ShownPath::new(path), "open", errno))
}

/// The regular file at `path`, which may be reached by symbolic links, and its metadata but for the owner: it
/// becomes root's.
pub(crate) fn regular(path: &[u8]) -> Result<(DraftKind, Meta), Error> {
    let failed = |errno: rustix::io::Errno| Error::io(ShownPath::new(path), "read the metadata", errno);
    let fd = open(path)?;
    let stat = stat_open(fd.as_fd()).map_err(failed)?;
    if stat.file_type != FileType::RegularFile {
        let reason = "it is not a regular file, and can't be the content of one".into();
        return Err(Error::Refused { path: ShownPath::new(path), reason });
    }
    if stat.size == 0 && rustix::io::pread(&fd, &mut [0], 0).map_err(failed)? > 0 {
        let reason =
            "the system says that it has 0 bytes, and it has more, as files in /proc do: add a copy of it";
        return Err(Error::Refused { path: ShownPath::new(path), reason: reason.into() });
    }
    let sparse = stat.sectors.saturating_mul(512) < stat.size;
    let segments = if sparse { holes_of(fd.as_fd(), stat.size).map_err(failed)? } else { None };
    let mtime = PackedTime::new(timestamp(stat.mtime));
    let file = HostFile { path: path.into(), identity: stat.identity, mtime };
    let kind = DraftKind::File { size: stat.size, data: DraftData::Host(file), segments };
    Ok((kind, Meta { uid: 0, gid: 0, ..meta(&stat) }))
}
