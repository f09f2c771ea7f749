//! Reads that follow each other, so that more is fetched than is asked for.
//!
//! What is fetched doubles with each read that goes on where an earlier one ended, up to a limit. A few streams
//! are followed at once, since several files are read beside each other and beside their metadata.

use crate::Span;
use hectare_units::index_of;

/// How many streams are followed.
const STREAMS: usize = 16;

/// A read may skip so many bytes and still go on: the tail of a file's last block, a block of the map between.
const SKIP: u64 = 16 << 10;

/// The least that is fetched for a read that goes on.
const FIRST: usize = 32 << 10;

#[derive(Clone, Copy, Default)]
struct Stream {
    /// Where the last read ended.
    next: u64,
    /// What is fetched at once.
    window: usize,
    used: u64,
}

/// The streams of a device.
pub(super) struct Streams {
    limit: usize,
    streams: [Stream; STREAMS],
    time: u64,
}

impl Streams {
    /// Fetches at most `limit` bytes at once; zero for no more than is asked for.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, streams: [Stream::default(); STREAMS], time: 0 }
    }

    /// The stream that a read goes on with.
    fn following(&mut self, span: Span) -> Option<&mut Stream> {
        let at = span.at.get();
        self.streams
            .iter_mut()
            .find(|stream| stream.used > 0 && (stream.next..=stream.next.saturating_add(SKIP)).contains(&at))
    }

    /// Notes a read that needs nothing of the device.
    pub(super) fn note(&mut self, span: Span) {
        self.time += 1;
        let (time, next) = (self.time, span.at.get() + span.len.get());
        if let Some(stream) = self.following(span) {
            stream.next = next;
            stream.used = time;
        }
    }

    /// How many bytes to fetch for a read of the device: no fewer than it asks for.
    pub(super) fn ahead(&mut self, span: Span) -> usize {
        self.time += 1;
        let (time, next, limit) = (self.time, span.at.get() + span.len.get(), self.limit);
        let len = index_of(span.len.get());
        if let Some(stream) = self.following(span) {
            stream.next = next;
            stream.used = time;
            stream.window = (stream.window * 2).max(FIRST).min(limit);
            return stream.window.max(len);
        }
        let oldest = self.streams.iter_mut().min_by_key(|stream| stream.used);
        if let Some(stream) = oldest {
            *stream = Stream { next, window: 0, used: time };
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_units::{Bytes, u64_of};

    fn span(at: u64, len: u64) -> Span {
        Span::new(Bytes::new(at), Bytes::new(len))
    }

    #[test]
    fn reads_that_follow_each_other_fetch_more_and_more() {
        let mut streams = Streams::new(256 << 10);
        let mut fetched = Vec::new();
        let mut at = 0;
        for _ in 0..6 {
            let ahead = streams.ahead(span(at, 4096));
            fetched.push(ahead >> 10);
            let end = at + u64_of(ahead);
            (at + 4096..end).step_by(4096).for_each(|at| streams.note(span(at, 4096)));
            at = end;
        }
        assert_eq!(fetched, [4, 32, 64, 128, 256, 256]);
    }

    #[test]
    fn reads_anywhere_fetch_no_more_than_they_ask_for() {
        let mut streams = Streams::new(256 << 10);
        for at in [0, 1 << 20, 5 << 20, 3 << 20] {
            assert_eq!(streams.ahead(span(at, 5000)), 5000);
        }
        let mut none = Streams::new(0);
        assert_eq!([none.ahead(span(0, 4096)), none.ahead(span(4096, 4096))], [4096, 4096]);
    }
}
