//! Repairs beside those of `e2fsck -fy`: what is left afterwards is clean for `e2fsck -fn`, and no file is lost
//! that e2fsck keeps.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod corpus;
mod random;
mod survey;
mod trial;
