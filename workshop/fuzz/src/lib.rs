//! What the fuzz targets share.
//!
//! A fuzzer that flips bits of an image gets no further than the first checksum. So the targets that open a
//! whole volume take their input as a list of small changes ([`patch`]) to one of a few tiny volumes made by
//! mke2fs ([`bases`]), and then have every checksum set right again ([`repair`]): what the engine sees is a
//! volume that is wrong, but well sealed, as an attacker would make it. [`walk`] does everything that reading
//! can do, and [`script`] everything that writing can
//! ([`written`] runs it).
//!
//! The targets themselves are [`targets`]. None of them needs a sanitizer: what is looked for are panics
//! (assertions and overflow checks are on), hangs, and amplification: memory and time out of proportion to the
//! input ([`measure`]). `cargo hunt fuzz` builds and runs them with libFuzzer, each as a program of its own.
//! Without the feature `libfuzzer`, which that sets, the program `fuzz` runs a target on the files it is given,
//! or for some seconds on changes to its kept inputs ([`smoke`], [`kept`]); the tests of this package do the
//! latter.

pub mod archive;
pub mod bases;
pub mod disks;
pub mod input;
pub mod kept;
pub mod measure;
pub mod patch;
pub mod repair;
pub mod requests;
pub mod script;
pub mod smoke;
pub mod targets;
pub mod tree;
pub mod walk;
pub mod written;
