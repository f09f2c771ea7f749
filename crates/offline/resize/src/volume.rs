//! The volume being resized: its superblock and groups in memory, and its changes in an overlay.
//!
//! Everything of the old volume that changes lies in an overlay until a [`crate::commit`]. Data that moves is
//! only noted ([`Copies`]). What the volume on disk does not know, because it lies beyond its end or in free
//! clusters, is written to the device at once: the metadata of new groups, a log on loan. So memory holds the
//! changes of old metadata only.
//!
//! Invariant: a block that [`Volume::take`] gives out is free in the volume on disk, and in the staged one.

use crate::bitmap::Bitmap;
use crate::copies::Copies;
use crate::error::{Error, Result};
use crate::metadata;
use crate::staging::Staging;
use hectare_device::Device;
use hectare_ext4::geometry::{Geometry, SUPERBLOCK_OFFSET};
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::superblock::{SIZE, SuperBlock};
use hectare_units::{BlockNr, Blocks, Bytes, GroupNr, u64_of, usize_of};
use rangemap::RangeSet;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// A volume and what is to be changed in it.
pub(crate) struct Volume {
    /// The device.
    pub(crate) disk: Arc<dyn Device>,
    /// The device with the changes.
    pub(crate) staged: Arc<Staging>,
    /// Whether anything may be written before the transactions are.
    pub(crate) is_live: bool,
    pub(crate) sb: SuperBlock,
    pub(crate) groups: Vec<GroupDesc>,
    /// Blocks of the volume on the device, as its superblock there says.
    pub(crate) disk_blocks: Blocks,
    /// Blocks that are free in the volume on disk and were taken.
    pub(crate) fresh: RangeSet<u64>,
    /// Data to be copied before the transactions are written.
    pub(crate) copies: Copies,
    blocks: BTreeMap<u32, Bitmap>,
    inodes: BTreeMap<u32, Bitmap>,
    /// Descriptor blocks that have changed.
    dirty: BTreeSet<u32>,
}

impl Volume {
    /// Reads superblock and descriptors.
    pub(crate) fn open(disk: Arc<dyn Device>, is_live: bool) -> Result<Self> {
        let mut bytes = [0; SIZE];
        if disk.len() < SUPERBLOCK_OFFSET + Bytes::of(SIZE) {
            return Err(Error::Refused("the device is too short to hold a volume".into()));
        }
        disk.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        let sb = SuperBlock::parse(&bytes, disk.len())?;
        let groups = read_groups(&*disk, &sb)?;
        let staged = Arc::new(Staging::new(Arc::clone(&disk), sb.geometry().block_size));
        Ok(Self {
            disk,
            staged,
            is_live,
            disk_blocks: sb.geometry().blocks_count,
            sb,
            groups,
            fresh: RangeSet::new(),
            copies: Copies::default(),
            blocks: BTreeMap::new(),
            inodes: BTreeMap::new(),
            dirty: BTreeSet::new(),
        })
    }

    /// Where things lie.
    pub(crate) fn geometry(&self) -> &Geometry {
        self.sb.geometry()
    }

    /// Bytes of a block.
    pub(crate) fn block_len(&self) -> usize {
        self.geometry().block_size.len()
    }

