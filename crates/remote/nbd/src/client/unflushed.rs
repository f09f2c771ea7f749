//! What was acknowledged but not flushed: kept in memory, to be written again to a server that was restarted
//! and may have lost it.
//!
//! It is a map of the latest content by place, so no two pieces overlap, and they may be replayed in any
//! order. A flush covers what was acknowledged before it was sent: every piece has the *epoch* in which it
//! was acknowledged, a flush ends an epoch, and one that succeeds drops the pieces of that epoch and all
//! earlier.
//!
//! Invariants:
//! - What is durable is not here: replaying an older piece over it would undo it. A durable write cuts its
//!   range out, and so does a discard, after which the content is anything.
//! - An acknowledgement counts only on the session it came on ([`Unflushed::generation`]): if the session was
//!   replaced since, the replay did not have the piece, and the request must be made again.
//!
//! Hazard: a piece of which most was cut away still holds its whole buffer. What is counted is therefore what
//! was put in, and not reduced before a flush.

use std::collections::BTreeMap;
use std::sync::Arc;

/// What a piece takes besides its bytes, roughly.
const PIECE_COST: u64 = 128;

/// The content of a piece.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// Bytes from a place in a buffer on.
    Bytes(Arc<[u8]>, usize),
    /// Zeros.
    Zeros,
}

/// Bytes that were acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// How many.
    pub(super) len: u64,
    /// What they are.
    pub(super) content: Content,
    epoch: u64,
}

impl Piece {
    /// The bytes; `None` for zeros.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Bytes(buffer, from) => Some(&buffer[*from..*from + hectare_units::index_of(self.len)]),
            Content::Zeros => None,
        }
    }

    /// What is left without the first `n` bytes.
    fn without_first(&self, n: u64) -> Self {
        let content = match &self.content {
            Content::Bytes(buffer, from) => {
                Content::Bytes(Arc::clone(buffer), from + hectare_units::index_of(n))
            }
            Content::Zeros => Content::Zeros,
        };
        Self { len: self.len - n, content, epoch: self.epoch }
    }
}

/// An epoch that a flush ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Epoch(u64);

/// What was acknowledged but not flushed.
#[derive(Default, Debug)]
pub(super) struct Unflushed {
    /// The session whose acknowledgements count.
    pub(super) generation: u64,
    pieces: BTreeMap<u64, Piece>,
    epoch: u64,
    /// What was put in, by epoch, in bytes.
    cost: BTreeMap<u64, u64>,
}

impl Unflushed {
    /// Removes what is known of a range.
    pub(super) fn cut(&mut self, at: u64, len: u64) {
        let end = at.saturating_add(len);
        if let Some((start, piece)) =
            self.pieces.range(..at).next_back().map(|(start, piece)| (*start, piece.clone()))
        {
            let piece_end = start + piece.len;
            if piece_end > at {
                if piece_end > end {
                    self.pieces.insert(end, piece.without_first(end - start));
                }
                self.pieces.insert(start, Piece { len: at - start, ..piece });
            }
        }
        let inside: Vec<u64> = self.pieces.range(at..end).map(|(start, _)| *start).collect();
        for start in inside {
            let Some(piece) = self.pieces.remove(&start) else { continue };
            if start + piece.len > end {
                self.pieces.insert(end, piece.without_first(end - start));
            }
        }
    }

    /// Notes what was acknowledged.
    pub(super) fn put(&mut self, at: u64, len: u64, content: Content) {
        self.cut(at, len);
        let bytes = if matches!(content, Content::Zeros) { 0 } else { len };
        *self.cost.entry(self.epoch).or_default() += bytes + PIECE_COST;
        self.pieces.insert(at, Piece { len, content, epoch: self.epoch });
    }

    /// Ends the epoch: a flush is sent now.
    pub(super) fn end_epoch(&mut self) -> Epoch {
        self.epoch += 1;
        Epoch(self.epoch - 1)
    }

    /// Forgets what a flush made durable that was sent when `epoch` ended.
    pub(super) fn flushed(&mut self, epoch: Epoch) {
        self.pieces.retain(|_, piece| piece.epoch > epoch.0);
        self.cost.retain(|of, _| *of > epoch.0);
    }

    /// What it takes, in bytes.
    pub(super) fn cost(&self) -> u64 {
        self.cost.values().sum()
    }

    /// All pieces with their places.
    pub(super) fn pieces(&self) -> Vec<(u64, Piece)> {
        self.pieces.iter().map(|(at, piece)| (*at, piece.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Put(u64, u64),
        Zero(u64, u64),
        Cut(u64, u64),
        End,
        Flushed,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let range = (0_u64..60, 1_u64..20);
        let step = prop_oneof![
            4 => range.clone().prop_map(|(at, len)| Step::Put(at, len)),
            1 => range.clone().prop_map(|(at, len)| Step::Zero(at, len)),
            1 => range.prop_map(|(at, len)| Step::Cut(at, len)),
            1 => Just(Step::End),
            1 => Just(Step::Flushed),
        ];
        proptest::collection::vec(step, 1..60)
    }

    proptest! {
        /// Against a model with one entry for each byte.
        #[test]
        fn it_knows_the_latest_content_of_every_byte(steps in steps()) {
            let mut map = Unflushed::default();
            let mut model: Vec<Option<(u8, u64)>> = vec![None; 80];
            let (mut epoch, mut ended) = (0, None);
            for (number, step) in steps.into_iter().enumerate() {
                let value = u8::try_from(number + 1).unwrap();
                let mut set = |at: u64, len: u64, to: Option<(u8, u64)>| {
                    let range = usize::try_from(at).unwrap()..usize::try_from(at + len).unwrap();
                    model[range].fill(to);
                };
                match step {
                    Step::Put(at, len) => {
                        let bytes: Arc<[u8]> = vec![value; usize::try_from(len).unwrap()].into();
                        map.put(at, len, Content::Bytes(bytes, 0));
                        set(at, len, Some((value, epoch)));
                    }
                    Step::Zero(at, len) => {
                        map.put(at, len, Content::Zeros);
                        set(at, len, Some((0, epoch)));
                    }
                    Step::Cut(at, len) => {
                        map.cut(at, len);
                        set(at, len, None);
                    }
                    Step::End => {
                        ended = Some((map.end_epoch(), epoch));
                        epoch += 1;
                    }
                    Step::Flushed => {
                        if let Some((theirs, ours)) = ended.take() {
                            map.flushed(theirs);
                            for entry in &mut model {
                                if entry.is_some_and(|(_, of)| of <= ours) {
                                    *entry = None;
                                }
                            }
                        }
                    }
                }
                let mut shown = vec![None; model.len()];
                for (at, piece) in map.pieces() {
                    for n in 0..piece.len {
                        let slot: &mut Option<u8> = &mut shown[usize::try_from(at + n).unwrap()];
                        prop_assert!(slot.is_none(), "pieces overlap at {}", at + n);
                        *slot = Some(piece.bytes().map_or(0, |bytes| bytes[usize::try_from(n).unwrap()]));
                    }
                }
                let expected: Vec<_> = model.iter().map(|entry| entry.map(|(value, _)| value)).collect();
                prop_assert_eq!(shown, expected);
            }
        }
    }
}
