//! How long the tests of this crate run: short by default, long under `HECTARE_LONG=1`.

use proptest::prelude::ProptestConfig;

/// How many times as many cases a long run has.
const LONG: u32 = 50;

/// `cases` cases, or [`LONG`] times as many in a long run, which is listed as left out otherwise.
pub(crate) fn cases(test: &str, cases: u32) -> ProptestConfig {
    let long = std::env::var("HECTARE_LONG").is_ok_and(|value| value == "1");
    if !long {
        hectare_oracle::skip_part!(format!("{test}, {LONG} times as many cases"), "long; set HECTARE_LONG=1");
    }
    let cases = if long { cases.saturating_mul(LONG) } else { cases };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}
