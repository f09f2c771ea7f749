//! What was written since a flush, by place: ranges without overlaps, of zeros or of bytes in the log.

use bytes::Bytes;
use hectare_device::os::FileExt;
use hectare_units::u64_of;
use rangemap::RangeMap;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// What a range became.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Piece {
    Zero,
    /// The log has it, at its place plus this (modulo 2^64): equal for neighbours in both.
    Log(u64),
}

/// Where the bytes of a range are.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Zero,
    /// In a log, from this place on.
    Log(Arc<File>, u64),
    /// In memory.
    Memory(Bytes),
    /// Below.
    Below,
}

/// The changes of a log, by place.
#[derive(Default)]
pub(crate) struct Staged {
    map: RangeMap<u64, Piece>,
}

impl Staged {
    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Notes that the bytes of a range lie at `from` in the log.
    pub(crate) fn write(&mut self, range: Range<u64>, from: u64) {
        if !range.is_empty() {
            let delta = from.wrapping_sub(range.start);
            self.map.insert(range, Piece::Log(delta));
        }
    }

    pub(crate) fn zero(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.map.insert(range, Piece::Zero);
        }
    }

    /// Cuts a range where the bytes of its parts come from different places, in order.
    pub(crate) fn sources(&self, range: &Range<u64>, file: &Arc<File>) -> Vec<(Range<u64>, Source)> {
        self.sources_of(range, |from, _| Source::Log(Arc::clone(file), from))
    }

    /// Likewise; `source` has the bytes from a place on, of a length.
    pub(crate) fn sources_of(
        &self,
        range: &Range<u64>,
        source: impl Fn(u64, u64) -> Source,
    ) -> Vec<(Range<u64>, Source)> {
        let (mut parts, mut at) = (Vec::new(), range.start);
        for (place, piece) in self.map.overlapping(range) {
            let part = place.start.max(range.start)..place.end.min(range.end);
            if at < part.start {
                parts.push((at..part.start, Source::Below));
            }
            at = part.end;
            let source = match piece {
                Piece::Zero => Source::Zero,
                Piece::Log(delta) => source(part.start.wrapping_add(*delta), part.end - part.start),
            };
            parts.push((part, source));
        }
        if at < range.end {
            parts.push((at..range.end, Source::Below));
        }
        parts
    }

    /// These changes over others: only what is changed, and what to zeros, not where bytes are.
    pub(crate) fn over(&self, below: &Self) -> Self {
        let mut map = below.map.clone();
        self.map.iter().for_each(|(range, piece)| map.insert(range.clone(), *piece));
        Self { map }
    }

    /// The changed ranges, in order; neighbours may be apart.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.map.iter().map(|(range, _)| range.clone())
    }

    /// Where the last change ends.
    pub(crate) fn end(&self) -> u64 {
        self.map.iter().next_back().map_or(0, |(range, _)| range.end)
    }

    /// How many pieces there are, and how many bytes those have that are not zeros.
    pub(crate) fn weight(&self) -> (usize, u64) {
        let bytes = |(range, piece): (&Range<u64>, &Piece)| match piece {
            Piece::Zero => 0,
            Piece::Log(_) => range.end - range.start,
        };
        self.map.iter().map(bytes).fold((0, 0), |(pieces, sum), bytes| (pieces + 1, sum + bytes))
    }

    /// The chunks that have other bytes now, in order, and the ranges of chunks that have become zeros; a
    /// chunk that ends at or behind `end` is whole when it is covered up to there.
    pub(crate) fn chunks(&self, chunk: u64, end: u64) -> (Vec<u64>, Vec<Range<u64>>) {
        let (mut changed, mut cleared) = (Vec::new(), Vec::new());
        for (place, piece) in self.map.iter() {
            let (first, last) = (place.start / chunk, place.end.div_ceil(chunk));
            let whole = match piece {
                Piece::Log(_) => last..last,
                Piece::Zero => {
                    let to = if place.end >= end { last } else { place.end / chunk };
                    let from = place.start.div_ceil(chunk);
                    if from < to { from..to } else { last..last }
                }
            };
            changed.extend(first..whole.start);
            changed.extend(whole.end..last);
            cleared.extend((!whole.is_empty()).then_some(whole));
        }
        changed.dedup();
        (changed, cleared)
    }
}

/// The changes of a log that is being uploaded.
pub(crate) struct Sealed {
    pub(crate) staged: Staged,
    pub(crate) file: Arc<File>,
    pub(crate) path: PathBuf,
}

/// What one layer does not have comes from the one below it.
pub(crate) fn or_below(
    parts: Vec<(Range<u64>, Source)>,
    below: impl Fn(&Range<u64>) -> Vec<(Range<u64>, Source)>,
) -> Vec<(Range<u64>, Source)> {
    let look = |(range, source)| match source {
        Source::Below => below(&range),
        other => vec![(range, other)],
    };
    parts.into_iter().flat_map(look).collect()
}

/// Fills a buffer from a log.
pub(crate) fn read_log(file: &File, from: u64, buf: &mut [u8]) -> std::io::Result<()> {
    debug_assert!(from.checked_add(u64_of(buf.len())).is_some(), "the log has it");
    file.read_exact_at(buf, from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter::once;

    #[test]
    fn later_changes_cover_earlier_ones() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut staged = Staged::default();
        staged.write(10..20, 1010);
        staged.zero(12..14);
        staged.write(30..40, 0);
        let parts: Vec<_> = staged.sources(&(5..35), &file).into_iter().collect();
        let shown: Vec<String> = parts
            .iter()
            .map(|(range, source)| match source {
                Source::Zero => format!("{range:?} zero"),
                Source::Below => format!("{range:?} below"),
                Source::Log(_, from) => format!("{range:?} log {from}"),
                Source::Memory(_) => format!("{range:?} memory"),
            })
            .collect();
        let expected = ["5..10 below", "10..12 log 1010", "12..14 zero", "14..20 log 1014", "20..30 below"];
        assert_eq!(shown[..5], expected);
        assert_eq!(shown[5], "30..35 log 0");
    }

    #[test]
    fn chunks_are_changed_or_cleared_as_a_whole() {
        let chunks = |changes: &dyn Fn(&mut Staged)| {
            let mut staged = Staged::default();
            changes(&mut staged);
            staged.chunks(10, 95)
        };
        assert_eq!(chunks(&|staged| staged.write(5..25, 0)), (vec![0, 1, 2], vec![]));
        assert_eq!(chunks(&|staged| staged.zero(5..35)), (vec![0, 3], once(1..3).collect()));
        assert_eq!(chunks(&|staged| staged.zero(5..8)), (vec![0], vec![]));
        assert_eq!(chunks(&|staged| staged.zero(5..15)), (vec![0, 1], vec![]));
        assert_eq!(chunks(&|staged| staged.zero(0..95)), (vec![], once(0..10).collect()));
        assert_eq!(chunks(&|staged| staged.zero(91..95)), (vec![9], vec![]));
        let both = chunks(&|staged| {
            staged.write(11..12, 0);
            staged.write(13..14, 0);
        });
        assert_eq!(both, (vec![1], vec![]));
    }
}
