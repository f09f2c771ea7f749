//! Draws the fate of the writes that were not yet durable: at random, but with the habits that find mistakes.
//! Losing each write with the same probability seldom shows what one missing write does among fifty, so a
//! state first draws a habit, then what became of each write.

use crate::Span;
use hectare_units::random::SplitMix64;
use hectare_units::u64_of;

/// The unit that is written whole or not at all.
const SECTOR_LEN: u64 = 512;

/// The most parts a range is torn into, so that a zeroed gigabyte isn't a matter of millions.
const PARTS_MAX: u64 = 2048;

/// One storage, between its last flush and the power cut.
pub(super) struct Storage {
    random: SplitMix64,
    habit: Habit,
    /// One in this many writes that arrive is torn; never, if 0.
    torn_one_in: u32,
    /// How many writes were chosen for.
    chosen: usize,
}

enum Habit {
    /// Nothing arrived but this one.
    Only(usize),
    /// All arrived but this one.
    AllBut(usize),
    /// They arrived in order, up to this one.
    UpTo(usize),
    /// Each arrived with this probability, in eighths.
    Each(u32),
}

impl Storage {
    /// As a seed says, at a point with this many writes that can be lost.
    pub(super) fn new(seed: u64, point: usize, pending: usize) -> Self {
        let mut random = SplitMix64::stream(seed, u64_of(point));
        let one = random.index_below(pending);
        let habit = match random.below32(8) {
            0 => Habit::Only(one),
            1 => Habit::AllBut(one),
            2 => Habit::UpTo(one),
            // Nothing at all (0) is a state of its own.
            _ => Habit::Each(random.below32(8)),
        };
        let torn_one_in = [0, 4, 16, 16][random.index_below(4)];
        Self { random, habit, torn_one_in, chosen: 0 }
    }

    /// The parts of the next write that arrived.
    pub(super) fn choose(&mut self, span: Span) -> Vec<Span> {
        let n = self.chosen;
        self.chosen += 1;
        let arrived = match self.habit {
            Habit::Only(one) => n == one,
            Habit::AllBut(one) => n != one,
            Habit::UpTo(one) => n <= one,
            Habit::Each(eighths) => self.random.below32(8) < eighths,
        };
        if !arrived {
            return Vec::new();
        }
        if self.torn_one_in > 0 && self.random.below32(self.torn_one_in) == 0 {
            self.tear(span)
        } else {
            vec![span]
        }
    }

    /// Some of the sectors: the first ones, the last ones, or any.
    fn tear(&mut self, span: Span) -> Vec<Span> {
        let step = (span.len.get() / PARTS_MAX).next_multiple_of(SECTOR_LEN).max(SECTOR_LEN);
        let sectors: Vec<Span> = span.pieces(step).collect();
        let cut = self.random.index_below(sectors.len() + 1);
        let kept = match self.random.below32(4) {
            0 => sectors[..cut].to_vec(),
            1 => sectors[cut..].to_vec(),
            _ => sectors.into_iter().filter(|_| self.random.below32(2) == 0).collect(),
        };
        joined(kept)
    }
}

/// Neighbours made one.
fn joined(spans: Vec<Span>) -> Vec<Span> {
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if last.end() == Some(span.at) => last.len += span.len,
            _ => joined.push(span),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_units::Bytes;

    #[test]
    fn a_torn_write_has_whole_sectors_of_its_own_range() {
        let mut storage = Storage::new(0, 0, 1);
        let span = Span::new(Bytes::new(700), Bytes::new(5000));
        let mut partly = 0;
        for _ in 0..200 {
            let parts = storage.tear(span);
            let mut from = span.at;
            for part in &parts {
                assert!(part.at >= from && part.end() <= span.end(), "{parts:?}");
                let border =
                    |at: Bytes| at.get().is_multiple_of(512) || at == span.at || Some(at) == span.end();
                assert!(border(part.at) && part.end().is_some_and(border), "{parts:?}");
                from = part.end().unwrap();
            }
            partly += usize::from(!parts.is_empty() && parts != [span]);
        }
        assert!(partly > 100, "{partly}");
        assert!(storage.tear(Span::new(Bytes::ZERO, Bytes::gib(100))).len() < 2050);
    }
}
