//! The rounds of a repair: mend, check, and again.

use crate::error::Error;
use crate::know::superblock_search;
use crate::know::work::{Suspects, Work};
use crate::mends::{Mend, Mends};
use crate::report::{Options, Repaired};
use crate::stage::order::Order;
use crate::stage::overlay::Overlay;
use crate::stage::staged::Staged;
use hectare_check::{Digest, Options as CheckOptions, Problem, Report};
use hectare_ext4::casefold::Folding;
use hectare_ext4::superblock::SuperBlock;
use hectare_units::GroupNr;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Problems that a check keeps: one to be named. A round works on what the report says of all in short.
const PROBLEMS_MAX: usize = 1;
/// How often single groups are read in full, each time after a check; then all are.
const PASSES_MAX: u32 = 2;

/// A repair that is under way.
struct Repair<'a> {
    device: &'a Arc<Overlay>,
    journal: Option<&'a Arc<Overlay>>,
    options: &'a Options,
    order: Order,
    /// Whether backups are to follow what was changed. They are written when the descriptors are mended, which
    /// may need them.
    refresh_backups: bool,
}

/// Mends until the check finds nothing. What comes of a store that failed is an error, whatever it led to.
pub(crate) fn repair(
    device: &Arc<Overlay>,
    journal: Option<&Arc<Overlay>>,
    options: &Options,
) -> Result<Repaired, Error> {
    let repair = Repair { device, journal, options, order: Order::default(), refresh_backups: false };
    let repaired = repair.mend();
    let stores = [Some(device), journal].into_iter().flatten().map(|overlay| overlay.store());
    match stores.filter_map(|store| store.failure()).next() {
        Some(failure) => Err(Error::Spill(failure)),
        None => repaired,
    }
}

impl Staged {
    /// Repairs the volume, without writing to it.
    ///
    /// # Errors
    /// As [`crate::repair`] and [`crate::repair_with_journal`].
    pub fn repair(&self, options: &Options) -> Result<Repaired, Error> {
        repair(self.overlay(), self.journal_overlay(), options)
    }
}

impl<'a> Repair<'a> {
    fn mend(mut self) -> Result<Repaired, Error> {
        let mut done = Repaired::new(self.device.store());
        let mut report = match self.check() {
            Ok(report) if report.is_clean() && report.notes.is_empty() => {
                done.unchecked = report.unchecked;
                return Ok(done);
            }
            Ok(report) => report,
            Err(hectare_check::Error::Device(error)) => return Err(error.into()),
            // A superblock that can't be used is what a repair is for.
            Err(_) => Report::default(),
        };
        // What those inodes hold is known before anything is taken for free.
        if !report.digest.unread.is_empty() {
            done.mends.append(self.replay(report.digest)?)?;
            report = self.check()?;
        }
        // They may lead to more of them, and those to more.
        for pass in 0..=PASSES_MAX {
            if report.digest.unread.is_empty() {
                break;
            }
            let groups = Some(&report.digest.unread).filter(|_| pass < PASSES_MAX);
            done.mends.append(self.read_all_inodes(groups)?)?;
            report = self.check()?;
        }
        let before = report.problems.first().cloned();
        loop {
            let mends = self.round(std::mem::take(&mut report.digest))?;
            done.rounds += 1;
            done.mends.append(mends)?;
            report = self.check()?;
            if report.is_clean() {
                (done.unchecked, done.order) = (report.unchecked, self.order);
                // What was wrong and is sound now was mended, even if no mend was reported.
                if let Some(Problem { what, place, reason }) = before.filter(|_| done.mends.is_empty()) {
                    let text = format!("{reason}: made right");
                    done.mends.push(&Mend { what, place, text, loses: false });
                }
                return Ok(done);
            }
            if done.rounds >= self.options.rounds_max {
                let first = report.problems.swap_remove(0);
                return Err(Error::Left {
                    rounds: done.rounds,
                    count: report.problem_count,
                    first: Box::new(first),
                });
            }
        }
    }

    fn check(&self) -> Result<Report, hectare_check::Error> {
        let options = CheckOptions { problems_max: PROBLEMS_MAX, ..CheckOptions::default() };
        match self.journal {
            Some(journal) => hectare_check::check_with_journal(&**self.device, &**journal, &options),
            None => hectare_check::check(&**self.device, &options),
        }
    }

    /// What a step works on.
    fn begun(&mut self, digest: Digest) -> Result<Work<'a>, Error> {
        let found = superblock_search::find(self.device)?;
        refuse_unknown(&found.sb)?;
        let (journal, suspects) = (self.journal.cloned(), Suspects::of(digest));
        let mut work = Work::new(self.device, journal, *self.options, suspects, found)?;
        work.order = std::mem::take(&mut self.order);
        work.refresh_backups |= self.refresh_backups;
        Ok(work)
    }

    /// What a step has mended; the rest is left to the next.
    fn ended(&mut self, work: Work<'_>) -> Mends {
        (self.order, self.refresh_backups) = (work.order, work.refresh_backups);
        work.mends
    }

    /// Begins with the superblock and the log, which may hold what the check missed.
    fn replayed(&mut self, digest: Digest) -> Result<Work<'a>, Error> {
        let mut work = self.begun(digest)?;
        work.mend_superblock()?;
        work.replay_journal()?;
        Ok(work)
    }

    /// Replays the log before anything else: nothing may be changed below it.
    fn replay(&mut self, digest: Digest) -> Result<Mends, Error> {
        let mut work = self.replayed(digest)?;
        work.write_superblock()?;
        Ok(self.ended(work))
    }

    /// Clears the marks of groups, or of all, by which inodes in use were not read.
    fn read_all_inodes(&mut self, groups: Option<&BTreeSet<u32>>) -> Result<Mends, Error> {
        let mut work = self.begun(Digest::default())?;
        match groups {
            Some(groups) => {
                for group in groups {
                    work.read_all_inodes(GroupNr::new(*group))?;
                }
            }
            None => work.read_all_tables()?,
        }
        Ok(self.ended(work))
    }

    /// Goes through the volume once.
    fn round(&mut self, digest: Digest) -> Result<Mends, Error> {
        let mut work = self.replayed(digest)?;
        work.read_groups()?;
        work.mend_task_numbers()?;
        work.claim_group_metadata()?;
        work.end_orphans()?;
        work.mend_inodes()?;
        work.finish_values()?;
        work.resolve_claims()?;
        work.write_long_links()?;
        work.mend_reserved()?;
        work.mend_directories()?;
        work.connect()?;
        work.mend_links()?;
        work.mend_quotas()?;
        work.write_bitmaps()?;
        work.write_superblocks()?;
        Ok(self.ended(work))
    }
}

/// Refuses a volume with features that a writer must know.
fn refuse_unknown(sb: &SuperBlock) -> Result<(), Error> {
    if let Err(error) = Folding::of(sb) {
        return Err(Error::Refused(format!("its names can't be read: {error}")));
    }
    let unknown = sb.features().unknown().names().join(", ");
    if unknown.is_empty() {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "it has unknown features ({unknown}): it can't be repaired by a version that does not know them"
    )))
}
