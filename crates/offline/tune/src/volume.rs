//! The volume on the overlay: its superblock as it becomes, groups, bitmaps, slots of inodes, free space.
//!
//! Invariant: bitmaps, descriptors and inodes on the overlay carry the checksums of the superblock at hand;
//! only `reseal` changes from one to another. Descriptors are kept in memory and written by
//! [`Volume::finish`], with all copies; bitmaps and inodes at once.
//!
//! Hazard: a group whose bitmap was never written has one that follows from where the metadata lies; it is
//! made from that, and the group then counts as initialised.

use crate::error::{Error, Result};
use hectare_device::{Device, OverlayDevice};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::geometry::{Geometry, SUPERBLOCK_OFFSET};
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::inode::{Inode, Kind};
use hectare_ext4::raw;
use hectare_ext4::superblock::{SIZE, SuperBlock};
use hectare_ext4::time::Timestamp;
use hectare_mkfs::set_bits;
use hectare_units::{BlockNr, Blocks, Bytes, GroupNr, InodeNr, low32, usize_of};
use std::ops::Range;
use std::sync::Arc;

/// The copy in memory on which everything is done.
pub(crate) type Overlay = OverlayDevice<Arc<dyn Device>>;

/// What is called with each inode: its number, its slot, and whether it is in use.
pub(crate) type Visit<'v, 'a> = dyn FnMut(&mut Volume<'a>, InodeNr, &mut [u8], bool) -> Result<()> + 'v;

/// The superblock on a device.
pub(crate) fn superblock(device: &dyn Device) -> Result<SuperBlock> {
    if device.len() < SUPERBLOCK_OFFSET + Bytes::of(SIZE) {
        return Err(Corrupt::new("the volume", Place::Volume, "it is too short for a superblock").into());
    }
    let mut bytes = [0; SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(SuperBlock::parse(&bytes, device.len())?)
}

/// A volume being changed.
pub(crate) struct Volume<'a> {
    device: &'a Overlay,
    sb: SuperBlock,
    /// Empty until something needs them.
    groups: Vec<GroupDesc>,
    /// Where bitmaps and inode tables lie, in ascending order.
    metadata: Vec<Range<u64>>,
    /// Blocks that are not to be taken, though they may be free.
    barred: Vec<Range<u64>>,
}

impl<'a> Volume<'a> {
    pub(crate) fn new(device: &'a Overlay, sb: SuperBlock) -> Self {
        Self { device, sb, groups: Vec::new(), metadata: Vec::new(), barred: Vec::new() }
    }

    /// Has [`Volume::take`] leave these blocks alone.
    pub(crate) fn bar(&mut self, blocks: Vec<Range<u64>>) {
        self.barred.extend(blocks);
    }

    /// Whether one of these blocks may not be taken.
    fn is_barred(&self, blocks: &Range<u64>) -> bool {
        self.barred.iter().any(|barred| barred.start < blocks.end && blocks.start < barred.end)
    }

    pub(crate) fn sb(&self) -> &SuperBlock {
        &self.sb
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.sb.geometry()
    }

    /// Changes the superblock, in a way that leaves all checksums right.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut raw::SuperBlock)) -> Result<()> {
        let mut raw = *self.sb.raw();
        change(&mut raw);
        self.sb = SuperBlock::from_raw(raw)?;
        Ok(())
    }

    /// Takes over a superblock to which everything on the overlay was adapted.
    pub(crate) fn set_superblock(&mut self, sb: SuperBlock) {
        self.sb = sb;
    }

    pub(crate) fn read(&self, block: BlockNr) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.geometry().block_size.len()];
        self.device.read_at(block.offset(self.geometry().block_size), &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn write(&self, block: BlockNr, bytes: &[u8]) -> Result<()> {
        Ok(self.device.write_at(block.offset(self.geometry().block_size), bytes)?)
    }

    /// Makes blocks read as zeros.
    pub(crate) fn zero(&self, blocks: Range<u64>) -> Result<()> {
        let size = self.geometry().block_size;
        let len = Blocks::new(blocks.end - blocks.start).bytes(size);
        Ok(self.device.zero(BlockNr::new(blocks.start).offset(size), len)?)
    }

    /// The descriptors, read when they are first needed.
    pub(crate) fn groups(&mut self) -> Result<&mut Vec<GroupDesc>> {
        if self.groups.is_empty() {
            self.load_groups()?;
        }
        Ok(&mut self.groups)
    }

    fn load_groups(&mut self) -> Result<()> {
        let geometry = self.geometry().clone();
        let desc_len = usize_of(geometry.desc_size);
        for index in 0..geometry.desc_blocks() {
            let block = self.read(geometry.desc_block(index))?;
            let first = index * geometry.descs_per_block();
            for (nr, slot) in (first..geometry.groups()).zip(block.chunks_exact(desc_len)) {
                self.groups.push(GroupDesc::parse(slot, GroupNr::new(nr), &self.sb)?);
            }
        }
        let table = u64::from(geometry.itable_blocks());
        for desc in &self.groups {
            for (start, len) in [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, table)] {
                self.metadata.push(start.get()..start.get() + len);
            }
        }
        self.metadata.sort_unstable_by_key(|run| run.start);
        Ok(())
    }

    pub(crate) fn group(&mut self, nr: GroupNr) -> Result<&mut GroupDesc> {
        let missing = || Error::refused(format!("there is no group {nr}"));
        self.groups()?.get_mut(nr.index()).ok_or_else(missing)
    }

    /// The first group of which a bitmap or the inode table lies elsewhere.
    pub(crate) fn scattered_group(&mut self) -> Result<Option<GroupNr>> {
        let geometry = self.geometry().clone();
        let table = u64::from(geometry.itable_blocks());
        for (group, desc) in (0..).map(GroupNr::new).zip(self.groups()?.iter()) {
            let within = |at: BlockNr, len: u64| {
                let last = BlockNr::new(at.get() + len - 1);
                [at, last].iter().all(|nr| geometry.group_of(*nr) == Some(group))
            };
            if !(within(desc.block_bitmap, 1)
                && within(desc.inode_bitmap, 1)
                && within(desc.inode_table, table))
            {
                return Ok(Some(group));
            }
        }
        Ok(None)
    }

    /// The numbers of all groups.
    pub(crate) fn all_groups(&self) -> impl Iterator<Item = GroupNr> + use<> {
        (0..self.geometry().groups()).map(GroupNr::new)
    }

    /// A group's block bitmap, made where it was never written.
    pub(crate) fn block_bitmap(&mut self, nr: GroupNr) -> Result<Vec<u8>> {
        let desc = self.group(nr)?.clone();
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            return self.read(desc.block_bitmap);
        }
        let geometry = self.geometry();
        let mut bitmap = vec![0; geometry.block_size.len()];
        let first = geometry.first_block(nr).get();
        let end = first + u64::from(geometry.blocks_in(nr));
        let base = first..first + u64::from(geometry.base_meta_blocks(nr));
        let from = self.metadata.partition_point(|run| run.end <= first);
        let own = self.metadata[from..].iter().take_while(|run| run.start < end).cloned();
        for run in std::iter::once(base).chain(own) {
            let (start, stop) = (run.start.max(first), run.end.min(end));
            if start < stop {
                let shift = geometry.cluster_ratio_shift;
                let (at, last) = ((start - first) >> shift, (stop - 1 - first) >> shift);
                set_bits(&mut bitmap, low32(at), low32(last - at + 1));
            }
        }
        pad(&mut bitmap, geometry.clusters_in(nr));
        Ok(bitmap)
    }

    /// Writes a group's block bitmap, and counts what is free in it.
    pub(crate) fn set_block_bitmap(&mut self, nr: GroupNr, bitmap: &[u8]) -> Result<()> {
        let (sb, clusters) = (self.sb.clone(), self.geometry().clusters_in(nr));
        let desc = self.group(nr)?;
        desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        desc.free_clusters = zeros(bitmap, clusters);
        desc.seal_block_bitmap(bitmap, &sb);
        let block = desc.block_bitmap;
        self.write(block, bitmap)
    }

    /// A group's inode bitmap, made where it was never written.
    pub(crate) fn inode_bitmap(&mut self, nr: GroupNr) -> Result<Vec<u8>> {
        let desc = self.group(nr)?.clone();
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return self.read(desc.inode_bitmap);
        }
        let mut bitmap = vec![0; self.geometry().block_size.len()];
        pad(&mut bitmap, self.geometry().inodes_per_group);
        Ok(bitmap)
    }

    /// Writes a group's inode bitmap, and counts what is free in it.
    pub(crate) fn set_inode_bitmap(&mut self, nr: GroupNr, bitmap: &[u8]) -> Result<()> {
        let (sb, inodes) = (self.sb.clone(), self.geometry().inodes_per_group);
        let desc = self.group(nr)?;
        desc.flags.remove(GroupFlags::INODE_UNINIT);
        desc.free_inodes = zeros(bitmap, inodes);
        desc.seal_inode_bitmap(bitmap, &sb);
        let block = desc.inode_bitmap;
        self.write(block, bitmap)
    }

    /// Free blocks, of whole clusters.
    pub(crate) fn free_blocks(&mut self) -> Result<u64> {
        let shift = self.geometry().cluster_ratio_shift;
        Ok(self.groups()?.iter().map(|desc| u64::from(desc.free_clusters)).sum::<u64>() << shift)
    }

    /// Takes free blocks, first fit from a block on: runs that begin with a cluster each; the last may end
    /// inside one.
    pub(crate) fn take(&mut self, blocks: u64, goal: BlockNr) -> Result<Vec<Range<u64>>> {
        let free = self.free_blocks()?;
        if free < blocks {
            return Err(Error::refused(format!("{blocks} blocks are needed, and {free} are free")));
        }
        let (mut runs, mut left) = (Vec::new(), blocks);
        let groups = self.geometry().groups();
        let (start, ahead) = self.bit(goal);
        let parts = (start + 1..groups).chain(0..start).map(|nr| (nr, 0..u32::MAX));
        for (nr, bits) in [(start, ahead..u32::MAX)].into_iter().chain(parts).chain([(start, 0..ahead)]) {
            if left == 0 {
                break;
            }
            let nr = GroupNr::new(nr);
            if self.group(nr)?.free_clusters > 0 {
                self.take_in(nr, bits, &mut left, &mut runs)?;
            }
        }
        if left > 0 && !self.barred.is_empty() {
            return Err(Error::refused(format!("{blocks} blocks are needed beside what is to be metadata")));
        }
        if left > 0 {
            return Err(Error::refused("the counts of free blocks are wrong: run e2fsck -f first"));
        }
        Ok(runs)
    }

    /// The group and the bit there of a block's cluster; of a block in no group, the first.
    fn bit(&self, nr: BlockNr) -> (u32, u32) {
        let geometry = self.geometry();
        let Some(group) = geometry.group_of(nr) else { return (0, 0) };
        let within = nr.get() - geometry.first_block(group).get();
        (group.get(), low32(within >> geometry.cluster_ratio_shift))
    }

    fn take_in(
        &mut self,
        nr: GroupNr,
        bits: Range<u32>,
        left: &mut u64,
        runs: &mut Vec<Range<u64>>,
    ) -> Result<()> {
        let mut bitmap = self.block_bitmap(nr)?;
        let geometry = self.geometry();
        let (first, ratio) = (geometry.first_block(nr).get(), u64::from(geometry.cluster_blocks()));
        let end = first + u64::from(geometry.blocks_in(nr));
        for cluster in bits.start..bits.end.min(geometry.clusters_in(nr)) {
            if *left == 0 {
                break;
            }
            let start = first + u64::from(cluster) * ratio;
            if is_set(&bitmap, cluster) || start + ratio > end || self.is_barred(&(start..start + ratio)) {
                continue;
            }
            set_bits(&mut bitmap, cluster, 1);
            let stop = start + ratio.min(*left);
            *left -= stop - start;
            match runs.last_mut() {
                Some(run) if run.end == start => run.end = stop,
                _ => runs.push(start..stop),
            }
        }
        self.set_block_bitmap(nr, &bitmap)
    }

    /// The first run of free clusters in a group that has room for so many blocks, as a bit of its bitmap.
    pub(crate) fn find_run(&mut self, nr: GroupNr, blocks: u32) -> Result<Option<u32>> {
        let ratio = self.geometry().cluster_blocks();
        let need = blocks.div_ceil(ratio);
        if self.group(nr)?.free_clusters < need {
            return Ok(None);
        }
        let bitmap = self.block_bitmap(nr)?;
        // The last cluster may be cut short by the end of the volume.
        let whole = self.geometry().blocks_in(nr) / ratio;
        let mut start = 0;
        for cluster in 0..whole {
            if is_set(&bitmap, cluster) {
                start = cluster + 1;
            } else if cluster + 1 - start == need {
                return Ok(Some(start));
            }
        }
        Ok(None)
    }

    /// Takes the first run of free clusters in a group that has room for so many blocks.
    pub(crate) fn take_run(&mut self, nr: GroupNr, blocks: u32) -> Result<Option<BlockNr>> {
        let Some(start) = self.find_run(nr, blocks)? else { return Ok(None) };
        let mut bitmap = self.block_bitmap(nr)?;
        let (geometry, ratio) = (self.geometry(), self.geometry().cluster_blocks());
        let at = geometry.first_block(nr).get() + u64::from(start) * u64::from(ratio);
        set_bits(&mut bitmap, start, blocks.div_ceil(ratio));
        self.set_block_bitmap(nr, &bitmap)?;
        Ok(Some(BlockNr::new(at)))
    }

    /// Changes the count of clusters that no file can have, where it is known.
    pub(crate) fn shift_overhead(&mut self, change: impl FnOnce(u64) -> u64) -> Result<()> {
        let known = u64::from(self.sb.raw().s_overhead_clusters.get());
        if known == 0 {
            return Ok(());
        }
        self.edit(|raw| raw.s_overhead_clusters = u32::try_from(change(known)).unwrap_or(0).into())
    }

    /// Gives blocks back, with the whole clusters that they lie in.
    pub(crate) fn give_back(&mut self, runs: &[Range<u64>]) -> Result<()> {
        for run in runs {
            let mut at = run.start;
            while at < run.end {
                let outside = || Error::refused(format!("block {at} can't belong to a file"));
                let nr = self.geometry().group_of(BlockNr::new(at)).ok_or_else(outside)?;
                let first = self.geometry().first_block(nr).get();
                let stop = run.end.min(first + u64::from(self.geometry().blocks_in(nr)));
                let shift = self.geometry().cluster_ratio_shift;
                let mut bitmap = self.block_bitmap(nr)?;
                for cluster in (at - first) >> shift..=(stop - 1 - first) >> shift {
                    clear(&mut bitmap, low32(cluster));
                }
                self.set_block_bitmap(nr, &bitmap)?;
                at = stop;
            }
        }
        Ok(())
    }

    /// Where the slot of an inode lies.
    fn slot_place(&mut self, nr: InodeNr) -> Result<Bytes> {
        let missing = || Error::refused(format!("there is no inode {nr}"));
        let (group, index) = self.geometry().inode_slot(nr).ok_or_else(missing)?;
        let table = self.group(group)?.inode_table;
        let geometry = self.geometry();
        let within = u64::from(index) * u64::from(geometry.inode_size);
        Ok(table.offset(geometry.block_size) + Bytes::new(within))
    }

    pub(crate) fn inode(&mut self, nr: InodeNr) -> Result<Inode> {
        let mut slot = vec![0; usize_of(self.geometry().inode_size)];
        let place = self.slot_place(nr)?;
        self.device.read_at(place, &mut slot)?;
        Ok(Inode::parse(&slot, nr, &self.sb)?)
    }

    /// The first slots of a group's table.
    pub(crate) fn slots(&mut self, group: GroupNr, count: u32) -> Result<Vec<u8>> {
        let table = self.group(group)?.inode_table;
        let geometry = self.geometry();
        let mut slots = vec![0; usize_of(geometry.inode_size) * usize_of(count)];
        self.device.read_at(table.offset(geometry.block_size), &mut slots)?;
        Ok(slots)
    }

    /// What kind of thing an inode is, from its mode alone.
    pub(crate) fn kind(&mut self, nr: InodeNr) -> Result<Option<Kind>> {
        let mut mode = [0; 2];
        let place = self.slot_place(nr)?;
        self.device.read_at(place, &mut mode)?;
        Ok(Kind::of_mode(u16::from_le_bytes(mode)))
    }

    pub(crate) fn set_inode(&mut self, nr: InodeNr, inode: &Inode) -> Result<()> {
        let mut slot = vec![0; usize_of(self.geometry().inode_size)];
        inode.render(&mut slot, nr, &self.sb);
        let place = self.slot_place(nr)?;
        Ok(self.device.write_at(place, &slot)?)
    }

    /// Makes an inode one that was never used.
    pub(crate) fn clear_inode(&mut self, nr: InodeNr) -> Result<()> {
        let slot = vec![0; usize_of(self.geometry().inode_size)];
        let blank = Inode::parse(&slot, nr, &self.sb)?;
        self.set_inode(nr, &blank)
    }

    /// Takes the first free inode that is not reserved.
    pub(crate) fn take_inode(&mut self) -> Result<InodeNr> {
        let per_group = self.geometry().inodes_per_group;
        for group in self.all_groups() {
            let mut bitmap = self.inode_bitmap(group)?;
            let free = |index: &u32| {
                self.geometry().inode_at(group, *index) >= self.sb.first_inode() && !is_set(&bitmap, *index)
            };
            let Some(index) = (0..per_group).find(free) else { continue };
            set_bits(&mut bitmap, index, 1);
            self.set_inode_bitmap(group, &bitmap)?;
            let desc = self.group(group)?;
            desc.itable_unused = desc.itable_unused.min(per_group - index - 1);
            return Ok(self.geometry().inode_at(group, index));
        }
        Err(Error::refused("there is no free inode: remove a file first"))
    }

    /// Gives an inode back, unless its number is reserved.
    pub(crate) fn give_back_inode(&mut self, nr: InodeNr) -> Result<()> {
        self.clear_inode(nr)?;
        if nr < self.sb.first_inode() {
            return Ok(());
        }
        let missing = || Error::refused(format!("there is no inode {nr}"));
        let (group, index) = self.geometry().inode_slot(nr).ok_or_else(missing)?;
        let mut bitmap = self.inode_bitmap(group)?;
        clear(&mut bitmap, index);
        self.set_inode_bitmap(group, &bitmap)
    }

    /// Calls `visit` with every slot that was ever used and whether its inode is in use; what `visit` changes
    /// is written.
    pub(crate) fn each_inode(&mut self, visit: &mut Visit<'_, 'a>) -> Result<()> {
        let lazy = self.sb.features().group_checksums();
        for group in self.all_groups() {
            let desc = self.group(group)?.clone();
            let geometry = self.geometry();
            let unused = if lazy { desc.itable_unused } else { 0 };
            let count = geometry.inodes_per_group.saturating_sub(unused);
            if desc.flags.contains(GroupFlags::INODE_UNINIT) && lazy {
                continue;
            }
            let (len, start) = (usize_of(geometry.inode_size), desc.inode_table.offset(geometry.block_size));
            let bitmap = self.inode_bitmap(group)?;
            let mut table = vec![0; len * usize_of(count)];
            self.device.read_at(start, &mut table)?;
            for (index, bytes) in (0..count).zip(table.chunks_exact(len)) {
                if bytes.iter().all(|byte| *byte == 0) {
                    continue;
                }
                let nr = self.geometry().inode_at(group, index);
                let mut slot = bytes.to_vec();
                visit(self, nr, &mut slot, is_set(&bitmap, index))?;
                if slot != bytes {
                    self.device.write_at(start + Bytes::of(len * usize_of(index)), &slot)?;
                }
            }
        }
        Ok(())
    }

    /// Zeros what was never used of a group's inode table.
    pub(crate) fn zero_unused_inodes(&mut self, nr: GroupNr) -> Result<()> {
        let desc = self.group(nr)?.clone();
        let geometry = self.geometry();
        let all = geometry.inodes_per_group;
        let used = if desc.flags.contains(GroupFlags::INODE_UNINIT) { 0 } else { all - desc.itable_unused };
        let bytes = |inodes: u32| Bytes::new(u64::from(inodes) * u64::from(geometry.inode_size));
        let start = desc.inode_table.offset(geometry.block_size);
        Ok(self.device.zero(start + bytes(used), bytes(all - used))?)
    }

    /// Writes descriptors and superblocks, all copies; `now` is the time of the change.
    pub(crate) fn finish(mut self, now: Timestamp) -> Result<SuperBlock> {
        if !self.groups.is_empty() {
            let inodes = self.groups.iter().map(|desc| desc.free_inodes).sum();
            let blocks = Blocks::new(self.free_blocks()?);
            self.sb.set_free(blocks, inodes);
            self.write_groups()?;
        }
        let geometry = self.geometry().clone();
        // Backups say nothing of the last write: they are written for what they are needed for.
        for nr in self.all_groups().skip(1).filter(|nr| geometry.has_super(*nr)) {
            let place = geometry.super_block(nr).offset(geometry.block_size);
            self.device.write_at(place, &self.sb.render(nr))?;
        }
        self.sb.set_write_time(now);
        self.device.write_at(SUPERBLOCK_OFFSET, &self.sb.render(GroupNr::new(0)))?;
        Ok(self.sb)
    }

    fn write_groups(&self) -> Result<()> {
        let geometry = self.geometry();
        let (per, len) = (geometry.descs_per_block(), usize_of(geometry.desc_size));
        for index in 0..geometry.desc_blocks() {
            let mut block = self.read(geometry.desc_block(index))?;
            let first = index * per;
            let descs = self.groups.iter().skip(usize_of(first));
            for ((nr, desc), slot) in (first..).zip(descs).zip(block.chunks_exact_mut(len)) {
                desc.render(slot, GroupNr::new(nr), &self.sb);
            }
            for copy in geometry.desc_block_copies(index) {
                self.write(copy, &block)?;
            }
        }
        Ok(())
    }
}

/// Sets the bits from `used` to the end of the bitmap's block.
fn pad(bitmap: &mut [u8], used: u32) {
    let all = low32(hectare_units::u64_of(bitmap.len()) * 8);
    set_bits(bitmap, used, all - used);
}

pub(crate) fn is_set(bitmap: &[u8], bit: u32) -> bool {
    bitmap.get(usize_of(bit / 8)).is_none_or(|byte| byte >> (bit % 8) & 1 == 1)
}

fn clear(bitmap: &mut [u8], bit: u32) {
    if let Some(byte) = bitmap.get_mut(usize_of(bit / 8)) {
        *byte &= !(1 << (bit % 8));
    }
}

/// Clear bits among the first `len`.
fn zeros(bitmap: &[u8], len: u32) -> u32 {
    let whole: u32 = bitmap[..usize_of(len / 8)].iter().map(|byte| byte.count_zeros()).sum();
    let rest = (len / 8 * 8..len).filter(|bit| !is_set(bitmap, *bit)).count();
    whole + low32(hectare_units::u64_of(rest))
}
