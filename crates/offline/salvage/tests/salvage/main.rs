//! What comes out of volumes that are damaged, or have no superblock.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod damage;
mod inferred;
