//! The invariants between the groups in memory, their slots, the index and the counters, when nothing runs.
//! For tests.

use crate::group_info::Slot;
use crate::index::Orders;
use crate::state::Space;
use crate::sync::Ordering;
use hectare_units::GroupNr;

fn holds(claim: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if claim { Ok(()) } else { Err(what()) }
}

/// Verifies all groups, and the sums over them.
pub(crate) fn check(space: &Space) -> Result<(), String> {
    let (mut free, mut reserved, mut pending, mut loaded) = (0_u64, 0_u64, 0_u64, 0);
    space.slots.check()?;
    for (nr, slot) in space.slots.made_from(GroupNr::new(0)) {
        let in_flight = check_group(space, nr, slot).map_err(|what| format!("group {nr}: {what}"))?;
        free += u64::from(slot.free().min(space.layout.group_len(nr)));
        if let Some((r, p)) = in_flight {
            reserved += u64::from(r);
            pending += u64::from(p);
            loaded += 1;
        }
    }
    let free = free.wrapping_add(space.slots.assumed());
    if let Some(classes) = &space.classes {
        classes.check(space)?;
    }
    let counts = space.counters.counts();
    let sums = [
        ("free", free, (counts.available + counts.claimed).get()),
        ("reserved", reserved, counts.reserved.get()),
        ("pending", pending, counts.pending.get()),
        ("durably free", free + reserved + pending, space.counters.durable_free().get()),
        ("loaded groups", loaded, u64::from(space.loaded.load(Ordering::Relaxed))),
    ];
    for (name, by_group, counted) in sums {
        holds(by_group == counted, || format!("{name}: {by_group} by the groups, {counted} by the counter"))?;
    }
    Ok(())
}

/// Verifies one group; what is reserved and pending in it if it is in memory.
fn check_group(space: &Space, nr: GroupNr, slot: &Slot) -> Result<Option<(u32, u32)>, String> {
    let place = slot.group.lock();
    let state = slot.state();
    holds(state.loaded == place.is_some(), || format!("loaded: {}", place.is_some()))?;
    let range = nr.get()..nr.get() + 1;
    let highest = |find: &dyn Fn(u32) -> bool| (0..space.config.orders()).rev().find(|order| find(*order));
    let indexed = Orders {
        largest: highest(&|order| space.index.next_largest(order, range.clone()).is_some()),
        average: highest(&|order| space.index.next_average(order, range.clone()).is_some()),
    };
    holds(indexed == state.orders, || format!("the index has {indexed:?}, the slot {:?}", state.orders))?;
    let untouched = highest(&|order| space.untouched.next_average(order, range.clone()).is_some());
    let Some(group) = &*place else {
        holds(indexed == Orders::default(), || "it is indexed but not loaded".into())?;
        let expected = space.untouched_orders(nr, slot).average;
        holds(untouched == expected, || format!("untouched of order {untouched:?}, not {expected:?}"))?;
        return Ok(None);
    };
    group.check()?;
    let buddy = group.buddy();
    holds(untouched.is_none(), || "it is loaded, yet among the untouched".into())?;
    holds(group.state() == state, || format!("{:?} in memory, {state:?} in the slot", group.state()))?;
    holds(buddy.free() == slot.free(), || format!("{} free, {} in the slot", buddy.free(), slot.free()))?;
    let average = buddy.free().checked_div(buddy.fragments()).unwrap_or(0);
    holds(average == slot.average(), || format!("runs of {average}, {} in the slot", slot.average()))?;
    let longest = buddy.longest();
    holds(longest <= slot.longest(), || format!("a run of {longest}, over {}", slot.longest()))?;
    Ok(Some(group.in_flight()))
}
