//! What a caller sees of something in the tree.

use hectare_ext4::inode::{DeviceNumber, Kind};
use hectare_ext4::time::Timestamp;
use hectare_units::InodeNr;

/// Something in the tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub(crate) usize);

impl NodeId {
    /// A number that no other node of the tree has.
    #[must_use]
    pub fn get(self) -> u64 {
        hectare_units::u64_of(self.0)
    }
}

/// What is known of a node beside its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// What it is.
    pub kind: Kind,
    /// Permissions and set-id bits.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group of owners.
    pub gid: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Names that it has in the tree.
    pub links: u64,
    /// Which device a device node stands for.
    pub device: DeviceNumber,
    /// Bytes of content of a file.
    pub size: u64,
    /// Its inode's number, if it has one.
    pub inode: Option<InodeNr>,
}
