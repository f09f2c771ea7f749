//! Random numbers that are the same everywhere: one seed, one sequence, on every machine.
//!
//! Nothing here uses a function of the host's mathematics library, whose last bits differ between systems:
//! exponential variates come from comparisons alone (von Neumann's method).

/// A sequence of 64-bit numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)] // a sequence without an end is no iterator worth having
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly in 0 to below `n`; 0 if `n` is. Exact to one part in 2^32.
    pub fn below(&mut self, n: u32) -> u32 {
        hectare_units::high32(u64::from(hectare_units::high32(self.next())) * u64::from(n))
    }

    /// Evenly in 0 to below 1, in steps of 2^-32: exact in floating point.
    fn even(&mut self) -> f64 {
        f64::from(hectare_units::high32(self.next())) / 4_294_967_296.0
    }

    /// Exponentially distributed with mean 1. A run of falling numbers has odd length with a probability of
    /// e^-x for its first number x; every rejected run adds 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        let mut whole = 0.0;
        loop {
            let first = self.even();
            let (mut last, mut odd) = (first, true);
            loop {
                let next = self.even();
                if next >= last {
                    break;
                }
                last = next;
                odd = !odd;
            }
            if odd {
                return whole + first;
            }
            whole += 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_come_evenly() {
        let mut random = Random::new(3);
        let mut counts = [0_u32; 5];
        (0..50_000).for_each(|_| counts[hectare_units::usize_of(random.below(5))] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        assert_eq!((random.below(1), random.below(0)), (0, 0));
    }

    #[test]
    fn exponential_variates_have_their_mean_and_median() {
        let mut random = Random::new(7);
        let mut drawn: Vec<f64> = (0..100_000).map(|_| random.exponential()).collect();
        drawn.sort_by(f64::total_cmp);
        let mean = drawn.iter().sum::<f64>() / 100_000.0;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        let median = drawn[50_000];
        assert!((median - std::f64::consts::LN_2).abs() < 0.02, "{median}");
        let beyond = drawn.iter().filter(|x| **x > 3.0).count();
        assert!((4_600..5_400).contains(&beyond), "e^-3 of them: {beyond}");
    }
}
