//! How a job ends: with which exit status, and why it or a part of it has no result: what it needs is missing
//! here, or it went wrong.

use crate::Skip;
use crate::skip::REQUIRE_ALL;
use std::process::ExitCode;

/// Why there is no result.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// What it needs is missing here.
    Skipped(String),
    /// It went wrong.
    Failed(String),
}

impl From<String> for Ended {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl From<Skip> for Ended {
    fn from(skip: Skip) -> Self {
        Self::Skipped(skip.to_string())
    }
}

impl Ended {
    /// Prints why a job ended; returns whether that counts as a success: a skip does, unless all is required.
    pub fn print(&self, job: &str, arguments: &str) -> bool {
        match self {
            Self::Skipped(reason) => {
                println!("skipped: {job}: {reason}\n{job}: 0 passed, 0 failed, 1 skipped");
                may_skip()
            }
            Self::Failed(reason) => {
                eprintln!("{job}{arguments} FAILED: {reason}");
                false
            }
        }
    }
}

/// How a hunt or a comparison ends: the exit status of its program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Exit {
    /// All was done, and nothing found.
    Good = 0,
    /// Something was found, or went wrong.
    Bad = 1,
    /// The command line is not understood.
    Usage = 2,
    /// It can't run here: what it needs is missing, or can't be built.
    NotHere = 3,
}

impl Exit {
    /// The end of a job with this result; why it has none is printed, on a line.
    pub fn of(job: &str, result: Result<(), Ended>) -> Self {
        match result {
            Ok(()) => Self::Good,
            Err(Ended::Skipped(reason)) => {
                eprintln!("{job} can't run here: {reason}");
                Self::NotHere
            }
            Err(Ended::Failed(reason)) => {
                eprintln!("{job} FAILED: {reason}");
                Self::Bad
            }
        }
    }
}

impl From<bool> for Exit {
    fn from(good: bool) -> Self {
        if good { Self::Good } else { Self::Bad }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Whether what was skipped counts as a success: not where all is required.
pub fn may_skip() -> bool {
    std::env::var(REQUIRE_ALL).map_or(true, |value| value != "1")
}
