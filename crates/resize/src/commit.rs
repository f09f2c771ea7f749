//! Writes what was staged, so that a crash at any moment leaves the volume before or after it.
//!
//! First come the blocks that the volume on disk does not use: nobody reads them. They are flushed. Then the
//! blocks in use, as one transaction in the volume's own journal: logged, flushed, committed, written to
//! their places, and the journal is clean again. A crash before the commit leaves the old volume; one after
//! it a journal that e2fsck and the kernel replay. The superblock is part of the transaction.
//!
//! Where checksums, descriptors or inodes change their form, what was logged reaches its place under a
//! superblock of a form between both, so that the journal's inode can be read at any time.
//!
//! A cut ([`Kind::Cut`]) is different: it takes groups away in which nothing is in use any more. The kernel
//! reads the shape of a volume before it replays the journal, so a logged superblock with fewer groups would
//! let it use groups that do not exist. The superblock alone is the cut: one sector pair, written
//! first. What comes after it only frees clusters in bitmaps; a crash before leaves them marked, which
//! e2fsck -p mends.
//!
//! Where there is no journal, or it is too small or on another device, the volume is marked as not clean
//! and written in place, in the order of blocks, the superblock last. A crash then leaves a volume that
//! e2fsck -f has to mend. [`Transaction::write`] says when that happened.
//!
//! Backups of superblock and descriptors are written last, and by themselves ([`write_backups`]): nobody
//! reads them while the primary copies are sound.

use crate::error::{Error, Result};
use crate::staging::Staging;
use crate::volume::Volume;
use hectare_device::Device;
use hectare_ext4::extent::{TreeGeometry, TreeRead};
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::inode::Inode;
use hectare_ext4::map::MapKind;
use hectare_ext4::superblock::{SIZE, STATE_VALID, SuperBlock};
use hectare_journal::format::{JournalCompat, JournalIncompat, JournalSuperblock, SUPERBLOCK_LEN};
use hectare_journal::recovery::{LogMap, LogRun};
use hectare_journal::{Log, LoggedBlock};
use hectare_units::{BlockNr, Blocks, GroupNr, InodeNr, LogicalBlock};
use rangemap::RangeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// How a transaction is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// All of it at once, by way of the journal.
    Whole,
    /// The superblock first.
    Cut,
}

/// Changes that become durable together.
pub(crate) struct Transaction {
    kind: Kind,
    /// The device as it is to be afterwards.
    after: Staging,
    /// Blocks among the changed ones that the volume does not use before.
    fresh: RangeSet<u64>,
    /// Size of a block, the same before and after.
    block_size: hectare_units::BlockSize,
    /// Blocks of the volume before.
    blocks_before: u64,
}

impl Transaction {
    /// Ends a transaction of what was staged so far.
    pub(crate) fn of(volume: &mut Volume, kind: Kind) -> Result<Self> {
        let blocks_before = volume.disk_blocks.get();
        volume.stage()?;
        Ok(Self {
            kind,
            after: (*volume.staged).clone(),
            fresh: std::mem::take(&mut volume.fresh),
            block_size: volume.geometry().block_size,
            blocks_before,
        })
    }

    /// Writes it, durably, and says whether a power cut could do no harm meanwhile. `now` is since 1970.
    pub(crate) fn write(&self, disk: &Arc<dyn Device>, now: Duration) -> Result<bool> {
        let (fresh, home) = self.changes(disk)?;
        for (nr, bytes) in &fresh {
            disk.write_at(nr.offset(self.block_size), bytes)?;
        }
        disk.flush()?;
        if home.is_empty() {
            return Ok(true);
        }
        match self.kind {
            Kind::Cut => self.write_superblock_first(disk, &home)?,
            Kind::Whole => match Journal::of(disk)? {
                Some(journal) if journal.holds(&home) => {
                    journal.write(disk, self.block_size, &home, None, now)?;
                }
                _ => {
                    self.write_in_place(disk, &home)?;
                    return Ok(false);
                }
            },
        }
        Ok(true)
    }

    /// The blocks that differ from those on disk: those the volume does not use, and those it does, in order.
    fn changes(&self, disk: &Arc<dyn Device>) -> Result<(Vec<LoggedBlock>, Vec<LoggedBlock>)> {
        let (mut fresh, mut home) = (Vec::new(), Vec::new());
        let mut old = vec![0; self.block_size.len()];
        for (nr, new) in self.after.changed() {
            disk.read_at(nr.offset(self.block_size), &mut old)?;
            if old[..] != new[..] {
                let is_fresh = self.fresh.contains(&nr.get()) || nr.get() >= self.blocks_before;
                let list = if is_fresh { &mut fresh } else { &mut home };
                list.push((nr, new));
            }
        }
        Ok((fresh, home))
    }

    /// The block of the superblock.
    fn superblock(&self) -> BlockNr {
        self.block_size.block_at(SUPERBLOCK_OFFSET)
    }

