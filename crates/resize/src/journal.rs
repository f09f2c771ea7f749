//! The journal that the volume on disk has at the moment of a transaction.

use crate::error::Result;
use crate::tree::Tree;
use crate::volume::Volume;
use hectare_device::Device;
use hectare_ext4::feature::Incompat;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::inode::Inode;
use hectare_ext4::map::MapKind;
use hectare_ext4::superblock::{SIZE, STATE_VALID, SuperBlock};
use hectare_journal::format::{JournalCompat, JournalIncompat, JournalSuperblock, SUPERBLOCK_LEN};
use hectare_journal::recovery::{LogMap, LogRun};
use hectare_journal::{Log, LoggedBlock};
use hectare_units::{BlockSize, Blocks, GroupNr, InodeNr, LogicalBlock};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// The superblock on a device.
pub(crate) fn read_superblock(device: &dyn Device) -> Result<SuperBlock> {
    let mut bytes = [0; SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(SuperBlock::parse(&bytes, device.len())?)
}

/// The journal of the volume on disk, clean.
pub(crate) struct Journal {
    log: Log,
    sb: SuperBlock,
}

impl Journal {
    /// The journal, if the volume has one inside that can be used.
    pub(crate) fn of(disk: &Arc<dyn Device>) -> Result<Option<Self>> {
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
        // One is left out, as fast commits may lie there that have it.
        let next = superblock.sequence().next();
        Ok(Some(Self { log: Log::new(Arc::clone(disk), map, superblock, next, None), sb }))
    }

    /// Whether it has room for a transaction of so many blocks.
    pub(crate) fn holds(&self, blocks: usize) -> bool {
        self.log.needed(blocks, 0) < self.log.free()
    }

    /// Has these blocks of the volume, in order, replaced together. `now` is since 1970.
    pub(crate) fn write(
        mut self,
        disk: &Arc<dyn Device>,
        size: BlockSize,
        home: &[LoggedBlock],
        now: Duration,
    ) -> Result<()> {
        let at = size.block_at(SUPERBLOCK_OFFSET);
        let within = size.within(SUPERBLOCK_OFFSET);
        let mut logged = home.to_vec();
        let (mut last, mut new_desc_size) = (self.sb.render(GroupNr::new(0)), None);
        for (nr, bytes) in &mut logged {
            if *nr == at {
                let mut whole = bytes.to_vec();
                let slot = &mut whole[within..within + SIZE];
                let mut sb = SuperBlock::parse(slot, hectare_units::Bytes::new(u64::MAX))?;
                last = sb.render(GroupNr::new(0));
                new_desc_size = Some(sb.geometry().desc_size);
                if sb.state() & STATE_VALID == 0 {
                    // The kernel takes this from the superblock before it replays the log.
                    self.sb.set_state(self.sb.state() & !STATE_VALID);
                }
                sb.set_needs_recovery(true);
                slot.copy_from_slice(&sb.render(GroupNr::new(0)));
                *bytes = Arc::from(whole);
            }
        }
        self.sb.set_needs_recovery(true);
        disk.write_at(SUPERBLOCK_OFFSET, &self.sb.render(GroupNr::new(0)))?;
        disk.flush()?;
        let first = self.log.next();
        self.log.begin(first)?;
        self.log.append(&logged, &[], now)?;
        // A recovery finds the journal by the first group's descriptor among old and new ones, so as long as
        // these are written the superblock says the smaller size, which all of them begin with.
        let (superblock, rest): (Vec<_>, Vec<_>) = logged.iter().partition(|(nr, _)| *nr == at);
        let narrows = new_desc_size.is_some_and(|size| size < self.sb.geometry().desc_size);
        for blocks in if narrows { [superblock, rest] } else { [rest, superblock] } {
            for (nr, bytes) in blocks {
                disk.write_at(nr.offset(size), bytes)?;
            }
            disk.flush()?;
        }
        self.log.finish()?;
        disk.write_at(SUPERBLOCK_OFFSET, &last)?;
        Ok(disk.flush()?)
    }
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
