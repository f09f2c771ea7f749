//! Writes what was staged, so that a crash at any moment leaves the volume before or after it.
//!
//! First come the blocks that the volume on disk does not use: nobody reads them. They are flushed. Then the
//! blocks in use, as one transaction in the volume's own journal: logged, flushed, committed, written to
//! their places, and the journal is clean again. A crash before the commit leaves the old volume; one after
//! it a journal that e2fsck and the kernel replay. The superblock is part of the transaction.
//!
//! Some transactions need no journal, because what a crash leaves of them costs nothing ([`Kind`]): clusters
//! that are marked and nobody's, or an inode that counts only if the superblock says so. They are written in
//! place, between two superblocks, of which the first says that the volume was not closed; so e2fsck -p
//! looks at it, and mends that.
//!
//! A cut is one of these. It takes groups away in which nothing is in use any more. The kernel reads the
//! shape of a volume before it replays the journal, so a logged superblock with fewer groups would let it use
//! groups that do not exist. The superblock alone is the cut.
//!
//! Where no journal holds a transaction that needs one, not even one on loan ([`crate::loan`]), it is written
//! in place all the same. A crash then leaves a volume that e2fsck -f has to mend; [`Transaction::write`]
//! says when that happened.
//!
//! Backups of superblock and descriptors are written last, and by themselves ([`write_backups`]): nobody
//! reads them while the primary copies are sound.

use crate::error::Result;
use crate::journal::{Journal, read_superblock};
use crate::staging::{self, Staging};
use crate::volume::Volume;
use hectare_device::Device;
use hectare_ext4::feature::Incompat;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{SIZE, STATE_VALID};
use hectare_journal::LoggedBlock;
use hectare_units::{BlockNr, BlockSize, Bytes, GroupNr};
use rangemap::RangeSet;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// What a transaction changes, and so how it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// What counts only as a whole.
    Whole,
    /// Which clusters are in use that nobody refers to; in place if need be.
    Marks,
    /// The journal's inode, and the superblock that names it.
    NewJournal,
    /// The superblock, so that the journal's inode counts no more, and then that.
    OldJournal,
    /// The superblock, and what follows from it: groups less.
    Cut,
}

impl Kind {
    /// Whether it goes by way of the journal, if there is one.
    pub(crate) fn is_logged(self) -> bool {
        matches!(self, Self::Whole | Self::Marks)
    }

    /// Whether a crash in the middle of it, in place, leaves what e2fsck -p mends.
    fn is_harmless(self) -> bool {
        self != Self::Whole
    }

    /// Whether the new superblock comes before the rest, in place.
    fn leads_with_superblock(self) -> bool {
        matches!(self, Self::OldJournal | Self::Cut)
    }
}

/// Changes that become durable together.
pub(crate) struct Transaction {
    pub(crate) kind: Kind,
    /// The device as it is to be afterwards.
    after: Staging,
    /// Blocks among the changed ones that the volume does not use before.
    pub(crate) fresh: RangeSet<u64>,
    /// Size of a block, the same before and after.
    block_size: BlockSize,
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

    /// Blocks in use that it changes, at most. `previous` is the transaction before it.
    pub(crate) fn home_blocks(&self, previous: Option<&Self>) -> usize {
        let changed = staging::newer(&self.after, previous.map(|previous| &previous.after));
        changed.iter().filter(|(nr, _)| !self.is_fresh(*nr)).count()
    }

    /// Whether the volume does not use a block before.
    fn is_fresh(&self, nr: BlockNr) -> bool {
        self.fresh.contains(&nr.get()) || nr.get() >= self.blocks_before
    }

    /// Writes it, and says whether a power cut could do no harm meanwhile. What was written last may become
    /// durable with the next flush only. `previous` is the transaction before it, which was written; `now` is
    /// since 1970. `begun` is set before a block is written that the volume uses.
    pub(crate) fn write(
        &self,
        disk: &Arc<dyn Device>,
        previous: Option<&Self>,
        now: Duration,
        begun: &Cell<bool>,
    ) -> Result<bool> {
        let (fresh, home) = self.changes(disk, previous)?;
        for (nr, bytes) in &fresh {
            disk.write_at(nr.offset(self.block_size), bytes)?;
        }
        // Whatever was written before the first transaction, and by this one.
        if previous.is_none() || !fresh.is_empty() {
            disk.flush()?;
        }
        if home.is_empty() {
            return Ok(true);
        }
        begun.set(true);
        if self.kind.is_logged()
            && let Some(journal) = Journal::of(disk)?
            && journal.holds(home.len())
        {
            journal.write(disk, self.block_size, &home, None, now)?;
            return Ok(true);
        }
        self.write_in_place(disk, &home)?;
        Ok(self.kind.is_harmless())
    }

    /// The blocks that differ from those on disk: those the volume does not use, and those it does, in order.
    fn changes(
        &self,
        disk: &Arc<dyn Device>,
        previous: Option<&Self>,
    ) -> Result<(Vec<LoggedBlock>, Vec<LoggedBlock>)> {
        let (mut fresh, mut home) = (Vec::new(), Vec::new());
        let mut old = vec![0; self.block_size.len()];
        for (nr, new) in staging::newer(&self.after, previous.map(|previous| &previous.after)) {
            disk.read_at(nr.offset(self.block_size), &mut old)?;
            if old[..] != new[..] {
                let list = if self.is_fresh(nr) { &mut fresh } else { &mut home };
                list.push((nr, new));
            }
        }
        Ok((fresh, home))
    }

    /// Writes blocks to their places, between two superblocks.
    fn write_in_place(&self, disk: &Arc<dyn Device>, home: &[LoggedBlock]) -> Result<()> {
        let mut bytes = [0; SIZE];
        self.after.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        let from: &dyn Device = if self.kind.leads_with_superblock() { &self.after } else { disk };
        let mut open = read_superblock(from)?;
        open.set_state(open.state() & !STATE_VALID);
        disk.write_at(SUPERBLOCK_OFFSET, &open.render(GroupNr::new(0)))?;
        disk.flush()?;
        let superblock = self.block_size.block_at(SUPERBLOCK_OFFSET);
        let within = self.block_size.within(SUPERBLOCK_OFFSET);
        for (nr, bytes) in home {
            let at = nr.offset(self.block_size);
            // Of the superblock's block what lies around it.
            let parts = if *nr == superblock {
                [0..within, within + SIZE..bytes.len()]
            } else {
                [0..bytes.len(), 0..0]
            };
            for part in parts.into_iter().filter(|part| !part.is_empty()) {
                disk.write_at(at + Bytes::of(part.start), &bytes[part])?;
            }
        }
        disk.flush()?;
        disk.write_at(SUPERBLOCK_OFFSET, &bytes)?;
        Ok(disk.flush()?)
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
