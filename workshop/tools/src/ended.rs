//! Why a job or a part of one has no result: what it needs is missing here, or it went wrong.

use crate::Skip;
use crate::skip::REQUIRE_ALL;

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

/// Whether what was skipped counts as a success: not where all is required.
pub fn may_skip() -> bool {
    std::env::var(REQUIRE_ALL).map_or(true, |value| value != "1")
}
