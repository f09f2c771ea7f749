//! The invariants between the groups in memory, their infos, the index and the counters, when nothing runs.
//! For tests.

use crate::group_info::{GroupInfo, GroupState};
use crate::index::Orders;
use crate::state::State;
use crate::sync::Ordering;
use hectare_units::GroupNr;

fn holds(claim: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if claim { Ok(()) } else { Err(what()) }
}

/// Verifies all groups, and the sums over them.
pub(crate) fn check(state: &State) -> Result<(), String> {
    let (mut free, mut reserved, mut pending, mut loaded) = (0_u64, 0_u64, 0_u64, 0);
    state.table.check()?;
    for (nr, info) in state.table.made_from(GroupNr::new(0)) {
        let in_flight = check_group(state, nr, info).map_err(|what| format!("group {nr}: {what}"))?;
        free += u64::from(info.free().min(state.layout.group_len(nr)));
        if let Some((r, p)) = in_flight {
            reserved += u64::from(r);
            pending += u64::from(p);
            loaded += 1;
        }
    }
    let free = free.wrapping_add(state.table.assumed());
    if let Some(classes) = &state.classes {
        classes.check(state)?;
    }
    let counts = state.counters.counts();
    let sums = [
        ("free", free, (counts.available + counts.claimed + counts.set_aside).get()),
        ("reserved", reserved, counts.reserved.get()),
        ("pending", pending, counts.pending.get()),
        ("durably free", free + reserved + pending, state.counters.durable_free().get()),
        ("loaded groups", loaded, u64::from(state.loaded.load(Ordering::Relaxed))),
    ];
    for (name, by_group, counted) in sums {
        holds(by_group == counted, || format!("{name}: {by_group} by the groups, {counted} by the counter"))?;
    }
    Ok(())
}

/// Verifies one group; what is reserved and pending in it if it is in memory.
fn check_group(state: &State, nr: GroupNr, info: &GroupInfo) -> Result<Option<(u32, u32)>, String> {
    let place = info.group.lock();
    let known = info.state();
    holds(known.loaded == place.is_some(), || format!("loaded: {}", place.is_some()))?;
    let range = nr.get()..nr.get() + 1;
    let highest = |find: &dyn Fn(u32) -> bool| (0..state.config.orders()).rev().find(|order| find(*order));
    let indexed = Orders {
        largest: highest(&|order| state.index.next_largest(order, range.clone()).is_some()),
        average: highest(&|order| state.index.next_average(order, range.clone()).is_some()),
    };
    holds(indexed == known.orders, || {
        format!("the index has {indexed:?}, the group info {:?}", known.orders)
    })?;
    let untouched = highest(&|order| state.untouched.next_average(order, range.clone()).is_some());
    let Some(group) = &*place else {
        holds(indexed == Orders::default(), || "it is indexed but not loaded".into())?;
        let expected = state.untouched_orders(nr, info).average;
        holds(untouched == expected, || format!("untouched of order {untouched:?}, not {expected:?}"))?;
        return Ok(None);
    };
    group.check()?;
    let buddy = group.buddy();
    holds(untouched.is_none(), || "it is loaded, yet among the untouched".into())?;
    let state = GroupState::of(group);
    holds(state == known, || format!("{state:?} in memory, {known:?} in the group info"))?;
    holds(buddy.free() == info.free(), || {
        format!("{} free, {} in the group info", buddy.free(), info.free())
    })?;
    let average = buddy.free().checked_div(buddy.fragments()).unwrap_or(0);
    holds(average == info.average(), || format!("runs of {average}, {} in the group info", info.average()))?;
    let longest = buddy.longest();
    holds(longest <= info.longest(), || format!("a run of {longest}, over {}", info.longest()))?;
    Ok(Some(group.in_flight()))
}
