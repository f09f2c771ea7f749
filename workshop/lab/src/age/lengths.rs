//! The lengths of free extents, drawn from a seed so that their sum is exact.
//!
//! Two shapes: exponentially distributed, up to a greatest length; or by a histogram, evenly distributed in
//! each range around the mean that is wanted there. Lengths are in clusters.

use super::Error;
use super::histogram::{Histogram, Share, short};
use crate::exponential::exponential as variate;
use crate::run::float;
use hectare_units::random::SplitMix64;
use hectare_units::{index_of, u64_of};

/// Steps to find the unit of bounded lengths; each brings it nearer by a constant factor, unless the bound is
/// nearly the mean.
const UNIT_STEPS: u32 = 100;
/// Shares of less than this percentage that make no whole extent may be left out.
const SMALL_PERCENT: f64 = 1.0;

/// `count` exponentially distributed lengths from 1 to `most` whose sum is `sum`; `None` if there are none.
pub(super) fn exponential(sum: u64, count: u64, most: u64, random: &mut SplitMix64) -> Option<Vec<u64>> {
    if count > sum || count.checked_mul(most)? < sum {
        return None;
    }
    let weights: Vec<f64> = (0..count).map(|_| variate(random)).collect();
    let mut lengths = proportional(&weights, sum, 1, most);
    settle(&mut lengths, sum, 1, most);
    Some(lengths)
}

