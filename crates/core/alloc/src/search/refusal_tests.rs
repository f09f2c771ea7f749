//! When a search may say that there is no space, under shuttle: with the last pass alone, so that few
//! switches between threads make it look in each place at the wrong moment.
//!
//! Run with `cargo test -p hectare-alloc --features shuttle --lib refusal`.

use super::{Plan, Search};
use crate::budget::Budget;
use crate::criteria::ANY_FREE;
use crate::locked_group::LockedGroup;
use crate::size_class::Stage;
use crate::{AllocError, Allocator, Config, GroupSource, Layout, Policy, Request, Reservation};
use hectare_units::{ClusterNr, Clusters, GroupNr};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::Arc;
use shuttle::{Runner, thread};
use std::convert::Infallible;

/// Groups of one free cluster each.
struct Free;

impl GroupSource for Free {
    type Error = Infallible;

    fn load(&self, _: GroupNr) -> Result<Vec<u64>, Infallible> {
        Ok(vec![0])
    }

    fn free_hint(&self, _: GroupNr) -> u32 {
        1
    }
}

fn one(at: u64) -> Request {
    Request::new(ClusterNr::new(at), Clusters::ONE).for_data(Clusters::ONE)
}

/// Reserves by the last pass only.
fn last_pass(allocator: &Allocator<Free>) -> Result<Reservation, AllocError<Infallible>> {
    let mut budget = Budget::Available { floor: 0 };
    let plan = Plan::new(&one(0), 2, allocator.state()).expect("a request that can be met");
    Search::new(allocator.groups(), &plan, &mut budget).run(&[(Stage::Any, [ANY_FREE].into())])
}

/// One thread has a cluster, gives it back and takes the other one. A concurrent search may find each of the
/// two taken when it looks there, though one is free at every moment.
fn to_and_fro() {
    let layout = Layout::new(1, Clusters::new(2)).expect("a possible layout");
    let config = Config { policy: Policy::FIRST_FIT, ..Config::default() };
    let allocator = Arc::new(Allocator::new(Free, layout, config));
    let [mine, other] = [0, 1].map(|at| allocator.reserve(&one(at)).expect("it is free"));
    // Both groups are known to be full, so that they are passed over without their locks.
    for group in [0, 1].map(GroupNr::new) {
        LockedGroup::of(allocator.share(), group).note_none_of(1);
    }
    drop(other);
    let mover = {
        let allocator = Arc::clone(&allocator);
        thread::spawn(move || {
            drop(mine);
            allocator.reserve_at(&one(1)).expect("nothing fails")
        })
    };
    let got = last_pass(&allocator).expect("a cluster is free at every moment");
    let moved = mover.join().expect("it does not panic");
    drop((got, moved));
    allocator.check().expect("all is in order");
}

#[test]
fn refusal_regression_space_that_moves_is_not_missed() {
    let config = || {
        let mut config = shuttle::Config::new();
        config.stack_size = 1 << 20;
        config
    };
    Runner::new(RandomScheduler::new(5_000), config()).run(to_and_fro);
    for depth in [2, 3, 4] {
        Runner::new(PctScheduler::new(depth, 10_000), config()).run(to_and_fro);
    }
}
