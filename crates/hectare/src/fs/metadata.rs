//! What an inode says of its file.

use hectare_engine::{Changes, Kind, Timestamp};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What an inode says of its file.
#[derive(Clone, Debug)]
pub struct Metadata(pub(crate) hectare_engine::Metadata);

impl Metadata {
    /// Bytes of content.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // as in std
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// What it is.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        FileType(self.0.kind)
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.0.is_file()
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.0.is_dir()
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.0.is_symlink()
    }

    /// Its permissions.
    #[must_use]
    pub fn permissions(&self) -> Permissions {
        Permissions { mode: self.0.permissions }
    }

    /// Permission, set-id and sticky bits (`0o7777`).
    #[must_use]
    pub fn mode(&self) -> u32 {
        self.0.permissions.into()
    }

    /// Owner.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// The number of its inode.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.0.inode.get().into()
    }

    /// Hard links.
    #[must_use]
    pub fn nlink(&self) -> u64 {
        self.0.links.into()
    }

    /// 512-byte sectors in use.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.0.sectors
    }

    /// The volume's block size in bytes.
    #[must_use]
    pub fn blksize(&self) -> u64 {
        self.0.block_size.into()
    }

    /// Major and minor number of a device; 0 and 0 for anything else.
    #[must_use]
    pub fn device(&self) -> (u32, u32) {
        (self.0.device.major, self.0.device.minor)
    }

    /// When the content was last changed.
    ///
    /// # Errors
    /// If the time is none of the host's.
    pub fn modified(&self) -> io::Result<SystemTime> {
        to_host(self.0.mtime)
    }

    /// When the content was last read, as far as that is kept.
    ///
    /// # Errors
    /// If the time is none of the host's.
    pub fn accessed(&self) -> io::Result<SystemTime> {
        to_host(self.0.atime)
    }

    /// When the inode was last changed.
    ///
    /// # Errors
    /// If the time is none of the host's.
    pub fn changed(&self) -> io::Result<SystemTime> {
        to_host(self.0.ctime)
    }

    /// When the file was made.
    ///
    /// # Errors
    /// If the volume's inodes have no room for it (128 bytes), or the time is none of the host's.
    pub fn created(&self) -> io::Result<SystemTime> {
        let at = self.0.crtime.ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "inodes of this volume have no time of creation")
        })?;
        to_host(at)
    }

    /// All of it, as the engine has it.
    #[must_use]
    pub fn as_engine(&self) -> &hectare_engine::Metadata {
        &self.0
    }
}

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileType(pub(crate) Kind);

impl FileType {
    /// The bits of a mode that say it (`S_IFMT`).
    #[must_use]
    pub fn mode_bits(&self) -> u16 {
        self.0.mode_bits()
    }

    /// A regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.0 == Kind::File
    }

    /// A directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.0 == Kind::Directory
    }

    /// A symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.0 == Kind::Symlink
    }

    /// A block device.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.0 == Kind::BlockDevice
    }

    /// A character device.
    #[must_use]
    pub fn is_char_device(&self) -> bool {
        self.0 == Kind::CharDevice
    }

    /// A named pipe.
    #[must_use]
    pub fn is_fifo(&self) -> bool {
        self.0 == Kind::Fifo
    }

    /// A socket.
    #[must_use]
    pub fn is_socket(&self) -> bool {
        self.0 == Kind::Socket
    }
}

/// Permission, set-id and sticky bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Permissions {
    mode: u16,
}

impl Permissions {
    /// Those of a mode; bits beyond `0o7777` are left out.
    #[must_use]
    pub fn from_mode(mode: u32) -> Self {
        Self { mode: mode_bits(mode) }
    }

    /// The bits.
    #[must_use]
    pub fn mode(&self) -> u32 {
        self.mode.into()
    }

    /// Replaces the bits.
    pub fn set_mode(&mut self, mode: u32) {
        self.mode = mode_bits(mode);
    }

    /// Whether nobody may write.
    #[must_use]
    pub fn readonly(&self) -> bool {
        self.mode & 0o222 == 0
    }

    /// Lets nobody write, or everyone, as in `std`.
    pub fn set_readonly(&mut self, readonly: bool) {
        self.mode = if readonly { self.mode & !0o222 } else { self.mode | 0o222 };
    }
}

/// The permission bits of a mode.
pub(crate) fn mode_bits(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or_default()
}

/// Times to be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileTimes {
    accessed: Option<SystemTime>,
    modified: Option<SystemTime>,
}

impl FileTimes {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time of the last access.
    #[must_use]
    pub fn set_accessed(mut self, at: SystemTime) -> Self {
        self.accessed = Some(at);
        self
    }

    /// Sets the time of the last change of the content.
    #[must_use]
    pub fn set_modified(mut self, at: SystemTime) -> Self {
        self.modified = Some(at);
        self
    }

    pub(crate) fn changes(&self) -> Changes {
        let (atime, mtime) = (self.accessed.map(from_host), self.modified.map(from_host));
        Changes { atime, mtime, ..Changes::default() }
    }
}

fn to_host(at: Timestamp) -> io::Result<SystemTime> {
    let whole = Duration::from_secs(at.seconds.unsigned_abs());
    let second = if at.seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    let exact = second.and_then(|second| second.checked_add(Duration::from_nanos(at.nanoseconds.into())));
    exact.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the host has no such time"))
}

/// The nearest time that there is.
fn from_host(at: SystemTime) -> Timestamp {
    let seconds = |whole: Duration| i64::try_from(whole.as_secs()).unwrap_or(i64::MAX);
    match at.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp { seconds: seconds(after), nanoseconds: after.subsec_nanos() },
        Err(error) => {
            let before = error.duration();
            let part = before.subsec_nanos();
            let down = i64::from(part > 0);
            let nanoseconds = if part > 0 { 1_000_000_000 - part } else { 0 };
            Timestamp { seconds: seconds(before).saturating_neg().saturating_sub(down), nanoseconds }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970_are_kept() {
        for (seconds, nanoseconds) in [(0, 0), (5, 7), (-1, 999_999_999), (-3, 0), (4_000_000_000, 1)] {
            let at = Timestamp { seconds, nanoseconds };
            assert_eq!(from_host(to_host(at).unwrap()), at);
        }
    }

    #[test]
    fn permissions_are_those_of_std() {
        let mut permissions = Permissions::from_mode(0o100_644);
        assert_eq!(permissions.mode(), 0o644);
        permissions.set_readonly(true);
        assert!(permissions.readonly() && permissions.mode() == 0o444);
        permissions.set_mode(0o4755);
        assert_eq!(permissions.mode(), 0o4755);
    }
}
