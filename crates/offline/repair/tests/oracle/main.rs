//! Repairs beside those of `e2fsck -fy`: what is left afterwards is clean for `e2fsck -fn`, and no file is
//! lost that e2fsck keeps. And repairs that a power cut interrupts.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod cancel;
mod corpus;
mod crash;
mod damage;
mod descriptors;
mod duplicates;
mod encrypted;
mod external;
mod fields;
mod forgotten;
mod hashed;
mod kept;
mod names;
mod parents;
mod random;
#[allow(dead_code, unreachable_pub)] // the fuzz targets use the rest
#[path = "../../../../../workshop/fuzz/src/repair.rs"]
mod seal;
mod spill;
mod structures;
mod superblocks;
mod survey;
mod trial;
mod tuned;
mod unread;
mod values;
mod volumes;
mod wrong_names;

/// Counts what is allocated.
#[global_allocator]
static HEAP: &peakmem_alloc::PeakMemAlloc<std::alloc::System> = &peakmem_alloc::INSTRUMENTED_SYSTEM;