    /// Reads a block as it is to be.
    pub(crate) fn read(&self, nr: BlockNr) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.block_len()];
        self.staged.read_at(nr.offset(self.geometry().block_size), &mut bytes)?;
        Ok(bytes)
    }

    /// Changes a block; one beyond the end of the volume on disk is written at once.
    pub(crate) fn write(&self, nr: BlockNr, bytes: &[u8]) -> Result<()> {
        let at = nr.offset(self.geometry().block_size);
        let unknown = self.is_live && nr.get() >= self.disk_blocks.get();
        Ok(if unknown { self.disk.write_at(at, bytes) } else { self.staged.write_at(at, bytes) }?)
    }

    /// Makes blocks that the volume on disk does not use zeros.
    pub(crate) fn zero_unused(&self, first: BlockNr, blocks: Blocks) -> Result<()> {
        let size = self.geometry().block_size;
        if self.is_live {
            self.disk.zero(first.offset(size), blocks.bytes(size))?;
        }
        Ok(())
    }

    /// The descriptor of a group, to be changed.
    pub(crate) fn desc_mut(&mut self, group: GroupNr) -> &mut GroupDesc {
        self.dirty.insert(group.get() / self.geometry().descs_per_block());
        &mut self.groups[group.index()]
    }

    /// Has the descriptors of these groups written.
    pub(crate) fn touch(&mut self, groups: Range<u32>) {
        if !groups.is_empty() {
            let per = self.geometry().descs_per_block();
            self.dirty.extend(groups.start / per..=(groups.end - 1) / per);
        }
    }

    /// Takes the superblock of another shape, with the groups it has. Bitmaps that are loaded stay.
    pub(crate) fn take_shape(&mut self, sb: SuperBlock, groups: Vec<GroupDesc>) {
        let count = metadata::count(&groups);
        (self.sb, self.groups) = (sb, groups);
        self.blocks.retain(|nr, _| *nr < count);
        self.inodes.retain(|nr, _| *nr < count);
        let desc_blocks = self.geometry().desc_blocks();
        self.dirty.retain(|index| *index < desc_blocks);
    }

    /// The block bitmap of a group, which is read when it is first asked for.
    pub(crate) fn block_bitmap(&mut self, group: GroupNr) -> Result<&mut Bitmap> {
        if !self.blocks.contains_key(&group.get()) {
            let desc = &self.groups[group.index()];
            let lazy = self.sb.features().group_checksums();
            let bytes = if lazy && desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
                metadata::derived(self.geometry(), group, desc)
            } else {
                let bytes = self.read(desc.block_bitmap)?;
                desc.verify_block_bitmap(&bytes, group, &self.sb)?;
                bytes
            };
            self.blocks.insert(group.get(), Bitmap::new(bytes));
        }
        Ok(self.blocks.get_mut(&group.get()).expect("it was just loaded"))
    }

    /// The inode bitmap of a group, which is read when it is first asked for.
    pub(crate) fn inode_bitmap(&mut self, group: GroupNr) -> Result<&mut Bitmap> {
        if !self.inodes.contains_key(&group.get()) {
            let desc = &self.groups[group.index()];
            let lazy = self.sb.features().group_checksums();
            let bytes = if lazy && desc.flags.contains(GroupFlags::INODE_UNINIT) {
                vec![0; self.block_len()]
            } else {
                let bytes = self.read(desc.inode_bitmap)?;
                desc.verify_inode_bitmap(&bytes, group, &self.sb)?;
                bytes
            };
            self.inodes.insert(group.get(), Bitmap::new(bytes));
        }
        Ok(self.inodes.get_mut(&group.get()).expect("it was just loaded"))
    }

    /// The group of a cluster, and its bit there.
    fn bit(&self, cluster: u64) -> (GroupNr, u32) {
        let per = u64::from(self.geometry().clusters_per_group);
        let group = u32::try_from(cluster / per).expect("a cluster of the volume");
        (GroupNr::new(group), hectare_units::low32(cluster % per))
    }

    /// Whether a cluster is in use.
    pub(crate) fn is_used(&mut self, cluster: u64) -> Result<bool> {
        let (group, bit) = self.bit(cluster);
        Ok(self.block_bitmap(group)?.get(bit))
    }

    /// Marks clusters as used or free.
    pub(crate) fn mark(&mut self, clusters: Range<u64>, used: bool) -> Result<()> {
        let per = self.geometry().clusters_per_group;
        let mut at = clusters.start;
        while at < clusters.end {
            let (group, bit) = self.bit(at);
            let some = u64::from(per - bit).min(clusters.end - at);
            self.block_bitmap(group)?.put(bit..bit + hectare_units::low32(some), used);
            at += some;
        }
        Ok(())
    }

    /// The first run of free clusters in a range, at most `most` long. It does not reach over a group's end.
    pub(crate) fn free_run(&mut self, within: Range<u64>, most: u64) -> Result<Option<Range<u64>>> {
        let per = u64::from(self.geometry().clusters_per_group);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let mut at = within.start;
        while at < within.end {
            let (group, bit) = self.bit(at);
            let start = at - u64::from(bit);
            let end = hectare_units::low32((within.end - start).min(per));
            let may_have =
                self.groups[group.index()].free_clusters > 0 || self.blocks.contains_key(&group.get());
            if may_have && let Some(run) = self.block_bitmap(group)?.free_run(bit..end, most) {
                return Ok(Some(start + u64::from(run.start)..start + u64::from(run.end)));
            }
            at = start + per;
        }
        Ok(None)
    }

    /// Takes clusters, which are free in the volume on disk, too.
    pub(crate) fn take(&mut self, clusters: Range<u64>) -> Result<()> {
        let geometry = self.geometry();
        let block = |cluster| geometry.cluster_start(hectare_units::ClusterNr::new(cluster)).get();
        let blocks = block(clusters.start)..block(clusters.end);
        self.fresh.insert(blocks);
        self.mark(clusters, true)
    }

    /// Writes bitmaps, descriptors and the superblock with its counts into the overlay.
    pub(crate) fn stage(&mut self) -> Result<()> {
        self.stage_bitmaps()?;
        self.stage_descriptors()?;
        let shift = self.geometry().cluster_ratio_shift;
        let clusters: u64 = self.groups.iter().map(|desc| u64::from(desc.free_clusters)).sum();
        let inodes: u64 = self.groups.iter().map(|desc| u64::from(desc.free_inodes)).sum();
        let inodes = u32::try_from(inodes).expect("inode numbers have 32 bits");
        self.sb.set_free(Blocks::new(clusters << shift), inodes);
        Ok(self.staged.write_at(SUPERBLOCK_OFFSET, &self.sb.render(GroupNr::new(0)))?)
    }

    fn stage_bitmaps(&mut self) -> Result<()> {
        for (nr, mut bitmap) in std::mem::take(&mut self.blocks) {
            if bitmap.is_dirty {
                let group = GroupNr::new(nr);
                let clusters = self.geometry().clusters_in(group);
                let free = clusters - bitmap.count(clusters);
                let sb = self.sb.clone();
                let desc = self.desc_mut(group);
                desc.free_clusters = free;
                desc.flags -= GroupFlags::BLOCK_UNINIT;
                desc.seal_block_bitmap(bitmap.padded(clusters), &sb);
                let at = desc.block_bitmap;
                self.write(at, bitmap.padded(clusters))?;
                bitmap.is_dirty = false;
            }
            self.blocks.insert(nr, bitmap);
        }
        for (nr, mut bitmap) in std::mem::take(&mut self.inodes) {
            if bitmap.is_dirty {
                let (group, sb) = (GroupNr::new(nr), self.sb.clone());
                let inodes = self.geometry().inodes_per_group;
                let free = inodes - bitmap.count(inodes);
                let desc = self.desc_mut(group);
                desc.free_inodes = free;
                desc.flags -= GroupFlags::INODE_UNINIT;
                desc.seal_inode_bitmap(bitmap.padded(inodes), &sb);
                let at = desc.inode_bitmap;
                self.write(at, bitmap.padded(inodes))?;
                bitmap.is_dirty = false;
            }
            self.inodes.insert(nr, bitmap);
        }
        Ok(())
    }

    fn stage_descriptors(&mut self) -> Result<()> {
        for index in std::mem::take(&mut self.dirty) {
            let bytes = self.desc_block(index);
            self.write(self.geometry().desc_block(index), &bytes)?;
        }
        Ok(())
    }

    /// A block of descriptors as it is to be written. Fields that this program does not know are zero in
    /// every volume that it takes.
    pub(crate) fn desc_block(&self, index: u32) -> Vec<u8> {
        let geometry = self.geometry();
        let (per, len) = (geometry.descs_per_block(), usize_of(geometry.desc_size));
        let mut bytes = vec![0; self.block_len()];
        let first = index * per;
        let slots = bytes.chunks_exact_mut(len).take(usize_of(per));
        for (nr, slot) in (first..metadata::count(&self.groups)).zip(slots) {
            self.groups[usize_of(nr)].render(slot, GroupNr::new(nr), &self.sb);
        }
        bytes
    }
}

/// All descriptors.
fn read_groups(device: &dyn Device, sb: &SuperBlock) -> Result<Vec<GroupDesc>> {
    let geometry = sb.geometry();
    let (per, len) = (geometry.descs_per_block(), usize_of(geometry.desc_size));
    let mut groups = Vec::new();
    hectare_units::memory::reserve(&mut groups, usize_of(geometry.groups()))?;
    let mut bytes = vec![0; geometry.block_size.len()];
    for index in 0..geometry.desc_blocks() {
        device.read_at(geometry.desc_block(index).offset(geometry.block_size), &mut bytes)?;
        let left = usize_of(geometry.groups() - index * per);
        for (slot, nr) in bytes.chunks_exact(len).take(left.min(usize_of(per))).zip(index * per..) {
            groups.push(GroupDesc::parse(slot, GroupNr::new(nr), sb)?);
        }
    }
    debug_assert_eq!(u64_of(groups.len()), u64::from(geometry.groups()));
    Ok(groups)
}
