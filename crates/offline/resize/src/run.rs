//! The steps of a resize, in their order.

use crate::admit;
use crate::commit::{self, Kind, Transaction};
use crate::error::{Error, Result};
use crate::evacuate::{self, Moved, Relocated};
use crate::inodes;
use crate::journal::{Journal, read_superblock};
use crate::loan::{self, Loan};
use crate::reserve;
use crate::reshape;
use crate::staging::Staging;
use crate::target::{self, Width};
use crate::volume::Volume;
use hectare_device::Device;
use hectare_ext4::feature::Compat;
use hectare_ext4::superblock::{STATE_VALID, SuperBlock};
use hectare_ext4::time::Timestamp;
use hectare_units::Blocks;
use rangemap::RangeSet;
use std::cell::Cell;
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
    /// Why the device was to be cut and keeps its length: it is of a kind that can't be cut.
    pub uncut: Option<String>,
}

/// Makes the volume on `disk` have `blocks` blocks. The device is as long as the longer of both already; it
/// is not cut. `begun` is set before anything is written that the volume on disk uses.
pub(crate) fn to_blocks(
    disk: &Arc<dyn Device>,
    blocks: Blocks,
    options: &Options,
    begun: &Cell<bool>,
) -> Result<Outcome> {
    let mut run = Run::begin(disk, options, true)?;
    let before = run.volume.geometry().blocks_count;
    let new = target::superblock(&run.volume.sb, blocks, options.width)?;
    let after = new.geometry().blocks_count;
    let block_size = new.geometry().block_size.get();
    let is_same = after == before && new.features() == run.volume.sb.features();
    if !is_same {
        let unchecked = std::mem::take(&mut run.outcome.unchecked);
        run = Run::staged(disk, options, &new)?.with_journal(&new)?;
        run.outcome.unchecked = unchecked;
        run.finish(begun)?;
    }
    Ok(Outcome { before, after, block_size, ..run.outcome })
}

/// A volume that was made smaller in memory.
pub(crate) struct Attempt<'a> {
    run: Run<'a>,
    new: SuperBlock,
    before: Blocks,
}

impl<'a> Attempt<'a> {
    /// Tries to shrink the volume on `device` without writing anything to it; `None` if it would not become
    /// smaller.
    pub(crate) fn new(
        device: &Arc<dyn Device>,
        blocks: Blocks,
        options: &'a Options,
    ) -> Result<Option<Self>> {
        let mut run = Run::begin(device, options, false)?;
        let before = run.volume.geometry().blocks_count;
        let new = target::superblock(&run.volume.sb, blocks, Width::of(&run.volume.sb))?;
        if new.geometry().blocks_count >= before {
            return Ok(None);
        }
        run.stage(&new)?;
        Ok(Some(Self { run, new, before }))
    }

    /// The blocks that it has.
    pub(crate) fn after(&self) -> Blocks {
        self.new.geometry().blocks_count
    }

    /// The device as it would be, but for data of files.
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        Arc::<Staging>::clone(&self.run.volume.staged)
    }

    /// Does it. The device is not cut. `begun` as for [`to_blocks`].
    pub(crate) fn carry_out(self, begun: &Cell<bool>) -> Result<Outcome> {
        let (before, after) = (self.before, self.after());
        let block_size = self.new.geometry().block_size.get();
        let mut run = self.run.with_journal(&self.new)?;
        run.finish(begun)?;
        Ok(Outcome { before, after, block_size, ..run.outcome })
    }
}

