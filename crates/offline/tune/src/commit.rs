//! Writes the copy in memory to the device, so that a crash at any moment leaves the volume before or after
//! it, or one that `e2fsck -p` finishes.
//!
//! What differs falls into three parts. Blocks that the volume on the device does not use are written first:
//! nobody reads them. Backups of superblock and descriptors are written last: nobody reads them while the
//! primary copies are sound. What lies between, blocks in use, goes in one of these ways ([`Order`]):
//!
//! - *logged*: as one transaction in the volume's own journal;
//! - *marked*: in place, while the superblock says that the volume was not cleanly closed, so that it is
//!   checked before it is used. Only what a check without questions finishes may be written so: space taken
//!   for a file that nothing refers to yet;
//! - *led*: the new superblock first, with the same mark: what it no longer refers to is freed after.
//!
//! Where nothing but the superblock differs, it is written alone, and arrives whole or not at all.
//!
//! Hazard: what lies where the log does can't be logged in it; such a change is written in place. The rounds
//! see to it that there is none.
//!
//! Hazard: after a crash in between, a log is to be replayed by e2fsck or by Hectare, not by a mount of the
//! kernel. The kernel reads the seed of checksums and the sizes of inodes and descriptors before it replays,
//! and goes on with them. (It then refuses the volume, as a rule, and accepts it the next time.)

use crate::error::Result;
use crate::tree::FileMap;
use crate::volume::{Overlay, Volume, is_set};
use hectare_device::{Device, OverlayDevice};
use hectare_ext4::geometry::{Geometry, SUPERBLOCK_OFFSET};
use hectare_ext4::superblock::{SIZE, STATE_VALID, SuperBlock};
use hectare_journal::LoggedBlock;
use hectare_resize::Journal;
use hectare_units::{BlockNr, Bytes, GroupNr, low32, usize_of};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How blocks in use are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// By way of the journal.
    Logged,
    /// In place, the superblock last.
    Marked,
    /// In place, the superblock first.
    Led,
}

/// The blocks that differ between a copy and its device.
pub(crate) struct Difference<'a> {
    overlay: &'a Overlay,
    old: &'a SuperBlock,
    new: SuperBlock,
    /// Not used by the volume on the device.
    fresh: Vec<BlockNr>,
    /// In use, without the superblock's.
    home: Vec<BlockNr>,
    backups: Vec<BlockNr>,
}

impl<'a> Difference<'a> {
    /// What differs; `old` is the superblock on the device.
    pub(crate) fn of(overlay: &'a Overlay, old: &'a SuperBlock) -> Result<Self> {
        let mut bytes = [0; SIZE];
        overlay.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        let new = SuperBlock::parse(&bytes, overlay.len())?;
        let backups = backups(new.geometry());
        let mut found = Self { overlay, old, new, fresh: Vec::new(), home: Vec::new(), backups: Vec::new() };
        let before = OverlayDevice::new(Arc::clone(overlay.inner()));
        let mut usage = Usage { volume: Volume::new(&before, old.clone()), group: None };
        for nr in found.touched() {
            if nr == found.superblock() || !found.differs(nr)? {
                continue;
            }
            let list = if backups.contains(&nr) {
                &mut found.backups
            } else if usage.is_free(nr)? {
                &mut found.fresh
            } else {
                &mut found.home
            };
            list.push(nr);
        }
        Ok(found)
    }

    /// Blocks that were written, whole or in part.
    fn touched(&self) -> BTreeSet<BlockNr> {
        let geometry = self.new.geometry();
        let shift = geometry.block_size.shift();
        let blocks = self.overlay.changed().into_iter().flat_map(|span| {
            let end = span.at.get() + span.len.get();
            (span.at.get() >> shift)..end.div_ceil(geometry.block_size.bytes().get())
        });
        blocks.take_while(|nr| *nr < geometry.blocks_count.get()).map(BlockNr::new).collect()
    }

