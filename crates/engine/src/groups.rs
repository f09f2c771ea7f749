//! Group descriptors and inode bitmaps in use.
//!
//! Descriptors are loaded a block at a time on first touch and kept typed; inode bitmaps a group at a time.
//! Both are changed under their own small locks inside transactions and rendered once per commit
//! ([`Groups::render`]). The block bitmaps belong to the allocator, which loads them through [`Source`].
//!
//! Invariants: what a descriptor says of free inodes and directories changes together with the bitmap, under
//! the bitmap's lock (bitmap before descriptor). A broken descriptor is an error for whoever needs that
//! group, not for the volume.

use crate::error::{Error, Result};
use hectare_alloc::GroupSource;
use hectare_device::Device;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockNr, Bytes, GroupNr, InodeNr, usize_of};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// One block of descriptors.
struct DescBlock {
    bytes: Vec<u8>,
    descs: Vec<std::result::Result<GroupDesc, Corrupt>>,
    dirty: bool,
}

/// An inode bitmap in memory, bit set = in use.
struct InodeBitmap {
    bytes: Vec<u8>,
    dirty: bool,
}

/// A rendered block and where it goes.
pub(crate) type Rendered = (BlockNr, Arc<[u8]>);

/// The descriptors and inode bitmaps of a volume.
pub(crate) struct Groups {
    device: Arc<dyn Device>,
    /// As read when the volume was opened: only its geometry, seed and features count here, and those don't
    /// change.
    sb: Arc<SuperBlock>,
    desc_blocks: Vec<OnceLock<Mutex<DescBlock>>>,
    bitmaps: Mutex<HashMap<GroupNr, Arc<Mutex<InodeBitmap>>>>,
}

impl Groups {
    pub(crate) fn new(device: Arc<dyn Device>, sb: Arc<SuperBlock>) -> Self {
        let blocks = usize_of(sb.geometry().desc_blocks());
        Self {
            device,
            sb,
            desc_blocks: std::iter::repeat_with(OnceLock::new).take(blocks).collect(),
            bitmaps: Mutex::default(),
        }
    }

    /// The block of descriptors that holds a group's, and the group's index in it.
    fn desc_block(&self, group: GroupNr) -> Result<(&Mutex<DescBlock>, usize)> {
        let per = self.sb.geometry().descs_per_block();
        let index = group.get() / per;
        let cell = &self.desc_blocks[usize_of(index)];
        if cell.get().is_none() {
            let loaded = self.load_desc_block(index)?;
            // Another thread may have been faster; its copy, read from the same bytes, counts.
            let _ = cell.set(Mutex::new(loaded));
        }
        let block = cell.get().expect("it was just set");
        Ok((block, usize_of(group.get() % per)))
    }

    fn load_desc_block(&self, index: u32) -> Result<DescBlock> {
        let sb = &*self.sb;
        let geometry = sb.geometry();
        let mut bytes = vec![0; geometry.block_size.len()];
        self.device.read_at(geometry.desc_block(index).offset(geometry.block_size), &mut bytes)?;
        let first = index * geometry.descs_per_block();
        let count = geometry.descs_per_block().min(geometry.groups() - first);
        let descs = (0..count)
            .map(|i| GroupDesc::parse(&bytes[desc_range(i, geometry.desc_size)], GroupNr::new(first + i), sb))
            .collect();
        Ok(DescBlock { bytes, descs, dirty: false })
    }

    /// A copy of a group's descriptor.
    pub(crate) fn desc(&self, group: GroupNr) -> Result<GroupDesc> {
        let (block, index) = self.desc_block(group)?;
        let block = block.lock();
        Ok(block.descs[index].clone()?)
    }

    /// Free inodes of all groups; those of a broken descriptor can't be had and don't count. The superblock's
    /// number is not used: it may be one that somebody else's crash left behind.
    pub(crate) fn free_inodes(&self) -> u32 {
        let free = |nr| self.desc(GroupNr::new(nr)).map_or(0, |desc| desc.free_inodes);
        (0..self.sb.geometry().groups()).map(free).fold(0, u32::saturating_add)
    }

    /// Changes a descriptor; rendered with the next commit.
    fn edit_desc<R>(&self, group: GroupNr, change: impl FnOnce(&mut GroupDesc) -> R) -> Result<R> {
        let (block, index) = self.desc_block(group)?;
        let mut block = block.lock();
        let result = match &mut block.descs[index] {
            Ok(desc) => change(desc),
            Err(corrupt) => return Err(corrupt.clone().into()),
        };
        block.dirty = true;
        Ok(result)
    }

    fn bitmap(&self, group: GroupNr) -> Result<Arc<Mutex<InodeBitmap>>> {
        if let Some(bitmap) = self.bitmaps.lock().get(&group) {
            return Ok(Arc::clone(bitmap));
        }
        let loaded = Arc::new(Mutex::new(self.load_bitmap(group)?));
        Ok(Arc::clone(self.bitmaps.lock().entry(group).or_insert(loaded)))
    }

