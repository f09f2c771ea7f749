//! Which blocks of a node have content, by their numbers in the node.

use super::load::Load;
use crate::tree::{Kind, NodeId};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::inode::BLOCK_BYTES;
use hectare_ext4::verity;
use std::ops::Range;

/// The blocks of a file in which what seals it lies: its fs-verity tree and descriptor.
pub(crate) fn verity_blocks(load: &Load<'_>, geometry: &Geometry, id: NodeId) -> Option<Range<u64>> {
    let Kind::File { size } = load.tree.kind(id) else { return None };
    if !load.tree.is_sealed(id) {
        return None;
    }
    let block = geometry.block_size;
    // No larger file gets here.
    let start = verity::start(size.get())? >> block.shift();
    let len = verity::behind_len(&load.verity, size.get(), block.len()) >> block.shift();
    Some(start..start + len)
}

/// Visits the runs of blocks that a node's content takes, in order: of a file those that its segments touch.
pub(super) fn content_ranges(
    load: &Load<'_>,
    geometry: &Geometry,
    id: NodeId,
    visit: &mut dyn FnMut(Range<u64>),
) {
    let size = geometry.block_size;
    let mut pending: Option<Range<u64>> = None;
    match load.tree.kind(id) {
        _ if load.is_inline(id) => {}
        Kind::Directory => visit(0..u64::from(load.directory_blocks(id))),
        Kind::Symlink { target } if target.len() >= BLOCK_BYTES => visit(0..1),
        Kind::File { .. } => {
            for segment in load.tree.segments(id) {
                let start = segment.at.get() >> size.shift();
                let end = (segment.at.get() + segment.len.get()).div_ceil(size.bytes().get());
                match &mut pending {
                    Some(range) if start <= range.end => range.end = range.end.max(end),
                    Some(range) => visit(std::mem::replace(range, start..end)),
                    None => pending = Some(start..end),
                }
            }
            if let Some(range) = verity_blocks(load, geometry, id) {
                // Behind the last byte, perhaps in what follows its block at once.
                match &mut pending {
                    Some(pending) if range.start <= pending.end => pending.end = range.end,
                    Some(pending) => visit(std::mem::replace(pending, range)),
                    None => pending = Some(range),
                }
            }
        }
        _ => {}
    }
    if let Some(range) = pending {
        visit(range);
    }
}
