//! Tests of waiting for a group's lock.

use super::*;
use crate::{Allocator, Config, GroupSource, Layout, Policy};
use hectare_units::Clusters;
use std::convert::Infallible;
use std::time::{Duration, Instant};

struct Free;

impl GroupSource for Free {
    type Error = Infallible;

    fn load(&self, _group: GroupNr) -> Result<Vec<u64>, Infallible> {
        Ok(vec![0; 16])
    }

    fn free_hint(&self, _group: GroupNr) -> u32 {
        1024
    }
}

#[test]
fn regression_who_waits_to_give_space_back_counts_as_contention() {
    let layout = Layout::new(1024, Clusters::new(2048)).expect("two groups of 1,024 clusters");
    let config = Config { policy: Policy::MBALLOC, ..Config::default() };
    let (allocator, group) = (Allocator::new(Free, layout, config), GroupNr::new(0));
    let _ = allocator.group_summary(group);
    let before = allocator.contention();
    std::thread::scope(|scope| {
        let locked = LockedGroup::of(allocator.share(), group);
        scope.spawn(|| drop(LockedGroup::of(allocator.share(), group)));
        let began = Instant::now();
        while allocator.contention() == before && began.elapsed() < Duration::from_secs(30) {
            std::thread::yield_now();
        }
        drop(locked);
    });
    assert_eq!(allocator.contention(), before + 1);
}
