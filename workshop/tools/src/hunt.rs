//! How tests that draw at random are seeded, and how much they do: a hunt in a test's place.
//!
//! `make test` sets the seed ([`SEED`]), which follows from the commit, so that each commit is tried by other draws
//! than the one before, and each run of one commit by the same. There such a test does a tenth of its work; `make hunt`
//! runs it with fresh seeds and all of it ([`LONG`]). A failing test prints the seed that repeats it.

use std::fmt::Display;

/// Names the seed: a number.
pub const SEED: &str = "HECTARE_SEED";
/// Set to `1`, hunts do all of their work, and tests run that take minutes.
pub const LONG: &str = "HECTARE_LONG";

/// The seed of a hunt: its own for each name. It is printed, for whom the hunt fails.
///
/// # Panics
/// If the variable is set and is not a number: another seed than the one that was asked for would be a lie.
#[must_use]
pub fn seed(name: &str) -> u64 {
    let given = given();
    eprintln!("{name}: {SEED}={given}");
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325 ^ given, step) // FNV-1a
}

/// The number that is set; 1 if none is.
fn given() -> u64 {
    let Ok(text) = std::env::var(SEED) else { return 1 };
    text.parse().unwrap_or_else(|_| panic!("{SEED}={text}: a seed is a number"))
}

/// How much of its work a hunt does: a tenth, at least 1, or all of it in `make hunt`.
#[must_use]
pub fn share(whole: u64) -> u64 {
    if is_long() { whole } else { whole.div_ceil(10) }
}

/// One in so many of the cases of a long table, the first drawn by the seed, so that as many commits try all; or all of
/// them in `make hunt`. What is left out is recorded as a skip of a part.
///
/// # Panics
/// If `HECTARE_REQUIRE_ALL=1` and some would be left out.
#[must_use]
pub fn part<T>(name: &str, cases: impl IntoIterator<Item = T>, one_in: usize) -> Vec<T> {
    if one_in <= 1 || long(format!("{name}, {} in {one_in} of the cases", one_in - 1)) {
        return cases.into_iter().collect();
    }
    let first = seed(name) % one_in as u64;
    cases.into_iter().skip(usize::try_from(first).unwrap_or(0)).step_by(one_in).collect()
}

/// Whether hunts do all of their work.
#[must_use]
pub fn is_long() -> bool {
    std::env::var(LONG).is_ok_and(|value| value == "1")
}

/// Whether hunts do all of their work; else that this is left out is recorded as a skip of a part.
///
/// # Panics
/// If `HECTARE_REQUIRE_ALL=1` and it would be skipped.
#[must_use]
pub fn long(what: impl Display) -> bool {
    let is_long = is_long();
    if !is_long {
        crate::skip_part!(what, format!("long; set {LONG}=1"));
    }
    is_long
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_seeds_of_their_own_and_the_same_each_time() {
        assert_eq!(seed("a"), seed("a"));
        assert_ne!(seed("a"), seed("b"));
    }

    #[test]
    fn a_share_is_a_tenth_and_never_nothing() {
        if !is_long() {
            assert_eq!([0, 1, 10, 11, 250].map(share), [0, 1, 1, 2, 25]);
        }
    }
}
