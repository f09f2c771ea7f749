//! Freed space to be discarded.
//!
//! Where discarding is on, the runs that a transaction freed are remembered in their groups once it has
//! committed, merged with adjacent ones. They are free like any others. Reserving one takes it off the list:
//! what will be written again needs no discard. [`Allocator::take_discards`] hands out runs to be discarded;
//! until one is returned its clusters are reserved, so that nobody writes there during the discard.
//!
//! All free space can be discarded as well, remembered or not, a run at a time ([`Allocator::take_free`]).
//!
//! A group with remembered runs stays in memory, so a caller whose device does not support discard must
//! report it ([`Allocator::stop_discards`]). What it is not: the discarding itself. Runs still queued when
//! the volume is closed are lost (trimming the whole volume finds them again).

use crate::allocator::Allocator;
use crate::bits;
use crate::budget::Budget;
use crate::error::AllocError;
use crate::layout::Run;
use crate::locked_group::LockedGroup;
use crate::reservation::Reservation;
use crate::source::GroupSource;
use crate::sync::Ordering;
use hectare_units::GroupNr;
use std::ops::Range;

/// A free run to be discarded. Nobody can get it as long as this exists; dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping it says that the run was discarded"]
pub struct DiscardRun(Reservation);

impl DiscardRun {
    /// The clusters to discard.
    #[must_use]
    pub fn run(&self) -> Run {
        self.0.run()
    }
}

impl<S: GroupSource> Allocator<S> {
    /// Takes up to `at_most` runs off the list of those to be discarded; none if discarding is off, or if
    /// all that is free is claimed.
    pub fn take_discards(&self, at_most: usize) -> Vec<DiscardRun> {
        let state = self.state();
        let mut taken = Vec::new();
        while taken.len() < at_most {
            let Some(group) = state.discards.lock().pop() else { break };
            let info = state.info(group);
            let guard = info.group.lock();
            // Its runs may all have been reserved since, and the group evicted.
            if guard.is_none() {
                continue;
            }
            let mut locked = LockedGroup::new(self.share(), group, info, guard);
            if !take_from(&mut locked, at_most, &mut taken) {
                state.discards.lock().push(group);
                break;
            }
        }
        taken
    }

    /// Takes the first free run of a group that has at least `least` clusters in the range `within` of the
    /// group's clusters, as much of it as is not claimed, and says where the run ends in the group. Nobody
    /// can get it meanwhile. `None` if there is none, or if all that is free is claimed.
    ///
    /// # Errors
    /// Those of loading the group.
    pub fn take_free(
        &self,
        group: GroupNr,
        within: Range<u32>,
        least: u32,
    ) -> Result<Option<(u32, DiscardRun)>, AllocError<S::Error>> {
        let mut locked = self.groups().open(group)?;
        let mut runs = bits::clear_runs(locked.group().buddy().words(), within);
        let Some(range) = runs.find(|run| run.end - run.start >= least) else { return Ok(None) };
        drop(runs);
        let taken = Reservation::take(&mut locked, &range, 1, &mut Budget::Available { floor: 0 }, None);
        Ok(taken.ok().map(|reservation| (range.end, DiscardRun(reservation))))
    }

    /// Forgets the runs that wait, and remembers none any more: for a device that refuses to discard.
    pub fn stop_discards(&self) {
        let state = self.state();
        state.discarding.store(false, Ordering::Relaxed);
        while let Some(group) = { state.discards.lock().pop() } {
            if let Some(group) = &mut *state.info(group).group.lock() {
                group.forget_discards();
            }
        }
    }
}

/// Takes the runs of one group; `false` if some are left.
fn take_from(locked: &mut LockedGroup<'_>, at_most: usize, taken: &mut Vec<DiscardRun>) -> bool {
    while let Some(range) = locked.group().next_discard() {
        if taken.len() == at_most {
            return false;
        }
        match Reservation::take(locked, &range, 1, &mut Budget::Available { floor: 0 }, None) {
            Ok(reservation) => taken.push(DiscardRun(reservation)),
            Err(_) => return false,
        }
    }
    true
}