    fn superblock(&self) -> BlockNr {
        self.new.geometry().block_size.block_at(SUPERBLOCK_OFFSET)
    }

    fn read(&self, nr: BlockNr) -> Result<Vec<u8>> {
        let size = self.new.geometry().block_size;
        let mut bytes = vec![0; size.len()];
        self.overlay.read_at(nr.offset(size), &mut bytes)?;
        Ok(bytes)
    }

    fn differs(&self, nr: BlockNr) -> Result<bool> {
        let size = self.new.geometry().block_size;
        let mut old = vec![0; size.len()];
        self.overlay.inner().read_at(nr.offset(size), &mut old)?;
        Ok(old != self.read(nr)?)
    }

    /// Blocks in use that differ, without the superblock's.
    pub(crate) fn home_len(&self) -> usize {
        self.home.len()
    }

    /// Whether the journal on the device takes it, or nothing but the superblock differs.
    pub(crate) fn is_loggable(&self) -> Result<bool> {
        if self.home.is_empty() {
            return Ok(true);
        }
        Ok(self.journal(&self.logged()?)?.is_some())
    }

    /// The journal on the device, if it takes these blocks and is none of them itself.
    fn journal(&self, blocks: &[LoggedBlock]) -> Result<Option<Journal>> {
        let device = self.overlay.inner();
        let Some(journal) = Journal::of(device)?.filter(|journal| journal.holds(blocks.len())) else {
            return Ok(None);
        };
        let before = OverlayDevice::new(Arc::clone(device));
        let mut volume = Volume::new(&before, self.old.clone());
        let Some(nr) = self.old.journal_inode() else { return Ok(None) };
        let inode = volume.inode(nr)?;
        let own: BTreeSet<BlockNr> = FileMap::of(&volume, nr, &inode)?.blocks().map(|(_, nr)| nr).collect();
        Ok(Some(journal).filter(|_| !blocks.iter().any(|(nr, _)| own.contains(nr))))
    }

    /// Where tables are new ones of larger inodes: the block of the new table where the old size has the
    /// journal's inode, with that inode there. Nothing else is there: what an inode had fills the first part
    /// of its larger slot.
    fn bridge(&self) -> Result<Option<LoggedBlock>> {
        let (old, new) = (self.old.geometry(), self.new.geometry());
        let Some(nr) = self.old.journal_inode().filter(|_| old.inode_size != new.inode_size) else {
            return Ok(None);
        };
        let slot = |sb: &SuperBlock, device: &Overlay| -> Result<Option<Bytes>> {
            let Some((group, index)) = sb.geometry().inode_slot(nr) else { return Ok(None) };
            let table = Volume::new(device, sb.clone()).group(group)?.inode_table;
            let within = u64::from(index) * u64::from(old.inode_size);
            Ok(Some(table.offset(old.block_size) + Bytes::new(within)))
        };
        let before = OverlayDevice::new(Arc::clone(self.overlay.inner()));
        let (Some(from), Some(to)) = (slot(self.old, &before)?, slot(&self.new, self.overlay)?) else {
            return Ok(None);
        };
        let block = new.block_size.block_at(to);
        let mut bytes = self.read(block)?;
        let at = new.block_size.within(to);
        before.read_at(from, &mut bytes[at..at + usize_of(old.inode_size)])?;
        Ok(Some((block, Arc::from(bytes))))
    }

    /// The blocks of the transaction, the superblock's among them, and the one that is bridged.
    fn logged(&self) -> Result<Vec<LoggedBlock>> {
        let bridged = self.bridge()?.map(|(nr, _)| nr);
        let all = self.home.iter().copied().chain([self.superblock()]).chain(bridged);
        let all: BTreeSet<BlockNr> = all.collect();
        all.into_iter().map(|nr| Ok((nr, Arc::from(self.read(nr)?)))).collect()
    }

