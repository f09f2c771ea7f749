//! Bitmaps, descriptors and counts: written from what was found, where they differ.

use crate::error::Error;
use crate::know::task;
use crate::know::work::Work;
use hectare_check::{What, count_ones, own_metadata};
use hectare_ext4::error::Place;
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_units::{Blocks, GroupNr, usize_of};

impl Work<'_> {
    /// Writes all bitmaps and descriptors, and the superblock's counts.
    pub(crate) fn write_bitmaps(&mut self) -> Result<(), Error> {
        let (mut free_clusters, mut free_inodes) = (0u64, 0u32);
        for nr in (0..self.geometry().groups()).map(GroupNr::new) {
            let Some(mut desc) = self.groups.get(nr.index()).cloned() else { break };
            self.write_block_bitmap(nr, &mut desc)?;
            self.write_inode_bitmap(nr, &mut desc)?;
            free_clusters += u64::from(desc.free_clusters);
            free_inodes = free_inodes.saturating_add(desc.free_inodes);
            self.write_descriptor(nr, &desc)?;
        }
        let blocks = Blocks::new(free_clusters << self.geometry().cluster_ratio_shift);
        self.sb.set_free(blocks, free_inodes);
        Ok(())
    }

    fn write_block_bitmap(&mut self, nr: GroupNr, desc: &mut GroupDesc) -> Result<(), Error> {
        let geometry = self.geometry().clone();
        let clusters = geometry.clusters_in(nr);
        let start = u64::from(nr.get()) * u64::from(geometry.clusters_per_group);
        let found = self.used.slice(start, u64::from(clusters));
        let used = count_ones(&found, clusters);
        if desc.free_clusters != clusters - used {
            desc.free_clusters = clusters - used;
            self.mended(What::Counts, Place::Group(nr), format!("{} clusters are free", clusters - used));
        }
        if self.group_flag(desc, GroupFlags::BLOCK_UNINIT) {
            if own_metadata(self.geometry(), nr, desc)
                .map_err(hectare_check::Error::from)?
                .slice(0, u64::from(clusters))
                == found
            {
                return Ok(());
            }
            self.mended(What::BlockBitmap, Place::Group(nr), "it is no longer empty: the bitmap is written");
            desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        }
        let bitmap = padded(found, clusters, geometry.block_size.len());
        if self.block(desc.block_bitmap)? != bitmap
            || desc.verify_block_bitmap(&bitmap, nr, &self.sb).is_err()
        {
            self.mended(What::BlockBitmap, Place::Group(nr), "written as blocks are in use");
            self.put_block(desc.block_bitmap, &bitmap)?;
            desc.seal_block_bitmap(&bitmap, &self.sb);
        }
        Ok(())
    }

    fn write_inode_bitmap(&mut self, nr: GroupNr, desc: &mut GroupDesc) -> Result<(), Error> {
        let geometry = self.geometry().clone();
        let per_group = geometry.inodes_per_group;
        let first = geometry.inode_at(nr, 0).get();
        let mut found = vec![0u8; usize_of(per_group.div_ceil(8))];
        let (mut directories, mut last) = (0, None);
        let mut next = first;
        while let Some((number, info)) = self.inodes.first_from(next)? {
            let index = number - first;
            if index >= per_group {
                break;
            }
            directories += u32::from(info.is_directory());
            found[usize_of(index / 8)] |= 1 << (index % 8);
            last = Some(index);
            let Some(after) = number.checked_add(1) else { break };
            next = after;
        }
        let reserved = self.sb.first_inode().get() - 1;
        let tasks = task::numbers(&self.sb);
        for number in (1..=reserved).chain(tasks) {
            let Some(index) = number.checked_sub(first).filter(|index| *index < per_group) else { continue };
            found[usize_of(index / 8)] |= 1 << (index % 8);
            last = last.max(Some(index));
        }
        let free = per_group - count_ones(&found, per_group);
        if (desc.free_inodes, desc.used_dirs) != (free, directories) {
            let text = format!("{free} inodes are free, {directories} are directories");
            self.mended(What::Counts, Place::Group(nr), text);
            (desc.free_inodes, desc.used_dirs) = (free, directories);
        }
        let used = last.map_or(0, |index| index + 1);
        if self.group_flag(desc, GroupFlags::INODE_UNINIT) {
            if used == 0 {
                return Ok(());
            }
            desc.flags.remove(GroupFlags::INODE_UNINIT);
        }
        desc.itable_unused = desc.itable_unused.min(per_group - used);
        let bitmap = padded(found, per_group, geometry.block_size.len());
        if self.block(desc.inode_bitmap)? != bitmap
            || desc.verify_inode_bitmap(&bitmap, nr, &self.sb).is_err()
        {
            self.mended(What::InodeBitmap, Place::Group(nr), "written as inodes are in use");
            self.put_block(desc.inode_bitmap, &bitmap)?;
            desc.seal_inode_bitmap(&bitmap, &self.sb);
        }
        Ok(())
    }
}

/// A bitmap with all bits set that stand for nothing.
fn padded(mut bits: Vec<u8>, count: u32, len: usize) -> Vec<u8> {
    bits.resize(len, 0xff);
    let whole = usize_of(count / 8);
    if !count.is_multiple_of(8)
        && let Some(byte) = bits.get_mut(whole)
    {
        *byte |= 0xff << (count % 8);
    }
    bits.iter_mut().skip(usize_of(count.div_ceil(8))).for_each(|byte| *byte = 0xff);
    bits
}
