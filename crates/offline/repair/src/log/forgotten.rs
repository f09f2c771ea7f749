//! A log that is not empty, although a sound superblock does not say that it is to be replayed.
//!
//! Either the mark is gone, and the log holds what is newest; or something changed the volume that knew of no
//! log, and what is in it is old. `e2fsck -y` replays such a log (`-p` refuses), the kernel drops it. Here a log
//! whose inodes are older than those in their place is given up ([`crate::log::age`]). Where inodes don't say it,
//! both volumes are made on overlays and checked. The one with fewer problems is taken, but the replayed one
//! only if it is sound or has as many inodes in use, so that no file is lost for little; and else the
//! replayed one, as e2fsck does. Bitmaps and counts do not speak against a log: they are made anew from the
//! inodes. Either way something is given up: it counts as a loss.
//!
//! Hazard: fast commits are not applied to the volume that is judged, but to the one that is taken.

use crate::error::Error;
use crate::know::work::Work;
use crate::log::place::{LogPlace, held_by};
use crate::stage::overlay::Overlay;
use hectare_check::{Options, Report, What, check, check_with_journal};
use hectare_device::Device;
use hectare_ext4::error::Place;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{SIZE, SuperBlock};
use hectare_journal::recovery::Recovery;
use hectare_units::{Bytes, GroupNr};
use std::sync::Arc;

impl Work<'_> {
    /// Replays a log that the superblock does not ask for, if that leaves the better volume; says so, and
    /// whether it did. One that is not replayed is given up later, where the journal is mended.
    pub(crate) fn replay_forgotten_log(&mut self) -> Result<bool, Error> {
        if !self.suspects.has(What::Journal) {
            return Ok(false);
        }
        self.preview_groups()?;
        let place = self.log_place()?;
        let tables = self.tables();
        self.groups.clear();
        let Ok(place) = place else { return Ok(false) };
        let Ok((recovery, damage)) = self.read_log(&place) else { return Ok(false) };
        if !recovery.needed() || !recovery.holds_something() {
            return Ok(false);
        }
        let Some(replayed) = self.overlaid(&place, &recovery, true)? else { return Ok(false) };
        if self.age_of_log(&recovery, &*replayed.device, &tables)?.is_lt() {
            return Ok(false);
        }
        let Some(with) = replayed.judged() else { return Ok(false) };
        let as_it_lies = self.overlaid(&place, &recovery, false)?.and_then(|lies| lies.judged());
        if as_it_lies.as_ref().is_some_and(|without| is_better(without, &with)) {
            return Ok(false);
        }
        let inodes = |report: &Report| report.counts.inodes_used.to_string();
        let without = as_it_lies.as_ref().map_or("an unknown number".to_owned(), inodes);
        // What the volume holds in their place is given up.
        self.lost(
            What::Journal,
            Place::Volume,
            format!(
                "its log holds {}, which the superblock does not ask to replay; replayed: {} inodes in use, \
                 {without} without",
                held_by(&recovery),
                inodes(&with)
            ),
        );
        let mut sb = self.sb.clone();
        sb.set_needs_recovery(true);
        self.device.write_at(SUPERBLOCK_OFFSET, &sb.render(GroupNr::new(0)))?;
        self.replay(&recovery, damage, &place)?;
        self.end_recovery();
        self.suspects.subjects.retain(|what| *what != What::Journal);
        Ok(true)
    }

    /// The volume with an empty log, with what that held in its place or not; `None` if that can't be.
    fn overlaid(
        &self,
        place: &LogPlace,
        recovery: &Recovery,
        replayed: bool,
    ) -> Result<Option<Overlaid>, Error> {
        let over = |device: &Arc<Overlay>| {
            Arc::new(Overlay::within(Arc::clone(device) as Arc<dyn Device>, Arc::clone(self.device.store())))
        };
        let device = over(self.device);
        let log = place.is_external.then(|| over(&place.device));
        let in_log = log.as_ref().unwrap_or(&device);
        if replayed {
            if recovery.apply(&**in_log, &*device).is_err() {
                return Ok(None);
            }
            // The log may hold a superblock that asks for it.
            let mut bytes = [0; SIZE];
            device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
            let Ok(mut sb) = SuperBlock::parse(&bytes, Bytes::new(u64::MAX)) else { return Ok(None) };
            sb.set_needs_recovery(false);
            device.write_at(SUPERBLOCK_OFFSET, &sb.render(GroupNr::new(0)))?;
        }
        in_log.write_at(recovery.superblock_offset(), &recovery.clean_superblock())?;
        Ok(Some(Overlaid { device, log }))
    }
}

/// A volume as it would be, and its log if that is on a device of its own.
struct Overlaid {
    device: Arc<Overlay>,
    log: Option<Arc<Overlay>>,
}

impl Overlaid {
    /// What the check says of it.
    fn judged(&self) -> Option<Report> {
        let options = Options { problems_max: 1, ..Options::default() };
        let report = match &self.log {
            Some(log) => check_with_journal(&*self.device, &**log, &options),
            None => check(&*self.device, &options),
        };
        // A check that ended at the superblock or the descriptors has judged nothing.
        report.ok().filter(|report| report.counts.inodes_used > 0)
    }
}

/// Whether a volume as it lies is better than the replayed one: it has fewer problems, or more inodes in use
/// where the log is no remedy for all problems. It is not where all that is wrong with the replayed one are
/// bitmaps and counts: nothing is lost by making them anew.
fn is_better(as_it_lies: &Report, replayed: &Report) -> bool {
    let more = as_it_lies.counts.inodes_used > replayed.counts.inodes_used;
    let made_anew = [What::BlockBitmap, What::InodeBitmap, What::Counts];
    if !more && replayed.digest.subjects.iter().all(|what| made_anew.contains(what)) {
        return false;
    }
    let no_remedy = as_it_lies.problem_count == replayed.problem_count || !replayed.is_clean();
    as_it_lies.problem_count < replayed.problem_count || no_remedy && more
}
