//! What directories hold: entries, their kinds, and the nodes to be made.

use crate::error::{Error, Result};
use hectare_ext4::dir::{Cookie, FileType, Name};
use hectare_ext4::inode::{DeviceNumber, Kind};
use hectare_units::InodeNr;

/// The most links an inode can have (`EXT4_LINK_MAX`).
pub const LINKS_MAX: u16 = 65_000;

/// The owners and permissions of a new inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Creation {
    /// Permission, set-id and sticky bits (`0o7777`).
    pub permissions: u16,
    /// Bits of those that the inode does not get, unless the directory has a default ACL, which then decides.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory passes on its own (set-group-id).
    pub gid: u32,
}

impl Default for Creation {
    fn default() -> Self {
        Self { permissions: 0o755, umask: 0, uid: 0, gid: 0 }
    }
}

/// What to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewNode<'a> {
    /// An empty file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl NewNode<'_> {
    /// What it is.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::File => Kind::File,
            Self::Directory => Kind::Directory,
            Self::Symlink(_) => Kind::Symlink,
            Self::CharDevice(_) => Kind::CharDevice,
            Self::BlockDevice(_) => Kind::BlockDevice,
            Self::Fifo => Kind::Fifo,
            Self::Socket => Kind::Socket,
        }
    }
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// The name; any bytes but `/` and NUL. In an encrypted directory, base64url of the ciphertext.
    pub name: Vec<u8>,
    /// The inode it names.
    pub inode: InodeNr,
    /// What that is, if the volume's directories say so (`filetype`).
    pub kind: Option<Kind>,
    /// The cookie to continue from after this entry.
    pub next: Cookie,
}

/// The kind of an inode as directories have it.
pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::Regular,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
    }
}

/// The kind that a directory says an inode is, if it does.
pub(crate) fn kind_of(file_type: FileType) -> Option<Kind> {
    Some(match file_type {
        FileType::Regular => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::CharDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::Unknown => return None,
    })
}

/// A valid new name, or the error.
pub(crate) fn new_name(name: &[u8]) -> Result<Name<'_>> {
    if name.len() > Name::LEN_MAX {
        return Err(Error::NameTooLong);
    }
    match Name::new(name) {
        Some(name) if !name.is_dot() => Ok(name),
        Some(_) => Err(Error::Exists),
        None => Err(Error::Invalid("a name has 1 to 255 bytes, none of them '/' or NUL")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_can_say_of_what_kind_every_node_is() {
        let device = DeviceNumber { major: 1, minor: 2 };
        for node in [
            NewNode::File,
            NewNode::Directory,
            NewNode::Symlink(b"to"),
            NewNode::CharDevice(device),
            NewNode::BlockDevice(device),
            NewNode::Fifo,
            NewNode::Socket,
        ] {
            assert_eq!(kind_of(file_type(node.kind())), Some(node.kind()));
        }
        assert_eq!(kind_of(FileType::Unknown), None);
    }

    #[test]
    fn new_names_are_refused_by_the_reason_that_applies() {
        assert!(new_name(&[b'x'; 255]).is_ok());
        assert!(matches!(new_name(&[b'x'; 256]), Err(Error::NameTooLong)));
        assert!(matches!((new_name(b"."), new_name(b"..")), (Err(Error::Exists), Err(Error::Exists))));
        for name in [&b""[..], b"a/b", b"a\0"] {
            assert!(matches!(new_name(name), Err(Error::Invalid(_))));
        }
    }
}