    /// Writes it, durably. `now` is since 1970. Says whether a crash could do no harm meanwhile: what is to
    /// be logged and can't be is written in place.
    pub(crate) fn write(&self, order: Order, now: Duration) -> Result<bool> {
        let device = self.overlay.inner();
        self.put(&self.fresh)?;
        device.flush()?;
        let mut is_safe = true;
        if self.home.is_empty() {
            self.put_superblock(&self.new)?;
        } else {
            match order {
                Order::Logged => is_safe = self.write_logged(now)?,
                Order::Marked => self.write_between(self.old)?,
                Order::Led => self.write_between(&self.new)?,
            }
        }
        self.put(&self.backups)?;
        device.flush()?;
        Ok(is_safe)
    }

    fn write_logged(&self, now: Duration) -> Result<bool> {
        let device = self.overlay.inner();
        let blocks = self.logged()?;
        match self.journal(&blocks)? {
            Some(journal) => {
                let bridge = self.bridge()?;
                if let Some((nr, bytes)) = bridge.as_ref().filter(|(nr, _)| !self.home.contains(nr)) {
                    device.write_at(nr.offset(self.new.geometry().block_size), bytes)?;
                    device.flush()?;
                }
                journal.write(device, self.new.geometry().block_size, &blocks, bridge, now)?;
            }
            None => {
                self.write_between(self.old)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes blocks in place while a superblock says that the volume was not cleanly closed.
    fn write_between(&self, superblock: &SuperBlock) -> Result<()> {
        let mut marked = superblock.clone();
        marked.set_state(marked.state() & !STATE_VALID);
        self.put_superblock(&marked)?;
        self.put(&self.home)?;
        self.overlay.inner().flush()?;
        self.put_superblock(&self.new)
    }

    fn put_superblock(&self, superblock: &SuperBlock) -> Result<()> {
        let device = self.overlay.inner();
        device.write_at(SUPERBLOCK_OFFSET, &superblock.render(GroupNr::new(0)))?;
        Ok(device.flush()?)
    }

    fn put(&self, blocks: &[BlockNr]) -> Result<()> {
        let size = self.new.geometry().block_size;
        for nr in blocks {
            self.overlay.inner().write_at(nr.offset(size), &self.read(*nr)?)?;
        }
        Ok(())
    }

    /// Writes it to a device that no crash can hurt.
    pub(crate) fn copy(&self) -> Result<()> {
        [&self.fresh, &self.home, &self.backups].into_iter().try_for_each(|blocks| self.put(blocks))?;
        self.put_superblock(&self.new)
    }
}

/// Which blocks the volume on the device uses.
struct Usage<'a> {
    volume: Volume<'a>,
    /// The group that was asked for last, with its bitmap.
    group: Option<(GroupNr, Vec<u8>)>,
}

impl Usage<'_> {
    fn is_free(&mut self, nr: BlockNr) -> Result<bool> {
        let Some(group) = self.volume.geometry().group_of(nr) else { return Ok(false) };
        if self.group.as_ref().is_none_or(|(known, _)| *known != group) {
            self.group = Some((group, self.volume.block_bitmap(group)?));
        }
        let geometry = self.volume.geometry();
        let within = nr.get() - geometry.first_block(group).get();
        let bit = low32(within >> geometry.cluster_ratio_shift);
        Ok(self.group.as_ref().is_some_and(|(_, bitmap)| !is_set(bitmap, bit)))
    }
}

/// The backups of superblock and descriptors.
fn backups(geometry: &Geometry) -> BTreeSet<BlockNr> {
    let holders = (1..geometry.groups()).map(GroupNr::new).filter(|group| geometry.has_super(*group));
    let supers = holders.map(|group| geometry.super_block(group));
    let descs = (0..geometry.desc_blocks()).flat_map(|index| geometry.desc_block_copies(index).skip(1));
    supers.chain(descs).collect()
}
