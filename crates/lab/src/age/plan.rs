//! Which clusters stay free and which are filled: pure arithmetic over the free stretches of a volume.
//!
//! A stretch is a run of free clusters inside one group. Free extents get exponentially distributed lengths
//! that add up to exactly the free space wanted; each stretch gets extents until its share of the whole is
//! reached, and what is left of it is cut into gaps, exponentially distributed too, one before each extent
//! and one after the last. Every gap but the first of a stretch has at least one cluster, so no two free
//! extents touch, neither inside a stretch nor over its end.

use crate::random::Random;
use std::ops::Range;

/// Steps to find the unit of bounded lengths; each brings it nearer by a constant factor, unless the bound is
/// nearly the mean.
const UNIT_STEPS: u32 = 100;

/// Clusters, by their numbers, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    /// To stay free; no two touch.
    pub(super) free: Vec<Range<u64>>,
    /// To be filled; none reaches over the end of a stretch.
    pub(super) used: Vec<Range<u64>>,
}

/// How the free space is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    /// Clusters that stay free.
    pub(super) free: u64,
    /// In so many extents.
    pub(super) count: u64,
    /// None of them longer than this.
    pub(super) longest: u64,
}

/// Cuts `stretches` so that the clusters wanted stay free. `None` if that many extents don't fit, or are too
/// few for their greatest length.
pub(super) fn cut(stretches: &[Range<u64>], wanted: Wanted, seed: u64) -> Option<Plan> {
    let Wanted { free, count, longest } = wanted;
    let mut random = Random::new(seed);
    let room = stretches.iter().map(length).max().unwrap_or(0);
    let lengths = lengths(free, count, room.checked_sub(1)?.min(longest), &mut random)?;
    let shares = deal(stretches, &lengths, free)?;
    let mut plan = Plan::default();
    for (stretch, extents) in stretches.iter().zip(&shares) {
        lay(stretch, extents, &mut random, &mut plan);
    }
    Some(plan)
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

#[allow(clippy::cast_precision_loss)] // the rest is carried on, so the sum is exact
fn float(n: u64) -> f64 {
    n as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped at both ends
fn whole(x: f64, least: u64, most: u64) -> u64 {
    (x.floor().max(0.0) as u64).clamp(least, most)
}

/// `count` lengths from 1 to `most` whose sum is `sum`.
fn lengths(sum: u64, count: u64, most: u64, random: &mut Random) -> Option<Vec<u64>> {
    if count > sum || count.checked_mul(most)? < sum {
        return None;
    }
    let weights: Vec<f64> = (0..count).map(|_| random.exponential()).collect();
    let mut lengths = proportional(&weights, sum, 1, most);
    settle(&mut lengths, sum, 1, most);
    Some(lengths)
}

/// Whole numbers in proportion to weights, between bounds, whose sum is nearly `sum`.
fn proportional(weights: &[f64], sum: u64, least: u64, most: u64) -> Vec<u64> {
    // What the upper bound cuts off goes to the others: the unit grows until it does not show.
    let mut unit = float(sum) / weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    for _ in 0..UNIT_STEPS {
        let reached: f64 = weights.iter().map(|weight| (weight * unit).min(float(most))).sum();
        if reached >= float(sum) * 0.9999 {
            break;
        }
        unit *= float(sum) / reached.max(f64::MIN_POSITIVE);
    }
    let mut rest = 0.0;
    let mut part = |weight: &f64| {
        rest += weight * unit;
        let part = whole(rest, least, most);
        rest -= float(part);
        part
    };
    weights.iter().map(&mut part).collect()
}

/// Makes the sum exact, a step of one at a time over all parts, so that no part is bent much.
fn settle(parts: &mut [u64], sum: u64, least: u64, most: u64) {
    let mut now: u64 = parts.iter().sum();
    while now != sum {
        let before = now;
        for part in &mut *parts {
            if now < sum && *part < most {
                *part += 1;
                now += 1;
            } else if now > sum && *part > least {
                *part -= 1;
                now -= 1;
            }
        }
        if now == before {
            return; // only if the bounds exclude the sum, which callers rule out
        }
    }
}

/// Gives every stretch its extents: as many as bring it to its share of the free space. What does not fit
/// goes to later stretches, and at the end to any with room.
fn deal(stretches: &[Range<u64>], lengths: &[u64], free: u64) -> Option<Vec<Vec<u64>>> {
    let all: u64 = stretches.iter().map(length).sum();
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
fn lay(stretch: &Range<u64>, extents: &[u64], random: &mut Random, plan: &mut Plan) {
    let weights: Vec<f64> = (0..=extents.len()).map(|_| random.exponential()).collect();
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
    use super::*;

    fn check(stretches: &[Range<u64>], free: u64, count: u64, seed: u64) -> Plan {
        let plan = cut(stretches, Wanted { free, count, longest: u64::MAX }, seed).unwrap();
        assert_eq!(plan.free.iter().map(length).sum::<u64>(), free);
        assert_eq!(u64::try_from(plan.free.len()).unwrap(), count);
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
        plan
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
