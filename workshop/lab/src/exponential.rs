//! Exponential variates that are the same on every machine.
//!
//! They come from comparisons alone (von Neumann's method): the last bits of the logarithm differ between
//! mathematics libraries, and a seed must give one volume everywhere.

use hectare_units::high32;
use hectare_units::random::SplitMix64;

/// Evenly in 0 to below 1, in steps of 2^-32: exact in floating point.
fn even(random: &mut SplitMix64) -> f64 {
    f64::from(high32(random.draw())) / 4_294_967_296.0
}

/// Exponentially distributed with mean 1. A run of falling numbers has odd length with a probability of
/// e^-x for its first number x; every rejected run adds 1.
pub(crate) fn exponential(random: &mut SplitMix64) -> f64 {
    let mut whole = 0.0;
    loop {
        let first = even(random);
        let (mut last, mut odd) = (first, true);
        loop {
            let next = even(random);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_variates_have_their_mean_and_median() {
        let mut random = SplitMix64::new(7);
        let mut drawn: Vec<f64> = (0..100_000).map(|_| exponential(&mut random)).collect();
        drawn.sort_by(f64::total_cmp);
        let mean = drawn.iter().sum::<f64>() / 100_000.0;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        let median = drawn[50_000];
        assert!((median - std::f64::consts::LN_2).abs() < 0.02, "{median}");
        let beyond = drawn.iter().filter(|x| **x > 3.0).count();
        assert!((4_600..5_400).contains(&beyond), "e^-3 of them: {beyond}");
    }
}
