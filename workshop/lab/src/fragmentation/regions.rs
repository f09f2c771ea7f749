//! Free runs and data, region by region.

use super::percentile;
use hectare_units::index_of;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Bytes of a region.
pub const REGION: u64 = 1 << 30;

/// The free space and data of one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Region {
    /// Bytes of it in blocks of regular files.
    pub data_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free runs, where fixed metadata does not split.
    pub free_runs: u64,
    /// Bytes of the longest of them.
    pub largest_free_bytes: u64,
    /// Free runs, where fixed metadata splits.
    pub strict_free_runs: u64,
    /// Bytes of the longest of those.
    pub strict_largest_free_bytes: u64,
}

impl Region {
    /// How much of the free space is not in the longest run, in percent.
    #[must_use]
    pub fn percent(&self) -> f64 {
        share(self.largest_free_bytes, self.free_bytes)
    }

    /// The same, where fixed metadata splits.
    #[must_use]
    pub fn strict_percent(&self) -> f64 {
        share(self.strict_largest_free_bytes, self.free_bytes)
    }
}

#[allow(clippy::cast_precision_loss)] // bytes of a region
fn share(largest: u64, free: u64) -> f64 {
    if free == 0 { 0.0 } else { 100.0 * (free - largest) as f64 / free as f64 }
}

/// The regions that hold data, and how fragmented the fragmented ones among them are, in percent; all 0 if
/// none is.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Regions with data.
    pub used: usize,
    /// Those that are fragmented.
    pub fragmented: usize,
    /// Mean over the fragmented ones.
    pub mean: f64,
    /// The least fragmented of them.
    pub min: f64,
    /// The median (nearest rank).
    pub p50: f64,
    /// 95 % of them are no more fragmented.
    pub p95: f64,
    /// 99 % of them are no more fragmented.
    pub p99: f64,
    /// The most fragmented.
    pub max: f64,
}

impl Summary {
    #[allow(clippy::cast_precision_loss)] // a number of regions
    pub(super) fn of(regions: &[Region], percent: impl Fn(&Region) -> f64) -> Self {
        let used = regions.iter().filter(|region| region.data_bytes > 0);
        let all: Vec<f64> = used.map(percent).collect();
        let mut set: Vec<f64> = all.iter().copied().filter(|percent| *percent > 0.0).collect();
        set.sort_by(f64::total_cmp);
        Self {
            used: all.len(),
            fragmented: set.len(),
            mean: if set.is_empty() { 0.0 } else { set.iter().sum::<f64>() / set.len() as f64 },
            min: set.first().copied().unwrap_or(0.0),
            p50: percentile(&set, 50),
            p95: percentile(&set, 95),
            p99: percentile(&set, 99),
            max: set.last().copied().unwrap_or(0.0),
        }
    }
}

/// The regions of a volume, being filled in. Everything in blocks.
pub(super) struct Regions {
    region: u64,
    block: u64,
    blocks: u64,
    all: Vec<Region>,
}

impl Regions {
    /// Regions of `region` blocks (at least 1) over a volume of `blocks` blocks of `block` bytes.
    pub(super) fn new(blocks: u64, region: u64, block: u64) -> Self {
        let region = region.max(1);
        Self { region, block, blocks, all: vec![Region::default(); index_of(blocks.div_ceil(region))] }
    }

    /// Adds the free runs of the volume, in order; `fixed` are the ranges of fixed metadata, in order and
    /// joined.
    pub(super) fn add_free(&mut self, runs: &[Range<u64>], fixed: &[Range<u64>]) {
        let is_fixed = |gap: Range<u64>| {
            let after = fixed.partition_point(|range| range.start <= gap.start);
            after.checked_sub(1).and_then(|at| fixed.get(at)).is_some_and(|range| range.end >= gap.end)
        };
        // The run that may continue: its region, its end, its length.
        let mut open = (u64::MAX, 0, 0);
        for run in runs {
            for (region, part) in pieces(run, self.region, self.blocks) {
                let len = part.end - part.start;
                let goes_on = open.0 == region && is_fixed(open.1..part.start);
                open = (region, part.end, if goes_on { open.2 + len } else { len });
                let Some(region) = self.all.get_mut(index_of(region)) else { continue };
                region.free_bytes += len * self.block;
                region.free_runs += u64::from(!goes_on);
                region.largest_free_bytes = region.largest_free_bytes.max(open.2 * self.block);
                region.strict_free_runs += 1;
                region.strict_largest_free_bytes = region.strict_largest_free_bytes.max(len * self.block);
            }
        }
    }