/// Whole numbers in proportion to weights, between bounds, whose sum is nearly `sum`.
pub(super) fn proportional(weights: &[f64], sum: u64, least: u64, most: u64) -> Vec<u64> {
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

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped at both ends
fn whole(x: f64, least: u64, most: u64) -> u64 {
    (x.floor().max(0.0) as u64).clamp(least, most)
}

/// Makes the sum exact, a step of one at a time over all parts, so that no part changes much.
pub(super) fn settle(parts: &mut [u64], sum: u64, least: u64, most: u64) {
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

/// One range of a histogram on a volume, and its allotment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Class {
    /// Clusters of the shortest extent.
    least: u64,
    /// Clusters of the longest.
    most: u64,
    /// Clusters of an extent on the average.
    mean: f64,
    /// Clusters of all together.
    sum: u64,
    /// Extents.
    pub(super) count: u64,
}

impl Class {
    /// The range on a volume with clusters of this many bytes, on which no free extent is longer than
    /// `longest` clusters; it gets nothing yet.
    fn of(share: &Share, cluster: u64, longest: u64) -> Result<Self, Error> {
        let impossible = |why: String| {
            Error::Impossible(format!("free extents of {} to {}: {why}", short(share.from), short(share.to)))
        };
        if share.from < cluster {
            return Err(impossible(format!("a cluster has {cluster} bytes")));
        }
        let (least, most) = (share.from.div_ceil(cluster), (share.to - 1) / cluster);
        if least > most {
            return Err(impossible(format!("no number of clusters of {cluster} bytes is as long")));
        }
        if least > longest {
            let bytes = longest.saturating_mul(cluster);
            return Err(impossible(format!("none inside a group is longer than {bytes} bytes here")));
        }
        let most = most.min(longest);
        let mean = share.mean.map_or((float(least) + float(most)) / 2.0, |mean| mean / float(cluster));
        if mean > float(most) {
            return Err(impossible(format!(
                "their mean is longer than the longest that fit, {most} clusters"
            )));
        }
        Ok(Self { least, most, mean: mean.max(float(least)), sum: 0, count: 0 })
    }

    /// Gives it as many extents as make nearly `sum` clusters, and all of these clusters that they hold.
    fn give(self, sum: u64) -> Self {
        let count = whole((float(sum) / self.mean).round(), 0, u64::MAX);
        let (least, most) = (sum.div_ceil(self.most), sum / self.least);
        let count = if least <= most { count.clamp(least, most) } else { count };
        Self { count, sum: sum.clamp(count * self.least, count.saturating_mul(self.most)), ..self }
    }

    /// Its lengths: evenly distributed around the mean, as far as the nearer end of the range.
    fn lengths(&self, random: &mut SplitMix64) -> Vec<u64> {
        let reach = (self.mean - float(self.least)).min(float(self.most) - self.mean);
        let least = whole(self.mean - reach, self.least, self.most);
        let width = whole(2.0 * reach, 0, self.most - least) + 1;
        let width = u32::try_from(width).unwrap_or(u32::MAX);
        let mut lengths: Vec<u64> =
            (0..self.count).map(|_| least + u64::from(random.below32(width))).collect();
        settle(&mut lengths, self.sum, self.least, self.most);
        lengths
    }
}

/// The share of `free` clusters that each range of a histogram gets.
///
/// # Errors
/// [`Error::Impossible`], which names the range, if it is impossible here.
pub(super) fn classes(
    histogram: &Histogram,
    free: u64,
    cluster: u64,
    longest: u64,
) -> Result<Vec<Class>, Error> {
    let ranges = histogram.shares().iter().map(|share| Class::of(share, cluster, longest));
    let ranges: Vec<Class> = ranges.collect::<Result<_, _>>()?;
    let part = |share: &Share| share.percent / histogram.sum();
    let sum = |share: &Share| whole((float(free) * part(share)).round(), 0, free);
    let mut classes: Vec<Class> =
        ranges.iter().zip(histogram.shares()).map(|(class, share)| class.give(sum(share))).collect();
    for (class, share) in classes.iter().zip(histogram.shares()) {
        if class.count == 0 && 100.0 * part(share) >= SMALL_PERCENT {
            let (range, bytes) = ((short(share.from), short(share.to)), sum(share) * cluster);
            let what = format!("free extents of {} to {}: {bytes} bytes are less than one", range.0, range.1);
            return Err(Error::Impossible(what));
        }
    }
    // What rounding left over or took too much is the largest share's.
    let given: u64 = classes.iter().map(|class| class.sum).sum();
    let largest = (0..classes.len()).max_by_key(|nr| classes[*nr].sum).unwrap_or(0);
    let own = (classes[largest].sum + free).checked_sub(given);
    let settled = own.map(|own| (own, classes[largest].give(own)));
    match settled {
        Some((own, class)) if class.sum == own => classes[largest] = class,
        _ => {
            let bytes = free.saturating_mul(cluster);
            let what = format!("{bytes} free bytes can't be cut into whole extents of these ranges");
            return Err(Error::Impossible(what));
        }
    }
    Ok(classes)
}

/// The lengths of all classes, in random order.
pub(super) fn by_class(classes: &[Class], random: &mut SplitMix64) -> Vec<u64> {
    let mut lengths: Vec<u64> = classes.iter().flat_map(|class| class.lengths(random)).collect();
    for last in (1..lengths.len()).rev() {
        let other = random.draw() % u64_of(last + 1);
        lengths.swap(last, index_of(other));
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLUSTER: u64 = 4096;

    fn histogram(text: &str) -> Histogram {
        text.parse().unwrap()
    }

    fn refused(text: &str, free: u64) -> String {
        let error = classes(&histogram(text), free, CLUSTER, 32_000).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn shares_and_means_come_out() {
        // The published start: 85 of 95 parts just under 4 MiB, 10 just under 8.
        let wanted = histogram("2M-4M:85.31:3887K,4M-8M:9.85:7980K");
        let free = 1 << 20;
        let classes = classes(&wanted, free, CLUSTER, 32_000).unwrap();
        let lengths = by_class(&classes, &mut SplitMix64::new(1));
        assert_eq!(lengths.iter().sum::<u64>(), free);
        let long: u64 = lengths.iter().filter(|len| **len >= 1024).sum();
        let part = float(long) / float(free);
        assert!((part - 9.85 / 95.16).abs() < 0.001, "{part}");
        let short = || lengths.iter().filter(|len| **len < 1024);
        let mean = float(short().sum()) / float(u64_of(short().count()));
        assert!((mean - 971.75).abs() < 1.0, "{mean}");
        // As wide as the nearer end lets it be, and no wider: 1023 - 971.75 either way.
        assert!(short().all(|len| *len >= 919) && short().any(|len| *len < 930));
        let first = lengths.iter().take(lengths.len() / 2).filter(|len| **len >= 1024).count();
        let all = lengths.iter().filter(|len| **len >= 1024).count();
        assert!(first > all / 3 && first < all * 2 / 3, "the ranges are mixed: {first} of {all}");
    }

    #[test]
    fn what_cannot_be_had_names_its_range() {
        assert!(refused("1K-8K:100", 1000).contains("1K to 8K: a cluster has 4096 bytes"));
        assert!(refused("5K-6K:100", 1000).contains("5K to 6K: no number of clusters of 4096 bytes"));
        let beyond = refused("2M-4M:50,128M-256M:50", 1 << 20);
        assert!(
            beyond.contains("128M to 256M: none inside a group is longer than 131072000 bytes"),
            "{beyond}"
        );
        assert!(refused("64M-128M:100:127M", 1 << 20).contains("mean is longer"));
        assert!(refused("4K-8K:90,2M-4M:10", 1000).contains("2M to 4M: 409600 bytes are less than one"));
        assert!(refused("3M-4M:100", 1100).contains("can't be cut into whole extents"));
    }

    #[test]
    fn a_share_too_small_for_one_extent_is_left_to_the_others() {
        let classes = classes(&histogram("2M-4M:99.9,4M-8M:0.1"), 100_000, CLUSTER, 32_000).unwrap();
        assert_eq!((classes[1].count, classes[0].sum), (0, 100_000));
    }

    proptest! {
        /// Whatever ranges are requested: the request is refused, or all clusters are dealt, every length is
        /// in a range, and each range has its share to one extent, except that one settles the sum.
        #[test]
        fn every_histogram_is_kept_or_refused(
            percents in prop::collection::vec(0_u32..40, 1..8),
            mean in 0_u64..100,
            free in 1_u64..400_000,
            seed: u64,
        ) {
            let share = |(nr, percent): (u32, &u32)| {
                let (from, to) = (CLUSTER << (2 * nr), CLUSTER << (2 * nr + 2));
                let mean = from + (to - 1 - from) * mean / 100;
                Share { from, to, percent: f64::from(*percent), mean: Some(float(mean)) }
            };
            let some = (0..).zip(&percents).filter(|(_, percent)| **percent > 0);
            let shares: Vec<Share> = some.map(share).collect();
            let Ok(wanted) = Histogram::new(shares) else { return Ok(()) };
            let Ok(classes) = classes(&wanted, free, CLUSTER, 1 << 13) else { return Ok(()) };
            let lengths = by_class(&classes, &mut SplitMix64::new(seed));
            prop_assert_eq!(lengths.iter().sum::<u64>(), free);
            prop_assert_eq!(&lengths, &by_class(&classes, &mut SplitMix64::new(seed)));
            let (mut seen, mut off) = (0, Vec::new());
            for (class, share) in classes.iter().zip(wanted.shares()) {
                let bytes = |len: &&u64| (share.from..share.to).contains(&(**len * CLUSTER));
                let inside: Vec<u64> = lengths.iter().filter(bytes).copied().collect();
                prop_assert_eq!(inside.iter().sum::<u64>(), class.sum);
                prop_assert_eq!(u64_of(inside.len()), class.count);
                seen += inside.len();
                let part = float(free) * share.percent / wanted.sum();
                off.push((float(class.sum) - part).abs());
            }
            prop_assert_eq!(seen, lengths.len(), "none outside");
            // One range takes what the others are off, each by an extent at most and the rounding of its share.
            let settling = (0..off.len()).filter(|nr| off[*nr] > float(classes[*nr].most) + 0.5);
            let settling: Vec<usize> = settling.collect();
            prop_assert!(settling.len() <= 1, "{:?} of {:?}", off, classes);
            for nr in settling {
                let others: f64 = off.iter().sum::<f64>() - off[nr];
                prop_assert!(off[nr] <= others + 1e-6, "{:?} of {:?}", off, classes);
            }
        }
    }
}
