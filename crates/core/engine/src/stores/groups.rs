//! The group descriptors and inode bitmaps in use.
//!
//! Descriptors are loaded a block at a time on first use and kept typed; inode bitmaps a group at a time.
//! Both are changed inside transactions under locks of their own group, so that threads in different groups
//! don't contend, and changes are put on a list, from which they are rendered once per commit
//! ([`Groups::render`]). [`inodes`] allocates and frees inodes; [`crate::space::ialloc`] decides where, from
//! the sums that [`flex`] keeps. How much is free in all is known without reading all groups ([`totals`]).
//! The block bitmaps belong to the allocator, which loads them through [`Source`].
//!
//! Invariants: a descriptor's counts of free inodes and directories change together with the bitmap, under
//! the bitmap's lock (bitmap before descriptor), and the sums of the flex group with the descriptor, under
//! the descriptor's. Whatever differs from the device is marked dirty and on the list. A broken descriptor
//! fails the operations that need its group, not the volume.

pub(crate) mod flex;
mod inodes;
mod source;
#[cfg(test)]
mod tests;
mod totals;
mod zones;

use crate::error::Result;
use crate::stores::fs_errors::Findings;
use flex::{FlexCounts, FlexTable, Recent, Sums};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::superblock::SuperBlock;
use hectare_journal::{LoggedBlock, MetadataView};
use hectare_units::{GroupNr, OnceTable, usize_of};
use inodes::InodeBitmap;
pub(crate) use inodes::Taken;
use parking_lot::Mutex;
pub(crate) use source::Source;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use totals::Free;
use zones::Zones;

/// One block of descriptors, and the groups it describes.
struct DescBlock {
    /// As read, or as last rendered.
    bytes: Mutex<Vec<u8>>,
    groups: Box<[Group]>,
    dirty: AtomicBool,
}

/// One group: its descriptor, and its inode bitmap once it is needed.
struct Group {
    desc: Mutex<std::result::Result<GroupDesc, Corrupt>>,
    /// Whether the descriptor differs from its bytes in the block. A commit usually changes one group of a
    /// block, and rendering all of its descriptors with their checksums was a quarter of a small commit.
    dirty: AtomicBool,
    inodes: OnceLock<Mutex<InodeBitmap>>,
}

/// A rendered block and its final location.
pub(crate) type Rendered = LoggedBlock;

/// The descriptors and inode bitmaps of a volume.
pub(crate) struct Groups {
    metadata: MetadataView,
    /// As read when the volume was opened: only its geometry, seed and features count here, and those don't
    /// change.
    sb: Arc<SuperBlock>,
    findings: Arc<Findings>,
    desc_blocks: OnceTable<DescBlock>,
    flex: FlexTable,
    zones: Zones,
    recent: Recent,
    /// Whether a broken descriptor is taken from the backups.
    with_backups: bool,
    /// Groups whose inode bitmaps are dirty.
    dirty_bitmaps: Mutex<Vec<GroupNr>>,
    /// Dirty blocks of descriptors.
    dirty_descs: Mutex<Vec<u32>>,
    /// The number of entries in both lists.
    dirty_count: AtomicU32,
}

impl Groups {
    /// Opens the groups of a volume without reading any, unless the free space has to be counted: `clean`
    /// says that its journal is not needed.
    pub(crate) fn open(
        metadata: MetadataView,
        sb: Arc<SuperBlock>,
        findings: Arc<Findings>,
        clean: bool,
    ) -> Self {
        let mut groups = Self {
            metadata,
            desc_blocks: OnceTable::new(sb.geometry().desc_blocks()),
            flex: FlexTable::new(sb.geometry()),
            zones: Zones::new(sb.geometry().groups().div_ceil(flex::flex_groups(sb.geometry()))),
            sb,
            findings,
            recent: Recent::default(),
            with_backups: false,
            dirty_bitmaps: Mutex::default(),
            dirty_descs: Mutex::default(),
            dirty_count: AtomicU32::new(0),
        };
        let said = Free::of_clean(&groups.sb).filter(|_| clean);
        let free = said.unwrap_or_else(|| groups.count_readable());
        groups.flex.set_totals(free);
        groups
    }

    /// Takes a broken descriptor from the backups, if `with_backups`: for reading a damaged volume.
    pub(crate) fn with_backups(self, with_backups: bool) -> Self {
        Self { with_backups, ..self }
    }

