//! The rounds of a repair: mend, check, and again.

use crate::mends::Mends;
use crate::order::Order;
use crate::overlay::Overlay;
use crate::report::{Error, Mend, Options, Repaired};
use crate::work::{Suspects, Work};
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

/// What a step of a repair leaves to the next.
#[derive(Default)]
struct Carried {
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
    let repaired = mend(device, journal, options);
    let stores = [Some(device), journal].into_iter().flatten().map(|overlay| overlay.store());
    match stores.filter_map(|store| store.failure()).next() {
        Some(failure) => Err(Error::Spill(failure)),
        None => repaired,
    }
}

fn mend(device: &Arc<Overlay>, journal: Option<&Arc<Overlay>>, options: &Options) -> Result<Repaired, Error> {
    let (mut done, mut carried) = (Repaired::new(device.store()), Carried::default());
    let mut report = match check(device, journal) {
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
        done.mends.append(replay(device, journal, options, report.digest, &mut carried)?)?;
        report = check(device, journal)?;
    }
    // They may lead to more of them, and those to more.
    for pass in 0..=PASSES_MAX {
        if report.digest.unread.is_empty() {
            break;
        }
        let groups = Some(&report.digest.unread).filter(|_| pass < PASSES_MAX);
        done.mends.append(read_all_inodes(device, journal, options, groups, &mut carried)?)?;
        report = check(device, journal)?;
    }
    let before = report.problems.first().cloned();
    loop {
        let mends = round(device, journal, options, std::mem::take(&mut report.digest), &mut carried)?;
        done.rounds += 1;
        done.mends.append(mends)?;
        report = check(device, journal)?;
        if report.is_clean() {
            (done.unchecked, done.order) = (report.unchecked, carried.order);
            // What was wrong and is sound now was mended, even if no mend was reported.
            if let Some(Problem { what, place, reason }) = before.filter(|_| done.mends.is_empty()) {
                let text = format!("{reason}: made right");
                done.mends.push(&Mend { what, place, text, loses: false });
            }
            return Ok(done);
        }
        if done.rounds >= options.rounds_max {
            let first = report.problems.swap_remove(0);
            return Err(Error::Left {
                rounds: done.rounds,
                count: report.problem_count,
                first: Box::new(first),
            });
        }
    }
}

fn check(device: &Overlay, journal: Option<&Arc<Overlay>>) -> Result<Report, hectare_check::Error> {
    let options = CheckOptions { problems_max: PROBLEMS_MAX, ..CheckOptions::default() };
    match journal {
        Some(journal) => hectare_check::check_with_journal(device, &**journal, &options),
        None => hectare_check::check(device, &options),
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

/// What a round works on.
fn begun<'a>(
    device: &'a Arc<Overlay>,
    journal: Option<&Arc<Overlay>>,
    options: &Options,
    digest: Digest,
    carried: &mut Carried,
) -> Result<Work<'a>, Error> {
    let found = crate::superblock::find(device)?;
    refuse_unknown(&found.sb)?;
    let mut work = Work::new(device, journal.cloned(), *options, Suspects::of(digest), found)?;
    work.order = std::mem::take(&mut carried.order);
    work.refresh_backups |= carried.refresh_backups;
    Ok(work)
}

/// What a step has mended; the rest is left to the next.
fn ended(work: Work<'_>, carried: &mut Carried) -> Mends {
    *carried = Carried { order: work.order, refresh_backups: work.refresh_backups };
    work.mends
}

/// Replays the log before anything else: it may hold what the check missed, and nothing may be changed below
/// it.
fn replay(
    device: &Arc<Overlay>,
    journal: Option<&Arc<Overlay>>,
    options: &Options,
    digest: Digest,
    carried: &mut Carried,
) -> Result<Mends, Error> {
    let mut work = begun(device, journal, options, digest, carried)?;
    work.mend_superblock()?;
    work.replay_journal()?;
    work.write_superblock()?;
    Ok(ended(work, carried))
}

/// Clears the marks of groups, or of all, by which inodes in use were not read.
fn read_all_inodes(
    device: &Arc<Overlay>,
    journal: Option<&Arc<Overlay>>,
    options: &Options,
    groups: Option<&BTreeSet<u32>>,
    carried: &mut Carried,
) -> Result<Mends, Error> {
    let mut work = begun(device, journal, options, Digest::default(), carried)?;
    match groups {
        Some(groups) => {
            for group in groups {
                work.read_all_inodes(GroupNr::new(*group))?;
            }
        }
        None => work.read_all_tables()?,
    }
    Ok(ended(work, carried))
}

/// Goes through the volume once.
fn round(
    device: &Arc<Overlay>,
    journal: Option<&Arc<Overlay>>,
    options: &Options,
    digest: Digest,
    carried: &mut Carried,
) -> Result<Mends, Error> {
    let mut work = begun(device, journal, options, digest, carried)?;
    work.mend_superblock()?;
    work.replay_journal()?;
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
    Ok(ended(work, carried))
}
