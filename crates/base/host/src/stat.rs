//! The metadata of files of the host.

#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
mod portable;

#[cfg(all(target_os = "linux", not(hectare_portable)))]
pub use linux::{FileType, stat, stat_open};
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
pub use portable::{FileType, stat_of, stat_open};

/// What distinguishes a file from every other as long as it exists. Windows has no number for it that the
/// standard library gives: there it is the time of its creation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Identity {
    /// The number of its device.
    pub device: u64,
    /// Its inode number there.
    pub inode: u64,
}

/// A point in time: seconds since 1970 and nanoseconds after that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// The metadata of a file of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// The identity of the file.
    pub identity: Identity,
    /// Its type.
    pub file_type: FileType,
    /// Permission, set-ID and sticky bits: at most 0o7777.
    pub mode: u16,
    /// The number of its links.
    pub links: u64,
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// Bytes, including holes.
    pub size: u64,
    /// Allocated sectors of 512 bytes.
    pub sectors: u64,
    /// Major and minor number of a device node.
    pub device: (u32, u32),
    /// Last access.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of the metadata.
    pub ctime: Time,
    /// Creation, where the file system knows it.
    pub btime: Option<Time>,
}