    fn write_superblock_first(&self, disk: &Arc<dyn Device>, home: &[LoggedBlock]) -> Result<()> {
        let mut bytes = [0; SIZE];
        self.after.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        disk.write_at(SUPERBLOCK_OFFSET, &bytes)?;
        disk.flush()?;
        write_all(disk, self.block_size, home)
    }

    fn write_in_place(&self, disk: &Arc<dyn Device>, home: &[LoggedBlock]) -> Result<()> {
        let mut before = read_superblock(&**disk)?;
        before.set_state(before.state() & !STATE_VALID);
        disk.write_at(SUPERBLOCK_OFFSET, &before.render(GroupNr::new(0)))?;
        disk.flush()?;
        let superblock = self.superblock();
        let rest: Vec<LoggedBlock> = home.iter().filter(|(nr, _)| *nr != superblock).cloned().collect();
        write_all(disk, self.block_size, &rest)?;
        let mut bytes = [0; SIZE];
        self.after.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        disk.write_at(SUPERBLOCK_OFFSET, &bytes)?;
        Ok(disk.flush()?)
    }
}

fn write_all(disk: &Arc<dyn Device>, size: hectare_units::BlockSize, blocks: &[LoggedBlock]) -> Result<()> {
    for (nr, bytes) in blocks {
        disk.write_at(nr.offset(size), bytes)?;
    }
    Ok(disk.flush()?)
}

fn read_superblock(device: &dyn Device) -> Result<SuperBlock> {
    let mut bytes = [0; SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(SuperBlock::parse(&bytes, device.len())?)
}

/// The journal inside the volume on a device, clean, for a transaction without the engine.
pub struct Journal {
    log: Log,
    sb: SuperBlock,
}

impl Journal {
    /// The journal, if the volume has one inside that can be used.
    ///
    /// # Errors
    /// If the volume or the journal's map can't be read.
    pub fn of(disk: &Arc<dyn Device>) -> Result<Option<Self>> {
        let sb = read_superblock(&**disk)?;
        let Some(nr) = sb.journal_inode() else { return Ok(None) };
        let volume = Volume::open(Arc::clone(disk), false)?;
        let inode = crate::inodes::read(&volume, nr)?;
        let map = log_map(&volume, nr, &inode)?;
        let mut bytes = [0; SUPERBLOCK_LEN];
        disk.read_at(map.superblock_offset(), &mut bytes)?;
        let mut superblock = JournalSuperblock::parse(&bytes)?;
        if superblock.start().is_some() || superblock.is_v1() {
            return Ok(None);
        }
        let mut incompat = (superblock.incompat() & JournalIncompat::FAST_COMMIT) | JournalIncompat::REVOKE;
        incompat.set(JournalIncompat::CSUM_V3, sb.features().metadata_csum());
        incompat.set(JournalIncompat::BIT64, sb.features().incompat.contains(Incompat::BIT64));
        superblock.set_features(JournalCompat::empty(), incompat)?;
        let next = superblock.sequence();
        Ok(Some(Self { log: Log::new(Arc::clone(disk), map, superblock, next, None), sb }))
    }

    /// Whether it has room for a transaction of these blocks.
    #[must_use]
    pub fn holds(&self, blocks: &[LoggedBlock]) -> bool {
        self.log.needed(blocks.len(), 0) < self.log.free()
    }

    /// Makes a volume with blocks of `size` have the blocks `home`, in ascending order and the superblock's
    /// among them, at once: a crash leaves it without them or with a log that recovery takes them from. `now`
    /// is since
    /// 1970. `bridge` is one of the blocks as it is to be until the new superblock is there.
    ///
    /// # Errors
    /// If the device fails; its volume has a journal to be replayed then, if it changed at all.
    pub fn write(
        mut self,
        disk: &Arc<dyn Device>,
        size: hectare_units::BlockSize,
        home: &[LoggedBlock],
        bridge: Option<LoggedBlock>,
        now: Duration,
    ) -> Result<()> {
        let at = size.block_at(SUPERBLOCK_OFFSET);
        let within = size.within(SUPERBLOCK_OFFSET);
        let mut logged = home.to_vec();
        let mut last = self.sb.clone();
        for (nr, bytes) in &mut logged {
            if *nr == at {
                let mut whole = bytes.to_vec();
                let slot = &mut whole[within..within + SIZE];
                let mut sb = SuperBlock::parse(slot, hectare_units::Bytes::new(u64::MAX))?;
                last = sb.clone();
                sb.set_needs_recovery(true);
                slot.copy_from_slice(&sb.render(GroupNr::new(0)));
                *bytes = Arc::from(whole);
            }
        }
        let between = between(&self.sb, &last)?;
        self.sb.set_needs_recovery(true);
        write_superblock(disk, &self.sb)?;
        let first = self.log.next();
        self.log.begin(first)?;
        self.log.append(&logged, &[], now)?;
        if let Some(between) = between {
            write_superblock(disk, &between)?;
            let is_bridged = |nr: BlockNr| bridge.as_ref().is_some_and(|(bridged, _)| *bridged == nr);
            let rest = logged.iter().filter(|(nr, _)| *nr != at && !is_bridged(*nr)).chain(&bridge);
            write_all(disk, size, &rest.cloned().collect::<Vec<_>>())?;
            write_all(disk, size, &logged.iter().filter(|(nr, _)| *nr == at).cloned().collect::<Vec<_>>())?;
        }
        write_all(disk, size, &logged)?;
        self.log.finish()?;
        write_superblock(disk, &last)
    }
}

fn write_superblock(disk: &Arc<dyn Device>, sb: &SuperBlock) -> Result<()> {
    disk.write_at(SUPERBLOCK_OFFSET, &sb.render(GroupNr::new(0)))?;
    Ok(disk.flush()?)
}

/// The superblock while some of the blocks have their new form already, if that differs so that the journal's
/// own inode could not be read under the old one: without checksums, and with the descriptors taken for
/// narrow ones, which start with the same bytes.
fn between(old: &SuperBlock, new: &SuperBlock) -> Result<Option<SuperBlock>> {
    let width = |sb: &SuperBlock| sb.geometry().desc_size;
    let form = |sb: &SuperBlock| {
        let features = sb.features();
        let sums = (features.metadata_csum(), features.group_checksums(), sb.value_seed(), sb.uuid());
        (sums, width(sb), sb.geometry().inode_size, features.incompat.contains(Incompat::EXTENTS))
    };
    if form(old) == form(new) {
        return Ok(None);
    }
    let mut raw = *old.raw();
    let sums = RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM;
    raw.s_feature_ro_compat = (raw.s_feature_ro_compat.get() & !sums.bits()).into();
    let mut incompat = old.features().incompat - Incompat::CSUM_SEED;
    if width(old) != width(new) {
        incompat -= Incompat::BIT64;
        raw.s_desc_size = 0.into();
    }
    raw.s_feature_incompat = incompat.bits().into();
    raw.s_checksum = 0.into();
    let mut between = SuperBlock::from_raw(raw)?;
    between.set_needs_recovery(true);
    Ok(Some(between))
}

/// Where the journal's blocks lie.
fn log_map(volume: &Volume, nr: InodeNr, inode: &Inode) -> Result<LogMap> {
    let tree = Tree { volume, nr, root: inode.block };
    let mut runs = Vec::new();
    MapKind::of(inode.flags).for_each(&tree, LogicalBlock::ZERO, &mut |extent| {
        let len = Blocks::new(extent.len.into());
        runs.push(LogRun { first: extent.logical, start: extent.physical, len });
        ControlFlow::Continue(())
    })?;
    let size = volume.geometry().block_size;
    let end = inode.size >> size.shift();
    runs.retain(|run| u64::from(run.first.get()) + run.len.get() <= end);
    Ok(LogMap::internal(size, runs, volume.staged.len())?)
}

/// The map of an inode, read through the overlay.
pub(crate) struct Tree<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) nr: InodeNr,
    pub(crate) root: [u8; 60],
}

