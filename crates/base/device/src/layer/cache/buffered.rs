//! Writes that are buffered: the latest content by place, as a map without overlaps.

use crate::Span;
use hectare_units::{Bytes, index_of, u64_of};
use std::collections::BTreeMap;
use std::io::IoSlice;

/// A piece to which an adjacent write is appended grows no further than that.
const PIECE_MAX: usize = 1 << 20;

/// What a piece takes besides its bytes, roughly.
const PIECE_COST: usize = 128;

/// Bytes by place.
#[derive(Default, Debug)]
pub(super) struct Buffered {
    pieces: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
}

/// Adjacent pieces.
pub(super) struct Run<'a> {
    pub(super) at: Bytes,
    pub(super) parts: Vec<IoSlice<'a>>,
}

impl Buffered {
    /// What it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.pieces.len() * PIECE_COST
    }

    /// Removes what lies in a range.
    pub(super) fn cut(&mut self, span: Span) {
        let (at, end) = (span.at.get(), span.at.get() + span.len.get());
        while let Some((start, len)) = self.last_before(end).filter(|(start, len)| start + u64_of(*len) > at)
        {
            let Some(mut piece) = self.pieces.remove(&start) else { return };
            self.bytes -= len;
            if start + u64_of(len) > end {
                let rest = piece.split_off(index_of(end - start));
                self.insert(end, rest);
            }
            if start < at {
                piece.truncate(index_of(at - start));
                self.insert(start, piece);
            }
        }
    }

    fn last_before(&self, end: u64) -> Option<(u64, usize)> {
        self.pieces.range(..end).next_back().map(|(start, piece)| (*start, piece.len()))
    }

    fn insert(&mut self, at: u64, piece: Vec<u8>) {
        self.bytes += piece.len();
        self.pieces.insert(at, piece);
    }

    /// Notes a write.
    pub(super) fn put(&mut self, at: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.cut(Span::new(Bytes::new(at), Bytes::of(data.len())));
        if let Some((start, piece)) = self.pieces.range_mut(..at).next_back()
            && *start + u64_of(piece.len()) == at
            && piece.len() + data.len() <= PIECE_MAX
        {
            piece.extend_from_slice(data);
            self.bytes += data.len();
            return;
        }
        self.insert(at, data.to_vec());
    }

    /// The pieces that touch a range, lowest first.
    fn touching(&self, span: Span) -> impl Iterator<Item = (u64, &[u8])> {
        let (at, end) = (span.at.get(), span.at.get() + span.len.get());
        let before = self.pieces.range(..at).next_back();
        let before = before.filter(move |(start, piece)| *start + u64_of(piece.len()) > at);
        let rest = self.pieces.range(at..end.max(at));
        before.into_iter().chain(rest).map(|(start, piece)| (*start, piece.as_slice()))
    }

    /// Whether anything lies in a range.
    pub(super) fn touches(&self, span: Span) -> bool {
        self.first(span).is_some()
    }

    /// The first part of a range that is here.
    pub(super) fn first(&self, span: Span) -> Option<Span> {
        let (start, piece) = self.touching(span).next()?;
        let at = start.max(span.at.get());
        let end = (start + u64_of(piece.len())).min(span.at.get() + span.len.get());
        Some(Span::new(Bytes::new(at), Bytes::new(end - at)))
    }

    /// Copies of the parts of a range that are here.
    pub(super) fn within(&self, span: Span) -> Vec<(u64, Vec<u8>)> {
        let (at, end) = (span.at.get(), span.at.get() + span.len.get());
        let part = |(start, piece): (u64, &[u8])| {
            let (from, to) = (start.max(at), (start + u64_of(piece.len())).min(end));
            (from, piece[index_of(from - start)..index_of(to - start)].to_vec())
        };
        self.touching(span).map(part).collect()
    }

    /// All, with adjacent pieces together.
    pub(super) fn runs(&self) -> Vec<Run<'_>> {
        let mut runs: Vec<Run<'_>> = Vec::new();
        let mut next = None;
        for (at, piece) in &self.pieces {
            match runs.last_mut().filter(|_| next == Some(*at)) {
                Some(run) => run.parts.push(IoSlice::new(piece)),
                None => runs.push(Run { at: Bytes::new(*at), parts: vec![IoSlice::new(piece)] }),
            }
            next = Some(at + u64_of(piece.len()));
        }
        runs
    }
}
