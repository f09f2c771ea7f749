//! What is known of a range of a device without reading it.

use crate::Span;
use hectare_units::Bytes;

/// The bytes from some place on that are alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// How many bytes there are: more than none, unless none were asked about.
    pub len: Bytes,
    /// Whether they read as zeros. If not, they can hold anything, zeros too.
    pub is_zero: bool,
}

impl Extent {
    /// Bytes that can be anything.
    #[must_use]
    pub const fn data(len: Bytes) -> Self {
        Self { len, is_zero: false }
    }

    /// Bytes that read as zeros.
    #[must_use]
    pub const fn zeros(len: Bytes) -> Self {
        Self { len, is_zero: true }
    }

    /// Of an ascending list of ranges that hold data, all else being zeros: the extent at the start of `span`.
    pub(crate) fn among(data: impl IntoIterator<Item = Span>, span: Span) -> Self {
        let to = |place: Bytes| place.saturating_sub(span.at).min(span.len);
        for range in data {
            if range.at > span.at {
                return Self::zeros(to(range.at));
            }
            match range.end() {
                Some(end) if end <= span.at => {}
                Some(end) => return Self::data(to(end)),
                None => return Self::data(span.len),
            }
        }
        Self::zeros(span.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extent_at_a_place_is_found_among_ranges_of_data() {
        let span = |at, len| Span::new(Bytes::new(at), Bytes::new(len));
        let data = [span(10, 5), span(20, 5)];
        let at = |place, len| Extent::among(data, span(place, len));
        assert_eq!(at(0, 100), Extent::zeros(Bytes::new(10)));
        assert_eq!(at(0, 4), Extent::zeros(Bytes::new(4)));
        assert_eq!(at(12, 100), Extent::data(Bytes::new(3)));
        assert_eq!(at(15, 100), Extent::zeros(Bytes::new(5)));
        assert_eq!(at(25, 100), Extent::zeros(Bytes::new(100)));
    }
}
