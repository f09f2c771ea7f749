//! Where descriptors say that the metadata of groups lies, and whether that can be.

use hectare_ext4::feature::Incompat;
use hectare_ext4::geometry::Geometry;
use hectare_ext4::group::GroupDesc;
use hectare_units::GroupNr;
use std::collections::BTreeSet;

/// Groups of which each is compared with all others.
pub(crate) const GROUPS_MAX: u32 = 1 << 14;

pub(crate) fn same_places(a: &GroupDesc, b: &GroupDesc) -> bool {
    (a.block_bitmap, a.inode_bitmap, a.inode_table) == (b.block_bitmap, b.inode_bitmap, b.inode_table)
}

/// The groups whose metadata lies in other metadata, or out of the group where it must not.
pub(crate) fn contested(geometry: &Geometry, groups: &[GroupDesc]) -> BTreeSet<GroupNr> {
    let (mut contested, mut stretches) = (BTreeSet::new(), Vec::new());
    for (nr, desc) in (0..geometry.groups()).map(GroupNr::new).zip(groups) {
        let first = geometry.first_block(nr).get();
        let base = u64::from(geometry.base_meta_blocks(nr));
        if base > 0 {
            stretches.push((first, first + base, None));
        }
        stretches.extend(own_stretches(geometry, desc).map(|(start, end)| (start, end, Some(nr))));
        if is_astray(geometry, nr, desc) {
            contested.insert(nr);
        }
    }
    stretches.sort_unstable();
    let mut last = (0, None);
    for (start, end, owner) in stretches {
        if start < last.0 {
            contested.extend(owner);
            contested.extend(last.1);
        }
        if end > last.0 {
            last = (end, owner);
        }
    }
    contested
}

/// Where the bitmaps and the table of a group begin and end.
fn own_stretches(geometry: &Geometry, desc: &GroupDesc) -> [(u64, u64); 3] {
    let itable = u64::from(geometry.itable_blocks());
    let own = [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, itable)];
    own.map(|(start, len)| (start.get(), start.get() + len))
}

/// Whether metadata of a group lies out of it where it must not.
pub(crate) fn is_astray(geometry: &Geometry, nr: GroupNr, desc: &GroupDesc) -> bool {
    let first = geometry.first_block(nr).get();
    let end = first + u64::from(geometry.blocks_in(nr));
    let flex = geometry.features.incompat.contains(Incompat::FLEX_BG);
    !flex && own_stretches(geometry, desc).iter().any(|own| own.0 < first || own.1 > end)
}
