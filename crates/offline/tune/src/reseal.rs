//! Goes over everything in a volume for a superblock that wants it in another form: with other checksums, or
//! such that start elsewhere; directories and maps of another kind ([`Forms`], [`block_maps`]).
//!
//! What carries one: group descriptors, both bitmaps of a group (in its descriptor), inodes, nodes of extent
//! trees, blocks of directories, attribute blocks, the orphan file, the block of multiple mount protection.
//! Where checksums are new, directories get room for theirs; quotas count what that takes.
//!
//! Hazards: unused inodes carry a checksum as well, but what they lead to is no longer theirs. Hashes of
//! attribute values in inodes of their own start from the same seed as checksums; the caller refuses volumes
//! with such values if the seed changes.

use crate::block_maps;
use crate::directories::Forms;
use crate::error::Result;
use crate::hidden;
use crate::tree::FileMap;
use crate::usage;
use crate::volume::Volume;
use hectare_ext4::extent;
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::group::GroupFlags;
use hectare_ext4::inode::{Inode, InodeFlags, Kind};
use hectare_ext4::orphan::OrphanBlockMut;
use hectare_ext4::quota::SpaceChanges;
use hectare_ext4::raw;
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::time::Timestamp;
use hectare_ext4::xattr;
use hectare_units::{BlockNr, GroupNr, InodeNr};
use std::collections::BTreeSet;

/// Adapts everything on the volume to the superblock that `change` makes.
pub(crate) fn reseal(
    volume: &mut Volume<'_>,
    now: Timestamp,
    change: impl FnOnce(&mut raw::SuperBlock),
) -> Result<()> {
    let old = volume.sb().clone();
    let mut raw = *old.raw();
    change(&mut raw);
    let new = SuperBlock::from_raw(raw)?;
    volume.groups()?;
    if old.features().group_checksums() && !new.features().group_checksums() {
        initialise_all(volume)?;
    }
    let forms = Forms::new(&old, &new)?;
    let mut walk =
        Walk { old: &old, new: &new, forms, seen: BTreeSet::new(), usage: SpaceChanges::default() };
    volume.each_inode(&mut |volume, nr, slot, in_use| walk.inode(volume, nr, slot, in_use))?;
    let usage = walk.usage;
    volume.set_superblock(new.clone());
    usage::write(&usage, volume)?;
    for group in volume.all_groups() {
        reseal_group(volume, group, &old)?;
    }
    if new.features().incompat.contains(Incompat::MMP) {
        hidden::write_mmp(volume, now)?;
    }
    Ok(())
}

/// Writes the bitmaps and inode tables that were left to be worked out: without group checksums nothing says
/// which they are.
fn initialise_all(volume: &mut Volume<'_>) -> Result<()> {
    for group in volume.all_groups() {
        volume.zero_unused_inodes(group)?;
        let blocks = volume.block_bitmap(group)?;
        volume.set_block_bitmap(group, &blocks)?;
        let inodes = volume.inode_bitmap(group)?;
        volume.set_inode_bitmap(group, &inodes)?;
        let desc = volume.group(group)?;
        desc.itable_unused = 0;
        desc.flags = GroupFlags::empty();
    }
    Ok(())
}

fn reseal_group(volume: &mut Volume<'_>, group: GroupNr, old: &SuperBlock) -> Result<()> {
    let sb = volume.sb().clone();
    let (blocks, inodes) = (volume.block_bitmap(group)?, volume.inode_bitmap(group)?);
    let desc = volume.group(group)?;
    desc.block_bitmap_csum = 0;
    desc.inode_bitmap_csum = 0;
    if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
        desc.seal_block_bitmap(&blocks, &sb);
    }
    if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
        desc.seal_inode_bitmap(&inodes, &sb);
    }
    if sb.features().group_checksums() && !old.features().group_checksums() {
        desc.flags |= GroupFlags::INODE_ZEROED;
    }
    Ok(())
}

struct Walk<'a> {
    old: &'a SuperBlock,
    new: &'a SuperBlock,
    forms: Forms<'a>,
    /// Attribute blocks that were met; several inodes may share one.
    seen: BTreeSet<BlockNr>,
    /// What owners use now, more or less.
    usage: SpaceChanges,
}

impl Walk<'_> {
    fn inode(&mut self, volume: &mut Volume<'_>, nr: InodeNr, slot: &mut [u8], in_use: bool) -> Result<()> {
        let mut inode = match Inode::parse_unsealed(slot, nr, self.old) {
            Ok(inode) => inode,
            Err(_) if !in_use => {
                slot.fill(0);
                return Ok(());
            }
            Err(corrupt) => return Err(corrupt.into()),
        };
        if in_use && (inode.links > 0 || nr < self.old.first_inode()) {
            let before = inode.sectors;
            self.content(volume, nr, &mut inode)?;
            let bytes = (i128::from(inode.sectors) - i128::from(before)) << 9;
            self.usage.note(self.old, nr, &inode, bytes);
        }
        inode.render(slot, nr, self.new);
        Ok(())
    }

    /// Adapts what an inode leads to, and the inode to that.
    fn content(&mut self, volume: &mut Volume<'_>, nr: InodeNr, inode: &mut Inode) -> Result<()> {
        let mut map = FileMap::of(volume, nr, inode)?;
        if inode.flags.contains(InodeFlags::EXTENTS)
            && !self.new.features().incompat.contains(Incompat::EXTENTS)
        {
            block_maps::convert(volume, nr, inode, &map)?;
            map = FileMap::of(volume, nr, inode)?;
        }
        if let Some(seed) = inode.seed(nr, self.new).filter(|_| inode.flags.contains(InodeFlags::EXTENTS)) {
            for node in &map.nodes {
                let mut bytes = volume.read(*node)?;
                extent::set_checksum(&mut bytes, seed);
                volume.write(*node, &bytes)?;
            }
        }
        if let Some(block) = inode.file_acl {
            self.attributes(volume, block)?;
        }
        if inode.kind() == Some(Kind::Directory) {
            self.forms.convert(volume, nr, inode, &map)?;
        }
        if self.old.orphan_file_inode() == Some(nr) {
            self.orphans(volume, nr, inode, &map)?;
        }
        Ok(())
    }

    /// The blocks of the orphan file. Without checksums theirs must be 0.
    fn orphans(&self, volume: &Volume<'_>, nr: InodeNr, inode: &Inode, map: &FileMap) -> Result<()> {
        let is_empty = !self.old.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT);
        for (_, block) in map.blocks() {
            let mut bytes = volume.read(block)?;
            let mut orphans = OrphanBlockMut::new(&mut bytes, block);
            if is_empty {
                orphans.format();
            }
            inode.seed(nr, self.new).into_iter().for_each(|seed| orphans.seal(seed));
            volume.write(block, &bytes)?;
        }
        Ok(())
    }

    fn attributes(&mut self, volume: &mut Volume<'_>, block: BlockNr) -> Result<()> {
        let Some(seed) = self.new.seed().filter(|_| self.seen.insert(block)) else { return Ok(()) };
        let mut bytes = volume.read(block)?;
        xattr::seal(&mut bytes, seed, block);
        volume.write(block, &bytes)
    }
}