    fn load_bitmap(&self, group: GroupNr) -> Result<InodeBitmap> {
        let desc = self.desc(group)?;
        let sb = &*self.sb;
        let geometry = sb.geometry();
        let mut bytes = vec![0; geometry.block_size.len()];
        if desc.flags.contains(GroupFlags::INODE_UNINIT) && sb.features().group_checksums() {
            // Never written: all free, and the bits beyond the last inode are set, as in every inode bitmap.
            bytes[geometry.inode_bitmap_bytes()..].fill(0xff);
        } else {
            self.device.read_at(desc.inode_bitmap.offset(geometry.block_size), &mut bytes)?;
            desc.verify_inode_bitmap(&bytes, group, sb)?;
        }
        Ok(InodeBitmap { bytes, dirty: false })
    }

    /// The group and index of an inode number.
    pub(crate) fn slot(&self, nr: InodeNr) -> Result<(GroupNr, u32)> {
        self.sb.geometry().inode_slot(nr).ok_or_else(|| {
            Corrupt::new("an inode number", Place::Inode(nr), "it is beyond the last inode of the volume")
                .into()
        })
    }

    /// Takes the first free inode of a group, if there is one.
    pub(crate) fn take_inode(&self, group: GroupNr, directory: bool) -> Result<Option<InodeNr>> {
        if self.desc(group)?.free_inodes == 0 {
            return Ok(None);
        }
        let (per_group, first_free) = {
            let reserved = if group.get() == 0 { self.sb.first_inode().get() - 1 } else { 0 };
            (self.sb.geometry().inodes_per_group, reserved)
        };
        let bitmap = self.bitmap(group)?;
        let mut bitmap = bitmap.lock();
        let Some(index) = first_zero(&bitmap.bytes, first_free, per_group) else { return Ok(None) };
        self.edit_desc(group, |desc| {
            desc.free_inodes = desc.free_inodes.saturating_sub(1);
            desc.used_dirs = desc.used_dirs.saturating_add(u32::from(directory));
            desc.itable_unused = desc.itable_unused.min(per_group - index - 1);
            desc.flags.remove(GroupFlags::INODE_UNINIT);
        })?;
        bitmap.bytes[usize_of(index / 8)] |= 1 << (index % 8);
        bitmap.dirty = true;
        Ok(Some(self.sb.geometry().inode_at(group, index)))
    }

    /// Gives an inode back.
    pub(crate) fn free_inode(&self, nr: InodeNr, directory: bool) -> Result<()> {
        let (group, index) = self.slot(nr)?;
        let bitmap = self.bitmap(group)?;
        let mut bitmap = bitmap.lock();
        let (byte, bit) = (usize_of(index / 8), 1 << (index % 8));
        if bitmap.bytes[byte] & bit == 0 {
            return Err(Corrupt::new(
                "the inode bitmap",
                Place::Group(group),
                format!("inode {nr} is freed twice"),
            )
            .into());
        }
        self.edit_desc(group, |desc| {
            desc.free_inodes = desc.free_inodes.saturating_add(1);
            desc.used_dirs = desc.used_dirs.saturating_sub(u32::from(directory));
        })?;
        bitmap.bytes[byte] &= !bit;
        bitmap.dirty = true;
        Ok(())
    }

    /// Whether a slot lies in a part of the inode table that was never written, so that its block holds
    /// anything.
    pub(crate) fn slot_never_written(&self, group: GroupNr, index: u32) -> Result<bool> {
        let desc = self.desc(group)?;
        let sb = &*self.sb;
        if !sb.features().group_checksums() || desc.flags.contains(GroupFlags::INODE_ZEROED) {
            return Ok(false);
        }
        // Whole blocks only: a block that holds one used slot was read and written whole.
        let used = sb.geometry().inodes_per_group - desc.itable_unused.min(sb.geometry().inodes_per_group);
        let first_of_block = index - index % sb.geometry().inodes_per_block();
        Ok(desc.flags.contains(GroupFlags::INODE_UNINIT) || first_of_block >= used)
    }

    /// Takes over a block bitmap rendered by the allocator; the bytes to write to its place.
    pub(crate) fn seal_block_bitmap(&self, group: GroupNr, words: &[u64], free: u32) -> Result<Rendered> {
        let sb = &*self.sb;
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(sb.geometry().block_size.len(), 0xff);
        let place = self.edit_desc(group, |desc| {
            desc.free_clusters = free;
            desc.flags.remove(GroupFlags::BLOCK_UNINIT);
            desc.seal_block_bitmap(&bytes, sb);
            desc.block_bitmap
        })?;
        Ok((place, bytes.into()))
    }

