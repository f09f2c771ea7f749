//! What the fuzz targets share.
//!
//! A fuzzer that flips bits of an image gets no further than the first checksum. So the targets that open a
//! whole volume take their input as a list of small changes ([`patch`]) to one of a few tiny volumes made by
//! mke2fs ([`bases`]), and then have every checksum set right again ([`repair`]): what the engine sees is a
//! volume that is wrong, but well sealed, as an attacker would make it. [`walk`] does everything that reading
//! can do, and [`script`] everything that writing can.
//!
//! The targets themselves are the programs in `src/bin`, one each. None of them needs a sanitizer: what is
//! looked for are panics (assertions and overflow checks are on), hangs, and memory without bound. `cargo
//! xtask fuzz` builds and runs them.

pub mod bases;
pub mod input;
pub mod patch;
pub mod repair;
pub mod requests;
pub mod script;
pub mod tree;
pub mod walk;