    /// The descriptor of a group in its block, or else in a backup, if those count.
    fn parse_desc(&self, slot: &[u8], group: GroupNr) -> std::result::Result<GroupDesc, Corrupt> {
        let parsed = GroupDesc::parse(slot, group, &self.sb);
        let read = |at, block: &mut [u8]| self.metadata.read_at(at, block).is_ok();
        let backup = || hectare_probe::backup_desc(&self.sb, group, read);
        parsed.or_else(|corrupt| self.with_backups.then(backup).flatten().ok_or(corrupt))
    }

    /// The block of descriptors with that index.
    fn desc_block(&self, index: u32) -> Result<&DescBlock> {
        if let Some(block) = self.desc_blocks.get(index) {
            return Ok(block);
        }
        let loaded = self.load_desc_block(index)?;
        // Another thread may have been faster; its copy, read from the same bytes, counts.
        Ok(self.desc_blocks.get_or_init(index, || {
            loaded.groups.iter().for_each(|group| self.note_broken(index, group));
            loaded
        }))
    }

    /// Reads the descriptors of some groups, so that later reads of them need no I/O.
    ///
    /// # Errors
    /// If the device fails. A broken descriptor is an error only for operations that need it.
    fn prepare(&self, groups: Range<u32>) -> Result<()> {
        let per = self.sb.geometry().descs_per_block();
        (groups.start / per..groups.end.div_ceil(per)).try_for_each(|index| self.desc_block(index).map(drop))
    }

    /// Records what is wrong with a descriptor that was just read.
    fn note_broken(&self, index: u32, group: &Group) {
        if let Err(corrupt) = &*group.desc.lock() {
            let nr = self.sb.geometry().desc_block(index);
            self.findings.note_at(&corrupt.clone().into(), Some(nr));
        }
    }

    /// A group, and the index of the block of descriptors that holds its own.
    fn group(&self, group: GroupNr) -> Result<(&Group, u32)> {
        let per = self.sb.geometry().descs_per_block();
        let index = group.get() / per;
        let block = self.desc_block(index)?;
        Ok((&block.groups[usize_of(group.get() % per)], index))
    }

    fn load_desc_block(&self, index: u32) -> Result<DescBlock> {
        let sb = &*self.sb;
        let geometry = sb.geometry();
        let mut bytes = vec![0; geometry.block_size.len()];
        let read = self.read_desc_block(index, &mut bytes);
        if self.with_backups && read.is_err() {
            bytes.fill(0);
        } else {
            read?;
        }
        let first = index * geometry.descs_per_block();
        let count = geometry.descs_per_block().min(geometry.groups() - first);
        let groups = (0..count)
            .map(|i| {
                let slot = &bytes[desc_range(i, geometry.desc_size)];
                let desc = self.parse_desc(slot, GroupNr::new(first + i));
                Group { desc: Mutex::new(desc), dirty: AtomicBool::new(false), inodes: OnceLock::new() }
            })
            .collect();
        Ok(DescBlock { bytes: Mutex::new(bytes), groups, dirty: AtomicBool::new(false) })
    }

    fn read_desc_block(&self, index: u32, bytes: &mut [u8]) -> Result<()> {
        let geometry = self.sb.geometry();
        let nr = geometry.desc_block(index);
        self.metadata.read_at(nr.offset(geometry.block_size), bytes).map_err(|error| {
            let error = error.into();
            self.findings.note_read(&error, "group descriptors", Place::Block(nr), nr);
            error
        })
    }

    /// A copy of a group's descriptor.
    pub(crate) fn desc(&self, group: GroupNr) -> Result<GroupDesc> {
        self.look(group, GroupDesc::clone)
    }

    /// Reads from a descriptor.
    fn look<R>(&self, group: GroupNr, look: impl FnOnce(&GroupDesc) -> R) -> Result<R> {
        match &*self.group(group)?.0.desc.lock() {
            Ok(desc) => Ok(look(desc)),
            Err(corrupt) => Err(corrupt.clone().into()),
        }
    }

    /// The flex groups of the volume.
    pub(crate) fn flex(&self) -> &FlexTable {
        &self.flex
    }