    /// Adds blocks of a regular file.
    pub(super) fn add_data(&mut self, run: Range<u64>) {
        for (region, part) in pieces(&run, self.region, self.blocks) {
            if let Some(region) = self.all.get_mut(index_of(region)) {
                region.data_bytes += (part.end - part.start) * self.block;
            }
        }
    }

    pub(super) fn finish(self) -> Vec<Region> {
        self.all
    }
}

/// A run split at the boundaries of regions; what lies beyond the volume is left out.
fn pieces(run: &Range<u64>, region: u64, blocks: u64) -> impl Iterator<Item = (u64, Range<u64>)> + use<> {
    let (mut at, end) = (run.start, run.end.min(blocks));
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let nr = at / region;
        let cut = ((nr + 1) * region).min(end);
        let part = at..cut;
        at = cut;
        Some((nr, part))
    })
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // lists of runs, some with one
mod tests {
    use super::*;
    use hectare_engine::zero_runs;
    use hectare_units::u64_of;

    /// Regions of one word each, from a bitmap in which a set bit is a block in use.
    fn regions(bitmap: &[u64], fixed: &[Range<u64>], data: &[Range<u64>]) -> Vec<Region> {
        let blocks = u64_of(bitmap.len()) * 64;
        let mut regions = Regions::new(blocks, 64, 4096);
        regions.add_free(&zero_runs(bitmap, blocks), fixed);
        data.iter().for_each(|run| regions.add_data(run.clone()));
        regions.finish()
    }

    #[test]
    fn one_run_is_not_fragmented_two_are() {
        let found = regions(&[0xff, 0xff00, !0], &[], &[0..8, 72..80, 128..192]);
        assert_eq!(found[0].free_runs, 1);
        assert!(found[0].percent() == 0.0);
        assert_eq!((found[1].free_runs, found[1].largest_free_bytes), (2, 48 * 4096));
        assert!((found[1].percent() - 100.0 * 8.0 / 56.0).abs() < 1e-9, "{}", found[1].percent());
        assert!(found[2].percent() == 0.0, "nothing free is not fragmented");
        let summary = Summary::of(&found, Region::percent);
        assert_eq!((summary.used, summary.fragmented), (3, 1));
        assert!(summary.mean == found[1].percent() && summary.p95 == summary.min);
    }

    #[test]
    fn a_region_without_data_does_not_count() {
        let found = regions(&[0xff00, 0xff00], &[], &[8..16]);
        let summary = Summary::of(&found, Region::percent);
        assert_eq!((summary.used, summary.fragmented), (1, 1));
        assert_eq!(Summary::of(&regions(&[0xff00], &[], &[]), Region::percent), Summary::default());
    }

    #[test]
    fn fixed_metadata_between_two_runs_does_not_split_them() {
        let used = 0xff_u64 << 8 | 0xf << 40;
        let whole = regions(&[used], &[Range { start: 8, end: 16 }], &[40..44]);
        assert_eq!((whole[0].free_runs, whole[0].strict_free_runs), (2, 3));
        assert_eq!(whole[0].largest_free_bytes, 32 * 4096);
        assert_eq!(whole[0].strict_largest_free_bytes, 24 * 4096);
        // A gap that is only partly fixed splits.
        let partly = regions(&[used], &[Range { start: 8, end: 15 }], &[40..44]);
        assert_eq!(partly[0].free_runs, 3);
        // Both gaps fixed: one run.
        let both = regions(&[used], &[8..16, 40..44], &[]);
        assert_eq!((both[0].free_runs, both[0].percent()), (1, 0.0));
    }

    #[test]
    fn runs_and_files_are_cut_at_the_borders_of_regions() {
        let found = regions(&[0, 0], &[], &[60..70]);
        assert_eq!((found[0].free_bytes, found[1].free_bytes), (64 * 4096, 64 * 4096));
        assert_eq!((found[0].data_bytes, found[1].data_bytes), (4 * 4096, 6 * 4096));
        assert!(found.iter().all(|region| region.free_runs == 1));
    }

    #[test]
    fn percentiles_are_of_the_fragmented_only() {
        let region = |largest| Region {
            data_bytes: 1,
            free_bytes: 100,
            largest_free_bytes: largest,
            ..Region::default()
        };
        let all: Vec<_> = (0..=100).map(region).collect();
        let summary = Summary::of(&all, Region::percent);
        assert_eq!((summary.used, summary.fragmented), (101, 100));
        assert_eq!((summary.min, summary.p50, summary.p95, summary.max), (1.0, 50.0, 95.0, 100.0));
        assert!((summary.mean - 50.5).abs() < 1e-9);
    }
}
