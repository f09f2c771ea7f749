//! What an entry of a directory says of the kind of a node.

use crate::tree::Kind;
use hectare_ext4::dir::FileType;

pub(crate) fn file_type(kind: &Kind<'_>) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::File { .. } => FileType::Regular,
        Kind::Symlink { .. } => FileType::Symlink,
        Kind::CharDevice { .. } => FileType::CharDevice,
        Kind::BlockDevice { .. } => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
    }
}
