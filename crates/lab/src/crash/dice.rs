//! Chance, the same for the same seed.

use crate::random::Random;
use hectare_units::{index_of, u64_of};

/// A sequence of choices.
#[derive(Clone, Debug)]
pub(super) struct Dice(Random);

impl Dice {
    /// The sequence of a seed and a stream: streams of one seed are unrelated.
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mixed = Random::new(seed).next();
        Self(Random::new(mixed ^ stream.wrapping_mul(0xd134_2543_de82_ef95)))
    }

    /// Any number.
    pub(super) fn any(&mut self) -> u64 {
        self.0.next()
    }

    /// A number below `end`; 0 if that is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.0.next() % end }
    }

    /// True one time in `n`.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of them, if there are any.
    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(index_of(self.below(u64_of(of.len()))))
    }

    /// One of them, the likelier the greater its weight.
    pub(super) fn weighed<T: Copy>(&mut self, of: &[(u64, T)]) -> Option<T> {
        let mut left = self.below(of.iter().map(|(weight, _)| weight).sum());
        for (weight, item) in of {
            if left < *weight {
                return Some(*item);
            }
            left -= weight;
        }
        None
    }
}
