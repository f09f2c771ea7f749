//! Entries of directories as they are stored.

/// Bytes of the hash of a name.
pub(crate) type NameHash = [u8; 8];

/// An entry as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stored {
    pub(crate) name: Vec<u8>,
    pub(crate) inode: u32,
    pub(crate) file_type: u8,
    /// The hash behind the name, in a directory that has them.
    pub(crate) hash: Option<NameHash>,
}
