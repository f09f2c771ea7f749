//! The hunts as jobs of a command line: their options, their progress, and what they leave.

pub(crate) mod boot;
pub(crate) mod ceph;
pub(crate) mod conform;
pub(crate) mod corpus;
pub(crate) mod crash;
pub(crate) mod fuzz;
pub(crate) mod killed;
pub(crate) mod peers;
pub(crate) mod portable;
pub(crate) mod remote;
pub(crate) mod repair;
pub(crate) mod repository;
pub(crate) mod resize;
pub(crate) mod salvage;
pub(crate) mod sanitize;
pub(crate) mod soak;
pub(crate) mod stress;
pub(crate) mod tests;

/// Options of `timeout` for a program that has processes of its own no more than a shell that becomes it.
/// They stay in the group of the terminal, so that an interruption reaches them.
const LIMITED: [&str; 3] = ["--foreground", "-s", "KILL"];
/// The exit code of `timeout` then, if the time was over.
const TIMED_OUT: i32 = 128 + 9;
