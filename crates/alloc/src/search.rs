//! Which group, and where in it: the one plain policy.
//!
//! Three passes, each tried over the whole volume before the next:
//!
//! | pass | candidates | accepts | busy group |
//! |---|---|---|---|
//! | goal | the goal's group | a run of the full length, at the goal or else after it | wait |
//! | full length | every other group from there on, wrapping | the first run of the full length | skip |
//! | best available | the group with the longest run there is | that run, down to the least length | wait |
//!
//! The passes choose and nothing more. Not their business: how much a caller may take (the purse says), what
//! is reserved or being freed (those clusters are not free in the bitmap they see), journalling.
//!
//! Groups are passed over without their lock by the upper bound each slot has for its longest run. A group
//! that was scanned in vain has an exact bound, so a full or shredded volume is scanned once and then costs
//! two loads per group.

use crate::allocator::{Allocator, GroupSource};
use crate::bits::Found;
use crate::error::AllocError;
use crate::reservation::Reservation;
use crate::space::{Held, Purse};
use crate::sync::Ordering;
use hectare_units::GroupNr;

/// A request in the terms of one group.
pub(crate) struct Plan {
    /// The goal's group.
    pub(crate) group: GroupNr,
    /// The goal's position in it.
    pub(crate) at: u32,
    /// The full length.
    pub(crate) want: u32,
    /// The least acceptable length.
    pub(crate) least: u32,
}

impl<S: GroupSource> Allocator<S> {
    /// Runs the passes.
    ///
    /// "No space" must be true at some moment of the search. A scan that found nothing while others gave
    /// space back may have looked in each place too early or too late; it looks again. Space that came back
    /// is counted under the group's lock before it is visible, so an unchanged count means that free space
    /// only shrank.
    pub(crate) fn search(
        &self,
        plan: &Plan,
        purse: &mut Purse<'_>,
    ) -> Result<Reservation, AllocError<S::Error>> {
        loop {
            let seen = self.space().given_back.load(Ordering::SeqCst);
            if purse.holds(&self.space().counters) < u64::from(plan.least) {
                return Err(AllocError::NoSpace);
            }
            if let Some(found) = self.at_goal(plan, purse)? {
                return Ok(found);
            }
            if let Some(found) = self.full_length(plan, purse)? {
                return Ok(found);
            }
            if let Some(found) = self.best_available(plan, purse)? {
                return Ok(found);
            }
            if self.space().given_back.load(Ordering::SeqCst) == seen {
                return Err(AllocError::NoSpace);
            }
        }
    }

    /// Pass "goal".
    fn at_goal(
        &self,
        plan: &Plan,
        purse: &mut Purse<'_>,
    ) -> Result<Option<Reservation>, AllocError<S::Error>> {
        if self.longest(plan.group) < plan.want {
            return Ok(None);
        }
        take_whole(&mut self.open(plan.group)?, plan.at, plan, purse)
    }

    /// Pass "full length".
    fn full_length(
        &self,
        plan: &Plan,
        purse: &mut Purse<'_>,
    ) -> Result<Option<Reservation>, AllocError<S::Error>> {
        for group in self.others_from(plan.group) {
            if self.longest(group) < plan.want {
                continue;
            }
            let Some(mut held) = self.try_open(group)? else { continue };
            if let Some(found) = take_whole(&mut held, 0, plan, purse)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Pass "best available". Each turn takes a run or lowers the bound of the most promising group, so it
    /// ends.
    fn best_available(
        &self,
        plan: &Plan,
        purse: &mut Purse<'_>,
    ) -> Result<Option<Reservation>, AllocError<S::Error>> {
        while let Some((group, bound)) = self.most_promising(plan) {
            let mut held = self.open(group)?;
            let from = if group == plan.group { plan.at } else { 0 };
            let range = match held.find(from, plan.want) {
                Found::Whole(range) => range,
                // Another group may now promise more.
                Found::Longest(range) if range.end - range.start < bound => continue,
                Found::Longest(range) => range,
            };
            return held.take(&range, plan.least, purse).map(Some).ok_or(AllocError::NoSpace);
        }
        Ok(None)
    }

    /// The group that may hold the longest run of use, nearest after the goal, and that run's greatest
    /// length.
    fn most_promising(&self, plan: &Plan) -> Option<(GroupNr, u32)> {
        let mut best = None;
        for group in std::iter::once(plan.group).chain(self.others_from(plan.group)) {
            let bound = self.longest(group).min(plan.want);
            if bound >= plan.least && best.is_none_or(|(_, most)| bound > most) {
                best = Some((group, bound));
                if bound == plan.want {
                    break;
                }
            }
        }
        best
    }

    /// An upper bound of the longest free run of a group, read without its lock.
    fn longest(&self, group: GroupNr) -> u32 {
        self.space().slot(group).longest.load(Ordering::Relaxed)
    }

    /// The groups after `group` and, from the first on, those before it.
    fn others_from(&self, group: GroupNr) -> impl Iterator<Item = GroupNr> + use<S> {
        let groups = self.space().layout.groups();
        (group.get() + 1..groups).chain(0..group.get()).map(GroupNr::new)
    }
}

/// Takes a run of the full length from a group, if it has one.
fn take_whole<E>(
    held: &mut Held<'_>,
    from: u32,
    plan: &Plan,
    purse: &mut Purse<'_>,
) -> Result<Option<Reservation>, AllocError<E>> {
    match held.find(from, plan.want) {
        Found::Whole(range) => held.take(&range, plan.least, purse).map(Some).ok_or(AllocError::NoSpace),
        Found::Longest(_) => Ok(None),
    }
}