    /// The counts of a flex group.
    ///
    /// # Errors
    /// If the device fails; groups with a broken descriptor count as empty.
    pub(crate) fn flex_counts(&self, flex: u32) -> Result<FlexCounts> {
        Ok(self.flex_sums(flex)?.counts())
    }

    /// The sums of a flex group, which must exist before one of its descriptors may change.
    fn flex_sums(&self, flex: u32) -> Result<Sums<'_>> {
        if let Some(sums) = self.flex.sums(flex) {
            return Ok(sums);
        }
        self.prepare(self.flex.groups(flex))?;
        Ok(self.flex.make_sums(flex, |group| self.desc(group).ok()))
    }

    /// The groups that served directories without room in their own.
    pub(crate) fn recent(&self) -> &Recent {
        &self.recent
    }

    /// Changes a descriptor; rendered with the next commit.
    fn edit_desc<R>(&self, group: GroupNr, change: impl FnOnce(&mut GroupDesc) -> R) -> Result<R> {
        let (entry, index) = self.group(group)?;
        let result = match &mut *entry.desc.lock() {
            Ok(desc) => change(desc),
            Err(corrupt) => return Err(corrupt.clone().into()),
        };
        entry.dirty.store(true, Ordering::Release);
        let block = self.desc_block(index)?;
        // Usually it is dirty already; reading first keeps the line with the flag shared between cores.
        if !block.dirty.load(Ordering::Acquire) && !block.dirty.swap(true, Ordering::AcqRel) {
            self.dirty_descs.lock().push(index);
            self.dirty_count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(result)
    }

    /// Accepts a block bitmap rendered by the allocator; returns the bytes to write to its final location.
    pub(crate) fn seal_block_bitmap(&self, group: GroupNr, words: &[u64], free: u32) -> Result<Rendered> {
        let sb = &*self.sb;
        let mut bytes = Vec::with_capacity(sb.geometry().block_size.len());
        words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes.resize(sb.geometry().block_size.len(), 0xff);
        let sums = self.flex_sums(self.flex.of(group))?;
        let place = self.edit_desc(group, |desc| {
            sums.clusters_changed(desc.free_clusters, free);
            desc.free_clusters = free;
            desc.flags.remove(GroupFlags::BLOCK_UNINIT);
            desc.seal_block_bitmap(&bytes, sb);
            desc.block_bitmap
        })?;
        Ok((place, bytes.into()))
    }

    /// Blocks that [`Self::render`] would render now.
    pub(crate) fn dirty_blocks(&self) -> u32 {
        self.dirty_count.load(Ordering::Relaxed)
    }

    /// Lists a group whose inode bitmap has become dirty.
    fn note_dirty_bitmap(&self, group: GroupNr) {
        self.dirty_bitmaps.lock().push(group);
        self.dirty_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Renders every dirty inode bitmap, then every dirty block of descriptors. Called with no handle open,
    /// after the block bitmaps were sealed.
    pub(crate) fn render(&self) -> Result<Vec<Rendered>> {
        let bitmaps = std::mem::take(&mut *self.dirty_bitmaps.lock());
        let mut rendered =
            bitmaps.into_iter().map(|group| self.render_inode_bitmap(group)).collect::<Result<Vec<_>>>()?;
        let descs = std::mem::take(&mut *self.dirty_descs.lock());
        self.dirty_count.store(0, Ordering::Relaxed);
        for index in descs {
            rendered.push(self.render_desc_block(index)?);
        }
        Ok(rendered)
    }

    fn render_desc_block(&self, index: u32) -> Result<Rendered> {
        let geometry = self.sb.geometry();
        let block = self.desc_block(index)?;
        block.dirty.store(false, Ordering::Release);
        let first = index * geometry.descs_per_block();
        let mut bytes = block.bytes.lock();
        for (i, group) in (0u32..).zip(&block.groups) {
            if group.dirty.swap(false, Ordering::AcqRel)
                && let Ok(desc) = &*group.desc.lock()
            {
                let slot = &mut bytes[desc_range(i, geometry.desc_size)];
                desc.render(slot, GroupNr::new(first + i), &self.sb);
            }
        }
        Ok((geometry.desc_block(index), bytes.as_slice().into()))
    }
}

fn desc_range(index: u32, desc_size: u32) -> Range<usize> {
    let at = usize_of(index * desc_size);
    at..at + usize_of(desc_size)
}
