//! A directory of the host as origin or target of a copy, and what is looked up in one.
//!
//! `linux` reaches everything by open directories, and keeps all that a file has. `portable` goes by paths
//! and the standard library, and reports what it loses.

#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
mod portable;

#[cfg(all(target_os = "linux", not(hectare_portable)))]
pub(crate) use linux::{Below, LocalOrigin, LocalTarget, Node};
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
pub(crate) use portable::{Below, LocalOrigin, LocalTarget, Node};

use super::ends::{Meta, Reason};
use hectare_engine::{DeviceNumber, Kind, Timestamp};
use hectare_host::{FileType, Identity, Stat, Time};

/// What an image's files may get on the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rights {
    /// Attributes at all: if so, other users can't access a file before its owner is set.
    pub(crate) attributes: bool,
    /// Set-ID bits and file capabilities, where the owner can be kept.
    pub(crate) set_id: bool,
    /// Device nodes.
    pub(crate) devices: bool,
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn failed(error: std::io::Error) -> Reason {
    crate::output::reason(&error)
}

fn kind_of(file_type: FileType) -> Result<Kind, Reason> {
    Ok(match file_type {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::Unknown => return Err("unknown file type".to_owned()),
    })
}

/// What is copied of a file's metadata.
fn meta_of(stat: &Stat, id: Identity) -> Result<Meta, Reason> {
    let time = |time: Time| Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds };
    Ok(Meta {
        kind: kind_of(stat.file_type)?,
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        atime: time(stat.atime),
        mtime: time(stat.mtime),
        links: stat.links,
        id,
        device: DeviceNumber { major: stat.device.0, minor: stat.device.1 },
    })
}
