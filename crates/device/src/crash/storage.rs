//! What storage did with the writes it had not been told to make durable: chance, but with the habits that
//! find mistakes. Losing each write with the same chance seldom shows what one missing write does among
//! fifty, so a state first draws a habit, then what became of each write.

use crate::Span;
use hectare_units::{high32, u64_of, usize_of};

/// The unit that is written whole or not at all.
const SECTOR_LEN: u64 = 512;

/// A range is torn into at most so many parts, so that a zeroed gigabyte isn't a matter of millions.
const PARTS_MAX: u64 = 2048;

/// One storage, between its last flush and the power cut.
pub(super) struct Storage {
    dice: Dice,
    habit: Habit,
    /// One in so many writes that arrive is torn; never, if 0.
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
    /// Each arrived with this chance, in eighths.
    Each(u32),
}

impl Storage {
    /// As a seed says, at a point with this many writes that can be lost.
    pub(super) fn new(seed: u64, point: usize, pending: usize) -> Self {
        let mut dice = Dice::new(seed, u64_of(point));
        let one = dice.index_below(pending);
        let habit = match dice.below(8) {
            0 => Habit::Only(one),
            1 => Habit::AllBut(one),
            2 => Habit::UpTo(one),
            // Nothing at all (0) is a state of its own.
            _ => Habit::Each(dice.below(8)),
        };
        let torn_one_in = [0, 4, 16, 16][dice.index_below(4)];
        Self { dice, habit, torn_one_in, chosen: 0 }
    }

    /// The parts of the next write that arrived.
    pub(super) fn choose(&mut self, span: Span) -> Vec<Span> {
        let n = self.chosen;
        self.chosen += 1;
        let arrived = match self.habit {
            Habit::Only(one) => n == one,
            Habit::AllBut(one) => n != one,
            Habit::UpTo(one) => n <= one,
            Habit::Each(eighths) => self.dice.below(8) < eighths,
        };
        if !arrived {
            return Vec::new();
        }
        if self.torn_one_in > 0 && self.dice.below(self.torn_one_in) == 0 {
            self.tear(span)
        } else {
            vec![span]
        }
    }

    /// Some of the sectors: the first ones, the last ones, or any.
    fn tear(&mut self, span: Span) -> Vec<Span> {
        let step = (span.len.get() / PARTS_MAX).next_multiple_of(SECTOR_LEN).max(SECTOR_LEN);
        let sectors: Vec<Span> = span.pieces(step).collect();
        let cut = self.dice.index_below(sectors.len() + 1);
        let kept = match self.dice.below(4) {
            0 => sectors[..cut].to_vec(),
            1 => sectors[cut..].to_vec(),
            _ => sectors.into_iter().filter(|_| self.dice.below(2) == 0).collect(),
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

/// Numbers that look random and are the same for the same seed: a counter, mixed (splitmix64).
struct Dice(u64);

impl Dice {
    fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = Self(seed);
        let seed = mixed.next();
        Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to but not with `end`; 0 if that is 0.
    fn below(&mut self, end: u32) -> u32 {
        high32(u64::from(high32(self.next())) * u64::from(end))
    }

    /// The same for an index.
    fn index_below(&mut self, end: usize) -> usize {
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        usize_of(self.below(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_units::Bytes;

    #[test]
    fn numbers_reach_every_value_and_no_other() {
        let mut dice = Dice::new(1, 2);
        let mut seen = [0; 8];
        (0..800).for_each(|_| seen[dice.index_below(8)] += 1);
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
        assert_eq!((dice.below(0), dice.index_below(1)), (0, 0));
    }

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
