//! Block ranges in use, and the space between them.
//!
//! The set is [`rangemap::RangeSet`], which joins neighbours; here is what placing metadata asks of it. Small
//! by design: a set holds the metadata of one flex group, not of a volume.

use rangemap::RangeSet;
use std::ops::Range;

/// Adds a range; an empty one changes nothing.
pub(crate) fn insert(set: &mut RangeSet<u64>, range: Range<u64>) {
    if !range.is_empty() {
        set.insert(range);
    }
}

/// The start of the first free run of `len` blocks inside `within`.
pub(crate) fn first_fit(set: &RangeSet<u64>, within: Range<u64>, len: u64) -> Option<u64> {
    if within.is_empty() {
        return None;
    }
    set.gaps(&within).find(|gap| gap.end - gap.start >= len).map(|gap| gap.start)
}

/// The parts of the ranges that lie inside `within`.
pub(crate) fn inside(set: &RangeSet<u64>, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
    let (start, end) = (within.start, within.end);
    let clipped = set.overlapping(within).map(move |range| range.start.max(start)..range.end.min(end));
    clipped.filter(|range| !range.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init)] // one range is what is meant
    fn ranges_join_and_gaps_are_found() {
        let mut set = RangeSet::default();
        for range in [10..20, 30..40, 20..25, 5..6, 6..10] {
            insert(&mut set, range);
        }
        let ranges = |set: &RangeSet<u64>| set.iter().cloned().collect::<Vec<_>>();
        assert_eq!(ranges(&set), [5..25, 30..40]);
        assert!(!set.overlaps(&(25..30)) && set.overlaps(&(24..26)) && !set.overlaps(&(40..90)));
        assert_eq!(first_fit(&set, 0..100, 5), Some(0));
        assert_eq!(first_fit(&set, 1..100, 5), Some(25));
        assert_eq!(first_fit(&set, 1..100, 6), Some(40));
        assert_eq!(first_fit(&set, 1..45, 6), None);
        assert_eq!(inside(&set, 20..35).collect::<Vec<_>>(), [20..25, 30..35]);
        assert_eq!(inside(&set, 7..7).next(), None);
        assert_eq!(first_fit(&set, 7..7, 1), None);
        insert(&mut set, 0..100);
        insert(&mut set, 7..7);
        assert_eq!(ranges(&set), [0..100]);
    }
}