impl TreeRead for Tree<'_> {
    type Error = Error;
    type Node = Vec<u8>;

    fn root(&self) -> [u8; 60] {
        self.root
    }

    fn node(&self, nr: BlockNr) -> Result<Vec<u8>> {
        self.volume.read(nr)
    }

    fn geometry(&self) -> TreeGeometry {
        TreeGeometry::of(self.volume.geometry(), self.nr)
    }
}

/// Writes all backups of superblock and descriptors.
pub(crate) fn write_backups(volume: &Volume) -> Result<()> {
    let (geometry, disk) = (volume.geometry(), &volume.disk);
    let size = geometry.block_size;
    let old_blocks: Vec<Vec<u8>> =
        (0..geometry.old_desc_blocks()).map(|index| volume.desc_block(index)).collect();
    let has_meta = volume.sb.features().incompat.contains(Incompat::META_BG);
    for group in (1..geometry.groups()).map(GroupNr::new).filter(|group| geometry.has_super(*group)) {
        let at = geometry.super_block(group);
        disk.write_at(at.offset(size), &volume.sb.render(group))?;
        // In meta groups no descriptors but their own follow a superblock.
        if group.get() / geometry.descs_per_block() < geometry.old_desc_blocks() {
            for (bytes, nr) in old_blocks.iter().zip(at.get() + 1..) {
                disk.write_at(BlockNr::new(nr).offset(size), bytes)?;
            }
        }
    }
    if has_meta {
        for index in geometry.old_desc_blocks()..geometry.desc_blocks() {
            let bytes = volume.desc_block(index);
            for at in geometry.desc_block_backups(index) {
                disk.write_at(at.offset(size), &bytes)?;
            }
        }
    }
    debug_assert!(has_meta || geometry.old_desc_blocks() == geometry.desc_blocks());
    Ok(disk.flush()?)
}
