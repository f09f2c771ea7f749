//! The steps of a resize, in their order.

use crate::admit;
use crate::commit::{self, Kind, Transaction};
use crate::error::{Error, Result};
use crate::evacuate;
use crate::reserve;
use crate::reshape;
use crate::target::{self, Width};
use crate::volume::Volume;
use hectare_device::Device;
use hectare_ext4::feature::Compat;
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::time::Timestamp;
use hectare_units::Blocks;
use rangemap::RangeSet;
use std::sync::Arc;
use std::time::Duration;

/// What to do, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The bits of block numbers.
    pub width: Width,
    /// Whether to check the volume before, and the result before it is written.
    pub check: bool,
    /// The time of the change, since 1970.
    pub now: Duration,
}

/// What a resize has done.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Blocks before.
    pub before: Blocks,
    /// Blocks afterwards; fewer than asked for where the last group would have been too small.
    pub after: Blocks,
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks of files that were moved, maps, directories and attributes included.
    pub blocks_moved: u64,
    /// Inodes that have another number.
    pub inodes_moved: u32,
    /// Whether something was written in place, without a journal: a power cut would have left errors.
    pub in_place: bool,
    /// What was not checked, by name.
    pub unchecked: Vec<String>,
}

/// Makes the volume on `disk` have `blocks` blocks. The device is as long as the longer of both already; it
/// is not cut.
pub(crate) fn to_blocks(disk: &Arc<dyn Device>, blocks: Blocks, options: &Options) -> Result<Outcome> {
    let mut run = Run::begin(disk, options, true)?;
    let before = run.volume.geometry().blocks_count;
    let new = target::superblock(&run.volume.sb, blocks, options.width)?;
    let after = new.geometry().blocks_count;
    let block_size = new.geometry().block_size.get();
    let is_same = after == before && new.features() == run.volume.sb.features();
    if !is_same {
        if after < before {
            run.shrink(&new)?;
        } else {
            run.grow(&new)?;
        }
        run.finish()?;
    }
    Ok(Outcome { before, after, block_size, ..run.outcome })
}

/// Tries to shrink the volume on `device` without writing anything to it; gives the size that it gets, and
/// the device as it would be, but for data of files.
pub(crate) fn attempt(
    device: &Arc<dyn Device>,
    blocks: Blocks,
    options: &Options,
) -> Result<(Blocks, Arc<dyn Device>)> {
    let mut run = Run::begin(device, options, false)?;
    let new = target::superblock(&run.volume.sb, blocks, Width::of(&run.volume.sb))?;
    let after = new.geometry().blocks_count;
    if after < run.volume.geometry().blocks_count {
        run.shrink(&new)?;
    }
    Ok((after, run.volume.staged))
}

/// A resize under way.
struct Run<'a> {
    options: &'a Options,
    volume: Volume,
    transactions: Vec<Transaction>,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    fn begin(disk: &Arc<dyn Device>, options: &'a Options, is_live: bool) -> Result<Self> {
        let volume = Volume::open(Arc::clone(disk), is_live)?;
        admit::admit(&volume)?;
        let mut run = Self { options, volume, transactions: Vec::new(), outcome: Outcome::default() };
        if is_live && let Some(problem) = run.check()? {
            let reason = format!("it is not sound: {problem}; run e2fsck -f first");
            return Err(Error::Refused(reason));
        }
        Ok(run)
    }

    /// The first problem of the staged volume.
    fn check(&mut self) -> Result<Option<String>> {
        if !self.options.check {
            return Ok(None);
        }
        let checked = hectare_check::check(&*self.volume.staged, &hectare_check::Options::default());
        let report = match checked {
            Err(hectare_check::Error::TooLarge(_)) => {
                self.outcome.unchecked =
                    vec!["the volume, which is too large to be checked in memory".into()];
                return Ok(None);
            }
            other => other?,
        };
        self.outcome.unchecked = report.unchecked;
        Ok(report.problems.first().map(ToString::to_string))
    }

    fn now(&self) -> Timestamp {
        let seconds = i64::try_from(self.options.now.as_secs()).unwrap_or(i64::MAX);
        Timestamp { seconds, nanoseconds: 0 }
    }

    fn end_transaction(&mut self, kind: Kind) -> Result<()> {
        let now = self.now();
        self.volume.sb.set_write_time(now);
        let transaction = Transaction::of(&mut self.volume, kind)?;
        self.transactions.push(transaction);
        Ok(())
    }

    /// Moves what lies where the metadata of the shape `new` will lie.
    fn make_room(&mut self, new: &SuperBlock) -> Result<()> {
        let occupied = reshape::occupied(&mut self.volume, new)?;
        if occupied.is_empty() {
            return Ok(());
        }
        self.evacuate(occupied, new)?;
        self.end_transaction(Kind::Whole)
    }

    fn evacuate(&mut self, clusters: RangeSet<u64>, new: &SuperBlock) -> Result<()> {
        let moved = evacuate::evacuate(&mut self.volume, clusters, new.geometry().inodes_count())?;
        self.outcome.blocks_moved += moved.blocks;
        self.outcome.inodes_moved += moved.inodes;
        Ok(())
    }

    /// The superblock of the volume as it is now, in the size and width of `new`.
    fn shaped(&self, new: &SuperBlock) -> Result<SuperBlock> {
        target::superblock(&self.volume.sb, new.geometry().blocks_count, Width::of(new))
    }

    fn grow(&mut self, new: &SuperBlock) -> Result<()> {
        self.make_room(new)?;
        let table = reserve::empty(&mut self.volume)?;
        let new = self.shaped(new)?;
        reshape::reshape(&mut self.volume, new)?;
        let now = self.now();
        reserve::fill(&mut self.volume, table, now)?;
        self.end_transaction(Kind::Whole)
    }

    fn shrink(&mut self, new: &SuperBlock) -> Result<()> {
        let end = new.geometry().clusters_count().get();
        let mut clusters = reshape::occupied(&mut self.volume, new)?;
        clusters.insert(end..self.volume.geometry().clusters_count().get());
        self.evacuate(clusters, new)?;
        let table = reserve::empty(&mut self.volume)?;
        let bare = target::without_reserve(&self.volume.sb)?;
        reshape::reshape(&mut self.volume, bare)?;
        self.end_transaction(Kind::Whole)?;
        let cut = self.shaped(new)?;
        reshape::reshape(&mut self.volume, cut)?;
        self.end_transaction(Kind::Cut)?;
        if new.features().compat.contains(Compat::RESIZE_INODE) {
            let full = target::with_reserve(&self.volume.sb, new)?;
            reshape::reshape(&mut self.volume, full)?;
            let now = self.now();
            reserve::fill(&mut self.volume, table, now)?;
            self.end_transaction(Kind::Whole)?;
        }
        Ok(())
    }

    /// Checks what is staged, and writes it.
    fn finish(&mut self) -> Result<()> {
        if let Some(problem) = self.check()? {
            return Err(Error::Unsound(problem));
        }
        self.volume.disk.flush()?;
        for transaction in &self.transactions {
            let is_logged = transaction.write(&self.volume.disk, self.options.now)?;
            self.outcome.in_place |= !is_logged;
        }
        commit::write_backups(&self.volume)
    }
}