/// A resize under way.
struct Run<'a> {
    options: &'a Options,
    volume: Volume,
    transactions: Vec<Transaction>,
    loan: Option<Loan>,
    /// Whether clusters are marked that are nobody's: then e2fsck -p is to look at the volume.
    is_loose: bool,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    /// A volume that may be resized; checked if this is the first that is done with it.
    fn begin(disk: &Arc<dyn Device>, options: &'a Options, is_first: bool) -> Result<Self> {
        let volume = Volume::open(Arc::clone(disk), false)?;
        admit::admit(&volume)?;
        let mut run = Self::of(volume, options);
        if is_first && let Some(problem) = run.check()? {
            let reason = format!("it is not sound: {problem}; run e2fsck -f first");
            return Err(Error::Refused(reason));
        }
        Ok(run)
    }

    fn of(volume: Volume, options: &'a Options) -> Self {
        let outcome = Outcome::default();
        Self { options, volume, transactions: Vec::new(), loan: None, is_loose: false, outcome }
    }

    /// Everything up to the shape `new`. What lies beyond the end of the volume on disk is written.
    fn staged(disk: &Arc<dyn Device>, options: &'a Options, new: &SuperBlock) -> Result<Self> {
        let grows = new.geometry().blocks_count >= read_superblock(&**disk)?.geometry().blocks_count;
        let mut run = Self::of(Volume::open(Arc::clone(disk), grows)?, options);
        run.stage(new)?;
        Ok(run)
    }

    /// What was staged, with a journal that holds it as far as there can be one.
    fn with_journal(mut self, new: &SuperBlock) -> Result<Self> {
        let most = self.most_logged();
        let disk = Arc::clone(&self.volume.disk);
        if Journal::of(&disk)?.is_some_and(|journal| journal.holds(most)) {
            return Ok(self);
        }
        let taken = self.transactions.iter().flat_map(|transaction| transaction.fresh.iter().cloned());
        let taken: RangeSet<u64> = taken.collect();
        let Some(loan) = Loan::find(&mut self.volume, &taken, most)? else { return Ok(self) };
        let mut run = Self::of(Volume::open(disk, true)?, self.options);
        run.loan = Some(loan);
        run.stage(new)?;
        Ok(run)
    }

    /// The most blocks of a transaction that needs a journal.
    fn most_logged(&self) -> usize {
        let previous = std::iter::once(None).chain(self.transactions.iter().map(Some));
        let pairs = self.transactions.iter().zip(previous);
        let logged = pairs.filter(|(transaction, _)| transaction.kind == Kind::Whole);
        logged.map(|(transaction, previous)| transaction.home_blocks(previous)).max().unwrap_or(0)
    }

    fn stage(&mut self, new: &SuperBlock) -> Result<()> {
        self.take_loan()?;
        if new.geometry().blocks_count < self.volume.geometry().blocks_count {
            self.shrink(new)?;
        } else {
            self.grow(new)?;
        }
        self.return_loan()
    }

    fn take_loan(&mut self) -> Result<()> {
        let now = self.now();
        let Some(mut loan) = self.loan.take() else { return Ok(()) };
        loan.mark(&mut self.volume)?;
        self.is_loose = true;
        self.end_transaction(Kind::Marks)?;
        loan.begin(&mut self.volume, now)?;
        self.is_loose = loan.own.is_some();
        self.loan = Some(loan);
        self.end_transaction(Kind::NewJournal)
    }

    fn return_loan(&mut self) -> Result<()> {
        let Some(loan) = self.loan.take() else { return Ok(()) };
        loan.end(&mut self.volume)?;
        self.is_loose = true;
        self.end_transaction(Kind::OldJournal)?;
        loan.unmark(&mut self.volume)?;
        self.is_loose = false;
        self.end_transaction(Kind::Marks)
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
        let sb = &mut self.volume.sb;
        sb.set_write_time(now);
        sb.set_state(if self.is_loose { sb.state() & !STATE_VALID } else { sb.state() | STATE_VALID });
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

    fn evacuate(&mut self, mut clusters: RangeSet<u64>, new: &SuperBlock) -> Result<()> {
        for lent in self.loan.iter().flat_map(|loan| loan.clusters().into_iter().collect::<Vec<_>>()) {
            clusters.remove(lent);
        }
        let moved = evacuate::evacuate(&mut self.volume, clusters.clone(), new.geometry().inodes_count())?;
        self.outcome.blocks_moved += moved.blocks;
        self.outcome.inodes_moved += moved.inodes;
        self.move_journal(clusters, moved)
    }

    /// Moves the volume's own journal, if it lies in what is to be left; what was `moved` is on the device
    /// with the space that it takes.
    fn move_journal(&mut self, leaving: RangeSet<u64>, moved: Moved) -> Result<()> {
        let Some(nr) = evacuate::journal(&self.volume) else { return Ok(()) };
        let inode = match &self.loan {
            Some(Loan { own: Some(own), .. }) => own.clone(),
            Some(_) => return Ok(()),
            None => inodes::read(&self.volume, nr)?,
        };
        if !evacuate::is_touched(&mut self.volume, nr, &inode, &leaving)? {
            return Ok(());
        }
        let is_alone = moved.blocks == 0 && moved.inodes == 0 && !moved.groups;
        let Relocated { inode, left, blocks } =
            evacuate::relocate_journal(&mut self.volume, nr, &inode, leaving, moved.left)?;
        self.outcome.blocks_moved += blocks;
        let was_loose = std::mem::replace(&mut self.is_loose, true);
        self.end_transaction(if is_alone { Kind::Marks } else { Kind::Whole })?;
        match &mut self.loan {
            Some(loan) => loan.own = Some(inode),
            None => {
                inodes::write(&self.volume, nr, &inode)?;
                let mut raw = *self.volume.sb.raw();
                loan::back_up(&mut raw, &inode);
                self.volume.sb = SuperBlock::from_raw(raw)?;
                self.end_transaction(Kind::NewJournal)?;
            }
        }
        self.is_loose = was_loose;
        left.into_iter().try_for_each(|range| self.volume.mark(range, false))
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
        if self.loan.as_ref().is_some_and(|loan| !loan.is_below(end)) {
            self.return_loan()?;
        }
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

    /// Checks what is staged, and writes it; `begun` as for [`to_blocks`].
    fn finish(&mut self, begun: &Cell<bool>) -> Result<()> {
        if let Some(problem) = self.check()? {
            return Err(Error::Unsound(problem));
        }
        let size = self.volume.geometry().block_size;
        self.volume.copies.make(&*self.volume.disk, size)?;
        let mut previous = None;
        for transaction in &self.transactions {
            let is_safe = transaction.write(&self.volume.disk, previous, self.options.now, begun)?;
            self.outcome.in_place |= !is_safe;
            previous = Some(transaction);
        }
        commit::write_backups(&self.volume)
    }
}
