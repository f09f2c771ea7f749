//! Plans which clusters stay free and which are filled: pure arithmetic over the free stretches of a volume.
//!
//! A stretch is a run of free clusters inside one group. The lengths of free extents (see [`super::lengths`])
//! add up to exactly the free space wanted; each stretch gets extents until its share of the whole is
//! reached, and the rest of it is divided into gaps, exponentially distributed too, one before each extent
//! and one after the last. Every gap but the first of a stretch has at least one cluster, so no two free
//! extents touch, neither inside a stretch nor across its end.

use super::lengths::{proportional, settle};
use crate::exponential::exponential as variate;
use hectare_units::random::SplitMix64;
use std::ops::Range;

/// Clusters, by their numbers, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    /// To stay free; no two touch.
    pub(super) free: Vec<Range<u64>>,
    /// To be filled; none reaches over the end of a stretch.
    pub(super) used: Vec<Range<u64>>,
}

/// The longest free extent that any of these stretches can hold: one cluster of a stretch is filled.
pub(super) fn longest(stretches: &[Range<u64>]) -> u64 {
    stretches.iter().map(length).max().unwrap_or(0).saturating_sub(1)
}

/// Cuts `stretches` so that extents of these lengths stay free, in this order as far as they fit so. `None`
/// if they don't fit.
pub(super) fn cut(stretches: &[Range<u64>], lengths: &[u64], random: &mut SplitMix64) -> Option<Plan> {
    let shares = deal(stretches, lengths)?;
    let mut plan = Plan::default();
    for (stretch, extents) in stretches.iter().zip(&shares) {
        lay(stretch, extents, random, &mut plan);
    }
    Some(plan)
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// Gives every stretch its extents: as many as bring it to its share of the free space. What does not fit
/// goes to later stretches, and at the end to any with room.
fn deal(stretches: &[Range<u64>], lengths: &[u64]) -> Option<Vec<Vec<u64>>> {
    let (all, free): (u64, u64) = (stretches.iter().map(length).sum(), lengths.iter().sum());
    let mut shares: Vec<Vec<u64>> = vec![Vec::new(); stretches.len()];
    let mut rooms: Vec<u64> = stretches.iter().map(length).collect();
    let (mut next, mut aside) = (lengths.iter().copied().peekable(), Vec::new());
    let (mut seen, mut dealt) = (0, 0);
    for ((stretch, share), room) in stretches.iter().zip(&mut shares).zip(&mut rooms) {
        seen += length(stretch);
        let goal = u128::from(free) * u128::from(seen) / u128::from(all.max(1));
        while let Some(extent) = next.next_if(|extent| u128::from(dealt + extent / 2) <= goal) {
            if extent < *room {
                *room -= extent + 1;
                dealt += extent;
                share.push(extent);
            } else {
                aside.push(extent);
            }
        }
    }
    aside.extend(next);
    // The longest first: they have the fewest places.
    aside.sort_unstable_by(|a, b| b.cmp(a));
    let mut from = 0;
    for extent in aside {
        let at = (from..rooms.len()).chain(0..from).find(|at| extent < rooms[*at])?;
        rooms[at] -= extent + 1;
        shares[at].push(extent);
        from = at + 1;
    }
    Some(shares)
}

/// Lays the extents of one stretch out, with gaps between.
fn lay(stretch: &Range<u64>, extents: &[u64], random: &mut SplitMix64, plan: &mut Plan) {
    let weights: Vec<f64> = (0..=extents.len()).map(|_| variate(random)).collect();
    let taken: u64 = extents.iter().map(|extent| extent + 1).sum();
    let spare = length(stretch) - taken;
    let mut gaps = proportional(&weights, spare, 0, spare);
    settle(&mut gaps, spare, 0, spare);
    let mut at = stretch.start;
    for (index, gap) in gaps.into_iter().enumerate() {
        let gap = gap + u64::from(index > 0);
        if gap > 0 {
            plan.used.push(at..at + gap);
            at += gap;
        }
        if let Some(extent) = extents.get(index) {
            plan.free.push(at..at + extent);
            at += extent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lengths::exponential;
    use super::*;
    use proptest::prelude::*;

    /// The requested free space: this many clusters in this many extents, none longer than the maximum.
    #[derive(Clone, Copy)]
    struct Wanted {
        free: u64,
        count: u64,
        longest: u64,
    }

    fn cut(stretches: &[Range<u64>], wanted: Wanted, seed: u64) -> Option<Plan> {
        let mut random = SplitMix64::new(seed);
        let most = longest(stretches).min(wanted.longest);
        super::cut(stretches, &exponential(wanted.free, wanted.count, most, &mut random)?, &mut random)
    }

    fn check(stretches: &[Range<u64>], free: u64, count: u64, seed: u64) -> Plan {
        let plan = cut(stretches, Wanted { free, count, longest: u64::MAX }, seed).unwrap();
        assert_eq!(plan.free.iter().map(length).sum::<u64>(), free);
        assert_eq!(u64::try_from(plan.free.len()).unwrap(), count);
        exact(stretches, &plan);
        plan
    }

    /// Every cluster of the stretches is either free or filled, and no two free extents touch.
    fn exact(stretches: &[Range<u64>], plan: &Plan) {
        let mut all: Vec<_> = plan.free.iter().chain(&plan.used).cloned().collect();
        all.sort_by_key(|range| range.start);
        let mut parts = all.iter();
        for stretch in stretches {
            let mut at = stretch.start;
            while at < stretch.end {
                let part = parts.next().unwrap();
                assert_eq!(part.start, at, "no hole and no overlap");
                assert!(part.end <= stretch.end && part.end > at);
                at = part.end;
            }
        }
        assert!(parts.next().is_none());
        assert!(plan.free.windows(2).all(|pair| pair[0].end < pair[1].start), "free extents don't touch");
    }

    #[test]
    fn sums_and_counts_are_exact_and_nothing_overlaps() {
        let groups: Vec<_> = (0..100).map(|nr| nr * 32_768..(nr + 1) * 32_768).collect();
        let aged = check(&groups, 163_840, 10_240, 3);
        assert_ne!(aged, check(&groups, 163_840, 10_240, 4));
        assert_eq!(aged, check(&groups, 163_840, 10_240, 3), "one seed, one plan");
        for group in &groups {
            let inside = aged.free.iter().filter(|run| group.contains(&run.start)).map(length).sum::<u64>();
            assert!((1_500..1_800).contains(&inside), "every group has its share: {inside}");
        }
        check(&groups, 1_638_400, 1_600, 3);
        check(&groups, 100, 100, 3);
        check(&groups, 1, 1, 3);
        check(&[0..2, 5..6, 10..200, 200..201], 60, 20, 1);
        check(&[0..101, 101..202], 199, 2, 1);
    }

    #[test]
    fn lengths_are_exponential() {
        let groups: Vec<_> = (0..100).map(|nr| nr * 32_768..(nr + 1) * 32_768).collect();
        let plan = check(&groups, 1_600_000, 25_000, 3);
        let longer = |times: u64| plan.free.iter().filter(|run| length(run) > 64 * times).count();
        assert!((8_800..9_600).contains(&longer(1)), "1/e of them: {}", longer(1));
        assert!((3_100..3_700).contains(&longer(2)), "1/e^2 of them: {}", longer(2));
    }

    #[test]
    fn a_longest_length_is_kept_and_sums_stay_exact() {
        let groups: Vec<_> = (0..100).map(|nr| nr * 32_768..(nr + 1) * 32_768).collect();
        for longest in [1_100, 1_400, 1_792, 4_096] {
            let wanted = Wanted { free: 1_600 * 1_024, count: 1_600, longest };
            let plan = cut(&groups, wanted, 3).unwrap();
            assert_eq!(plan.free.iter().map(length).sum::<u64>(), wanted.free);
            assert_eq!(plan.free.len(), 1_600);
            assert!(plan.free.iter().all(|run| length(run) <= longest));
            let short = plan.free.iter().filter(|run| length(run) < 256).count();
            assert!(longest < 1_792 || short > 120, "they still differ: {short}");
        }
        assert_eq!(cut(&groups, Wanted { free: 1_025, count: 1, longest: 1_024 }, 3), None);
    }

    proptest! {
        /// Lengths of any histogram are kept exactly, whatever the groups are like.
        #[test]
        fn every_length_stays_and_none_touch(
            lengths in prop::collection::vec(1_u64..600, 1..200),
            groups in prop::collection::vec(1_u64..2000, 1..60),
            seed: u64,
        ) {
            let starts = groups.iter().scan(0, |at, len| {
                let start = *at;
                *at += len + 3;
                Some(start..start + len)
            });
            let stretches: Vec<Range<u64>> = starts.collect();
            if let Some(plan) = super::cut(&stretches, &lengths, &mut SplitMix64::new(seed)) {
                exact(&stretches, &plan);
                let (mut wanted, mut got) = (lengths, plan.free.iter().map(length).collect::<Vec<_>>());
                wanted.sort_unstable();
                got.sort_unstable();
                prop_assert_eq!(wanted, got);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |stretches: &[Range<u64>], free, count| {
            assert_eq!(cut(stretches, Wanted { free, count, longest: u64::MAX }, 0), None);
        };
        let one = [Range { start: 0, end: 100 }];
        refused(&one, 100, 1); // an end needs a cluster
        refused(&one, 60, 50); // so do gaps
        refused(&one, 5, 6);
        refused(&[], 1, 1);
    }
}
