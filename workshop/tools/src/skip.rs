//! Skips: checks that could not run here, counted instead of forgotten.
//!
//! A check that silently does nothing is worse than none. [`skip!`](crate::skip!) prints one line, and
//! appends it to the file named by `HECTARE_SKIP_LOG` so that `make test` can count it although the test
//! harness hides the output of passing tests. `HECTARE_REQUIRE_ALL=1` turns every skip into a failure, for a
//! machine that is meant to have everything.
//!
//! The log has one record a line: `test` or `part`, a tab, the name, a tab, the reason. `test` means that the
//! whole test was skipped (the harness still counts it as passed), `part` that a test left something out.

use std::fs::OpenOptions;
use std::io::Write;

/// The environment variable that names the log of skips.
pub const LOG: &str = "HECTARE_SKIP_LOG";
/// The environment variable that, set to `1`, makes every skip a failure.
pub const REQUIRE_ALL: &str = "HECTARE_REQUIRE_ALL";

/// Why a check can't run here: a tool, a right or a kernel feature is missing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Skip(pub String);

impl Skip {
    /// A skip for a reason.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// How much was skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// The whole test: it checked nothing.
    Test,
    /// A part of it: the rest was checked.
    Part,
}

/// Leaves the running test, counted as skipped: `skip!("name of the test", reason)`.
///
/// The expansion returns from the enclosing function, which must return `()`.
///
/// # Panics
/// If `HECTARE_REQUIRE_ALL=1`.
#[macro_export]
macro_rules! skip {
    ($test:expr, $reason:expr) => {
        return $crate::skip::record($crate::skip::Extent::Test, $test, &$reason.to_string())
    };
}

/// Records that a test leaves out a part, and continues: `skip_part!("name of the test, part", reason)`.
///
/// # Panics
/// If `HECTARE_REQUIRE_ALL=1`.
#[macro_export]
macro_rules! skip_part {
    ($test:expr, $reason:expr) => {
        $crate::skip::record($crate::skip::Extent::Part, &$test.to_string(), &$reason.to_string())
    };
}

/// Prints and logs one skip; the macros call it.
///
/// # Panics
/// If `HECTARE_REQUIRE_ALL=1`, or if the log can't be written (a lost record would be a lie in the summary).
pub fn record(extent: Extent, test: &str, reason: &str) {
    let required = std::env::var(REQUIRE_ALL).is_ok_and(|v| v == "1");
    assert!(!required, "{test} would be skipped ({reason}), but {REQUIRE_ALL}=1");
    eprintln!("SKIPPED {test}: {reason}");
    let Some(log) = std::env::var_os(LOG) else { return };
    let line = line_of(extent, test, reason);
    let written = OpenOptions::new().create(true).append(true).open(&log);
    let written = written.and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("can't write the skip log {}: {error}", log.display());
    }
}

fn line_of(extent: Extent, test: &str, reason: &str) -> String {
    let kind = match extent {
        Extent::Test => "test",
        Extent::Part => "part",
    };
    let clean = |text: &str| text.replace(['\t', '\n', '\r'], " ");
    format!("{kind}\t{}\t{}\n", clean(test), clean(reason))
}

/// One record of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// How much was skipped.
    pub extent: Extent,
    /// The test's name.
    pub test: String,
    /// Why.
    pub reason: String,
}

/// Reads a log; lines of another form are left out.
#[must_use]
pub fn parse(log: &str) -> Vec<Record> {
    let record = |line: &str| {
        let mut fields = line.splitn(3, '\t');
        let extent = match fields.next()? {
            "test" => Extent::Test,
            "part" => Extent::Part,
            _ => return None,
        };
        Some(Record { extent, test: fields.next()?.into(), reason: fields.next()?.into() })
    };
    log.lines().filter_map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_tabs_and_newlines() {
        let log = line_of(Extent::Test, "a\tb", "no\nroot") + &line_of(Extent::Part, "c", "d") + "junk\n";
        let records = parse(&log);
        assert_eq!(records.len(), 2);
        assert_eq!(records[0], Record { extent: Extent::Test, test: "a b".into(), reason: "no root".into() });
        assert_eq!(records[1].extent, Extent::Part);
    }
}