    /// Renders every dirty inode bitmap, then every dirty block of descriptors. Called with no handle open,
    /// after the block bitmaps were sealed.
    pub(crate) fn render(&self) -> Result<Vec<Rendered>> {
        let mut rendered = Vec::new();
        let sb = &*self.sb;
        for (group, bitmap) in self.bitmaps.lock().iter() {
            let mut bitmap = bitmap.lock();
            if std::mem::take(&mut bitmap.dirty) {
                let place = self.edit_desc(*group, |desc| {
                    desc.seal_inode_bitmap(&bitmap.bytes, sb);
                    desc.inode_bitmap
                })?;
                rendered.push((place, bitmap.bytes.as_slice().into()));
            }
        }
        let geometry = sb.geometry();
        for (index, cell) in (0u32..).zip(&self.desc_blocks) {
            let Some(block) = cell.get() else { continue };
            let mut block = block.lock();
            if !std::mem::take(&mut block.dirty) {
                continue;
            }
            let DescBlock { bytes, descs, .. } = &mut *block;
            let first = index * geometry.descs_per_block();
            for (i, desc) in (0u32..).zip(descs) {
                if let Ok(desc) = desc {
                    desc.render(&mut bytes[desc_range(i, geometry.desc_size)], GroupNr::new(first + i), sb);
                }
            }
            rendered.push((geometry.desc_block(index), bytes.as_slice().into()));
        }
        Ok(rendered)
    }
}

fn desc_range(index: u32, desc_size: u32) -> std::ops::Range<usize> {
    let at = usize_of(index * desc_size);
    at..at + usize_of(desc_size)
}

/// The first zero bit from `from` on and before `end`.
fn first_zero(bytes: &[u8], from: u32, end: u32) -> Option<u32> {
    let mut bit = from;
    while bit < end {
        let byte = bytes[usize_of(bit / 8)] | ((1u8 << (bit % 8)) - 1);
        if byte != 0xff {
            let found = bit - bit % 8 + byte.trailing_ones();
            return (found < end).then_some(found);
        }
        bit += 8 - bit % 8;
    }
    None
}

/// How the allocator sees the volume's groups.
pub(crate) struct Source {
    groups: Arc<Groups>,
}

impl Source {
    pub(crate) fn new(groups: Arc<Groups>) -> Self {
        Self { groups }
    }
}

impl GroupSource for Source {
    type Error = Error;

    fn load(&self, group: GroupNr) -> Result<Vec<u64>> {
        let desc = self.groups.desc(group)?;
        let sb = &*self.groups.sb;
        let size = sb.geometry().block_size;
        let mut bytes = vec![0; size.len()];
        if desc.flags.contains(GroupFlags::BLOCK_UNINIT) && sb.features().group_checksums() {
            mark_own_metadata(&mut bytes, &desc, group, sb);
        } else {
            self.groups.device.read_at(desc.block_bitmap.offset(size), &mut bytes)?;
            desc.verify_block_bitmap(&bytes, group, sb)?;
        }
        let words = sb.geometry().clusters_per_group.div_ceil(64);
        Ok(bytes
            .chunks_exact(8)
            .take(usize_of(words))
            .map(|chunk| u64::from_le_bytes(chunk.try_into().expect("chunks of 8")))
            .collect())
    }

    fn free_hint(&self, group: GroupNr) -> u32 {
        // A broken descriptor has nothing to give; whoever needs the group hears why from `load`.
        self.groups.desc(group).map_or(0, |desc| desc.free_clusters)
    }
}

/// What is in use in a group whose bitmap was never written: its base metadata, and those of its own bitmaps
/// and inode table that lie in it.
fn mark_own_metadata(bitmap: &mut [u8], desc: &GroupDesc, group: GroupNr, sb: &SuperBlock) {
    let geometry = sb.geometry();
    let first = geometry.first_block(group);
    let mut mark = |start: BlockNr, len: u32| {
        for block in start.get()..start.get() + u64::from(len) {
            if geometry.group_of(BlockNr::new(block)) == Some(group) {
                let cluster = hectare_units::index_of((block - first.get()) >> geometry.cluster_ratio_shift);
                bitmap[cluster / 8] |= 1 << (cluster % 8);
            }
        }
    };
    mark(first, geometry.base_meta_blocks(group));
    mark(desc.block_bitmap, 1);
    mark(desc.inode_bitmap, 1);
    mark(desc.inode_table, geometry.itable_blocks());
    for cluster in geometry.clusters_in(group)..geometry.clusters_per_group {
        bitmap[usize_of(cluster / 8)] |= 1 << (cluster % 8);
    }
}

/// Bytes of a superblock's place on the device.
pub(crate) const SUPERBLOCK_AT: Bytes = hectare_ext4::geometry::SUPERBLOCK_OFFSET;

#[cfg(test)]
mod tests {
    use super::first_zero;

    #[test]
    fn the_first_zero_bit_is_found_within_its_bounds() {
        assert_eq!(first_zero(&[0xff, 0xfb], 0, 16), Some(10));
        assert_eq!(first_zero(&[0xff, 0xfb], 11, 16), None);
        assert_eq!(first_zero(&[0x00], 3, 8), Some(3));
        assert_eq!(first_zero(&[0xff, 0x00], 0, 8), None);
    }
}
