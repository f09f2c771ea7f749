//! Checks for files that no volume with the given options can hold, whatever its size: refused by name before
//! the size is searched.

use crate::error::ShownPath;
use crate::image_error::ImageError;
use crate::layout::{self, LINKS_MAX, Load};
use crate::tree::{Kind, NodeId};
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::indirect;
use hectare_ext4::inode::LARGE_FILE;
use hectare_units::{Bytes, u64_of};

/// Refuses files that can't be stored.
pub(super) fn check(load: &Load<'_>, geometry: &Geometry) -> Result<(), ImageError> {
    load.tree.ids().try_for_each(|id| check_node(load, id, geometry))
}

/// The most bytes of a file whose blocks are surely fewer than 2^32 sectors, those of its map included, which
/// are at most a 256th and a few.
const COUNTED_MAX: Bytes = Bytes::new((2 << 40) - (9 << 30));

/// The largest a file can be: its last block has number 2^32 - 2, or the last one that a block map reaches.
fn largest(geometry: &Geometry) -> Bytes {
    let size = geometry.block_size;
    let extents = geometry.features.incompat.contains(Incompat::EXTENTS);
    let reach = if extents { u64::MAX } else { indirect::reach(size) };
    Bytes::new(reach.min(u32::MAX.into()) << size.shift())
}

/// Refuses a file that no volume with these options can seal.
fn check_sealable(load: &Load<'_>, geometry: &Geometry, id: NodeId) -> Result<(), ImageError> {
    let path = || ShownPath::new(&load.tree.path(id));
    let (what, max) = ("a file sealed by fs-verity", largest(geometry));
    if !geometry.features.ro_compat.contains(RoCompat::VERITY) {
        return Err(ImageError::NeedsFeature { path: path(), what, feature: "verity" });
    }
    if !geometry.features.incompat.contains(Incompat::EXTENTS) {
        return Err(ImageError::NeedsFeature { path: path(), what, feature: "extents" });
    }
    let end = layout::verity_blocks(load, geometry, id).map_or(u64::MAX, |blocks| blocks.end);
    let size = Bytes::new(end.saturating_mul(geometry.block_size.get().into()));
    if size > max {
        return Err(ImageError::FileTooLarge {
            path: path(),
            size,
            block_size: geometry.block_size.get(),
            max,
        });
    }
    Ok(())
}

fn check_node(load: &Load<'_>, id: NodeId, geometry: &Geometry) -> Result<(), ImageError> {
    let path = || ShownPath::new(&load.tree.path(id));
    let block_size = geometry.block_size.get();
    let has = |feature| geometry.features.ro_compat.contains(feature);
    match load.tree.kind(id) {
        Kind::File { size } => {
            let max = largest(geometry);
            if load.tree.is_sealed(id) {
                check_sealable(load, geometry, id)?;
            }
            if size > max {
                return Err(ImageError::FileTooLarge { path: path(), size, block_size, max });
            }
            if size > COUNTED_MAX && !has(RoCompat::HUGE_FILE) {
                return Err(ImageError::NeedsFeature {
                    path: path(),
                    what: "a file of almost 2 TiB or more",
                    feature: "huge_file",
                });
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
