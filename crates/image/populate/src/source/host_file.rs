//! Files of the host that are named by themselves, not as part of a source.
//!
//! Such a file is opened twice: when it is added, and when its data is copied. The path can lead elsewhere by
//! then, so a file is known by its identity, size and time, as one of a directory is.

use super::builder::{DraftData, DraftKind};
use super::folder::{meta, timestamp};
use crate::error::{Error, ShownPath};
use crate::time::PackedTime;
use crate::tree::{HostFile, Meta};
use hectare_device::os::{self, Errno, borrowed};
use hectare_host::{FileType, data_of, stat_open};
use std::fs::File;
use std::path::Path;

/// Opens a file to read it.
pub(crate) fn open(path: &[u8]) -> Result<File, Error> {
    let failed = |cause: std::io::Error| Error::io(ShownPath::new(path), "open", cause);
    let path = os::os_string(path).map_err(failed)?;
    hectare_host::open_file(Path::new(&path)).map_err(|errno| failed(errno.into()))
}

/// The regular file at `path`, which may be reached by symbolic links, and its metadata but for the owner: it
/// becomes root's.
pub(crate) fn regular(path: &[u8]) -> Result<(DraftKind, Meta), Error> {
    let failed = |errno: Errno| Error::io(ShownPath::new(path), "read the metadata", errno);
    let file = open(path)?;
    let stat = stat_open(borrowed(&file)).map_err(failed)?;
    if stat.file_type != FileType::RegularFile {
        let reason = "it is not a regular file, and can't be the content of one".into();
        return Err(Error::Refused { path: ShownPath::new(path), reason });
    }
    if stat.size == 0 && os::read_at(borrowed(&file), &mut [0], 0).map_err(failed)? > 0 {
        let reason =
            "the system says that it has 0 bytes, and it has more, as files in /proc do: add a copy of it";
        return Err(Error::Refused { path: ShownPath::new(path), reason: reason.into() });
    }
    let sparse = stat.sectors.saturating_mul(512) < stat.size;
    let segments = if sparse { data_of(borrowed(&file), stat.size).map_err(failed)? } else { None };
    let mtime = PackedTime::new(timestamp(stat.mtime));
    let file = HostFile { path: path.into(), identity: stat.identity, mtime };
    let kind = DraftKind::File { size: stat.size, data: DraftData::Host(file), segments };
    Ok((kind, Meta { uid: 0, gid: 0, ..meta(&stat) }))
}
