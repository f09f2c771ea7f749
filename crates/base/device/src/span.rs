//! A range of a device.

use hectare_units::{Bytes, index_of, u64_of};
use std::ops::Range;

/// A range of bytes of a device: `len` bytes from `at` on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span {
    /// The first byte.
    pub at: Bytes,
    /// How many bytes.
    pub len: Bytes,
}

impl Span {
    /// `len` bytes from `at` on.
    #[must_use]
    pub const fn new(at: Bytes, len: Bytes) -> Self {
        Self { at, len }
    }

    /// The byte after the last; `None` if that is beyond 2^64 - 1.
    #[must_use]
    pub const fn end(self) -> Option<Bytes> {
        self.at.checked_add(self.len)
    }

    /// Whether the range lies inside the first `size` bytes. An empty range may lie at the very end.
    #[must_use]
    pub fn fits(self, size: Bytes) -> bool {
        self.end().is_some_and(|end| end <= size)
    }

    /// The largest range inside this one that starts and ends at multiples of `step`, or `None` if that is
    /// empty.
    #[cfg(any(test, all(target_os = "linux", not(hectare_portable))))]
    pub(crate) fn inner_aligned(self, step: u64) -> Option<Self> {
        let end = self.end()?.get() / step * step;
        let start = self.at.get().checked_next_multiple_of(step)?;
        (start < end).then(|| Self::new(Bytes::new(start), Bytes::new(end - start)))
    }

    /// Cuts the range into pieces that end at multiples of `step` (the last one ends where the range does).
    pub fn pieces(self, step: u64) -> impl Iterator<Item = Self> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let left = rest.len.get();
            if left == 0 {
                return None;
            }
            let len = Bytes::new(left.min(step - rest.at.get() % step));
            let piece = Self::new(rest.at, len);
            // Only the end of the very last piece can be 2^64, and then nothing is left to start there.
            rest = Self::new(rest.at.checked_add(len).unwrap_or_default(), rest.len - len);
            Some(piece)
        })
    }

    /// Cuts the range at the borders of chunks of `chunk_len` bytes. For ranges whose bytes are in memory.
    pub(crate) fn chunks(self, chunk_len: usize) -> impl Iterator<Item = Piece> {
        let (start, step) = (self.at.get(), u64_of(chunk_len));
        self.pieces(step).map(move |piece| {
            let (at, len) = (piece.at.get(), index_of(piece.len.get()));
            let (into, done) = (index_of(at % step), index_of(at - start));
            Piece { chunk: at / step, within: into..into + len, of_data: done..done + len }
        })
    }
}

/// The part of a chunk that an operation covers, and the part of the operation's bytes that lie there.
pub(crate) struct Piece {
    pub(crate) chunk: u64,
    pub(crate) within: Range<usize>,
    pub(crate) of_data: Range<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(at: u64, len: u64) -> Span {
        Span::new(Bytes::new(at), Bytes::new(len))
    }

    #[test]
    fn pieces_end_at_multiples_and_cover_the_range() {
        let pieces: Vec<_> = span(5, 20).pieces(8).collect();
        assert_eq!(pieces, [span(5, 3), span(8, 8), span(16, 8), span(24, 1)]);
        assert_eq!(span(u64::MAX - 2, 2).pieces(8).count(), 1);
        assert_eq!(span(9, 0).pieces(8).count(), 0);
    }

    #[test]
    fn the_aligned_inside_is_never_larger() {
        assert_eq!(span(5, 20).inner_aligned(8), Some(span(8, 16)));
        assert_eq!(span(8, 8).inner_aligned(8), Some(span(8, 8)));
        assert_eq!(span(5, 9).inner_aligned(8), None);
        assert_eq!(span(u64::MAX - 3, 3).inner_aligned(8), None);
    }

    #[test]
    fn a_range_that_wraps_fits_nowhere() {
        assert!(!span(u64::MAX, 2).fits(Bytes::new(u64::MAX)));
        assert!(span(10, 0).fits(Bytes::new(10)));
        assert!(!span(11, 0).fits(Bytes::new(10)));
    }
}
