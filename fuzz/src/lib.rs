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
//! xtask fuzz` builds and runs them. Without the feature `libfuzzer`, which that sets, a target runs the
//! files it is given and searches for nothing ([`target`]).

pub mod bases;
pub mod input;
pub mod patch;
pub mod repair;
pub mod requests;
pub mod script;
pub mod tree;
pub mod walk;

/// The body of a target: what it does with the bytes of one input.
#[cfg(feature = "libfuzzer")]
pub use libfuzzer_sys::fuzz_target as target;

/// The body of a target: what it does with the bytes of one input. The program does it with each file that
/// its command line names.
#[cfg(not(feature = "libfuzzer"))]
#[macro_export]
macro_rules! target {
    (|$bytes:ident: &[u8]| $body:expr) => {
        fn target($bytes: &[u8]) {
            $body
        }

        fn main() -> std::io::Result<()> {
            std::env::args_os().skip(1).try_for_each(|file| Ok(target(&std::fs::read(file)?)))
        }
    };
}
