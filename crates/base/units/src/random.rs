//! Random numbers that are the same everywhere: one seed, one sequence, on every machine and for ever.
//!
//! The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): a
//! counter, mixed. It is good enough for tests, workloads and inode generations, and useless for secrets. It is kept
//! here instead of taken from a crate because seeds are recorded in bug reports: a sequence must never change.

use crate::{high32, index_of, u64_of, usize_of};

/// What the counter grows by with each number: 2^64 divided by the golden ratio, made odd.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The mixed form of a counter's value: any two values are unrelated.
#[must_use]
pub const fn mixed(counter: u64) -> u64 {
    let z = (counter ^ (counter >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A sequence of 64-bit numbers.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One of many unrelated sequences of a seed.
    #[must_use]
    pub fn stream(seed: u64, stream: u64) -> Self {
        let mixed = Self(seed).draw();
        Self(mixed ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mixed(self.0)
    }

    /// A number below `end`; 0 if that is 0. Evenly but for one part in 2^64 / `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw().checked_rem(end).unwrap_or(0)
    }

    /// A number below `end`; 0 if that is 0. Evenly but for one part in 2^32, without a division.
    pub fn below32(&mut self, end: u32) -> u32 {
        high32(u64::from(high32(self.draw())) * u64::from(end))
    }

    /// An index below `end`, of which only the first 2^32 are drawn; 0 if that is 0.
    pub fn index_below(&mut self, end: usize) -> usize {
        usize_of(self.below32(u32::try_from(end).unwrap_or(u32::MAX)))
    }

    /// True one time in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of the items, if there are any.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(index_of(self.below(u64_of(of.len()))))
    }

    /// One of the items, the likelier the greater its weight.
    pub fn weighed<T: Copy>(&mut self, of: &[(u64, T)]) -> Option<T> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // The first numbers of seed 1234567 of the authors' own program.
        let mut random = SplitMix64::new(1_234_567);
        let published = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(std::array::from_fn(|_| random.draw()), published);
    }

    #[test]
    fn numbers_reach_every_value_and_no_other() {
        let mut random = SplitMix64::stream(1, 2);
        let (mut by_modulus, mut by_product) = ([0; 8], [0; 8]);
        for _ in 0..800 {
            by_modulus[index_of(random.below(8))] += 1;
            by_product[random.index_below(8)] += 1;
        }
        assert!(
            by_modulus.iter().chain(&by_product).all(|count| *count > 50),
            "{by_modulus:?} {by_product:?}"
        );
        assert_eq!((random.below(0), random.below32(0), random.index_below(1)), (0, 0, 0));
        assert_eq!(random.pick::<u8>(&[]), None);
        assert_eq!(random.pick(&[7]), Some(&7));
        assert_eq!(random.weighed(&[(0, 'a'), (3, 'b'), (0, 'c')]), Some('b'));
        assert_eq!(random.weighed(&[(0, 'a')]), None);
    }

    #[test]
    fn streams_of_a_seed_differ() {
        let first = |stream| SplitMix64::stream(5, stream).draw();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }
}
