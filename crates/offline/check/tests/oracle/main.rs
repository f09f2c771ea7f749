//! The checker beside `e2fsck -fn`, which has the last word.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod clean;
mod corpus;
mod damage;
mod hostile;
mod noted;
mod orphans;
mod parallel;
mod support;
