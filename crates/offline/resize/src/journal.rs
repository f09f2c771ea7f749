//! The journal that the volume on disk has at the moment of a transaction.
//!
//! Where checksums, descriptors or inodes change their form, what was logged reaches its place under a
//! superblock of a form between both, so that the journal's inode can be read at any time.

use crate::error::Result;
use crate::tree::Tree;
use crate::volume::Volume;
use hectare_device::Device;
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::inode::Inode;
use hectare_ext4::map::MapKind;
use hectare_ext4::superblock::{SIZE, STATE_VALID, SuperBlock};
use hectare_journal::format::{JournalCompat, JournalIncompat, JournalSuperblock, SUPERBLOCK_LEN};
use hectare_journal::recovery::{LogMap, LogRun};
use hectare_journal::{Log, LoggedBlock};
use hectare_units::{BlockNr, BlockSize, Blocks, GroupNr, InodeNr, LogicalBlock};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// The superblock on a device.
pub(crate) fn read_superblock(device: &dyn Device) -> Result<SuperBlock> {
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
        // One is left out, as fast commits may lie there that have it.
        let next = superblock.sequence().next();
        Ok(Some(Self { log: Log::new(Arc::clone(disk), map, superblock, next, None), sb }))
    }

    /// Whether it has room for a transaction of so many blocks.
    #[must_use]
    pub fn holds(&self, blocks: usize) -> bool {
        self.log.needed(blocks, 0) < self.log.free()
    }

    /// Makes a volume with blocks of `size` have the blocks `home`, in ascending order and the superblock's
    /// among them, at once: a crash leaves it without them or with a log that recovery takes them from. `now`
    /// is since 1970. The last superblock, which says that the log is empty, becomes durable with the next
    /// flush, which is the caller's. `bridge` is one of the blocks as it is to be until the new superblock
    /// is there.
    ///
    /// # Errors
    /// If the device fails; its volume has a journal to be replayed then, if it changed at all.
    pub fn write(
        mut self,
        disk: &Arc<dyn Device>,
        size: BlockSize,
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
                if sb.state() & STATE_VALID == 0 {
                    // The kernel takes this from the superblock before it replays the log.
                    self.sb.set_state(self.sb.state() & !STATE_VALID);
                }
                sb.set_needs_recovery(true);
                slot.copy_from_slice(&sb.render(GroupNr::new(0)));
                *bytes = Arc::from(whole);
            }
        }
        let between = between(&self.sb, &last)?;
        self.sb.set_needs_recovery(true);
        write_superblock(disk, &self.sb)?;
        disk.flush()?;
        let first = self.log.next();
        self.log.begin(first)?;
        self.log.append(&logged, &[], now)?;
        let (superblock, rest): (Vec<_>, Vec<_>) = logged.into_iter().partition(|(nr, _)| *nr == at);
        if let Some(between) = between {
            write_superblock(disk, &between)?;
            disk.flush()?;
            let is_bridged = |nr: BlockNr| bridge.as_ref().is_some_and(|(bridged, _)| *bridged == nr);
            write_all(disk, size, rest.iter().filter(|(nr, _)| !is_bridged(*nr)).chain(&bridge))?;
            write_all(disk, size, superblock.iter())?;
        }
        write_all(disk, size, rest.iter().chain(&superblock))?;
        self.log.finish()?;
        write_superblock(disk, &last)
    }
}

fn write_all<'a>(
    disk: &Arc<dyn Device>,
    size: BlockSize,
    blocks: impl Iterator<Item = &'a LoggedBlock>,
) -> Result<()> {
    for (nr, bytes) in blocks {
        disk.write_at(nr.offset(size), bytes)?;
    }
    Ok(disk.flush()?)
}

fn write_superblock(disk: &Arc<dyn Device>, sb: &SuperBlock) -> Result<()> {
    Ok(disk.write_at(SUPERBLOCK_OFFSET, &sb.render(GroupNr::new(0)))?)
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
