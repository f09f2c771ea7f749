//! Checks for files that no volume with the given options can hold, whatever its size: refused by name before
//! the size is searched.

use crate::error::ShownPath;
use crate::image_error::ImageError;
use crate::layout::{LINKS_MAX, Load};
use crate::tree::{Kind, NodeId};
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::inode::LARGE_FILE;
use hectare_units::{Bytes, u64_of};

/// Refuses files that can't be stored.
pub(super) fn check(load: &Load<'_>, geometry: &Geometry) -> Result<(), ImageError> {
    if !geometry.features.incompat.contains(Incompat::EXTENTS) {
        return Err(ImageError::Impossible(
            "images are built with extents; leave out -t ext2, -t ext3 and -O ^extent".into(),
        ));
    }
    load.tree.ids().try_for_each(|id| check_node(load, id, geometry))
}

fn check_node(load: &Load<'_>, id: NodeId, geometry: &Geometry) -> Result<(), ImageError> {
    let path = || ShownPath::new(&load.tree.path(id));
    let block_size = geometry.block_size.get();
    let has = |feature| geometry.features.ro_compat.contains(feature);
    match load.tree.kind(id) {
        Kind::File { size } => {
            // The last block a file can have is 2^32 - 2.
            let max = Bytes::new(u64::from(u32::MAX) << geometry.block_size.shift());
            if size > max {
                return Err(ImageError::FileTooLarge { path: path(), size, block_size, max });
            }
            if size >= LARGE_FILE && !has(RoCompat::LARGE_FILE) {
                return Err(ImageError::NeedsFeature {
                    path: path(),
                    what: "a file of 2 GiB or more",
                    feature: "large_file",
                });
            }
        }
        // A target lies in one block and ends with a NUL.
        Kind::Symlink { target } if u64_of(target.len()) >= block_size.into() => {
            return Err(ImageError::TargetTooLong { path: path(), len: target.len(), block_size });
        }
        Kind::Directory => {
            let links = load.tree.links(id) + u32::from(id == NodeId::ROOT && load.adds_lost_and_found());
            if links > LINKS_MAX && !has(RoCompat::DIR_NLINK) {
                return Err(ImageError::NeedsFeature {
                    path: path(),
                    what: "a directory of more than 64998 subdirectories",
                    feature: "dir_nlink",
                });
            }
            return Ok(());
        }
        _ => {}
    }
    match load.tree.links(id) {
        links if links > LINKS_MAX => Err(ImageError::TooManyLinks { path: path(), links }),
        _ => Ok(()),
    }
}
