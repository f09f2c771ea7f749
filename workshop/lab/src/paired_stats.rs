//! Statistics of repeated runs: median, spread, ratio of pairs.
//!
//! Machines drift, so a peer's time is only compared with ours of the same round: a ratio is the median of
//! the rounds' ratios, not the ratio of two medians.

use serde::Serialize;

/// The middle of some figures, and their extremes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The middle one; the mean of the two in the middle of an even number.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of some figures; `None` of none.
    #[must_use]
    pub fn of(figures: &[f64]) -> Option<Self> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let lower = (sorted.len() - 1) / 2;
        Some(Self { min, median: f64::midpoint(sorted[lower], sorted[upper]), max })
    }

    /// The spread of the rounds' ratios of `theirs` to `ours`; `None` if there are no pairs.
    #[must_use]
    pub fn of_ratios(theirs: &[f64], ours: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = theirs.iter().zip(ours).map(|(theirs, ours)| theirs / ours).collect();
        Self::of(&ratios)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]), Some(Spread { min: 1.0, median: 2.0, max: 3.0 }));
        assert_eq!(Spread::of(&[4.0, 1.0]).map(|spread| spread.median), Some(2.5));
        let ratios = Spread::of_ratios(&[10.0, 40.0, 9.0], &[1.0, 2.0, 3.0]);
        assert_eq!(ratios.map(|spread| spread.median), Some(10.0));
    }
}
